"""``lineage``, ``operations``, ``edges`` and ``redact``: where facts come from, and their end."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Annotated, Any

import polars as pl
import typer

from mnemes_lab import schemas
from mnemes_lab.cli.base import (
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
from mnemes_lab.cli.facts import labelled
from mnemes_lab.cli.output import Target, note, say
from mnemes_lab.frames import whole_text
from mnemes_lab.ids import ItemRef
from mnemes_lab.store.lineage import MAX_LIMIT, Lineage
from mnemes_lab.view.plain import records

_MOST_ROWS = 100  # of a table, which is for people
_MOST_EDGES = 10_000
ALL_EDGES = MAX_LIMIT
_DEEPEST = 20  # steps that a tree indents; the column `depth` goes on


class Direction(StrEnum):
    """Which way a lineage goes."""

    BOTH = "both"
    OUTGOING = "outgoing"
    INCOMING = "incoming"


Depth = Annotated[str, typer.Option(metavar="N|all", help="Most steps from the item.")]
Limit = Annotated[
    int | None,
    typer.Option(min=1, help=f"Most rows. Default: {_MOST_ROWS} in a table, else all."),
]


def item_of(text: str) -> ItemRef:
    """An item as it is typed: kind:id, or the bare id of a fact.

    Example:
        >>> item_of("f-1").key, item_of("actor:a-1").key
        ('fact:f-1', 'actor:a-1')
    """
    return ItemRef.parse(whole_text(text if ":" in text else f"fact:{text}"))


def _key_of(text: str | None) -> str | None:
    return None if text is None else item_of(text).key


def steps(depth: str) -> int | None:
    """A depth as it is typed.

    Raises:
        typer.BadParameter: neither a number nor all.
    """
    if depth == "all":
        return None
    if not re.fullmatch("[0-9]{1,9}", depth):
        raise typer.BadParameter("give a number of steps or all", param_hint="--depth")
    return int(depth)


def _one_of(values: Sequence[str], known: Sequence[str], option: str) -> None:
    for value in values:
        if value not in known:
            raise typer.BadParameter(f"{value!r} is not one of {known}", param_hint=option)


def _write_cut(
    target: Target,
    frame: pl.DataFrame,
    limit: int | None,
    what: str,
    show: Callable[[pl.DataFrame], pl.DataFrame],
) -> None:
    """Write the first rows of a frame, and say so when they are not all."""
    most = limit or (_MOST_ROWS if target.for_people else frame.height)
    part = frame.head(min(most, frame.height))
    target.write(part, shown=show(part))
    if part.height < frame.height:
        note(f"{part.height} of {frame.height} {what}, the oldest; --limit changes that")


def _joined(end: str) -> pl.Expr:
    return pl.concat_str(f"{end}_kind", pl.lit(":"), f"{end}_id").alias(end)


# --- lineage ---------------------------------------------------------------------------------
@app.command(
    "lineage",
    epilog=examples(
        "mnemes-lab lineage my-mesh 11111111-1111-4111-8111-111111111111",
        "mnemes-lab lineage my-mesh actor:2222… --direction incoming --depth 1",
        "mnemes-lab lineage my-mesh fact:1111… --depth all --stop-at actor --format json",
    ),
)
def lineage_command(
    folder: Folder,
    item: Annotated[
        str, typer.Argument(metavar="ITEM", help="kind:id, or a fact's id without a colon.")
    ],
    direction: Annotated[
        Direction,
        typer.Option(help="outgoing: what it came from; incoming: what came of it."),
    ] = Direction.BOTH,
    depth: Depth = "6",
    limit: Annotated[
        int | None,
        typer.Option(
            min=1, help=f"Most edges. Default: {_MOST_ROWS} in a table, else {_MOST_EDGES}."
        ),
    ] = None,
    valid: ValidAt = None,
    recorded: RecordedAt = None,
    stop_at: Annotated[
        list[str] | None,
        typer.Option("--stop-at", metavar="KIND", help="Show such items only; repeatable."),
    ] = None,
    items: Annotated[
        bool, typer.Option("--items", help="csv and parquet hold the items, not the edges.")
    ] = False,
    format: Formatted = None,
    output: Output = None,
) -> None:
    """Show what an item came from and what came of it, as a tree of edges.

    Each line is an edge: → leaves the item above it, ← enters it. json holds items, edges,
    operations and whether it was truncated; csv and parquet hold the edges, or the items.
    """
    target, stops = Target.of(format, output), stop_at or []
    most = min(limit or (_MOST_ROWS if target.for_people else _MOST_EDGES), ALL_EDGES)
    with opened(folder, read_only=True) as mesh:
        found = mesh.lineage(
            item_of(item).key,
            direction=direction.value,
            depth=steps(depth),
            limit=most,
            as_of=as_of(valid, recorded),
            stop_at=stops,
        )
        if target.format == "json":
            target.write_json(_everything(found))
        elif target.for_people:
            target.write(_tree(found, direction, stops))
        else:
            target.write(found.items if items else found.edges)
        skipped = found.skipped
    if target.for_people and target.file is None:
        say(counted(item=len(found.depths), edge=found.edges.height))
    if skipped:
        note(f"{counted(operation=len(skipped))} named here that the mesh does not hold")
    if found.truncated and found.edges.height < most:
        note(f"truncated: more lies beyond depth {depth}; --depth all goes all the way")
    elif found.truncated:
        note(f"truncated: there are more than {most} edges; a larger --limit shows them")


def _everything(found: Lineage) -> dict[str, Any]:
    return {
        "root": found.root,
        "truncated": found.truncated,
        "items": records(found.items),
        "edges": records(found.edges),
        "operations": records(found.operations),
        "skipped": found.skipped,
    }


def _tree(found: Lineage, direction: Direction, stops: Sequence[str]) -> pl.DataFrame:
    """Every edge once, below the item it was followed from; an item's own edges below it once."""
    depths = found.depths

    def followed(end: str, way: Direction) -> bool:
        passes = end == found.root or end.partition(":")[0] not in stops
        return passes and direction in (Direction.BOTH, way)

    below: dict[str, list[tuple[str, str, int]]] = {}
    met: dict[str, int] = {}  # the edge below which an item's own edges stand
    ends = found.edges.select(_joined("source"), pl.col("edge_type"), _joined("target"))
    for n, (source, edge_type, target) in enumerate(ends.iter_rows()):
        leaves, enters = followed(source, Direction.OUTGOING), followed(target, Direction.INCOMING)
        outward = leaves and not (enters and depths[target] < depths[source])
        near, far, arrow = (source, target, "→") if outward else (target, source, "←")
        below.setdefault(near, []).append((far, f"{arrow} {edge_type}", n))
        if depths[far] == depths[near] + 1:
            met.setdefault(far, n)
    rows: list[tuple[int, str, str]] = []
    waiting = [(found.root, "", -1, 0)]
    while waiting:
        key, step, n, level = waiting.pop()
        rows.append((depths[key], "  " * min(level - 1, _DEEPEST) + step, key))
        if met.get(key, -1) == n:
            waiting += [(*edge, level + 1) for edge in reversed(below.get(key, []))]
    tree = pl.DataFrame(
        rows, schema={"depth": pl.Int64, "edge": pl.String, "item": pl.String}, orient="row"
    )
    known = found.items.select(
        "label", "device", "recorded_at", item=pl.concat_str("item_kind", pl.lit(":"), "item_id")
    )
    shown = tree.join(known, on="item", how="left", maintain_order="left")
    return shown.select("depth", "edge", "label", "device", "recorded_at", "item")


def counted(**counts: int) -> str:
    """Counts in words.

    Example:
        >>> counted(item=1, edge=2)
        '1 item, 2 edges'
    """
    return ", ".join(f"{n} {what}{'' if n == 1 else 's'}" for what, n in counts.items())


# --- operations and edges --------------------------------------------------------------------
@app.command(
    "operations",
    epilog=examples(
        "mnemes-lab operations my-mesh",
        "mnemes-lab operations my-mesh --kind redact --format json",
        "mnemes-lab operations my-mesh --device van --key order-17",
    ),
)
def operations_command(
    folder: Folder,
    device: Annotated[
        str | None, typer.Option(help="Only what this device asked for, by label or id.")
    ] = None,
    kind: Annotated[
        str | None, typer.Option(help=f"Only these: {', '.join(schemas.OPERATION_KINDS)}.")
    ] = None,
    target: Annotated[
        str | None, typer.Option(metavar="ITEM", help="Only those about kind:id, or a fact's id.")
    ] = None,
    key: Annotated[str | None, typer.Option(help="Only those with this idempotency key.")] = None,
    limit: Limit = None,
    recorded: RecordedAt = None,
    format: Formatted = None,
    output: Output = None,
) -> None:
    """Show who asked for which change, oldest first."""
    to = Target.of(format, output)
    where: dict[str, Any] = {}
    if kind is not None:
        _one_of([kind], schemas.OPERATION_KINDS, "--kind")
        where["operation_kind"] = kind
    if target is not None:
        where["target_kind"], where["target_id"] = item_of(target)
    if key is not None:
        where["idempotency_key"] = whole_text(key)
    with opened(folder, read_only=True) as mesh:
        named = None if device is None else whole_text(device)
        frame = mesh.operations(device=named, as_of=as_of(None, recorded), **where)
        labels = mesh.devices().select(requesting_device_id="device_id", device="label")

        def show(part: pl.DataFrame) -> pl.DataFrame:
            told = part.join(labels, on="requesting_device_id", how="left", maintain_order="left")
            return told.select(
                "recorded_at",
                "operation_kind",
                _joined("target"),
                pl.col("device").fill_null("(the mesh's owner)"),
                "idempotency_key",
                "operation_id",
            )

        _write_cut(to, frame, limit, "operations", show)


@app.command(
    "edges",
    epilog=examples(
        "mnemes-lab edges my-mesh --target fact:1111…",
        "mnemes-lab edges my-mesh --type supersedes --type derived_from --format json",
        "mnemes-lab edges my-mesh --as-of-recorded 2031-06-11T09:30:00Z --include-superseded",
    ),
)
def edges_command(
    folder: Folder,
    source: Annotated[
        str | None, typer.Option(metavar="ITEM", help="Only those that leave kind:id or a fact.")
    ] = None,
    target: Annotated[
        str | None, typer.Option(metavar="ITEM", help="Only those that enter kind:id or a fact.")
    ] = None,
    types: Annotated[
        list[str] | None,
        typer.Option("--type", help=f"{', '.join(schemas.EDGE_TYPES)}; repeatable."),
    ] = None,
    operation: Annotated[
        str | None, typer.Option(metavar="ID", help="Only those this operation recorded.")
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="Only those in this device's shard, by label or id.")
    ] = None,
    valid: ValidAt = None,
    recorded: RecordedAt = None,
    include_superseded: Annotated[
        bool,
        typer.Option("--include-superseded", help="At a point in time, also what was replaced."),
    ] = False,
    limit: Limit = None,
    format: Formatted = None,
    output: Output = None,
) -> None:
    """Show provenance edges, `source type target`, oldest first.

    All are shown; at a point in time only those that hold then and that nothing has superseded.
    """
    to = Target.of(format, output)
    _one_of(types or [], schemas.EDGE_TYPES, "--type")
    with opened(folder, read_only=True) as mesh:
        frame = mesh.edges(
            source=_key_of(source),
            target=_key_of(target),
            types=types or None,
            operation_id=None if operation is None else whole_text(operation),
            device=None if device is None else whole_text(device),
            as_of=as_of(valid, recorded),
            include_superseded=include_superseded or None,
        )
        columns = ["device", "valid_from", "valid_to", "recorded_at"]

        def show(part: pl.DataFrame) -> pl.DataFrame:
            told = labelled(mesh, part)
            return told.select(_joined("source"), "edge_type", _joined("target"), *columns)

        _write_cut(to, frame, limit, "edges", show)


# --- redact ----------------------------------------------------------------------------------
@app.command(
    "redact",
    epilog=examples(
        "mnemes-lab redact my-mesh 11111111-1111-4111-8111-111111111111 --reason privacy",
        "mnemes-lab redact my-mesh 1111… --key request-17",
    ),
)
def redact_command(
    folder: Folder,
    fact_id: Annotated[str, typer.Argument(metavar="FACT_ID", help="As facts shows it.")],
    reason: Annotated[str | None, typer.Option(help="Why; it stays on record.")] = None,
    key: Annotated[
        str | None,
        typer.Option(help="Idempotency key: the same command again is answered as at first."),
    ] = None,
) -> None:
    """Take a fact's text out of the mesh for good; its id, times and digest stay.

    Unlike any other change this changes past answers too.
    """
    with opened(folder) as mesh:
        why = None if reason is None else whole_text(reason)
        clean = mesh.redact(whole_text(fact_id), reason=why, idempotency_key=key)
    say(f"fact {fact_id}: redacted")
    if not clean:
        note(
            "its files still hold traces while another process reads them; the next command that "
            "writes removes them, and mnemes-lab check says whether any are left"
        )
