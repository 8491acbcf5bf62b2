"""The operation and the edges that facts bring along, written in the transaction of the facts.

Every fact is `recorded_by` its operation. One that an agent states is also `observed_by` the
agent's actor, under an operation of kind `observe`. One that names other facts as its source, or
replaces one, is `derived_from` it, and `supersedes` what it replaces.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import Column, RowMapping, select

from mnemes_lab.ids import unique
from mnemes_lab.store import tables as t
from mnemes_lab.store.operations import By, Envelope
from mnemes_lab.store.store import Store

Ends = tuple[str, str, str]  # edge type, source, target
_CHUNK = 500


def stated(by: By, fact_id: str, operation_id: str, sources: Sequence[str] = ()) -> list[Ends]:
    """The edges of one new fact."""
    fact = f"fact:{fact_id}"
    ends = [("recorded_by", fact, f"operation:{operation_id}")]
    if by.actor_id is not None:
        ends.append(("observed_by", fact, f"actor:{by.actor_id}"))
    return ends + [("derived_from", fact, source) for source in unique(sources) if source != fact]


def envelope(by: By, fact_ids: Sequence[str], digests: Sequence[bytes], **more: Any) -> Envelope:
    """The operation of one new fact, or of a batch of them."""
    kind = "assert" if by.actor_id is None else "observe"
    if len(fact_ids) == 1:
        digest = digests[0].hex()
        return Envelope(by, kind, f"fact:{fact_ids[0]}", f"sha256:{digest}", **more)
    digest = hashlib.sha256(b"".join(digests)).hexdigest()
    return Envelope(by, kind, f"batch:{digest[:32]}", f"sha256:{digest}", **more)


def edge_rows(
    ends: Iterable[Ends],
    ids: Iterator[str],
    by: By,
    operation_id: str,
    device_id: str,
    now: int,
    generation: int,
    valid: tuple[int | None, int | None] = (None, None),
) -> list[tuple[Any, ...]]:
    """Rows of `EDGE_COLUMNS` for edges the mesh writes itself."""
    rest = (operation_id, by.actor_id, device_id, *valid, None, now)
    return [
        (next(ids), kind, source, target, *rest, None, None, None, generation)
        for kind, source, target in ends
    ]


def chunks(values: Iterable[Any]) -> Iterable[list[Any]]:
    """Parts short enough for one statement."""
    listed = list(values)
    return (listed[i : i + _CHUNK] for i in range(0, len(listed), _CHUNK))


def rows_in(store: Store, column: Column[Any], values: Iterable[Any]) -> list[RowMapping]:
    """The rows of a table of pooled.db whose `column` has one of these values."""
    query = select(column.table)
    return [row for part in chunks(values) for row in store.rows(query.where(column.in_(part)))]


def owners(store: Store, fact_ids: Iterable[str]) -> dict[str, str]:
    """Which device holds each of these facts."""
    rows = rows_in(store, t.fact_index.c.fact_id, fact_ids)
    return {row["fact_id"]: row["device_id"] for row in rows}


def told_sources(store: Store, rows: Mapping[int, str | None]) -> dict[int, list[str]]:
    """Facts that rows name in their `source` column as ``fact:<id>``; other words say nothing."""
    named = {i: s.removeprefix("fact:") for i, s in rows.items() if s and s.startswith("fact:")}
    held = owners(store, sorted(set(named.values()))) if named else {}
    return {i: [f"fact:{fact_id}"] for i, fact_id in named.items() if fact_id in held}
