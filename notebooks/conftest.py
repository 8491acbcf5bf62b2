"""Notebook tests: what nbval compares, and a hygiene check that nbval itself does not make.

A cell without an execution count is never compared, and nbval still reports it as passed. So a
notebook that was stripped, run out of order, grew large or stores widget state is refused.
"""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest

NOT_COMPARED = ("text/html", "image/svg+xml", "stderr")  # text/plain and stdout stay compared
MAX_KB = 300
HINT = "Hint: python notebooks/run.py"


def pytest_collectstart(collector: pytest.Collector) -> None:
    skip = getattr(collector, "skip_compare", None)  # only nbval's notebooks have it
    if skip is not None:
        collector.skip_compare = (*skip, *NOT_COMPARED)


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    config = parent.config
    nbval = config.getoption("nbval", False) or config.getoption("nbval_lax", False)
    if nbval and file_path.suffix == ".ipynb":
        return Hygiene.from_parent(parent, path=file_path)
    return None


def problems(path: Path) -> list[str]:
    """Everything that would make a passing run of this notebook meaningless."""
    notebook = nbformat.read(path, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code" and cell.source.strip()]
    counts = [cell.execution_count for cell in code]
    found = []
    if None in counts:
        found.append("has cells that were never run, so nothing would be compared")
    elif counts != list(range(1, len(counts) + 1)):
        found.append(f"was not run from top to bottom: {counts}")
    if any(out.output_type == "error" for cell in code for out in cell.outputs):
        found.append("stores an error")
    if path.stat().st_size > MAX_KB * 1000:
        found.append(f"is {path.stat().st_size // 1000} kB, the limit is {MAX_KB}")
    if "widgets" in notebook.metadata:
        found.append("stores widget state")
    return found


class Hygiene(pytest.File):
    def collect(self):
        yield HygieneItem.from_parent(self, name="hygiene")


class HygieneItem(pytest.Item):
    def runtest(self) -> None:
        found = problems(self.path)
        if found:
            raise AssertionError(f"{self.path.name}: {'; '.join(found)}. {HINT}")

    def repr_failure(self, excinfo, style=None):
        if isinstance(excinfo.value, AssertionError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self):
        return self.path, 0, f"{self.path.name}: hygiene"
