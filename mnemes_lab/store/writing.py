"""One write over one or more shards and pooled.db: announced, written, published.

The rules are those of :mod:`mnemes_lab.store.store`. A write of one shard is *kept* after a crash:
its transaction either happened or did not. One that also writes to another file is *undone*, so
what is in two files is in both or in neither; such a write adds rows and closes facts, and does
nothing else that would have to be taken back.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from sqlalchemy import Connection, Dialect, Table, insert, select, update

from mnemes_lab.errors import CorruptStoreError
from mnemes_lab.store import tables as t
from mnemes_lab.store.store import Store

_FEW = 500  # devices asked for by name


class Part(NamedTuple):
    """What one shard has to do: `write(conn, generation)`, and how many fact rows that adds."""

    write: Callable[[Connection, int], None]
    facts: int = 0


class ShardError(CorruptStoreError):
    """A shard that cannot be written kept a write from happening."""

    def __init__(self, device_id: str, error: CorruptStoreError) -> None:
        """Say what the shard said."""
        super().__init__(error.what, hint=error.hint)
        self.device_id = device_id


def commit(
    store: Store,
    parts: Mapping[str, Part],
    now: int,
    *,
    fact_ids: Sequence[tuple[str, str]] = (),
    keys: Sequence[tuple[str, str, str]] = (),
    before: Callable[[Connection], None] | None = None,
) -> None:
    """Carry out a write, whole or not at all; the writer's turn must be held.

    Args:
        store: The open store.
        parts: What each shard has to do, by device; under the empty name, what pooled.db has.
        now: The instant of the write.
        fact_ids: New fact ids and their devices.
        keys: New idempotency keys: requesting device, key, and the home of the operation.
        before: What to write to pooled.db when announcing: harmless if the write then fails.

    Raises:
        ShardError: a shard cannot be written; nothing was.
    """
    pooled, shards = parts.get(""), {d: parts[d] for d in sorted(parts) if d}
    base = _states(store, shards)
    after = {d: (base[d][0] + 1, base[d][1] + part.facts) for d, part in shards.items()}

    def publish(conn: Connection) -> None:
        put(conn, t.operation_keys, [(*key, 0) for key in keys if not key[2]])
        if pooled is not None:
            pooled.write(conn, 0)

    if not shards:
        with store.pooled() as conn:
            publish(conn)
        return
    store.announce(
        {d: generation for d, (generation, _) in base.items()},
        [(fact_id, d, after[d][0]) for fact_id, d in fact_ids],
        "undo" if len(parts) > 1 else "keep",
        keys=[(*key, after[key[2]][0]) for key in keys if key[2]],
        also=before,
    )
    for device_id, part in shards.items():
        try:
            with store.shard(device_id).begin() as conn:
                part.write(conn, after[device_id][0])
                _advance(store, conn, *after[device_id], now)
        except CorruptStoreError as error:
            store.abandon(untouched=device_id)
            raise ShardError(device_id, error) from error
        except BaseException:
            store.abandon()
            raise
    store.publish(after, also=publish)


def _states(store: Store, device_ids: Collection[str]) -> dict[str, tuple[int, int]]:
    """Generation and facts of shards, as published: nothing is opened before it is announced."""
    for device_id in device_ids:
        if device_id in store.stuck:
            told = f"The shard of device {device_id} cannot be written: {store.stuck[device_id]}"
            raise ShardError(device_id, CorruptStoreError(told))
    c = t.catalogue.c
    query = select(c.device_id, c.generation, c.facts)
    if len(device_ids) <= _FEW:
        query = query.where(c.device_id.in_(device_ids))
    known = {row["device_id"]: (row["generation"], row["facts"]) for row in store.rows(query)}
    return {device_id: known[device_id] for device_id in device_ids}


def _advance(store: Store, conn: Connection, generation: int, facts: int, now: int) -> None:
    """Bring the shard's own state up with its rows, in the same transaction."""
    conn.execute(
        update(t.shard_state).values(
            generation=generation, facts=facts, last_recorded_at=now, encoder=store.encoder
        )
    )


Rows = Sequence[tuple[Any, ...]]


def put_evidence(conn: Connection, home: str, operations: Rows, edges: Rows) -> None:
    """Insert operations and edges into a device's shard, or into pooled.db for the empty home."""
    if home:
        put(conn, t.operations, operations)
        put(conn, t.edges, edges)
    else:
        put(conn, t.pooled_operations, [("", *row) for row in operations])
        put(conn, t.pooled_edges, [("", *row) for row in edges])


def put(conn: Connection, table: Table, rows: Rows, *, again: bool = False) -> None:
    """Insert rows given as plain tuples of all columns but a running key.

    Those that are there stay if this is done `again`, and are an error otherwise.
    """
    if rows:
        more = " ON CONFLICT DO NOTHING" if again else ""
        conn.exec_driver_sql(_insert_sql(conn.dialect, table) + more, list(rows))


@lru_cache
def _insert_sql(dialect: Dialect, table: Table) -> str:
    """The insert statement once per dialect: rows go to the driver as they are."""
    names = [c.name for c in table.columns if c.name != "row_key"]
    return str(insert(table).values(dict.fromkeys(names)).compile(dialect=dialect))
