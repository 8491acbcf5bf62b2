"""How fast the two clocks and lineage are over many edges, against the same written by hand.

Edges come in groups of 10,000: a tree of derivations, five to each item and so six steps deep,
with cross-links, so a lineage of depth 6 from a group's root reaches all of its group.
"""

from __future__ import annotations

import sqlite3
import tempfile
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from sqlalchemy import Connection

from mnemes_lab import schemas
from mnemes_lab.bench.report import BenchReport, median, peak_rss_mb
from mnemes_lab.clock import from_us
from mnemes_lab.mesh.mesh import Mesh
from mnemes_lab.store import tables as t
from mnemes_lab.store.asof import AsOf, as_of
from mnemes_lab.store.evidence import catch_up
from mnemes_lab.store.operations import Envelope, digest_of, owner_of
from mnemes_lab.store.writing import Part, commit, put, put_evidence

GROUP, ITEMS, _FAN, _DAY = 10_000, 9_000, 5, 86_400_000_000
_TARGET = list(t.pooled_edges.columns.keys()).index("target")
_OPERATION = "00000000-0000-4000-8000-000000000001"


def run(*, edges: int = 1_000_000, rounds: int = 15, roots: int = 20) -> BenchReport:
    """Measure over `edges` edges, rounded to whole groups.

    Returns:
        `asof_filter_ms` (ratio: over the same predicate in polars), `asof_superseded_ms` (ratio:
        over polars with the same supersession rules), `lineage_depth6_ms` (ratio: over a walk of
        the same index that asks once per item), `lineage_worst_ms`, `index_edges_per_s`.
    """
    groups = max(1, edges // GROUP)
    report = BenchReport("evidence")
    frame = made_edges(groups)
    cells: dict[str, Any] = {"edges": frame.height}
    point = AsOf(from_us(40 * _DAY), from_us(60 * _DAY))
    for measure, ours, theirs in (
        ("asof_filter_ms", lambda: as_of(frame, point, include_superseded=True), _by_hand),
        ("asof_superseded_ms", lambda: as_of(frame, point), _by_hand_superseded),
    ):
        mine, peer = _in_turn(ours, lambda theirs=theirs: theirs(frame, point), rounds)  # type: ignore[misc]
        ratio = median([a / b for a, b in zip(mine, peer, strict=True)])
        report.add(measure, median(mine), "ms", against="polars by hand", ratio=ratio, **cells)
    with tempfile.TemporaryDirectory(prefix="mnemes-bench-") as folder:
        _lineages(Path(folder) / "mesh", frame, min(roots, groups), report, cells)
    report.add("peak_rss_mb", peak_rss_mb(), "MB", **cells)
    return report


def _in_turn(
    ours: Callable[[], Any], theirs: Callable[[], Any], rounds: int
) -> tuple[list[float], list[float]]:
    times: tuple[list[float], list[float]] = ([], [])
    answers: list[Any] = [None, None]
    for turn in range(2 * (rounds + 1)):
        side = turn % 2
        start = time.perf_counter()
        answers[side] = (ours, theirs)[side]()
        if turn > 1:  # the first of each side warms up
            times[side].append((time.perf_counter() - start) * 1000)
    if not answers[0].equals(answers[1]):
        raise RuntimeError("the two sides give different answers")
    return times


# --- edges -----------------------------------------------------------------------------------
def made_edges(groups: int, seed: int = 7) -> pl.DataFrame:
    """A valid `edges` frame of `groups` groups; a twentieth of the items is superseded."""
    rng = np.random.default_rng(seed)
    child = np.arange(1, ITEMS)
    extra = GROUP - len(child)
    above = np.concatenate([(child - 1) // _FAN, rng.integers(0, ITEMS // 2, extra)])
    below = np.concatenate([child, rng.integers(ITEMS // 2, ITEMS, extra)])
    offset = np.repeat(np.arange(groups) * ITEMS, GROUP)
    n = groups * GROUP
    kinds = np.where(rng.random(n) < 0.05, "supersedes", "derived_from")
    start = rng.integers(0, 100, n) * _DAY
    ends = rng.integers(1, 100, n) * _DAY
    open_ = rng.random((2, n)) < 0.5

    def instants(us: Any, null: Any = None) -> pl.Series:
        column = pl.Series(us, dtype=pl.Int64).cast(pl.Datetime("us", "UTC"))
        if null is None:
            return column
        return pl.select(pl.when(pl.Series(~null)).then(column)).to_series()

    def ids(numbers: Any, last: str) -> pl.Series:
        text = pl.Series(numbers).cast(pl.String).str.zfill(12)
        return pl.select(pl.lit(f"00000000-0000-4000-8000-{last}") + text.str.slice(1)).to_series()

    wanted = schemas.dtypes(schemas.Edges)
    nothing = pl.Series([None], dtype=pl.Null)
    columns = {
        "edge_id": ids(np.arange(n), "e"),
        "edge_type": pl.Series(kinds),
        "source_kind": pl.Series(["fact"]),
        "source_id": ids(np.tile(above, groups) + offset, "f"),
        "target_kind": pl.Series(["fact"]),
        "target_id": ids(np.tile(below, groups) + offset, "f"),
        "operation_id": pl.Series([_OPERATION]),
        "valid_from": instants(start, open_[0]),
        "valid_to": instants(start + ends, open_[1]),
        "recorded_at": instants(rng.integers(0, 100, n) * _DAY),
    }
    full = [
        (pl.lit(column) if len(column) > 1 else pl.lit(column[0])).alias(name)
        for name, column in ((name, columns.get(name, nothing)) for name in wanted)
    ]
    return (
        pl.select(full)
        .cast(pl.Schema(wanted))
        .unique(["edge_type", "source_id", "target_id"], keep="first", maintain_order=True)
    )


def _by_hand(frame: pl.DataFrame, point: AsOf) -> pl.DataFrame:
    valid, recorded = point
    assert isinstance(valid, datetime)
    assert isinstance(recorded, datetime)
    return frame.filter(
        (pl.col("recorded_at") <= recorded)
        & (pl.col("valid_from").is_null() | (pl.col("valid_from") <= valid))
        & (pl.col("valid_to").is_null() | (pl.col("valid_to") > valid))
    )


def _by_hand_superseded(frame: pl.DataFrame, point: AsOf) -> pl.DataFrame:
    shown = _by_hand(frame, point)
    over = pl.col("edge_type") == "supersedes"
    gone = shown.filter(over).select(k="target_kind", i="target_id").unique().with_columns(x=True)
    for end in ("source", "target"):
        named = gone.rename({"x": end})
        keys = [f"{end}_kind", f"{end}_id"]
        shown = shown.join(
            named, left_on=keys, right_on=["k", "i"], how="left", maintain_order="left"
        )
    kept = pl.col("source").is_null() & pl.col("target").is_null()
    return shown.filter(over | kept).drop("source", "target")


# --- lineage ---------------------------------------------------------------------------------
def _lineages(
    folder: Path, frame: pl.DataFrame, roots: int, report: BenchReport, cells: dict[str, Any]
) -> None:
    with Mesh.open(folder, encoder="hash") as mesh:
        _fill(mesh, frame)
        start = time.perf_counter()
        catch_up(mesh.store)
        speed = frame.height / (time.perf_counter() - start)
        last = frame["recorded_at"].max()
        point = AsOf(recorded_at=last)  # type: ignore[arg-type]
        firsts = [f"00000000-0000-4000-8000-f{g * ITEMS:011d}" for g in range(roots)]
        mine, peer = [], []
        with sqlite3.connect(mesh.store.path) as conn:
            for fact_id in firsts:
                key = f"fact:{fact_id}"
                start = time.perf_counter()
                found = mesh.lineage(key, direction="outgoing", depth=6, as_of=point)
                mine.append((time.perf_counter() - start) * 1000)
                start = time.perf_counter()
                walked = _walk(conn, key, 6)
                peer.append((time.perf_counter() - start) * 1000)
                if walked != found.edges.height:
                    raise RuntimeError("the two walks give different answers")
        conn.close()
    ratio = median([a / b for a, b in zip(mine, peer, strict=True)])
    cells = cells | {"reached": found.edges.height}
    report.add(
        "lineage_depth6_ms", median(mine), "ms", against="a query per item", ratio=ratio, **cells
    )
    report.add("lineage_worst_ms", max(mine), "ms", **cells)
    report.add("index_edges_per_s", speed, "1/s", **cells)


def _fill(mesh: Mesh, frame: pl.DataFrame) -> None:
    """Write the edges into one shard, as a load would."""
    store = mesh.store
    device_id = mesh.device("bench").device_id
    now = store.now()
    told = Envelope(owner_of(store), "assert", "batch:bench", digest_of("bench"))
    keyed = frame.select(
        "edge_id",
        pl.col("edge_type").cast(pl.String),
        (pl.lit("fact:") + pl.col("source_id")).alias("source"),
        (pl.lit("fact:") + pl.col("target_id")).alias("target"),
        "operation_id",
        actor_id=None,
        device_id=pl.lit(device_id),
        valid_from=pl.col("valid_from").cast(pl.Int64),
        valid_to=pl.col("valid_to").cast(pl.Int64),
        observed_at=None,
        recorded_at=pl.col("recorded_at").cast(pl.Int64),
        content_digest=None,
        metadata=None,
        supersedes_edge_id=None,
        generation=pl.lit(2),
    )
    ids = pl.concat([frame["source_id"], frame["target_id"]]).unique().sort().to_list()

    def write(conn: Connection, generation: int) -> None:
        put_evidence(conn, device_id, [told.row(_OPERATION, device_id, now, generation)], [])
        put(conn, t.edges, keyed.rows())

    with store.writing():
        commit(store, {device_id: Part(write)}, now, fact_ids=[(i, device_id) for i in ids])


def _walk(conn: sqlite3.Connection, root: str, depth: int) -> int:
    """Breadth first, one query per item, and a frame of the edges met; answers how many."""
    seen, layer, met = {root}, [root], []
    for _ in range(depth):
        below = []
        for key in layer:
            rows = conn.execute("SELECT * FROM edges WHERE source = ?", (key,)).fetchall()
            met += rows
            fresh = [row[_TARGET] for row in rows if row[_TARGET] not in seen]
            seen.update(fresh)
            below += fresh
        layer = below
    names = [column.name for column in t.pooled_edges.columns]
    return pl.DataFrame(met, schema=names, orient="row", infer_schema_length=None).height
