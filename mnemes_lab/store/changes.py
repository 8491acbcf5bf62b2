"""Changing one fact: update, supersede, retract. Each is one transaction in its shard.

A fact replaces another where it holds itself, between its `valid_from` and `valid_to`; see
:mod:`mnemes_lab.store.remainders`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl
from sqlalchemy import Connection, RowMapping, insert, select, update

from mnemes_lab.clock import from_us
from mnemes_lab.errors import ConflictError, InputError
from mnemes_lab.frames import read_records
from mnemes_lab.store import tables as t
from mnemes_lab.store import trail
from mnemes_lab.store.control import active_device
from mnemes_lab.store.held import CONTENT, content_digest, content_key, history_rows, owner
from mnemes_lab.store.operations import By, Envelope, evidence_ids, first_answer, owner_of
from mnemes_lab.store.remainders import trim_below
from mnemes_lab.store.rules import INPUT, refusals, with_defaults
from mnemes_lab.store.store import Store
from mnemes_lab.store.writing import Part, commit, put_evidence


def supersede(
    store: Store,
    fact_id: str,
    row: Mapping[str, Any],
    *,
    reason: str | None = None,
    by: By | None = None,
    request: str = "",
) -> str:
    """Replace a current fact by a new one on the same device, in one transaction.

    Args:
        store: The open store.
        fact_id: The fact to replace.
        row: The new fact: `text`, and any other input column; namespace, subject, predicate,
            kind and sensitivity default to those of the old one.
        reason: Why.
        by: Who asks; None is the mesh's owner.
        request: Digest of the caller's request, by which its key recognises a retry.

    Returns:
        The new fact's id.

    Raises:
        FactNotFoundError: no such fact.
        ConflictError: it was replaced or withdrawn already; the current head is named.
        InputError: the new row is not acceptable.
        IdempotencyConflictError: the key belongs to another request.
    """
    change = _Change(store, fact_id, "superseded", reason, by or owner_of(store), request)
    return change.carry_out(dict(row))


def update_fact(
    store: Store,
    fact_id: str,
    changes: Mapping[str, Any],
    *,
    by: By | None = None,
    request: str = "",
) -> int:
    """Change a current fact in place: a new version under the same id.

    Returns:
        The new version's number.

    Raises:
        FactNotFoundError, ConflictError, InputError, IdempotencyConflictError
    """
    change = _Change(store, fact_id, "updated", None, by or owner_of(store), request)
    return int(change.carry_out(dict(changes)))


def retract(
    store: Store,
    fact_id: str,
    *,
    reason: str | None = None,
    by: By | None = None,
    request: str = "",
) -> None:
    """Withdraw a current fact. It stays in the history.

    Raises:
        FactNotFoundError, ConflictError, IdempotencyConflictError
    """
    _Change(store, fact_id, "retracted", reason, by or owner_of(store), request).carry_out(None)


_KEPT = ("namespace", "subject", "predicate", "kind", "sensitivity")
_OPERATION = {"superseded": "supersede", "updated": "supersede", "retracted": "revoke"}


class _Change:
    """One change on its way into a shard."""

    def __init__(
        self,
        store: Store,
        fact_id: str,
        closed_as: str,
        reason: str | None,
        by: By,
        request: str,
    ) -> None:
        self.store, self.fact_id, self.closed_as = store, fact_id, closed_as
        self.reason, self.by, self.request = reason, by, request

    def carry_out(self, row: dict[str, Any] | None) -> str:
        """Close the current version and append the new one; answers the new id or version."""
        store = self.store
        with store.writing():
            if self.by.key is not None:
                known = first_answer(store, self.by, self.request)
                if known is not None:
                    return str(known["answer"])
            self.device_id = active_device(store, owner(store, self.fact_id))
            self.old = _head(store, self.fact_id)
            self.fresh = None if row is None else self._fresh(row)
            self.brought = bool(row and row.get("fact_id"))
            source = (row or {}).get("source")
            self.told = trail.told_sources(store, {0: source}).get(0, [])
            self.now = store.now()
            self._plan()
            new_ids = []
            if self.fresh is not None and self.closed_as == "superseded":
                new_ids = [(self.fresh["fact_id"], self.device_id)]
            keys = [(self.by.device_id, self.by.key, self.device_id)] if self.by.key else []
            part = Part(self._write, facts=int(self.fresh is not None))
            commit(store, {self.device_id: part}, self.now, fact_ids=new_ids, keys=keys)
        return self.answer

    def _fresh(self, row: dict[str, Any]) -> dict[str, Any]:
        old, superseding = self.old, self.closed_as == "superseded"
        kept = _KEPT if superseding else [c for c in INPUT if c != "fact_id"]
        base = {
            c: from_us(old[c])
            if isinstance(INPUT[c], pl.Datetime) and old[c] is not None
            else old[c]
            for c in kept
            if c in old
        }
        fresh = _one_row({**base, **row})
        if superseding:
            return fresh | {"fact_id": _new_id(self.store, row.get("fact_id")), "version": 1}
        return fresh | {"fact_id": self.fact_id, "version": old["version"] + 1}

    def _plan(self) -> None:
        """What is recorded of the change: its operations and edges."""
        fresh, by = self.fresh, self.by
        new_id = str(fresh["fact_id"]) if fresh else ""
        self.answer = {
            "superseded": new_id,
            "updated": str(fresh["version"] if fresh else ""),
            "retracted": "",
        }[self.closed_as]
        digest = content_digest(fresh["text"]) if fresh else self.old["content_digest"]
        start = fresh["valid_from"] if fresh else None
        self.envelope = Envelope(
            by,
            _OPERATION[self.closed_as],
            f"fact:{self.fact_id}",
            f"sha256:{digest.hex()}",
            fresh["observed_at"] if fresh else None,
            start,
            self.answer,
        )
        self.operation_id, *self.ids = evidence_ids(self.store, self.now, 8)
        self.statement: Envelope | None = None
        if fresh and by.actor_id is not None:  # what an agent states anew, it also observed
            seen = {"observed_at": fresh["observed_at"], "valid_time": start}
            self.statement = trail.envelope(by._replace(key=None), [new_id], [digest], **seen)

    def _write(self, conn: Connection, generation: int) -> None:
        fresh, home, now = self.fresh, self.device_id, self.now
        _close(conn, self.old, now, generation, self.closed_as, self.reason, fresh)
        operations = [self.envelope.row(self.operation_id, home, now, generation, self.request)]
        ids = iter(self.ids)
        edges: list[tuple[Any, ...]] = []
        if fresh is not None:
            keep_key = self.closed_as == "superseded" or self.old["dedupe_key"] is not None
            _append(conn, fresh, now, generation, with_key=keep_key and not self.brought)
            recorded = self.operation_id
            trim_below(conn, str(fresh["fact_id"]), now, generation)
            if self.statement is not None:
                recorded = next(ids)
                operations.append(self.statement.row(recorded, home, now, generation))
            ends = trail.stated(self.by, str(fresh["fact_id"]), recorded, self.told)
            edges += trail.edge_rows(ends, ids, self.by, recorded, home, now, generation)
            if self.closed_as == "superseded":
                new, old = f"fact:{fresh['fact_id']}", f"fact:{self.fact_id}"
                where = (self.by, self.operation_id, home, now, generation)
                holds = fresh["valid_from"], fresh["valid_to"]
                edges += trail.edge_rows([("supersedes", new, old)], ids, *where, holds)
                edges += trail.edge_rows([("derived_from", new, old)], ids, *where)
        put_evidence(conn, home, operations, edges)


def _new_id(store: Store, brought: str | None) -> str:
    fact_id = brought or store.ids.uuid4s(1)[0]
    while trail.owners(store, [fact_id]):
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
    fresh: Mapping[str, Any] | None,
) -> None:
    replaced = closed_as == "superseded" and fresh is not None
    conn.execute(
        update(t.facts)
        .where(t.facts.c.row_key == old["row_key"])
        .values(
            closed_at=now,
            closed_generation=generation,
            closed_as=closed_as,
            close_reason=reason,
            superseded_by=fresh["fact_id"] if replaced and fresh else None,
        )
    )


def _append(
    conn: Connection, fresh: dict[str, Any], now: int, generation: int, *, with_key: bool
) -> None:
    digest = content_digest(fresh["text"])
    key = content_key(digest, tuple(fresh[c] for c in CONTENT))
    twin = conn.execute(
        select(t.facts.c.fact_id).where(t.facts.c.dedupe_key == key, t.facts.c.closed_at.is_(None))
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


def _last(store: Store, fact_id: str) -> RowMapping:
    """The last version of a fact that is no remainder."""
    return [version for version in history_rows(store, fact_id) if not version["remainder"]][-1]


def _head(store: Store, fact_id: str) -> dict[str, Any]:
    """The open version of a fact, or an error that names the current head of its chain."""
    last = _last(store, fact_id)
    if last["redacted"]:
        raise ConflictError(f"Fact {fact_id!r} was redacted already.")
    if last["closed_at"] is None:
        return dict(last)
    head = last
    while head["superseded_by"]:
        head = _last(store, head["superseded_by"])
    if head["closed_at"] is None:
        raise ConflictError(
            f"Fact {fact_id!r} was {last['closed_as']} already; the current one is "
            f"{head['fact_id']!r}.",
            hint="change that one",
        )
    raise ConflictError(f"Fact {fact_id!r} was {head['closed_as']} already.")
