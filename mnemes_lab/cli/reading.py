"""Tables from files: csv, JSON lines and Parquet, one row at a time where the format allows it.

A line that cannot be read is a refused row with a reason; the rows around it are kept. Texts stay
as they are: nothing is trimmed, guessed or converted.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import polars as pl

from mnemes_lab import schemas
from mnemes_lab.errors import InputError, SchemaError
from mnemes_lab.mesh.mesh import Mesh
from mnemes_lab.store.rules import INPUT, MAX_TEXT_BYTES

LOADED = ("device", *(name for name in INPUT if name != "device_id"))
_BOM = b"\xef\xbb\xbf"


class Kind(StrEnum):
    """What a file holds."""

    CSV = "csv"
    JSONL = "jsonl"
    PARQUET = "parquet"


_ENDINGS = {
    "csv": Kind.CSV,
    "jsonl": Kind.JSONL,
    "ndjson": Kind.JSONL,
    "parquet": Kind.PARQUET,
    "pq": Kind.PARQUET,
}


@dataclass
class Rows:
    """What a file holds, row by row.

    Attributes:
        records: Readable rows of a text file.
        at: Row of each record, from 0, unreadable rows counted.
        lines: Line on which each row begins, from 1; empty for Parquet.
        bad: Why a row is refused.
        frame: The table of a Parquet file, instead of records.
    """

    records: list[dict[str, Any]] = field(default_factory=list)
    at: list[int] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    bad: dict[int, str] = field(default_factory=dict)
    frame: pl.DataFrame | None = None

    def columns(self) -> list[str]:
        """Every column that occurs."""
        if self.frame is not None:
            return self.frame.columns
        return list(dict.fromkeys(name for record in self.records for name in record))

    def rename(self, names: Mapping[str, str]) -> None:
        """Give columns other names.

        Raises:
            SchemaError: no row has such a column, or the new name is taken.
        """
        have = self.columns()
        missing = sorted(set(names) - set(have))
        if missing and (self.frame is not None or self.records):
            raise SchemaError(f"No column to rename: {missing}.", hint=f"the file has {have}")
        after = [names.get(name, name) for name in have]
        twice = sorted({name for name in after if after.count(name) > 1})
        if twice:
            raise SchemaError(f"Renaming would give two columns one name: {twice}.")
        if self.frame is not None:
            self.frame = self.frame.rename(dict(names))
        self.records = [
            {names.get(name, name): value for name, value in record.items()}
            for record in self.records
        ]

    def keep(self, known: Sequence[str]) -> None:
        """Drop every column that is not known."""
        if self.frame is not None:
            self.frame = self.frame.select([n for n in self.frame.columns if n in known])
        self.records = [
            {name: value for name, value in record.items() if name in known}
            for record in self.records
        ]

    def refuse_strangers(self, known: Sequence[str]) -> None:
        """Refuse the rows that alone have an unknown column.

        Where every row has one, the file has another shape, and whoever reads on says so.
        """
        strange = [sorted(set(record) - set(known)) for record in self.records]
        if all(strange):
            return
        for row, names in zip(self.at, strange, strict=True):
            if names:
                hint = "Hint: --ignore-extra drops them"
                self.bad[row] = f"unknown column(s) {names}. {hint}"
        kept = [i for i, names in enumerate(strange) if not names]
        self.records = [self.records[i] for i in kept]
        self.at = [self.at[i] for i in kept]

    def place(self, row: int) -> str:
        """Where a row stands, for people."""
        return f"row {row} (line {self.lines[row]})" if self.lines else f"row {row}"


def kind_of(path: Path, forced: Kind | None) -> Kind:
    """What a file holds, by its ending unless forced.

    Raises:
        InputError: an ending that says nothing.
    """
    kind = forced or _ENDINGS.get(path.suffix.lower().lstrip("."))
    if kind is None:
        raise InputError(
            "The file's ending does not say what it holds.",
            found=path.name,
            hint=f"known are {sorted(_ENDINGS)}; --format-in says it",
        )
    return kind


def read_file(path: Path, forced: Kind | None = None) -> Rows:
    """Read a file.

    Raises:
        InputError: it cannot be read at all.
    """
    kind = kind_of(path, forced)
    read = {Kind.CSV: _read_csv, Kind.JSONL: _read_jsonl, Kind.PARQUET: _read_parquet}[kind]
    try:
        return read(path)
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise InputError(f"The file cannot be read: {why}.", found=str(path)) from None


# --- JSON lines ------------------------------------------------------------------------------
def _read_jsonl(path: Path) -> Rows:
    rows = Rows()
    with path.open("rb") as file:
        for number, raw in enumerate(file, 1):
            line = raw.removeprefix(_BOM) if number == 1 else raw
            if line.strip():
                _add(rows, number, partial(_record, line))
    return rows


def _add(rows: Rows, line: int, read: Callable[[], dict[str, Any]]) -> None:
    row = len(rows.lines)
    rows.lines.append(line)
    try:
        record = read()
    except (ValueError, RecursionError) as error:
        rows.bad[row] = str(error)
    else:
        rows.records.append(record)
        rows.at.append(row)


def _record(line: bytes) -> dict[str, Any]:
    try:
        value = json.loads(
            line.decode("utf-8"), object_pairs_hook=_once, parse_constant=_no_constant
        )
    except UnicodeDecodeError as error:
        raise ValueError(f"is not UTF-8 at byte {error.start}") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"is not JSON: {error.msg} at character {error.pos}") from None
    except RecursionError:
        raise ValueError("is not JSON that can be read: nested without end") from None
    if not isinstance(value, dict):
        raise ValueError("is not a JSON object")
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) < len(pairs):
        names = [name for name, _ in pairs]
        twice = sorted({name for name in names if names.count(name) > 1})
        raise ValueError(f"names a key twice: {twice}")
    return out


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"is not JSON: holds {text}")


# --- csv -------------------------------------------------------------------------------------
def _read_csv(path: Path) -> Rows:
    rows, before = Rows(), csv.field_size_limit()
    csv.field_size_limit(2 * MAX_TEXT_BYTES)  # beyond that an open quote swallows the file
    try:
        # A byte that is not UTF-8 becomes half a character, which the mesh refuses by row.
        with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
            reader = csv.reader(file, strict=True)
            header = _header(reader)
            for line, values in _lines(reader):
                _add(rows, line, partial(_named, header, values))
    finally:
        csv.field_size_limit(before)
    return rows


def _header(reader: Iterator[list[str]]) -> list[str]:
    try:
        header = next(reader)
    except StopIteration:
        raise InputError(
            "The file is empty.", hint="the first line of a csv names its columns"
        ) from None
    except csv.Error as error:
        raise InputError(f"The first line names no columns: {error}.") from None
    twice = sorted({name for name in header if header.count(name) > 1})
    if twice:
        raise SchemaError(f"A column name appears twice: {twice}.")
    return header


def _lines(reader: Any) -> Iterator[tuple[int, list[str] | str]]:
    """First line and fields of each row, or what is wrong with it."""
    while True:
        line = reader.line_num + 1
        try:
            values = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield line, f"is not csv: {error}"
        else:
            if values:
                yield line, values


def _named(header: list[str], values: list[str] | str) -> dict[str, Any]:
    if isinstance(values, str):
        raise ValueError(values)
    if len(values) != len(header):
        raise ValueError(f"has {len(values)} fields, the first line names {len(header)}")
    return {name: value or None for name, value in zip(header, values, strict=True)}


# --- Parquet ---------------------------------------------------------------------------------
def _read_parquet(path: Path) -> Rows:
    with path.open("rb") as file:  # the system's own words for a missing file
        try:
            return Rows(frame=pl.read_parquet(file))
        except (pl.exceptions.PolarsError, ValueError) as error:
            why = str(error).splitlines()[0]
            raise InputError(f"The file is not Parquet that can be read: {why}.") from None


# --- into a mesh -----------------------------------------------------------------------------
def load(mesh: Mesh, rows: Rows, *, progress: bool = False) -> pl.DataFrame:
    """Store rows; the `answers` frame counts unreadable rows too, each refused with its reason.

    Raises:
        MissingColumnError, SchemaError: the file has another shape; nothing was stored.
    """
    if rows.frame is not None:
        return pl.DataFrame(mesh.load(rows.frame, progress=progress))
    rows.refuse_strangers(LOADED)
    answers = schemas.empty(schemas.Answers)
    if rows.records:
        answers = mesh.load_records(rows.records, progress=progress)
        answers = answers.with_columns(pl.Series("row", rows.at, dtype=pl.Int64))
    refused = pl.DataFrame(
        [
            {"row": row, "outcome": "refused", "fact_id": None, "device_id": None, "reason": why}
            for row, why in rows.bad.items()
        ],
        schema=schemas.dtypes(schemas.Answers),
    )
    return pl.concat([answers, refused]).sort("row")


def pairs(texts: Sequence[str]) -> dict[str, str]:
    """Column mappings ``old=new`` of the command line.

    Raises:
        ValueError: a text of another form, or a column that is mapped twice.

    Example:
        >>> pairs(["id=fact_id", "body=text"])
        {'id': 'fact_id', 'body': 'text'}
    """
    out: dict[str, str] = {}
    for text in texts:
        old, equals, new = text.partition("=")
        if not (old and equals and new):
            raise ValueError(f"{text!r} is not of the form old=new")
        if old in out:
            raise ValueError(f"{old!r} is renamed twice")
        out[old] = new
    return out
