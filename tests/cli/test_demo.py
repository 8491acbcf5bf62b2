"""The command `demo`: a report folder that is whole, repeatable and never in anybody's way."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

import mnemes_lab as ml
from mnemes_lab.cli import app
from mnemes_lab.errors import MissingExtraError
from mnemes_lab.view import charts


def demo(out: Path, *args: str, code: int = 0) -> tuple[str, str]:
    command = ["demo", "--encoder", "hash", "--out", str(out), *args]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == code, f"{result.stdout}\n{result.stderr}"
    return result.stdout, result.stderr


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    out = tmp_path_factory.mktemp("demo") / "report"
    return out, demo(out)[0]


def test_it_tells_the_story(made):
    out, told = made
    for part in ("Three itineraries", "Devices\n", "3 of 3", "over_budget", "refused: ", str(out)):
        assert part in told
    assert re.search(r"Receipt [0-9a-f]{8}-", told)


def test_it_writes_a_page_and_a_picture(made):
    out, _ = made
    assert sorted(path.name for path in out.iterdir()) == ["recall.png", "report.html"]
    page = (out / "report.html").read_text("utf-8")
    assert page.count("data:image/png;base64,") == 2
    assert "Renée Castellan" in page
    assert not re.search(r"https?:|<script|/tmp/|mnemes-demo-", page)
    assert (out / "recall.png").read_bytes().startswith(b"\x89PNG")


def test_a_second_run_writes_the_same_bytes_over_the_first(made):
    out, _ = made
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    demo(out)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


@pytest.mark.parametrize("content", ["letter.txt", "report.html"])
def test_a_folder_with_something_else_is_left_alone(tmp_path, content):
    (tmp_path / content).write_text("mine", encoding="utf-8")
    assert "holds no earlier report" in demo(tmp_path, code=1)[1]
    assert [path.name for path in tmp_path.iterdir()] == [content]
    assert (tmp_path / content).read_text("utf-8") == "mine"


def test_a_report_among_other_files_is_left_alone(made, tmp_path):
    (tmp_path / "report.html").write_bytes((made[0] / "report.html").read_bytes())
    (tmp_path / "notes.txt").write_text("mine", encoding="utf-8")
    assert "holds no earlier report" in demo(tmp_path, code=1)[1]


def test_a_file_in_the_way_is_an_error(tmp_path):
    (tmp_path / "out").write_text("mine", encoding="utf-8")
    assert "needs a folder" in demo(tmp_path / "out", code=1)[1]


def test_an_unknown_scenario_writes_nothing(tmp_path):
    assert "no such scenario" in demo(tmp_path / "out", "--scenario", "mars", code=1)[1]
    assert not (tmp_path / "out").exists()


def test_the_mesh_is_kept_when_asked_for(tmp_path):
    demo(tmp_path / "out", "--mesh", str(tmp_path / "mesh"), "--scenario", "news")
    with ml.Mesh.open(tmp_path / "mesh", read_only=True) as mesh:
        assert mesh.facts().height == 132
    demo(tmp_path / "out", "--mesh", str(tmp_path / "mesh"), "--scenario", "news")


def test_without_matplotlib_there_is_a_page_without_pictures(tmp_path, monkeypatch):
    def missing(*_: object, **__: object) -> None:
        raise MissingExtraError.of("A chart", "matplotlib", "lab")

    monkeypatch.setattr(charts, "plot_budget", missing)
    _, err = demo(tmp_path / "out")
    assert "mnemes-lab[lab]" in err
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["report.html"]
    assert "data:image" not in (tmp_path / "out" / "report.html").read_text("utf-8")


def test_without_the_sentence_encoder_there_is_a_notice(tmp_path, monkeypatch):
    monkeypatch.setattr("mnemes_lab.text.encode.installed", lambda _: False)
    result = CliRunner().invoke(app, ["demo", "--out", str(tmp_path / "out")])
    assert result.exit_code == 0
    assert "mnemes-lab[embed]" in result.stderr
    assert "(encoder hash)" in result.stdout
