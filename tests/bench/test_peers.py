"""The benchmarks measure real work on both sides, at a size that costs a second."""

from __future__ import annotations

import json

import polars as pl
import pytest

from mnemes_lab import schemas
from mnemes_lab.bench import evidence, ingest, search
from mnemes_lab.bench.report import BenchReport, median
from mnemes_lab.bench.workload import make_workload
from mnemes_lab.mesh.mesh import Mesh

bm25s = pytest.importorskip("bm25s")


def measures(report: BenchReport) -> dict[str, float]:
    return {row["measure"]: row["value"] for row in report.rows}


def test_ingest_writes_the_same_rows_on_both_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    peer = ingest._peer
    monkeypatch.setattr(ingest, "_peer", lambda f, work: (seen.append(work), peer(f, work))[1])
    report = ingest.run(devices=3, facts=60, rounds=1)
    written = [[len(rows) for _, rows in parts] for parts in seen[0]["shards"].values()]
    assert written == [[20, 1, 20]] * 3  # facts, the load's one operation, an edge for each fact
    assert len(seen[0]["index"]) == 60
    assert {"ingest_rows_per_s", "peak_rss_mb"} <= set(measures(report))
    assert report.rows[0]["against"] == "sqlite3" and report.rows[0]["ratio"] > 0


def test_evidence_names_every_measure_and_compares_equal_answers() -> None:
    report = evidence.run(edges=10_000, rounds=1, roots=1)
    schemas.Measures.validate(report.frame())
    compared = {row["measure"]: row["ratio"] for row in report.rows if row["against"]}
    names = {"asof_filter_ms", "asof_superseded_ms", "lineage_depth6_ms"}
    assert compared.keys() == names and all(ratio > 0 for ratio in compared.values())
    (reached,) = (r["reached"] for r in report.rows if r["measure"] == "lineage_worst_ms")
    assert 9_000 < reached <= 10_000


def test_search_names_every_measure_and_its_ratio() -> None:
    report = search.run(devices=6, facts_per_device=40, queries=3, batch=6, budget=2)
    schemas.Measures.validate(report.frame())
    compared = {row["measure"]: row for row in report.rows if row["against"]}
    for name in ("exhaustive_one_ms", "exhaustive_batch_ms", "budget_ms", "budget_batch_ms"):
        assert compared[name]["against"] == "monolith" and compared[name]["ratio"] > 0
    assert measures(report)["peak_rss_mb"] > 50


def test_the_json_is_one_object_of_the_promised_form() -> None:
    report = BenchReport("x")
    report.add("m", 1, "ms", against="peer", ratio=2, devices=3)
    told = json.loads(report.to_json())
    assert set(told) == {"bench", "results", "env"}
    assert told["results"] == [
        {"measure": "m", "value": 1.0, "unit": "ms", "against": "peer", "ratio": 2.0, "devices": 3}
    ]
    assert told["env"]["packages"]["polars"] == pl.__version__


def test_the_monolith_finds_what_the_mesh_finds(tmp_path) -> None:
    """Both answer from all facts; the lexical sides tokenise differently, so most hits, not all."""
    made = make_workload("campus", devices=4, facts_per_device=50, questions=20)
    with Mesh.open(tmp_path / "m", encoder="hash") as mesh:
        mesh.load(made.facts)
        ours = mesh.search(made.queries, exhaustive=True).hits
        theirs = search.Monolith(mesh.encoder, made.facts, mesh.cache).search(
            made.queries["text"].to_list()
        )
    shared = 0
    for i, query_id in enumerate(made.queries["query_id"]):
        mine = set(ours.filter(pl.col("query_id") == query_id)["fact_id"])
        shared += len(mine & set(theirs.filter(pl.col("query_id") == f"q{i}")["fact_id"]))
    assert shared >= 0.7 * ours.height


def test_the_middle_of_an_even_number_of_values() -> None:
    assert median([4, 1, 3, 2]) == 2.5
