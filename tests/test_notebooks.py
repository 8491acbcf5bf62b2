"""The tools around the notebooks: the hygiene check, the runner, the sanitizer."""

from __future__ import annotations

import importlib.util
import inspect
import json
import os
import re
from pathlib import Path
from types import ModuleType

import nbformat
import pytest
from nbformat import v4

ROOT = Path(__file__).resolve().parent.parent


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"tool_{path.stem}_{path.parent.name}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


hygiene = load(ROOT / "notebooks" / "conftest.py")
runner = load(ROOT / "notebooks" / "run.py")


def notebook(folder: Path, sources: list[str], counts: list[int | None]) -> Path:
    cells = [
        v4.new_code_cell(source, execution_count=count, id=f"cell-{i}")
        for i, (source, count) in enumerate(zip(sources, counts, strict=True))
    ]
    path = folder / "a.ipynb"
    nbformat.write(v4.new_notebook(cells=[v4.new_markdown_cell("# A", id="top"), *cells]), path)
    return path


@pytest.mark.parametrize(
    ("counts", "why"),
    [
        ([1, 2], None),
        ([None, None], "never run"),
        ([1, None], "never run"),
        ([2, 1], "top to bottom"),
        ([1, 3], "top to bottom"),
        ([5, 6], "top to bottom"),
    ],
)
def test_execution_counts(tmp_path, counts, why):
    found = hygiene.problems(notebook(tmp_path, ["1", "2"], counts))
    assert found == [] if why is None else why in found[0]


def test_empty_cells_do_not_count(tmp_path):
    assert hygiene.problems(notebook(tmp_path, ["1", "  ", "2"], [1, None, 2])) == []


def test_large_files_widget_state_and_errors_are_refused(tmp_path):
    path = notebook(tmp_path, ["1"], [1])
    content = json.loads(path.read_text(encoding="utf-8"))
    content["metadata"]["widgets"] = {"state": "x" * 400_000}
    content["cells"][1]["outputs"] = [
        {"output_type": "error", "ename": "E", "evalue": "e", "traceback": []}
    ]
    path.write_text(json.dumps(content), encoding="utf-8")
    found = "; ".join(hygiene.problems(path))
    assert all(why in found for why in ("stores an error", "the limit is 300", "widget state"))


def test_running_twice_leaves_the_same_bytes(tmp_path):
    code = "import os\nsorted({'b', 'a'}), os.environ['MNEMES_STATIC'], hash('x')"
    path = notebook(tmp_path, [code, "1 + 1"], [None, 7])
    runner.run(path)
    first = path.read_bytes()
    runner.run(path)
    assert path.read_bytes() == first
    assert hygiene.problems(path) == []
    assert b"execution" not in first.replace(b"execution_count", b"")


def test_a_failing_notebook_stops_and_is_left_alone(tmp_path):
    path = notebook(tmp_path, ["1 / 0"], [None])
    before = path.read_bytes()
    with pytest.raises(Exception, match="ZeroDivisionError"):
        runner.run(path)
    assert path.read_bytes() == before


def test_runner_and_tests_share_one_environment():
    assert load(ROOT / "conftest.py").ENVIRONMENT == runner.ENVIRONMENT


def rules() -> list[tuple[str, str]]:
    text = (ROOT / "notebooks" / "sanitize.cfg").read_bytes().decode("ascii")
    return re.findall(r"(?m)^regex: (.*)\nreplace: (.*)$", text)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("<A object at 0x7f3a00112233>", "<A object at 0x7f3a99887766>"),
        ("took 12.5 ms", "took 3 ms"),
        ("in /tmp/abc123/mesh", "in /tmp/zz9/other"),
        ("T_1a2b3 row0", "T_fffff row0"),
    ],
)
def test_what_means_nothing_is_not_compared(one, other):
    for pattern, replacement in rules():
        one, other = re.sub(pattern, replacement, one), re.sub(pattern, replacement, other)
    assert one == other


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("recall 0.91", "recall 0.92"),
        ("2031-06-22 12:00:00 UTC", "2031-06-22 13:00:00 UTC"),
        ("92acf840-a321-43b9-ae95-88de6f281da7", "23494871-5e40-479b-a673-aef5fb1abfc7"),
        ("5 hits", "6 hits"),
    ],
)
def test_what_means_something_is_compared(one, other):
    for pattern, replacement in rules():
        one, other = re.sub(pattern, replacement, one), re.sub(pattern, replacement, other)
    assert one != other


# --- the notebooks themselves ----------------------------------------------------------------
NOTEBOOKS = sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))
each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def cells_of(path: Path, kind: str = "") -> list[nbformat.NotebookNode]:
    cells = nbformat.read(path, as_version=4).cells
    return [cell for cell in cells if kind in ("", cell.cell_type)]


def tags(cell: nbformat.NotebookNode) -> list[str]:
    return cell.metadata.get("tags", [])


def lines(cell: nbformat.NotebookNode) -> list[str]:
    return [line for line in cell.source.splitlines() if line.strip()]


def shown(cell: nbformat.NotebookNode) -> str:
    """The text a cell printed or displayed; of a picture, its name."""
    outputs = [
        out.get("text", "") or out.get("data", {}).get("text/plain", "") for out in cell.outputs
    ]
    return "".join(outputs)


@pytest.fixture
def importable(monkeypatch):
    """Kernels find the package also where it is not installed."""
    before = os.environ.get("PYTHONPATH")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), *([before] if before else [])]))


def test_there_are_notebooks_and_each_has_solutions():
    assert len(NOTEBOOKS) >= 5
    solved = sorted((ROOT / "notebooks" / "solutions").glob("*.py"))
    assert [path.stem for path in solved] == [path.stem for path in NOTEBOOKS]


def test_all_notebooks_begin_with_the_same_code():
    assert len({cells_of(path, "code")[0].source for path in NOTEBOOKS}) == 1
    assert all(shown(cells_of(path, "code")[0]) == "" for path in NOTEBOOKS)


@each_notebook
def test_a_notebook_is_short_and_says_what_it_needs(path):
    cells = cells_of(path)
    assert 15 <= len(cells) <= 30
    assert [
        cell.source for cell in cells if len(lines(cell)) > 12 and cell.cell_type == "code"
    ] == []
    first = cells[0].source
    assert first.startswith("# ") and "?**" in first
    assert "minutes" in first and "Needs" in first and "Works offline" in first
    assert "What next" in cells[-2].source and "nbval-ignore-output" in tags(cells[-1])


@each_notebook
def test_every_output_is_compared_and_every_claim_has_an_assert(path):
    for cell in cells_of(path, "code"):
        picture = "image/png" in str(cell.outputs)
        known = {"nbval-check-output", "nbval-ignore-output"} & set(tags(cell))
        assert known or picture or not cell.outputs, cell.source
        if "nbval-check-output" in tags(cell) and "not answered yet" not in cell.source:
            assert "assert " in cell.source, cell.source


@each_notebook
def test_outputs_are_small_and_hold_no_paths_and_no_warnings(path):
    for cell in cells_of(path, "code"):
        assert len(shown(cell).splitlines()) <= 15, cell.source
        assert not re.search(r"[/\\](tmp|home|Users|var|work)\b|Warning|0x[0-9a-f]{6}", shown(cell))
        assert all(out.get("name") != "stderr" for out in cell.outputs), cell.source


@each_notebook
def test_links_lead_somewhere(path):
    for cell in cells_of(path, "markdown"):
        for target in re.findall(r"\]\(([^)#:]+)\)", cell.source):
            assert (path.parent / target).is_file(), target


@each_notebook
def test_unsolved_exercises_pass_and_say_so(path):
    code = cells_of(path, "code")
    at = [i for i, cell in enumerate(code) if "exercise" in tags(cell)]
    assert at
    for i in at:
        assert code[i].source.endswith("answer = ...")
        assert shown(code[i + 1]) == "not answered yet\n"


def solved(path: Path) -> nbformat.NotebookNode:
    """The notebook with the call of a solution in place of each `answer = ...`."""
    notebook = nbformat.read(path, as_version=4)
    file = path.parent / "solutions" / f"{path.stem}.py"
    functions = {n: f for n, f in vars(load(file)).items() if n.startswith("exercise_")}
    exercises = [cell for cell in notebook.cells if "exercise" in tags(cell)]
    assert sorted(functions) == [f"exercise_{n}" for n in range(1, len(exercises) + 1)]
    for cell, name in zip(exercises, sorted(functions), strict=True):
        wanted = ", ".join(inspect.signature(functions[name]).parameters)
        cell.source = f"import runpy\nanswer = runpy.run_path({str(file)!r})[{name!r}]({wanted})"
    return notebook


@each_notebook
def test_solutions_are_right_and_the_hash_seed_moves_nothing(
    path, tmp_path, importable, monkeypatch
):
    monkeypatch.setenv("PYTHONHASHSEED", "1")
    copy = tmp_path / path.name
    nbformat.write(solved(path), copy)
    runner.run(copy)
    before, after = cells_of(path, "code"), cells_of(copy, "code")
    checks = [i + 1 for i, cell in enumerate(before) if "exercise" in tags(cell)]
    assert [shown(after[i]) for i in checks] == ["right\n"] * len(checks)
    for i, (kept, now) in enumerate(zip(before, after, strict=True)):
        if "nbval-check-output" in tags(kept) and i not in checks:
            assert shown(now) == shown(kept), kept.source


def test_a_rerun_of_a_notebook_leaves_the_same_bytes(tmp_path, importable, monkeypatch):
    # The hash seed differs too: nothing on the page may depend on the order of a set.
    copy = tmp_path / NOTEBOOKS[0].name
    copy.write_bytes(NOTEBOOKS[0].read_bytes())
    runner.run(copy)
    first = copy.read_bytes()
    monkeypatch.setenv("PYTHONHASHSEED", "1")
    runner.run(copy)
    assert copy.read_bytes() == first
