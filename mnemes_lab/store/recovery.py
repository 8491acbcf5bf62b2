"""Finishing or undoing what a dead writer announced: see the rules in `store.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import Connection, RowMapping, delete, func, insert, select, update

from mnemes_lab.errors import StoreBusyError, StoreError
from mnemes_lab.store import tables as t
from mnemes_lab.store.shard import state_of

if TYPE_CHECKING:
    from mnemes_lab.store.store import Store


class Kept(NamedTuple):
    """What a shard says of itself once it is whole, and what the write left in it."""

    generation: int
    facts: int
    fact_ids: Sequence[Any]  # (fact_id, generation)
    keys: Sequence[Any]  # (requesting device, key, generation)


def finish(store: Store, notes: Sequence[RowMapping]) -> None:
    """Bring announced shards to a whole state.

    A shard that cannot be brought there is `stuck`: its note stays and it takes no writes, but it
    holds up no other device.
    """
    store.stuck = {}
    for note in notes:
        device_id = note["device_id"]
        try:
            with store.shard(device_id).begin() as conn:
                kept = _whole(conn, note, store.state()["encoder"])
        except StoreBusyError:
            raise
        except (StoreError, OSError) as error:
            store.stuck[device_id] = str(error)
            continue
        for unfinished in store.shard_path(device_id).parent.glob("memory.db.*.new*"):
            unfinished.unlink(missing_ok=True)  # of a writer that died making the file
        settle(store, note, kept)


def _whole(conn: Connection, note: RowMapping, encoder: str | None) -> Kept:
    base, f, o = note["base_generation"], t.facts.c, t.operations.c
    if note["on_crash"] == "undo":
        conn.execute(update(t.shard_state).values(generation=base))
        for table in (t.facts, t.edges, t.operations):
            conn.execute(delete(table).where(table.c.generation > base))
        reopened = dict.fromkeys((*t.CLOSING, "closed_generation"))
        conn.execute(update(t.facts).where(f.closed_generation > base).values(reopened))
        count = conn.execute(select(func.count()).where(f.remainder == 0)).scalar_one()
        conn.execute(update(t.shard_state).values(facts=count))
    conn.execute(update(t.shard_state).values(encoder=encoder))
    state = state_of(conn, note["device_id"])
    facts = select(f.fact_id, f.generation).where(f.generation > base, f.version == 1)
    keys = select(o.requesting_device_id, o.idempotency_key, o.generation)
    keys = keys.where(o.generation > base, o.idempotency_key.is_not(None))
    return Kept(
        state["generation"],
        state["facts"],
        conn.execute(facts.order_by(f.fact_id)).all(),
        conn.execute(keys.order_by(o.idempotency_key)).all(),
    )


def settle(store: Store, note: RowMapping, kept: Kept | None = None) -> None:
    """Make pooled.db say what a shard says, and drop the note; nothing kept: as it was before."""
    device_id, base = note["device_id"], note["base_generation"]
    f, k = t.fact_index.c, t.operation_keys.c
    with store.pooled() as conn:
        conn.execute(delete(t.fact_index).where(f.device_id == device_id, f.generation > base))
        conn.execute(delete(t.operation_keys).where(k.home == device_id, k.generation > base))
        if kept is None:
            mine = t.pending_writes.c.device_id == device_id
            conn.execute(delete(t.pending_writes).where(mine))
            return
        facts = [{"fact_id": i, "device_id": device_id, "generation": g} for i, g in kept.fact_ids]
        if facts:
            conn.execute(insert(t.fact_index), facts)
        for requester, key, generation in kept.keys:
            conn.execute(insert(t.operation_keys).values((requester, key, device_id, generation)))
        publish(conn, {device_id: (kept.generation, kept.facts)})


def publish(conn: Connection, written: Mapping[str, tuple[int, int]]) -> None:
    """Move the catalogue to the new generations and counts, and drop the notes."""
    for device_id, (generation, facts) in sorted(written.items()):
        conn.execute(
            update(t.catalogue)
            .where(t.catalogue.c.device_id == device_id)
            .values(generation=generation, facts=facts)
        )
    conn.execute(delete(t.pending_writes).where(t.pending_writes.c.device_id.in_(sorted(written))))
    conn.execute(update(t.mesh).values(changes=t.mesh.c.changes + 1))
