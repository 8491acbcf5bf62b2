"""``facts`` and ``load``: facts out and in."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import polars as pl
import typer

from mnemes_lab.cli.base import (
    REFUSED_ROWS,
    Folder,
    Formatted,
    Output,
    RecordedAt,
    ValidAt,
    app,
    as_of,
    examples,
    opened,
)
from mnemes_lab.cli.output import Target, note, say, tell_rows
from mnemes_lab.cli.reading import LOADED, Kind, Rows, load, pairs, read_file
from mnemes_lab.errors import SchemaError
from mnemes_lab.mesh.mesh import Mesh
from mnemes_lab.schemas import OUTCOMES

_MOST_ROWS = 100  # of a table, which is for people
_MOST_REASONS = 20


def labelled(mesh: Mesh, frame: pl.DataFrame) -> pl.DataFrame:
    """The frame with `device`, the label of its `device_id`."""
    labels = mesh.devices().select("device_id", device="label")
    return frame.join(labels, on="device_id", how="left", maintain_order="left")


@app.command(
    "facts",
    epilog=examples(
        "mnemes-lab facts my-mesh",
        "mnemes-lab facts my-mesh --device van --format json",
        "mnemes-lab facts my-mesh --as-of-recorded 2031-06-11T09:30:00Z --output then.parquet",
    ),
)
def facts_command(
    folder: Folder,
    device: Annotated[
        str | None, typer.Option(help="Only this device, by label or id.", show_default=False)
    ] = None,
    valid: ValidAt = None,
    recorded: RecordedAt = None,
    limit: Annotated[
        int | None,
        typer.Option(min=1, help=f"Most rows. Default: {_MOST_ROWS} in a table, else all."),
    ] = None,
    format: Formatted = None,
    output: Output = None,
) -> None:
    """Show facts: every one with its status, or what a point in time shows.

    With --as-of-valid or --as-of-recorded only facts that were on record and current then are
    shown; one that another supersedes for some time only holds before and after it. A table cuts
    long texts; csv, json and parquet hold them whole.
    """
    target = Target.of(format, output)
    with opened(folder, read_only=True) as mesh:
        frame = mesh.facts(device=device, as_of=as_of(valid, recorded))
        most = limit or (_MOST_ROWS if target.for_people else frame.height)
        part = frame.head(most)
        columns = ["fact_id", "device", "namespace", "text", "status", "valid_from", "valid_to"]
        target.write(part, shown=labelled(mesh, part).select(columns))
    if part.height < frame.height:
        note(f"{part.height} of {frame.height} facts; --limit changes that")


@app.command(
    "load",
    epilog=examples(
        "mnemes-lab load my-mesh facts.csv",
        "mnemes-lab load my-mesh notes.jsonl --rename id=fact_id --rename body=text --ignore-extra",
        "mnemes-lab load my-mesh facts.parquet --answers answers.csv",
    ),
)
def load_command(
    folder: Folder,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="csv, jsonl, ndjson or parquet, by its ending.")
    ],
    format_in: Annotated[
        Kind | None, typer.Option("--format-in", help="What FILE holds, whatever its ending.")
    ] = None,
    rename: Annotated[
        list[str] | None,
        typer.Option("--rename", metavar="OLD=NEW", help="Read column OLD as NEW; repeatable."),
    ] = None,
    ignore_extra: Annotated[
        bool, typer.Option("--ignore-extra", help="Drop columns that a fact does not have.")
    ] = False,
    answers: Annotated[
        Path | None,
        typer.Option("--answers", metavar="FILE", help="Write what became of every row."),
    ] = None,
) -> None:
    """Store the facts of a file; a row that is refused never stops the others.

    Columns: device (a label, registered when new, or an id) and text; any of fact_id, namespace,
    subject, predicate, object, source, kind, sensitivity, observed_at, valid_from, valid_to,
    expires_at. An empty field of a csv is null. Rows count from 0.

    Leaves with 3 when rows were refused; their reasons go to standard error.
    """
    try:
        names = pairs(rename or [])
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--rename") from None
    told = None if answers is None else Target.of(None, answers)
    with opened(folder) as mesh:
        rows = read_file(file, format_in)
        rows.rename(names)
        if ignore_extra:
            rows.keep(LOADED)
        try:
            outcome = load(mesh, rows, progress=sys.stderr.isatty())
        except SchemaError:
            note("nothing was stored; --rename OLD=NEW and --ignore-extra fit columns to a fact")
            raise
    if told is not None:
        told.write(outcome)
    counts = dict(outcome["outcome"].value_counts().iter_rows())
    say(", ".join(f"{name} {counts.get(name, 0)}" for name in OUTCOMES))
    refused = outcome.filter(pl.col("outcome") == "refused")
    if refused.height:
        _tell(rows, refused)
        raise typer.Exit(REFUSED_ROWS)


def _tell(rows: Rows, refused: pl.DataFrame) -> None:
    lines = [
        f"refused: {rows.place(row)}: {reason}"
        for row, reason in refused.select("row", "reason").iter_rows()
    ]
    tell_rows(lines, most=_MOST_REASONS, what="refused; --answers FILE tells all")
