"""Documentation names only what exists, and the table of frames is the schemas'.

Run as a script to write the table of frames in docs/design.md anew.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import mnemes_lab as ml
from mnemes_lab import schemas

ROOT = Path(__file__).resolve().parent.parent
DESIGN = ROOT / "docs" / "design.md"
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
BEGIN, END = "<!-- frames: begin -->", "<!-- frames: end -->"


def frames_table() -> str:
    """Every public frame: key, and the other columns with ? where null is allowed."""
    lines = ["| frame | key | columns beyond the key |", "|---|---|---|"]
    for name, schema in schemas.PUBLIC.items():
        keys = schema.primary_key()
        rest = [
            f"{column}?" if spec.nullable else column
            for column, spec in schema.columns().items()
            if column not in keys
        ]
        lines.append(f"| {name} | {', '.join(keys)} | {', '.join(rest)} |")
    return "\n".join(lines)


def commands() -> set[str]:
    import typer

    from mnemes_lab import cli

    (app,) = [thing for thing in vars(cli).values() if isinstance(thing, typer.Typer)]
    return set(typer.main.get_command(app).commands)


def named(pattern: str) -> set[str]:
    return {
        name for page in PAGES for name in re.findall(pattern, page.read_text(encoding="utf-8"))
    }


def test_the_table_of_frames_is_the_schemas():
    text = DESIGN.read_text(encoding="utf-8")
    shown = text.split(BEGIN)[1].split(END)[0].strip()
    assert shown == frames_table(), "Hint: python tests/test_docs.py"


def test_frames_named_in_text_exist():
    assert named(r"`(\w+)` frame\b") <= set(schemas.PUBLIC)


def test_public_names_in_text_exist():
    assert named(r"\bml\.([A-Za-z]\w*)") <= set(ml.__all__)
    missing = {name for name in named(r"\bmesh\.([a-z]\w*)\(") if not hasattr(ml.Mesh, name)}
    assert missing == set()


def test_commands_in_text_exist():
    assert named(r"(?m)^\s*(?:\$ )?mnemes-lab ([a-z][\w-]*)") <= commands()
    assert named(r"`mnemes-lab ([a-z][\w-]*)") <= commands()


def test_every_command_is_in_the_readme():
    shown = set(re.findall(r"`mnemes-lab ([a-z][\w-]*)", (ROOT / "README.md").read_text("utf-8")))
    assert shown == commands()


def test_every_room_is_in_the_design():
    package = ROOT / "mnemes_lab"
    rooms = {path.stem for path in package.glob("*.py") if path.stem != "__init__"}
    rooms |= {path.parent.name for path in package.glob("*/__init__.py")}
    shown = set(re.findall(r"(?m)^\| `(\w+)` \|", DESIGN.read_text(encoding="utf-8")))
    assert shown == rooms


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_named_in_text_exist(page):
    text = page.read_text(encoding="utf-8")
    paths = set(re.findall(r"`((?:docs|notebooks|tests|data|\.ci)/[\w./-]+)`", text))
    paths |= set(re.findall(r"`(\w[\w.-]*\.(?:md|yml|cff|toml))`", text))
    paths |= set(re.findall(r"python ((?:notebooks|tests)/[\w./-]+\.py)", text))
    assert [path for path in sorted(paths) if not (ROOT / path).exists()] == []


if __name__ == "__main__":
    before, rest = DESIGN.read_text(encoding="utf-8").split(BEGIN)
    after = rest.split(END)[1]
    DESIGN.write_text(f"{before}{BEGIN}\n{frames_table()}\n{END}{after}", encoding="utf-8")
