"""Words for what a lineage reached: texts of facts, names of actors and devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl
from sqlalchemy import select

from mnemes_lab.clock import from_us, to_us
from mnemes_lab.ids import is_uuid4
from mnemes_lab.store import tables as t
from mnemes_lab.store.evidence import operations_frame, operations_of
from mnemes_lab.store.lineage import Lineage, items_of
from mnemes_lab.store.store import Store
from mnemes_lab.store.trail import chunks, owners


def describe(
    store: Store, found: Lineage, recorded: int
) -> tuple[pl.DataFrame, pl.DataFrame, list[str]]:
    """Items with labels, the operations of a lineage, and operations that are none."""
    by_kind: dict[str, list[str]] = {}
    for key in found.depths:
        kind, _, id = key.partition(":")
        by_kind.setdefault(kind, []).append(id)
    labels = {row["device_id"]: row["label"] for row in store.rows(select(t.devices))}
    known: dict[str, tuple[Any, ...]] = {}
    for row in _some(store, t.actors, "actor_id", by_kind.get("actor", [])):
        told = (row["name"] or row["kind"], labels.get(row["device_id"]), row["recorded_at"])
        known[f"actor:{row['actor_id']}"] = told
    for row in _some(store, t.devices, "device_id", by_kind.get("device", [])):
        known[f"device:{row['device_id']}"] = (row["label"], row["label"], row["first_seen_at"])
    known |= _fact_labels(store, by_kind.get("fact", []), labels, recorded)
    named = by_kind.get("operation", [])
    ids = [*(i for i in named if is_uuid4(i)), *found.edges["operation_id"].to_list()]
    operations = _operations(store, sorted(set(ids)), recorded)
    for row in operations.iter_rows(named=True):
        what = f"{row['operation_kind']} {row['target_kind']}"
        device = labels.get(row["recording_device_id"])
        at = row["recorded_at"]
        known[f"operation:{row['operation_id']}"] = (what, device, to_us(at))
    skipped = sorted({i for i in named if f"operation:{i}" not in known})
    return items_of(found, known), operations, skipped


def _operations(store: Store, ids: Sequence[str], recorded: int) -> pl.DataFrame:
    if store.read_only:
        frame = operations_frame(store)
        frame = frame.filter(pl.col("operation_id").is_in(list(ids)))
    else:
        found = _some(store, t.pooled_operations, "operation_id", ids)
        rows = [tuple(row[c] for c in t.OPERATION_COLUMNS) for row in found]
        frame = operations_of(rows, store.mesh_id)
    return frame.filter(pl.col("recorded_at") <= from_us(recorded))


def _fact_labels(
    store: Store, ids: Sequence[str], labels: Mapping[str, str], recorded: int
) -> dict[str, tuple[Any, ...]]:
    """Text of the version on record then, device and first record time of facts."""
    by_device: dict[str, list[str]] = {}
    for fact_id, device_id in owners(store, ids).items():
        by_device.setdefault(device_id, []).append(fact_id)
    known: dict[str, tuple[Any, ...]] = {}
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


def _some(store: Store, table: Any, column: str, values: Sequence[str]) -> list[Any]:
    found: list[Any] = []
    for part in chunks(sorted(set(values))):
        found += store.rows(select(table).where(table.c[column].in_(part)))
    return found
