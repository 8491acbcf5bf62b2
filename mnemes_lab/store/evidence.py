"""Operations and edges as frames, and the index in pooled.db for questions that cross devices.

The shards are the authority. The index is derived: rows of a shard follow into pooled.db, in order,
when somebody asks across devices, and never before the shard's write is published. It can be
dropped and made again (:func:`rebuild`), and `check` compares it with the shards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import polars as pl
from sqlalchemy import ColumnElement, Select, delete, select, update

from mnemes_lab import schemas
from mnemes_lab.store import tables as t
from mnemes_lab.store.asof import AsOf
from mnemes_lab.store.store import Store
from mnemes_lab.store.writing import put

_STEP = 50_000  # edges that follow in one transaction


class Evidence(NamedTuple):
    """Everything a mesh can show for what it holds, at one point on the two time axes."""

    mesh_id: str
    as_of: AsOf | None
    devices: pl.DataFrame
    actors: pl.DataFrame
    facts: pl.DataFrame
    operations: pl.DataFrame
    edges: pl.DataFrame


# --- the index -------------------------------------------------------------------------------
def catch_up(store: Store) -> None:
    """Let the index follow what the shards have published."""
    c = t.catalogue.c
    behind = select(c.device_id, c.generation, c.evidence_generation, c.evidence_row)
    for row in store.rows(behind.where(c.generation > c.evidence_generation, c.generation > 1)):
        _follow(store, *row.values())


def _follow(store: Store, device_id: str, generation: int, reached: int, after: int) -> None:
    """Bring one shard's rows over, a part per transaction; a part that is there stays."""
    e, o = t.edges.c, t.operations.c
    while reached < generation:
        rows = select(t.edges).where(e.row_key > after, e.generation <= generation)
        with store.shard(device_id).reading() as conn:
            edges = conn.execute(rows.order_by(e.row_key).limit(_STEP)).all()
            last = len(edges) < _STEP
            until = generation if last else edges[-1].generation  # come with or before their edges
            known = select(t.operations).where(o.generation > reached, o.generation <= until)
            operations = conn.execute(known).all()
        after = edges[-1].row_key if edges else after
        reached = generation if last else max(reached, edges[-1].generation - 1)
        with store.pooled() as conn:
            put(conn, t.pooled_operations, [(device_id, *row) for row in operations], again=True)
            put(conn, t.pooled_edges, [(device_id, *row[1:]) for row in edges], again=True)
            conn.execute(
                update(t.catalogue)
                .where(t.catalogue.c.device_id == device_id)
                .values(evidence_generation=reached, evidence_row=after)
            )


def rebuild(store: Store) -> None:
    """Drop the index and make it again from the shards."""
    with store.writing():
        with store.pooled() as conn:
            for table in (t.pooled_edges, t.pooled_operations):
                conn.execute(delete(table).where(table.c.home != ""))
            conn.execute(update(t.catalogue).values(evidence_generation=0, evidence_row=0))
        catch_up(store)


# --- frames ----------------------------------------------------------------------------------
def operations_frame(store: Store, where: Mapping[str, Any] | None = None) -> pl.DataFrame:
    """The `operations` frame, oldest first; `where` names columns and the values wanted."""
    rows = _authority(store, t.operations, t.pooled_operations, t.OPERATION_COLUMNS, where or {})
    return operations_of(rows, store.mesh_id)


def operations_of(rows: Sequence[Sequence[Any]], mesh_id: str) -> pl.DataFrame:
    """Rows of `OPERATION_COLUMNS` as the `operations` frame: one row per operation."""
    frame = _frame(rows, t.OPERATION_COLUMNS).with_columns(
        pl.lit(mesh_id).alias("recording_server_id"),
        (pl.lit("op-receipt:") + pl.col("operation_id")).alias("receipt_id"),
    )
    over = pl.col("recording_device_id").n_unique().over("operation_id") > 1  # several shards
    frame = frame.with_columns(recording_device_id=pl.when(~over).then("recording_device_id"))
    frame = frame.sort("recorded_at", "operation_id", "idempotency_key", nulls_last=True)
    frame = frame.unique("operation_id", keep="first", maintain_order=True)
    wanted = schemas.dtypes(schemas.Operations)
    return frame.select(list(wanted)).cast(pl.Schema(wanted))


def edges_frame(
    store: Store, where: Mapping[str, Any] | None = None, device_id: str | None = None
) -> pl.DataFrame:
    """The `edges` frame of all devices or one shard alone, oldest first."""
    rows = _authority(store, t.edges, t.pooled_edges, t.EDGE_COLUMNS, where or {}, device_id)
    return edges_of(rows).sort("recorded_at", "edge_id")


def edges_of(rows: Sequence[Sequence[Any]]) -> pl.DataFrame:
    """Rows of `EDGE_COLUMNS` as the `edges` frame, in their order."""
    frame = _frame(rows, t.EDGE_COLUMNS)
    for end in ("source", "target"):
        names = [f"{end}_kind", f"{end}_id"]
        parts = pl.col(end).str.splitn(":", 2).struct.rename_fields(names).alias(end)
        frame = frame.with_columns(parts).unnest(end)
    wanted = schemas.dtypes(schemas.Edges)
    return frame.select(list(wanted)).cast(pl.Schema(wanted))


def item_keys(edges: pl.DataFrame) -> list[str]:
    """The items that edges connect, ``kind:id``, once each, sorted."""
    ends = [
        edges.select(pl.concat_str(f"{end}_kind", pl.lit(":"), f"{end}_id").alias("key"))
        for end in ("source", "target")
    ]
    return pl.concat(ends)["key"].unique().sort().to_list()


def _frame(rows: Sequence[Sequence[Any]], names: Sequence[str]) -> pl.DataFrame:
    columns = list(zip(*rows, strict=True)) or [()] * len(names)
    numbers = {"observed_at", "valid_time", "recorded_at", "valid_from", "valid_to", "generation"}
    return pl.DataFrame(
        [
            pl.Series(name, values, dtype=pl.Int64 if name in numbers else pl.String)
            for name, values in zip(names, columns, strict=True)
        ]
    )


def _authority(
    store: Store,
    shard_table: Any,
    pooled_table: Any,
    columns: Sequence[str],
    where: Mapping[str, Any],
    device_id: str | None = None,
) -> list[Sequence[Any]]:
    """Published rows of the shards and of pooled.db itself."""

    def query(c: Any, *rules: ColumnElement[bool]) -> Select[Any]:
        wanted = [
            c[name].in_(value) if isinstance(value, list) else c[name] == value
            for name, value in where.items()
        ]
        return select(*(c[n] for n in columns)).where(*rules, *wanted)

    catalogue = select(t.catalogue.c.device_id, t.catalogue.c.generation)
    if device_id is not None:
        catalogue = catalogue.where(t.catalogue.c.device_id == device_id)
    found: list[Sequence[Any]] = []
    for row in store.rows(catalogue.order_by(t.catalogue.c.device_id)):
        if row["generation"] > 1 or store.shard_path(row["device_id"]).exists():
            c = shard_table.c
            with store.shard(row["device_id"]).reading() as conn:
                found += conn.execute(query(c, c.generation <= row["generation"])).all()
    if device_id is None:
        c = pooled_table.c
        found += [tuple(row.values()) for row in store.rows(query(c, c.home == ""))]
    return found
