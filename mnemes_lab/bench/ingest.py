"""How fast facts are stored, against bare sqlite3 writing the same rows.

The peer writes exactly the rows that the mesh wrote, facts, operations and edges, from tuples made
beforehand, into the same tables with the same indexes, by ``executemany``, with the same pragmas
and the same number of commits: one that announces, one per shard, one that publishes.
"""

from __future__ import annotations

import gc
import sqlite3
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
from sqlalchemy import MetaData, select

from mnemes_lab.bench.report import BenchReport, median, peak_rss_mb
from mnemes_lab.bench.workload import make_workload
from mnemes_lab.mesh.mesh import Mesh
from mnemes_lab.store import control
from mnemes_lab.store import tables as t
from mnemes_lab.store.engine import _RW as PRAGMAS
from mnemes_lab.store.engine import create_schema, make_engine

Rows = Sequence[tuple[Any, ...]]


def run(*, devices: int = 100, facts: int = 100_000, rounds: int = 3) -> BenchReport:
    """Load `facts` facts spread over `devices` devices, `rounds` times on both sides in turn.

    Returns:
        `ingest_rows_per_s`, whose ratio is the mesh's speed over the peer's (median of rounds).
    """
    frame = _frame(devices, facts)
    ours, theirs = [], []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory(prefix="mnemes-bench-") as folder:
            mesh_s, work = _ours(Path(folder) / "mesh", frame)
            ours.append(mesh_s)
            theirs.append(_peer(Path(folder) / "peer", work))
    report = BenchReport("ingest")
    ratio = median([b / a for a, b in zip(ours, theirs, strict=True)])
    cells: dict[str, Any] = {"devices": devices, "facts": facts}
    speed = facts / median(ours)
    report.add("ingest_rows_per_s", speed, "1/s", against="sqlite3", ratio=ratio, **cells)
    report.add("peer_rows_per_s", facts / median(theirs), "1/s", **cells)
    report.add("peak_rss_mb", peak_rss_mb(), "MB", **cells)
    return report


def _frame(devices: int, facts: int) -> pl.DataFrame:
    """Natural sentences, spread evenly; the generator's devices become ours."""
    per_device = -(-facts // devices)
    made = make_workload(
        "campus", devices=devices, facts_per_device=max(10, per_device), questions=1
    )
    return made.facts.drop("fact_id").head(facts)


def _ours(folder: Path, frame: pl.DataFrame) -> tuple[float, dict[str, Any]]:
    with Mesh.open(folder, encoder="hash") as mesh:
        labels = frame["device"].unique().sort().to_list()
        made = control.register_devices(mesh.store, [(d, "", "", None) for d in labels])
        for device_id, _ in made:
            mesh.store.shard(device_id)  # the files exist on both sides before the clock starts
        gc.collect()
        start = time.perf_counter()
        answers = mesh.load(frame, encode=False)
        seconds = time.perf_counter() - start
        stored = answers.filter(pl.col("outcome") == "stored").height
        if stored + answers.filter(pl.col("outcome") == "duplicate").height != frame.height:
            raise RuntimeError("the load did not keep every row")
        work: dict[str, Any] = {"shards": {}}
        for device_id, _ in made:
            with mesh.store.shard(device_id).reading() as conn:
                work["shards"][device_id] = [
                    (_insert(table), [tuple(row) for row in conn.execute(select(table)).all()])
                    for table in (t.facts, t.operations, t.edges)
                ]
        work["index"] = [tuple(r.values()) for r in mesh.store.rows(select(t.fact_index))]
    return seconds, work


def _make(path: Path, tables: MetaData, kind: int) -> None:
    engine = make_engine(path)
    create_schema(engine, tables, kind, t.GENERATION)
    engine.dispose()


def _open(path: Path) -> sqlite3.Connection:
    conn = sqlite3.connect(path, isolation_level=None)
    for pragma in PRAGMAS:
        conn.execute(pragma).fetchall()
    return conn


def _commit(conn: sqlite3.Connection, *work: tuple[str, Rows]) -> None:
    conn.execute("BEGIN IMMEDIATE")
    for sql, rows in work:
        conn.executemany(sql, rows)
    conn.execute("COMMIT")


def _insert(table: Any) -> str:
    return f"INSERT INTO {table.name} VALUES ({', '.join('?' * len(table.columns))})"


def _peer(folder: Path, work: dict[str, Any]) -> float:
    folder.mkdir()
    _make(folder / "pooled.db", t.pooled, t.POOLED_ID)
    for device_id in work["shards"]:
        _make(folder / f"{device_id}.db", t.shard, t.SHARD_ID)
    pooled = _open(folder / "pooled.db")
    devices = [(d, d, "", "", None, 0, "active", 0, 0, 0, 0) for d in work["shards"]]
    empty = [(d, 1, 0, 0, 0, 0, 0.0, None, 0, 0) for d in work["shards"]]
    _commit(pooled, (_insert(t.devices), devices), (_insert(t.catalogue), empty))
    pending = [(d, 1, "undo", 1) for d in work["shards"]]
    gc.collect()
    start = time.perf_counter()
    _commit(pooled, (_insert(t.fact_index), work["index"]), (_insert(t.pending_writes), pending))
    for device_id, parts in work["shards"].items():
        conn = _open(folder / f"{device_id}.db")
        state = (1, "m", device_id, 2, len(parts[0][1]), 0, None, 0)
        _commit(conn, *parts, (_insert(t.shard_state), [state]))
        conn.close()
    published = [(2, len(parts[0][1]), d) for d, parts in work["shards"].items()]
    _commit(
        pooled,
        ("UPDATE catalogue SET generation = ?, facts = ? WHERE device_id = ?", published),
        ("DELETE FROM pending_writes WHERE device_id = ?", [(d,) for d in work["shards"]]),
    )
    pooled.close()
    return time.perf_counter() - start
