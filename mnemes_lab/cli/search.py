"""``search`` and ``receipt``: questions, answers, and the proof of what was done."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import polars as pl
import typer

from mnemes_lab import schemas
from mnemes_lab.cli.base import (
    NOT_VERIFIED,
    Folder,
    Formatted,
    Output,
    Question,
    RecordedAt,
    ValidAt,
    app,
    as_of,
    examples,
    fail,
    opened,
)
from mnemes_lab.cli.facts import labelled
from mnemes_lab.cli.output import Target, note, say
from mnemes_lab.cli.reading import Rows, read_file
from mnemes_lab.errors import InputError, ReceiptError
from mnemes_lab.frames import read_records
from mnemes_lab.mesh.found import Found
from mnemes_lab.mesh.mesh import Mesh
from mnemes_lab.store.asof import AsOf
from mnemes_lab.view.plain import records

_MOST_RECEIPTS = 5


@app.command(
    "search",
    cls=Question,
    epilog=examples(
        'mnemes-lab search my-mesh "when does AA1234 leave?" -k 5 --budget 1',
        "mnemes-lab search my-mesh AA1234 --asker van --exhaustive --trace",
        "mnemes-lab search my-mesh --queries questions.csv --format json --output found.json",
        "mnemes-lab search my-mesh --exhaustive -- -KX",
    ),
)
def search_command(
    folder: Folder,
    query: Annotated[
        str | None,
        typer.Argument(
            metavar="QUERY",
            help="The question. One that starts with a dash goes after -- at the end.",
            show_default=False,
        ),
    ] = None,
    queries: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Many questions: text, and query_id and device_id (who asks) where known.",
        ),
    ] = None,
    asker: Annotated[str | None, typer.Option(help="The device that asks, by label or id.")] = None,
    k: Annotated[int, typer.Option("-k", help="Most hits per question.")] = 10,
    budget: Annotated[
        int | None, typer.Option(help="Most devices to ask, a hard cap. Default: 2.")
    ] = None,
    exhaustive: Annotated[bool, typer.Option("--exhaustive", help="Ask every device.")] = False,
    expand: Annotated[
        bool, typer.Option("--expand", help="Go past the budget while fewer than k are found.")
    ] = False,
    max_shards: Annotated[int | None, typer.Option(help="How far --expand may go.")] = None,
    router: Annotated[str, typer.Option(help="Who chooses the devices.")] = "overlap",
    namespace: Annotated[
        list[str] | None, typer.Option("--namespace", help="Only this namespace; repeatable.")
    ] = None,
    valid: ValidAt = None,
    recorded: RecordedAt = None,
    any_time: Annotated[
        bool, typer.Option("--any-time", help="Whether or not it holds in the world now.")
    ] = False,
    trace: Annotated[
        bool, typer.Option("--trace", help="Show which devices were asked and why.")
    ] = False,
    format: Formatted = None,
    output: Output = None,
) -> None:
    """Ask the devices that a router chooses, and merge their answers into one ranking.

    What is current is searched: a fact that does not hold now needs --any-time or a point in time.
    An empty question finds nothing.

    json holds hits, trace, receipts and whether the answer is complete; csv and parquet hold the
    hits, or with --trace the trace.
    """
    if (query is None) == (queries is None):
        raise typer.BadParameter("give either QUERY or --queries FILE")
    if any_time and valid is not None:
        raise typer.BadParameter("give either --any-time or --as-of-valid")
    target = Target.of(format, output)
    if target.for_people and target.file is not None and trace:
        raise typer.BadParameter("a file holds one table; json holds hits and trace")
    with opened(folder) as mesh:
        found = mesh.search(
            query if queries is None else _questions(read_file(queries)),
            asker=asker,
            k=k,
            budget=budget,
            router=router,
            exhaustive=exhaustive,
            as_of=AsOf(None, recorded) if any_time else as_of(valid, recorded),
            namespaces=namespace or None,
            expand=expand,
            max_shards=max_shards,
        )
        if target.format == "json":
            target.write_json(_everything(found))
        elif target.for_people:
            _show(mesh, found, target, trace=trace, many=queries is not None)
        else:
            target.write(found.trace if trace else found.hits)
    for line in _receipt_lines(found):
        (say if target.for_people else note)(line)
    if found.notice:
        note(f"notice: {found.notice}")


def _questions(rows: Rows) -> pl.DataFrame:
    """The `queries` frame of a file; questions without an id are numbered."""
    if rows.frame is not None:
        table = rows.frame
        if "query_id" not in table.columns:
            table = table.with_row_index("query_id").with_columns(
                pl.format("q{}", pl.col("query_id")).alias("query_id")
            )
        return table
    for i, record in enumerate(rows.records):
        record.setdefault("query_id", f"q{i}")
        if "text" in record and record["text"] is None:
            record["text"] = ""  # an empty field of a csv; blank questions find nothing
    bad = {rows.place(row): why for row, why in rows.bad.items()}
    table, unread = read_records(
        rows.records, schemas.dtypes(schemas.Queries), required=["query_id", "text"]
    )
    bad |= {rows.place(rows.at[i]): why for i, why in unread.items()}
    if bad:
        place, why = next(iter(bad.items()))
        raise InputError(
            f"{len(bad)} of {len(rows.lines)} questions cannot be read; {place}: {why}",
            hint="nothing was searched",
        )
    return table


def _everything(found: Found) -> dict[str, Any]:
    return {
        "hits": records(found.hits),
        "trace": records(found.trace),
        "receipts": [json.loads(receipt.to_json()) for receipt in found.receipts],
        "complete": found.complete,
    }


def _show(mesh: Mesh, found: Found, target: Target, *, trace: bool, many: bool) -> None:
    lead = ["query_id"] if many else []
    hits = labelled(mesh, found.hits).select(*lead, "rank", "score", "device", "text")
    target.write(hits)
    if trace:
        say("")
        columns = ["step", "device", "score", "selected", "reason", "results", "error"]
        target.write(labelled(mesh, found.trace).select(*lead, *columns), title="Trace")


def _receipt_lines(found: Found) -> list[str]:
    bodies = [receipt.body for receipt in found.receipts]
    if len(bodies) > _MOST_RECEIPTS:
        state = "all complete" if found.complete else "some incomplete"
        return [f"{len(bodies)} receipts, {state}; --format json holds them"]
    return [
        f"receipt {body.receipt_id}: {body.selected} of {len(body.ranked)} shards searched, "
        f"{'complete' if body.complete else 'incomplete'}"
        for body in bodies
    ]


@app.command(
    "receipt",
    epilog=examples(
        "mnemes-lab receipt my-mesh 11111111-1111-4111-8111-111111111111",
        'mnemes-lab receipt my-mesh 1111… --verify-query "when does AA1234 leave?"',
    ),
)
def receipt_command(
    folder: Folder,
    receipt_id: Annotated[
        str, typer.Argument(metavar="ID", help="Id of the receipt, as a search tells it.")
    ],
    verify_query: Annotated[
        str | None,
        typer.Option("--verify-query", metavar="TEXT", help="Check that this was the question."),
    ] = None,
) -> None:
    """Print a receipt and verify it: that this mesh wrote it and nobody changed it since.

    Its JSON goes to standard output, the verdict to standard error. Leaves with 4 when it does
    not verify, or was made for another question.
    """
    try:
        with opened(folder, read_only=True) as mesh:
            receipt = mesh.receipt(receipt_id)
            asked = verify_query is None or receipt.is_for(verify_query)
    except ReceiptError as error:
        fail(error, NOT_VERIFIED)
    typer.echo(receipt.to_json())
    sys.stdout.flush()
    if not asked:
        note("not verified: it was made for another question")
        raise typer.Exit(NOT_VERIFIED)
    note("verified" if verify_query is None else "verified, and made for this question")
