"""Changing one fact: update, supersede, retract. Each is one transaction in its shard."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl
from sqlalchemy import Connection, insert, select, update

from mnemes_lab.clock import from_us
from mnemes_lab.errors import ConflictError, CorruptStoreError, InputError
from mnemes_lab.frames import read_records
from mnemes_lab.store import tables as t
from mnemes_lab.store.control import active_device
from mnemes_lab.store.facts import (
    CONTENT,
    advance,
    content_digest,
    content_key,
    history_rows,
    owner,
    owners,
)
from mnemes_lab.store.rules import INPUT, refusals, with_defaults
from mnemes_lab.store.shard import state_of
from mnemes_lab.store.store import Store


def supersede(
    store: Store, fact_id: str, row: Mapping[str, Any], *, reason: str | None = None
) -> str:
    """Replace a current fact by a new one on the same device, in one transaction.

    Args:
        store: The open store.
        fact_id: The fact to replace.
        row: The new fact: `text`, and any other input column; namespace, subject, predicate,
            kind and sensitivity default to those of the old one.
        reason: Why.

    Returns:
        The new fact's id.

    Raises:
        FactNotFoundError: no such fact.
        ConflictError: it was replaced or withdrawn already; the current head is named.
        InputError: the new row is not acceptable.
    """
    return _change(store, fact_id, dict(row), closed_as="superseded", reason=reason)


def update_fact(store: Store, fact_id: str, changes: Mapping[str, Any]) -> int:
    """Change a current fact in place: a new version under the same id.

    Returns:
        The new version's number.

    Raises:
        FactNotFoundError, ConflictError, InputError
    """
    _change(store, fact_id, dict(changes), closed_as="updated", reason=None)
    return len(history_rows(store, fact_id))


def retract(store: Store, fact_id: str, *, reason: str | None = None) -> None:
    """Withdraw a current fact. It stays in the history.

    Raises:
        FactNotFoundError, ConflictError
    """
    _change(store, fact_id, None, closed_as="retracted", reason=reason)


_KEPT = ("namespace", "subject", "predicate", "kind", "sensitivity")


def _change(
    store: Store, fact_id: str, row: dict[str, Any] | None, *, closed_as: str, reason: str | None
) -> str:
    with store.writing():
        device_id = active_device(store, owner(store, fact_id))
        handle = store.shard(device_id)
        old = _head(store, fact_id)
        fresh: dict[str, Any] | None = None
        if row is not None:
            kept = _KEPT if closed_as == "superseded" else [c for c in INPUT if c != "fact_id"]
            base = {
                c: from_us(old[c])
                if isinstance(INPUT[c], pl.Datetime) and old[c] is not None
                else old[c]
                for c in kept
                if c in old
            }
            fresh = _one_row({**base, **row})
            fresh |= {"fact_id": fact_id, "version": old["version"] + 1}
            if closed_as == "superseded":
                fresh |= {"fact_id": _new_id(store, row.get("fact_id")), "version": 1}
        if device_id in store.stuck:
            raise CorruptStoreError(
                f"The shard of device {device_id} cannot be written: {store.stuck[device_id]}"
            )
        with handle.reading() as conn:
            state = state_of(conn, device_id)
        generation = state["generation"] + 1
        now = store.now()
        new_id = fresh["fact_id"] if fresh else None
        reserved = [(new_id, device_id, generation)] if closed_as == "superseded" and new_id else []
        store.announce({device_id: state["generation"]}, reserved, "keep")
        try:
            with handle.begin() as conn:
                _close(conn, old, now, generation, closed_as, reason, new_id)
                if fresh is not None:
                    keep_key = closed_as == "superseded" or old["dedupe_key"] is not None
                    _append(conn, fresh, now, generation, with_key=keep_key and not _brought(row))
                count = state["facts"] + (fresh is not None)
                advance(store, conn, generation, count, now)
        except BaseException:
            store.abandon()
            raise
        store.publish({device_id: (generation, count)})
    return str(new_id)


def _brought(row: Mapping[str, Any] | None) -> bool:
    return bool(row and row.get("fact_id"))


def _new_id(store: Store, brought: str | None) -> str:
    fact_id = brought or store.ids.uuid4s(1)[0]
    while owners(store, [fact_id]):
        if brought:
            raise ConflictError("This fact id is taken.", found=brought, hint="leave it out")
        fact_id = store.ids.uuid4s(1)[0]
    return fact_id


def _one_row(row: dict[str, Any]) -> dict[str, Any]:
    """Check one new version by the same rules as a load."""
    columns = {name: dtype for name, dtype in INPUT.items() if name != "device_id"}
    table, bad = read_records([row], columns, required=["text"])
    table = with_defaults(table)
    problem = refusals(table, bad)[0]
    if problem:
        raise InputError(f"The fact was refused: {problem}.")
    instants = [name for name, dtype in columns.items() if isinstance(dtype, pl.Datetime)]
    return table.with_columns(pl.col(instants).cast(pl.Int64)).row(0, named=True)


def _close(
    conn: Connection,
    old: Mapping[str, Any],
    now: int,
    generation: int,
    closed_as: str,
    reason: str | None,
    new_id: str | None,
) -> None:
    conn.execute(
        update(t.facts)
        .where(t.facts.c.row_key == old["row_key"])
        .values(
            closed_at=now,
            closed_generation=generation,
            closed_as=closed_as,
            close_reason=reason,
            superseded_by=new_id if closed_as == "superseded" else None,
            dedupe_key=None,
        )
    )


def _append(
    conn: Connection, fresh: dict[str, Any], now: int, generation: int, *, with_key: bool
) -> None:
    digest = content_digest(fresh["text"])
    key = content_key(digest, tuple(fresh[c] for c in CONTENT))
    twin = conn.execute(
        select(t.facts.c.fact_id).where(t.facts.c.dedupe_key == key)
    ).scalar_one_or_none()
    if with_key and twin is not None:
        raise ConflictError("The device holds this fact already.", found=twin)
    row = {c: fresh[c] for c in INPUT if c != "device_id"}
    row |= {
        "version": fresh["version"],
        "content_digest": digest,
        "recorded_at": now,
        "dedupe_key": key if with_key else None,
        "generation": generation,
    }
    conn.execute(insert(t.facts).values(row))


def _head(store: Store, fact_id: str) -> dict[str, Any]:
    """The open version of a fact, or an error that names the current head of its chain."""
    versions = history_rows(store, fact_id)
    last = versions[-1]
    if last["closed_at"] is None:
        return dict(last)
    head = last
    while head["superseded_by"]:
        head = history_rows(store, head["superseded_by"])[-1]
    if head["closed_at"] is None:
        raise ConflictError(
            f"Fact {fact_id!r} was {last['closed_as']} already; the current one is "
            f"{head['fact_id']!r}.",
            hint="change that one",
        )
    raise ConflictError(f"Fact {fact_id!r} was {head['closed_as']} already.")
