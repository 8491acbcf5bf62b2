"""The tools around the notebooks: the hygiene check, the runner, the sanitizer."""

from __future__ import annotations

import importlib.util
import json
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
