"""environment.yml and pyproject.toml name the same packages with the same bounds."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENT = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[[^\]]*\])?\s*([<>=!~][^;]*)?")
# conda's name -> the name on the Python index
SAME = {"pytorch-cpu": "torch"}
# the name in an import statement -> the requirement that brings it
IMPORTED_AS = {
    "faiss": "faiss-cpu",
    "sklearn": "scikit-learn",
    "threadpoolctl": "scikit-learn",
    "transformers": "sentence-transformers",
    "huggingface_hub": "sentence-transformers",
}
NOT_PACKAGES = {"python", "pip", "mnemes-lab"}


def entry(text: str) -> tuple[str, str]:
    """Canonical name and bounds of one requirement of either file."""
    name, bounds = REQUIREMENT.match(text.split("::")[-1]).groups()
    name = re.sub(r"[-_.]+", "-", SAME.get(name, name)).lower()
    parts = sorted(part.strip() for part in (bounds or "").split(","))
    return name, ",".join(re.sub(r"^={1,2}(?=\d)", "==", part) for part in parts)


def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def wanted() -> dict[str, str]:
    """The core and every extra but dev."""
    extras = project()["optional-dependencies"]
    lists = [project()["dependencies"]]
    lists += [items for extra, items in extras.items() if extra not in ("dev", "all")]
    return dict(entry(item) for items in lists for item in items)


def conda() -> dict:
    return yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))


def offered() -> dict[str, str]:
    found = []
    for item in conda()["dependencies"]:
        found += item["pip"] if isinstance(item, dict) else [item]
    pairs = dict(entry(item) for item in found if not item.startswith("-"))
    return {name: bounds for name, bounds in pairs.items() if name not in NOT_PACKAGES}


def test_the_same_packages_with_the_same_bounds_both_ways():
    assert offered() == wanted()


def test_conda_installs_the_project_itself_last_and_from_one_channel():
    file = conda()
    assert file["channels"] == ["conda-forge", "nodefaults"]
    assert list(file["dependencies"][-1]) == ["pip"]
    assert file["dependencies"][-1]["pip"][-1] == "-e ."


def test_python_versions_agree():
    python = next(d for d in conda()["dependencies"] if str(d).startswith("python "))
    assert python == f"python {project()['requires-python']}"


def test_all_is_every_extra_but_dev():
    extras = project()["optional-dependencies"]
    (everything,) = extras["all"]
    names = re.fullmatch(r"mnemes-lab\[([a-z,]+)\]", everything)[1].split(",")
    assert sorted(names) == sorted(set(extras) - {"all", "dev"})


def test_every_core_dependency_says_why_it_is_there():
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for requirement in project()["dependencies"]:
        (line,) = [ln for ln in text.splitlines() if f'"{requirement}"' in ln]
        assert re.search(r"#\s+\w+", line), f"{requirement} has no reason beside it"


def test_everything_imported_is_declared():
    declared = wanted() | dict(entry(item) for item in project()["optional-dependencies"]["dev"])
    found = set()
    for path in (ROOT / "mnemes_lab").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module.partition(".")[0])
    foreign = found - set(sys.stdlib_module_names) - {"mnemes_lab"}
    names = {entry(IMPORTED_AS.get(name, name))[0] for name in foreign}
    assert sorted(names - set(declared)) == []


@pytest.mark.parametrize(
    ("text", "pair"),
    [
        ("polars >=2.0", ("polars", ">=2.0")),
        ("pyvis =0.3.2", ("pyvis", "==0.3.2")),
        ("pytorch-cpu >=2.6,<2.14", ("torch", "<2.14,>=2.6")),
        ("psycopg[binary]>=3.2", ("psycopg", ">=3.2")),
        ("Sentence_Transformers", ("sentence-transformers", "")),
    ],
)
def test_requirements_are_read(text, pair):
    assert entry(text) == pair
