"""What is left of superseded facts where their replacements do not hold.

The facts of a chain lie on one another like layers: at an instant of valid time the topmost layer
that holds there is the one that counts. So a fact with a `valid_from` leaves the one below it in
place before that, one that is true only for a time lets the older one hold again after it, and
what is told late about the past does not take the place of what holds now. A layer counts with its
last interval, also when it was itself replaced or withdrawn later.

What is left of a lower layer is on record as rows of its own, `remainders`: appended when the
layers above change, closed when they change again, so a past answer stays as it was. They carry the
fact's id and text, are shown as superseded, and only to who asks for an instant of valid time.

Cost: one look at each fact below, down to the first that held for all time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import Connection, RowMapping, func, insert, select, update

from mnemes_lab.store import tables as t

Interval = tuple[int | None, int | None]
_START, _END = -(2**63), 2**63 - 1


def without(interval: Interval, covers: Iterable[Interval]) -> list[Interval]:
    """The parts of a half-open interval that no cover holds, in order; null ends are open.

    Example:
        >>> without((None, None), [(3, 5), (8, None)])
        [(None, 3), (5, 8)]
    """
    left = [_closed(interval)]
    for start, end in map(_closed, covers):
        if start < end:
            parts = [part for a, b in left for part in ((a, min(b, start)), (max(a, end), b))]
            left = [(a, b) for a, b in parts if a < b]
    return [
        (None if a == _START else a, None if b == _END else b) for a, b in sorted(left) if a < b
    ]


def _closed(interval: Interval) -> tuple[int, int]:
    start, end = interval
    return _START if start is None else start, _END if end is None else end


def trim_below(conn: Connection, fact_id: str, now: int, generation: int) -> None:
    """Bring up what is left of the facts below one that was added or changed, in its shard."""
    covers = [_interval(_layer(conn, fact_id))]
    below = _below(conn, fact_id)
    while below is not None:
        layer = _layer(conn, below)
        if not layer["redacted"]:
            _bring_up(conn, layer, without(_interval(layer), covers), now, generation)
        if _interval(layer) == (None, None):
            return  # whatever lies below it is covered for good
        covers.append(_interval(layer))
        below = _below(conn, below)


def _interval(row: RowMapping) -> Interval:
    return row["valid_from"], row["valid_to"]


def _layer(conn: Connection, fact_id: str) -> RowMapping:
    """The last version of a fact that is no remainder."""
    f = t.facts.c
    query = select(t.facts).where(f.fact_id == fact_id, f.remainder == 0)
    return conn.execute(query.order_by(f.version.desc()).limit(1)).mappings().one()


def _below(conn: Connection, fact_id: str) -> str | None:
    f = t.facts.c
    query = select(f.fact_id).where(f.superseded_by == fact_id, f.remainder == 0)
    return conn.execute(query.order_by(f.fact_id).limit(1)).scalar_one_or_none()


def _bring_up(
    conn: Connection, layer: RowMapping, wanted: list[Interval], now: int, generation: int
) -> None:
    f = t.facts.c
    mine = (f.fact_id == layer["fact_id"]) & (f.remainder == 1) & f.closed_at.is_(None)
    held = {_interval(row): row for row in conn.execute(select(t.facts).where(mine)).mappings()}
    closing: dict[str, Any] = {
        "closed_at": now,
        "closed_as": "updated",
        "closed_generation": generation,
    }
    for interval, old in held.items():
        if interval not in wanted:
            conn.execute(update(t.facts).where(f.row_key == old["row_key"]).values(closing))
    last = select(func.max(f.version)).where(f.fact_id == layer["fact_id"])
    version = int(conn.execute(last).scalar_one())
    for start, end in wanted:
        if (start, end) in held:
            continue
        version += 1
        row: dict[str, Any] = {name: layer[name] for name in t.FACT_COLUMNS}
        row |= dict.fromkeys(("closed_at", "closed_as", "close_reason", "closed_generation"))
        row |= {"version": version, "valid_from": start, "valid_to": end, "recorded_at": now}
        row |= {"generation": generation, "remainder": 1, "dedupe_key": None}
        conn.execute(insert(t.facts).values(row))
