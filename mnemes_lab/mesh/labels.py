"""Words for what a lineage reached: texts of facts, names of actors and devices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import polars as pl
from sqlalchemy import Column, select

from mnemes_lab.clock import from_us, to_us
from mnemes_lab.store import tables as t
from mnemes_lab.store.evidence import operations_frame, operations_of
from mnemes_lab.store.lineage import Lineage, items_of
from mnemes_lab.store.store import Store
from mnemes_lab.store.trail import chunks, owners, rows_in

Words = tuple[str | None, str | None, int | None]  # label, device, first record time


def describe(
    store: Store, found: Lineage, recorded: int
) -> tuple[pl.DataFrame, pl.DataFrame, list[str]]:
    """Items with labels, the operations of a lineage, and operations that are none."""
    known, operations = words_of(store, found.depths, recorded, found.edges["operation_id"])
    named = [key for key in found.depths if key.startswith("operation:")]
    skipped = sorted(key.partition(":")[2] for key in named if key not in known)
    return items_of(found.depths, known), operations, skipped


def words_of(
    store: Store, keys: Iterable[str], recorded: int, operation_ids: Iterable[str] = ()
) -> tuple[dict[str, Words], pl.DataFrame]:
    """Label, device and first record time of items by key, and the operations among them.

    Args:
        store: The open store.
        keys: Items, ``kind:id``. What the mesh does not know gets no words.
        recorded: Facts bear the words that were on record then.
        operation_ids: More operations to answer for.
    """
    by_kind: dict[str, list[str]] = {}
    for key in keys:
        kind, _, id = key.partition(":")
        by_kind.setdefault(kind, []).append(id)

    def rows(kind: str, column: Column[Any]) -> list[Any]:
        return rows_in(store, column, sorted(by_kind.get(kind, [])))

    labels = {row["device_id"]: row["label"] for row in store.rows(select(t.devices))}
    known: dict[str, Words] = {}
    for row in rows("actor", t.actors.c.actor_id):
        words = row["name"] or row["kind"], labels.get(row["device_id"]), row["recorded_at"]
        known[f"actor:{row['actor_id']}"] = words
    for row in rows("device", t.devices.c.device_id):
        known[f"device:{row['device_id']}"] = row["label"], row["label"], row["first_seen_at"]
    known |= _fact_words(store, by_kind.get("fact", []), labels, recorded)
    ids = sorted({*by_kind.get("operation", []), *operation_ids})
    operations = _operations(store, ids, recorded)
    for row in operations.iter_rows(named=True):
        what = f"{row['operation_kind']} {row['target_kind']}"
        device = labels.get(row["recording_device_id"])
        known[f"operation:{row['operation_id']}"] = what, device, to_us(row["recorded_at"])
    return known, operations


def _operations(store: Store, ids: Sequence[str], recorded: int) -> pl.DataFrame:
    if store.read_only:
        frame = operations_frame(store)
        frame = frame.filter(pl.col("operation_id").is_in(list(ids)))
    else:
        found = rows_in(store, t.pooled_operations.c.operation_id, ids)
        rows = [tuple(row[c] for c in t.OPERATION_COLUMNS) for row in found]
        frame = operations_of(rows, store.mesh_id)
    return frame.filter(pl.col("recorded_at") <= from_us(recorded))


def _fact_words(
    store: Store, ids: Sequence[str], labels: Mapping[str, str], recorded: int
) -> dict[str, Words]:
    """Text of the version on record then, device and first record time of facts."""
    by_device: dict[str, list[str]] = {}
    for fact_id, device_id in owners(store, ids).items():
        by_device.setdefault(device_id, []).append(fact_id)
    known: dict[str, Words] = {}
    f = t.facts.c
    for device_id, mine in sorted(by_device.items()):
        for part in chunks(sorted(mine)):
            query = select(f.fact_id, f.text, f.recorded_at, f.redacted)
            query = query.where(f.fact_id.in_(part), f.recorded_at <= recorded)
            for row in store.shard(device_id).rows(query.order_by(f.version)):
                first = known.get(f"fact:{row['fact_id']}", (None, None, row["recorded_at"]))[2]
                text = "(redacted)" if row["redacted"] else row["text"]
                known[f"fact:{row['fact_id']}"] = (text, labels.get(device_id), first)
    return known
