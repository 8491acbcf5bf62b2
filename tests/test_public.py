"""The public face: small, documented, and with the names promised to users."""

from __future__ import annotations

import inspect
import re
import tomllib
from pathlib import Path

import pytest
import yaml

import mnemes_lab as ml

ROOT = Path(__file__).resolve().parent.parent
PROMISED = [
    "AsOf",
    "Mesh",
    "errors",
    "load_scenario",
    "make_workload",
    "merge_hits",
    "rank_shards",
    "schemas",
]


def test_the_face_is_small_and_sorted():
    assert len(ml.__all__) <= 30
    assert len(set(ml.__all__)) == len(ml.__all__)
    assert list(ml.__all__) == sorted(ml.__all__)


@pytest.mark.parametrize("name", ml.__all__)
def test_every_public_name_is_there_and_documented(name):
    thing = getattr(ml, name)
    if name != "__version__":
        assert inspect.getdoc(thing), f"{name} has no docstring"


@pytest.mark.parametrize("name", PROMISED)
def test_promised_names_exist(name):
    assert name in ml.__all__


@pytest.mark.parametrize("name", [n for n in ml.__all__ if inspect.isfunction(getattr(ml, n))])
def test_every_public_function_shows_an_example(name):
    assert ">>>" in (inspect.getdoc(getattr(ml, name)) or "")


def test_dir_shows_every_public_name():
    assert set(ml.__all__) <= set(dir(ml))


def test_the_version_is_kept_in_one_place():
    assert re.fullmatch(r"\d+\.\d+\.\d+", ml.__version__)
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert settings["project"]["dynamic"] == ["version"]
    assert settings["tool"]["hatch"]["version"]["path"] == "mnemes_lab/__init__.py"


def test_other_files_that_name_the_version_agree():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert cited["version"] == ml.__version__
    assert re.search(r"^## \[(\d[^]]*)\]", changes, re.M)[1] == ml.__version__


@pytest.mark.parametrize(
    ("method", "defaults"),
    [
        ("open", {"seed": None, "encoder": None}),
        (
            "search",
            {
                "k": 10,
                "budget": None,
                "router": "overlap",
                "exhaustive": False,
                "as_of": None,
                "namespaces": None,
            },
        ),
    ],
)
def test_promised_arguments_have_their_defaults(method, defaults):
    parameters = inspect.signature(getattr(ml.Mesh, method)).parameters
    assert {name: parameters[name].default for name in defaults} == defaults
    assert all(parameters[name].kind is inspect.Parameter.KEYWORD_ONLY for name in defaults)


@pytest.mark.parametrize(
    "method",
    ["open", "device", "agent", "load", "search", "facts", "devices", "actors", "catalogue"],
)
def test_promised_methods_exist_and_are_documented(method):
    assert inspect.getdoc(getattr(ml.Mesh, method))


def test_a_mesh_is_a_context_manager():
    assert hasattr(ml.Mesh, "__enter__")
    assert hasattr(ml.Mesh, "__exit__")


def test_a_name_that_is_not_public_says_so():
    with pytest.raises(AttributeError, match="no_such_name"):
        ml.no_such_name  # noqa: B018
