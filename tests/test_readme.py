"""The README's Python runs from top to bottom and gives what it says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).resolve().parent.parent / "README.md"
SHOWN = re.compile(r"^(\s*)(\S.*?)  # → (.*)$")


def blocks() -> list[str]:
    return re.findall(r"(?ms)^```python\n(.*?)^```", README.read_text(encoding="utf-8"))


def script(code: str) -> str:
    """The code with every `expression  # → value` turned into a comparison of the value's repr."""
    lines = ["def _shows(value, text):", "    assert repr(value) == text, (repr(value), text)"]
    for line in code.splitlines():
        match = SHOWN.match(line)
        lines.append(f"{match[1]}_shows({match[2]}, {match[3]!r})" if match else line)
    return "\n".join(lines) + "\n"


def run(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error::DeprecationWarning:__main__", "-c", script(code)]
    environment = os.environ | {"PYTHONPATH": str(README.parent)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


def test_every_block_runs_in_order(tmp_path):
    done = run("\n".join(blocks()), tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""


def test_the_first_screen_runs_twice(tmp_path):
    # A reader runs the first block again; the mesh is reopened and continues.
    for _ in range(2):
        done = run(blocks()[0].replace("seed=7", 'seed=7, encoder="hash"'), tmp_path)
        assert done.returncode == 0, done.stderr


def test_the_first_screen_is_short():
    lines = [line for line in blocks()[0].splitlines() if line.strip()]
    assert len(lines) <= 10
    assert lines[0] == "import mnemes_lab as ml"


@pytest.mark.parametrize(
    ("line", "passes"),
    [
        ("1 + 1  # → 2", True),
        ("1 + 1  # → 3", False),
        ("'a'  # → 'a'", True),
        ("x = 1  # one", True),
    ],
)
def test_shown_values_are_compared(tmp_path, line, passes):
    assert (run(line, tmp_path).returncode == 0) == passes
