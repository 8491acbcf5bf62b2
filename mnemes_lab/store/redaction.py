"""Redaction: a fact's text leaves the mesh; its tombstone, digest and history of times stay.

Steps, each safe to repeat:

1. One transaction of the shard empties every version of the fact and records the operation. From
   its publishing on nobody finds or shows the text, also not for a past record time: redaction is
   the one write that changes past answers. The announcement before it already drops the shard's
   summary and notes the shard in `scrubs`.
2. *Scrubbing* takes the traces out of the files: the shard is rewritten and its write-ahead log
   emptied, its index is deleted, vectors of the digest are forgotten for every encoder, copies kept
   by migrations are deleted. SQLite overwrites what it frees (`secure_delete`).
3. The note in `scrubs` goes. Until then `check` says so, and the next redaction, `mesh.scrub()` or
   opening of the mesh for writing tries again; a reader of another process may hold it up.

Vectors are filed under the digest that the tombstone keeps, so scrubbing needs no text.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, delete, insert, select, update

from mnemes_lab.errors import ConflictError, StoreError
from mnemes_lab.store import tables as t
from mnemes_lab.store.engine import named
from mnemes_lab.store.held import history_rows, owner
from mnemes_lab.store.indexes import Indexes
from mnemes_lab.store.operations import By, Envelope, evidence_ids, first_answer
from mnemes_lab.store.store import Store
from mnemes_lab.store.writing import Part, commit, put_evidence
from mnemes_lab.text.cache import VectorCache

_EMPTIED = ("subject", "predicate", "object", "source", "close_reason", "dedupe_key")


def redact(store: Store, fact_id: str, *, reason: str | None, by: By, request: str = "") -> None:
    """Empty every version of a fact, and note that its files are to be scrubbed.

    Raises:
        FactNotFoundError
        ConflictError: it is redacted already.
        IdempotencyConflictError: the key belongs to another request.
    """
    with store.writing():
        if first_answer(store, by, request) is not None:
            return
        device_id = owner(store, fact_id)  # also of a revoked device: its text can still go
        versions = history_rows(store, fact_id)
        if versions[-1]["redacted"]:
            raise ConflictError(f"Fact {fact_id!r} was redacted already.")
        now, last = store.now(), versions[-1]
        digest = f"sha256:{last['content_digest'].hex()}"
        envelope = Envelope(by, "redact", f"fact:{fact_id}", digest, answer="")
        operation_id = evidence_ids(store, now, 1)[0]

        def write(conn: Connection, generation: int) -> None:
            _empty(conn, fact_id, int(last["row_key"]), now, generation, reason)
            row = envelope.row(operation_id, device_id, now, generation, request)
            put_evidence(conn, device_id, [row], [])

        def before(conn: Connection) -> None:
            conn.execute(delete(t.summaries).where(t.summaries.c.device_id == device_id))
            conn.execute(delete(t.scrubs).where(t.scrubs.c.device_id == device_id))
            conn.execute(insert(t.scrubs).values(device_id=device_id))

        keys = [(by.device_id, by.key, device_id)] if by.key else []
        commit(store, {device_id: Part(write)}, now, keys=keys, before=before)


def _empty(
    conn: Connection, fact_id: str, last: int, now: int, generation: int, reason: str | None
) -> None:
    f = t.facts.c
    mine = update(t.facts).where(f.fact_id == fact_id)
    conn.execute(mine.values(text="", redacted=1, **dict.fromkeys(_EMPTIED)))
    closing = {"closed_at": now, "closed_as": "redacted", "closed_generation": generation}
    conn.execute(mine.where(f.closed_at.is_(None)).values(closing))
    conn.execute(mine.where(f.row_key == last).values(close_reason=reason))
    conn.execute(update(t.shard_state).values(redacted_generation=generation))


def waiting(store: Store) -> list[str]:
    """Devices whose files are still to be scrubbed."""
    return [row["device_id"] for row in store.rows(select(t.scrubs).order_by(t.scrubs.c.device_id))]


def scrub(store: Store, indexes: Indexes, cache: VectorCache) -> list[str]:
    """Take what redactions left out of the files; answers the devices still waiting."""
    left = []
    with store.writing():
        for device_id in waiting(store):
            try:
                _scrub(store, device_id, indexes, cache)
            except StoreError:
                left.append(device_id)
                continue
            with store.pooled() as conn:
                conn.execute(delete(t.scrubs).where(t.scrubs.c.device_id == device_id))
    return left


def _scrub(store: Store, device_id: str, indexes: Indexes, cache: VectorCache) -> None:
    handle = store.shard(device_id)
    gone = select(t.facts.c.content_digest).where(t.facts.c.redacted == 1)
    cache.forget([row["content_digest"] for row in handle.rows(gone)])
    indexes.forget(device_id)
    _rewrite(handle.engine, handle.path, ["VACUUM", "PRAGMA wal_checkpoint(TRUNCATE)"])
    for copy in sorted(handle.path.parent.glob("memory.db.generation-*.bak")):
        copy.unlink()
    if store.writer is not None:  # the summary of its words lay there
        _rewrite(store.writer, store.path, ["PRAGMA wal_checkpoint(TRUNCATE)"])


def _rewrite(engine: Any, path: Path, statements: Sequence[str]) -> None:
    with named(path), contextlib.closing(engine.raw_connection()) as conn:
        for sql in statements:
            answer = conn.cursor().execute(sql).fetchone()
        if answer and answer[0]:
            raise StoreError(f"{path.name} is being read, so its log could not be emptied.")
