"""How frames leave the command line: table, csv, json or parquet; to the terminal or a file.

* json is a list of records, instants as RFC 3339 text.
* In csv, text that a spreadsheet would run as a formula gets a ``'`` before it.
* A table is for people: it leaves out columns without any value and cuts long texts.
* Text is never read as markup, and what a terminal would act on is shown as an escape.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, TextIO

import polars as pl
import typer

from mnemes_lab.view.plain import cell, json_text, records, visible, with_text_instants

MAX_CELL = 300  # characters of a text in a table
_WIDE = 100_000  # a file or a pipe has no right edge
_FORMULA = r"^([=+\-@\t\r])"


class Format(StrEnum):
    """How a frame is written."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"


@dataclass(frozen=True)
class Target:
    """Where frames go, and as what.

    Attributes:
        format: As what.
        file: Where to; None is standard output.
    """

    format: Format
    file: Path | None = None

    @classmethod
    def of(cls, format: Format | None, output: Path | None) -> Target:
        """The user's choice; without one, the file's ending decides, else it is a table.

        Raises:
            typer.BadParameter: Parquet without a file.
        """
        if format is None:
            ending = "" if output is None else output.suffix.lower().lstrip(".")
            format = Format(ending) if ending in list(Format) else Format.TABLE
        if format is Format.PARQUET and output is None:
            raise typer.BadParameter("parquet is binary and needs --output FILE")
        return cls(format, output)

    @property
    def for_people(self) -> bool:
        """Whether it is a table, so that remarks may stand beside it."""
        return self.format is Format.TABLE

    def write(
        self, frame: pl.DataFrame, *, shown: pl.DataFrame | None = None, title: str = ""
    ) -> None:
        """Write a frame; `shown` is what people see of it in a table."""
        if self.format is Format.PARQUET:
            assert self.file is not None  # `of` made sure
            with self.file.open("wb") as file:
                frame.write_parquet(file)
        elif self.format is Format.TABLE:
            self._text(table_text, frame if shown is None else shown, title)
        elif self.format is Format.JSON:
            self.write_json(records(frame))
        else:
            self._text(lambda stream, part: _csv(stream, part), frame)

    def write_json(self, value: Any) -> None:
        """Write any plain value as JSON."""
        self._text(lambda stream, out: stream.write(json_text(out, indent=1) + "\n"), value)

    def _text(self, write: Any, *what: Any) -> None:
        if self.file is None:
            write(sys.stdout, *what)
            sys.stdout.flush()
        else:
            with self.file.open("w", encoding="utf-8", newline="") as stream:
                write(stream, *what)


def table_text(stream: TextIO, frame: pl.DataFrame, title: str = "") -> None:
    """Write a frame as a table of text that nothing in it can act on."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    width = None if stream.isatty() else _WIDE
    console = Console(file=stream, width=width, highlight=False, markup=False, emoji=False)
    if title:
        console.print(Text(visible(title), "bold"))
    if frame.is_empty():
        console.print(Text("(no rows)", "dim"))
        return
    kept = [name for name in frame.columns if frame[name].null_count() < frame.height]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name in kept:
        right = frame.schema[name].is_numeric()
        table.add_column(Text(visible(name)), justify="right" if right else "left", overflow="fold")
    for row in frame.select(kept).iter_rows():
        table.add_row(*(Text(cell(value, limit=MAX_CELL)) for value in row))
    console.print(table)


def _csv(stream: TextIO, frame: pl.DataFrame) -> None:
    text = csv_text(frame)
    if stream.isatty():  # a file or a pipe gets the bytes as stored
        text = "\n".join(visible(line) for line in text.split("\n"))
    stream.write(text)


def csv_text(frame: pl.DataFrame) -> str:
    """A frame as CSV that no spreadsheet runs.

    Example:
        >>> print(csv_text(pl.DataFrame({"text": ["=cmd()", "a,b"], "score": [-1.5, None]})))
        text,score
        '=cmd(),-1.5
        "a,b",
    """
    plain = with_text_instants(frame).with_columns(pl.col(pl.Enum, pl.Categorical).cast(pl.String))
    lists = [name for name, dtype in plain.schema.items() if isinstance(dtype, pl.List)]
    plain = plain.with_columns(
        pl.Series(name, [_joined(value) for value in plain[name].to_list()], dtype=pl.String)
        for name in lists
    )
    safe = plain.with_columns(pl.col(pl.String).str.replace(_FORMULA, "'${1}"))
    return safe.write_csv()


def _joined(value: list[Any] | None) -> str | None:
    return None if value is None else json_text(value)


def say(text: str) -> None:
    """A remark on standard output."""
    typer.echo(visible(text))


def note(text: str) -> None:
    """A remark on standard error, so that data stays data."""
    typer.echo(visible(text), err=True)


def tell_rows(lines: Sequence[str], *, most: int, what: str) -> None:
    """Notes for at most `most` rows, and how many more there are."""
    for line in lines[:most]:
        note(line)
    if len(lines) > most:
        note(f"and {len(lines) - most} more {what}")
