"""Facts as frames: the current table, a point on both time axes, and histories."""

from __future__ import annotations

from typing import Any

import polars as pl
from sqlalchemy import ColumnElement, RowMapping, Select, and_, or_, select
from sqlalchemy.sql.base import ReadOnlyColumnCollection

from mnemes_lab import schemas
from mnemes_lab.store import tables as t
from mnemes_lab.store.asof import AsOf, checked_as_of, visible
from mnemes_lab.store.held import history_rows, owner
from mnemes_lab.store.shard import Shard
from mnemes_lab.store.store import Store

_RAW = {
    name: pl.Int64 if isinstance(dtype, pl.Datetime) else dtype
    for name, dtype in schemas.dtypes(schemas.Facts).items()
}


def facts_frame(store: Store, device_id: str | None, as_of: AsOf | None) -> pl.DataFrame:
    """The `facts` frame of one device or all, by fact_id.

    Args:
        store: The open store.
        device_id: Only this device; None for every device, active or not.
        as_of: Only facts that were on record, current and valid at these points, shown as they
            were then. None shows every fact in its latest version with its status.

    Cost: opens every shard that was ever written.
    """
    as_of = checked_as_of(as_of)
    query = select(t.catalogue.c.device_id, t.catalogue.c.generation)
    if device_id is not None:
        query = query.where(t.catalogue.c.device_id == device_id)
    now = store.present() if as_of is None or as_of.recorded_at is None else 0
    valid, recorded = (None, now) if as_of is None else as_of.micros(now)
    parts: list[tuple[Any, ...]] = []
    for row in store.rows(query.order_by(t.catalogue.c.device_id)):
        owner_id, generation = row["device_id"], row["generation"]
        if generation == 1 and not store.shard_path(owner_id).exists():
            continue
        seen = t.facts_at(generation)
        held = store.shard(owner_id).rows(
            select(seen).where(_rules(seen.c, recorded, valid, as_of is not None))
        )
        parts += [_line(fact, owner_id, recorded) for fact in held]
    frame = pl.DataFrame(parts, schema=_RAW, orient="row").cast(
        pl.Schema(schemas.dtypes(schemas.Facts))
    )
    return frame.sort("fact_id")


def _rules(
    c: ReadOnlyColumnCollection[str, Any], recorded: int, valid: int | None, strict: bool
) -> ColumnElement[bool]:
    if strict:
        return visible(c, valid, recorded)
    shown = or_(c.closed_at.is_(None), c.closed_at > recorded, c.closed_as != "updated")
    return and_(shown, c.remainder == 0)


def _status(fact: RowMapping, recorded: int) -> str:
    if fact["redacted"]:
        return "redacted"  # its text is gone, whenever one looks from
    if fact["closed_at"] is not None and fact["closed_at"] <= recorded:
        return "superseded" if fact["closed_as"] == "updated" else str(fact["closed_as"])
    if fact["remainder"]:
        return "superseded"
    expires = fact["expires_at"]
    return "expired" if expires is not None and expires <= recorded else "active"


def _line(fact: RowMapping, device_id: str, recorded: int) -> tuple[Any, ...]:
    status = _status(fact, recorded)
    special = {
        "device_id": device_id,
        "status": status,
        "content_digest": fact["content_digest"].hex(),
    }
    if fact["closed_at"] is not None and fact["closed_at"] > recorded:  # not known then
        special["closed_at"] = None
        if not fact["remainder"]:
            special["superseded_by"] = None
    return tuple(special[name] if name in special else fact[name] for name in _RAW)


def history_frame(store: Store, fact_id: str) -> pl.DataFrame:
    """The `history` frame: all versions of a fact and of those before and after it in its chain.

    Raises:
        FactNotFoundError
    """
    chain = [fact_id]
    handle = store.shard(owner(store, fact_id))
    while before := _predecessor(handle, chain[0]):
        chain.insert(0, before)
    while after := history_rows(store, chain[-1])[-1]["superseded_by"]:
        chain.append(after)
    now = store.present()
    rows = [
        (
            v["fact_id"],
            v["version"],
            v["text"],
            _status(v, now),
            v["valid_from"],
            v["valid_to"],
            v["recorded_at"],
            v["expires_at"],
            v["closed_at"],
            bool(v["remainder"]),
            v["superseded_by"],
            v["close_reason"] or v["closed_as"],
        )
        for one in chain
        for v in history_rows(store, one)
    ]
    wanted = schemas.dtypes(schemas.FactHistory)
    raw = {n: pl.Int64 if isinstance(d, pl.Datetime) else d for n, d in wanted.items()}
    return pl.DataFrame(rows, schema=raw, orient="row").cast(pl.Schema(wanted))


def _predecessor(handle: Shard, fact_id: str) -> str | None:
    query = select(t.facts.c.fact_id).where(t.facts.c.superseded_by == fact_id)
    found = handle.rows(query.order_by(t.facts.c.fact_id))
    return str(found[0]["fact_id"]) if found else None


def table_frame(store: Store, query: Select[Any], schema: Any) -> pl.DataFrame:
    """Rows of pooled.db as a frame of `schema`; integers become instants where it says so."""
    wanted = schemas.dtypes(schema)
    raw = {
        name: pl.Int64 if isinstance(dtype, pl.Datetime) else dtype
        for name, dtype in wanted.items()
    }
    rows = [tuple(row[name] for name in raw) for row in store.rows(query)]
    return pl.DataFrame(rows, schema=raw, orient="row").cast(pl.Schema(wanted))


def devices_frame(store: Store) -> pl.DataFrame:
    """The `devices` frame, by id."""
    ahead = (t.devices.c.clock_ahead_us / 1000.0).label("clock_ahead_ms")
    query = select(t.devices, ahead).order_by(t.devices.c.device_id)
    return table_frame(store, query, schemas.Devices)


def actors_frame(store: Store) -> pl.DataFrame:
    """The `actors` frame, by id."""
    return table_frame(store, select(t.actors).order_by(t.actors.c.actor_id), schemas.Actors)


def catalogue_frame(store: Store) -> pl.DataFrame:
    """The `catalogue` frame: content-free, by device."""
    query = (
        select(t.catalogue, t.devices.c.status.label("state"))
        .join(t.devices, t.devices.c.device_id == t.catalogue.c.device_id)
        .order_by(t.catalogue.c.device_id)
    )
    return table_frame(store, query, schemas.Catalogue)
