"""Merging: one ranking out of many shards, and what becomes of facts that shards disagree about."""

from __future__ import annotations

import hashlib
import random
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mnemes_lab import Mesh, merge_hits
from mnemes_lab.errors import BudgetError, SchemaError
from mnemes_lab.router.merge import RRF, checked_k, fuse, in_order, pool_size
from mnemes_lab.router.rowspace import nth_best

COLUMNS = {
    "query_id": pl.String,
    "device_id": pl.String,
    "fact_id": pl.String,
    "lexical_score": pl.Float64,
    "vector_score": pl.Float64,
    "text": pl.String,
}


def candidates(*rows: tuple[Any, ...]) -> pl.DataFrame:
    """Candidates of one question: device, fact, lexical and vector score, text."""
    return pl.DataFrame([("q", *row) for row in rows], schema=COLUMNS, orient="row")


def test_a_k_below_one_is_refused_and_a_large_one_is_capped():
    rows = candidates(*((f"d{i}", f"f{i}", 7.0 - i, None, f"text {i}") for i in range(7)))
    for k in (0, -1, True, 2.0, "3", None):
        with pytest.raises(BudgetError, match="at least 1"):
            merge_hits(rows, k=k)
    assert merge_hits(rows, k=7).height == 7
    assert checked_k(10**9) == 1000


def test_a_fact_told_in_two_ways_is_left_out_and_the_rest_stays():
    rows = candidates(
        ("d1", "same-id", 3.0, None, "one"),
        ("d2", "same-id", 1.0, None, "two"),
        ("d2", "other-id", 2.0, None, "three"),
    )
    assert merge_hits(rows, k=10)["fact_id"].to_list() == ["other-id"]
    # Looked for before the cut: with k=1 the copy that would have won is left out all the same.
    assert merge_hits(rows, k=1)["fact_id"].to_list() == ["other-id"]


def test_a_fact_told_twice_alike_is_one_hit_of_the_lower_device():
    rows = candidates(
        ("d2", "same-id", 3.0, 0.5, "one"),
        ("d1", "same-id", 3.0, 0.5, "one"),
        ("d3", "other-id", 1.0, None, "two"),
    )
    merged = merge_hits(rows)
    assert merged.select("device_id", "fact_id").rows() == [("d1", "same-id"), ("d3", "other-id")]
    assert merged["lexical_rank"].to_list() == [1, 2]  # the copy takes no place of its own


def test_equal_scores_fall_by_fact_id():
    rows = candidates(
        ("d1", "fact:b", 1.0, None, "one"),
        ("d2", "fact:a", 1.0, None, "two"),
        ("d3", "fact:B", 1.0, None, "three"),
    )
    assert merge_hits(rows)["fact_id"].to_list() == ["fact:B", "fact:a", "fact:b"]


def test_reciprocal_ranks_are_added_over_both_lists():
    rows = candidates(
        ("d1", "both", 2.0, 0.1, "one"),
        ("d1", "words", 3.0, None, "two"),
        ("d2", "near", None, 0.9, "three"),
    )
    merged = merge_hits(rows)
    assert dict(merged.select("fact_id", "score").rows()) == {
        "both": 1 / (RRF + 2) + 1 / (RRF + 2),
        "words": 1 / (RRF + 1),
        "near": 1 / (RRF + 1),
    }
    assert merged["fact_id"].to_list() == ["both", "near", "words"]
    assert merged["rank"].to_list() == [1, 2, 3]


def test_one_fact_found_by_words_alone_scores_a_sixty_first():
    assert merge_hits(candidates(("d", "f", 0.3, None, "x")))["score"].to_list() == [1 / 61]


def test_a_lexical_score_of_zero_is_no_hit_but_a_cosine_below_zero_is():
    rows = candidates(("d", "zero", 0.0, None, "x"), ("d", "away", None, -0.5, "y"))
    merged = merge_hits(rows)
    assert merged.select("fact_id", "vector_rank").rows() == [("away", 1)]


def test_each_list_is_cut_to_the_pool_before_fusion():
    rows = candidates(*(("d", f"f{i:03d}", 100.0 - i, None, f"text {i}") for i in range(80)))
    assert pool_size(1) == pool_size(10) == 50
    assert pool_size(12) == 60
    assert merge_hits(rows, k=10).height == 10
    assert merge_hits(rows, k=16)["fact_id"].to_list() == [f"f{i:03d}" for i in range(16)]
    deep = [("d", f"v{i:03d}", None, 0.9 - i / 1000, f"near {i}") for i in range(60)]
    late = candidates(
        *deep, *(("d", f"w{i:03d}", 9.0 - i / 1000, None, f"w {i}") for i in range(60))
    )
    assert merge_hits(late, k=10).filter(pl.col("vector_rank") > 50).is_empty()


@pytest.mark.parametrize(
    "change",
    [
        {"lexical_score": float("nan")},
        {"vector_score": float("inf")},
        {"fact_id": None},
        {"text": None},
        {"device_id": ""},
    ],
)
def test_unusable_candidates_are_refused(change):
    row = {"query_id": "q", "device_id": "d", "fact_id": "f", "lexical_score": 1.0,
           "vector_score": 1.0, "text": "x"}  # fmt: skip
    with pytest.raises(SchemaError):
        merge_hits(pl.DataFrame([{**row, **change}], schema=COLUMNS))


def test_repeated_candidates_of_one_shard_are_refused():
    with pytest.raises(SchemaError, match="repeated"):
        merge_hits(candidates(("d", "f", 1.0, None, "x"), ("d", "f", 2.0, None, "x")))


def test_both_kinds_of_frame_give_equal_hits(frame_kind):
    data = {
        "query_id": ["q", "q", "p"],
        "device_id": ["a", "b", "a"],
        "fact_id": ["f1", "f2", "f1"],
        "lexical_score": [2.5, 0.5, 1.0],
        "vector_score": [0.1, 0.9, 0.3],
        "text": ["x", "y", "x"],
    }
    merged = merge_hits(frame_kind.make_frame(data))
    assert frame_kind.column(merged, "query_id") == ["p", "q", "q"]
    assert frame_kind.column(merged, "fact_id") == ["f1", "f1", "f2"]
    assert frame_kind.column(merged, "score") == [1 / 61 + 1 / 61, *[1 / 61 + 1 / 62] * 2]


def test_no_candidates_are_no_hits():
    assert merge_hits(pl.DataFrame(schema=COLUMNS)).is_empty()


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32), n=st.integers(1, 70), k=st.integers(1, 20))
def test_neither_the_order_nor_the_split_of_candidates_matters(seed, n, k):
    rng = random.Random(seed)
    rows = [
        (
            f"d{rng.randrange(4)}",
            f"f{i}",
            rng.choice([None, 0.0, 1.0, 1.5]),
            rng.choice([None, 0.25, 0.5, -0.25]),
            "x",
        )
        for i in range(n)
    ]
    merged = merge_hits(candidates(*rows), k=k)
    rng.shuffle(rows)
    assert merge_hits(candidates(*rows), k=k).equals(merged)
    together = [("d0", *row[1:]) for row in rows]
    drop = ["device_id"]
    assert merge_hits(candidates(*together), k=k).drop(drop).equals(merged.drop(drop))
    assert merged["rank"].to_list() == list(range(1, merged.height + 1))
    assert merged["score"].is_sorted(descending=True)


def test_the_building_blocks_agree_with_their_words():
    assert in_order([7, 8, 9], [1.0, 2.0, 1.0], ["b", "c", "a"], 2) == [(8, 2.0), (9, 1.0)]
    fused = fuse([(1, 5.0)], [(2, 0.5), (1, 0.4)], lambda key: f"id-{key}", 5)
    assert [(f.key, f.lexical, f.vector) for f in fused] == [
        (1, (1, 5.0), (2, 0.4)),
        (2, None, (1, 0.5)),
    ]


# --- shards that hold one id, which only tampering or a restored backup can bring about ------
def copy_fact(folder: Path, source: str, target: str, text: str | None = None) -> None:
    """Write a fact of one shard into another one, behind the mesh's back."""
    paths = [folder / "shards" / device / "memory.db" for device in (source, target)]
    with sqlite3.connect(paths[0]) as conn:
        cursor = conn.execute("SELECT * FROM facts WHERE fact_id = 'shared'")
        row = dict(zip([d[0] for d in cursor.description], cursor.fetchone(), strict=True))
    conn.close()
    del row["row_key"]
    if text is not None:
        row |= {"text": text, "content_digest": hashlib.sha256(text.encode()).digest()}
    marks = ",".join("?" * len(row))
    with sqlite3.connect(paths[1]) as conn:
        conn.execute(f"INSERT INTO facts ({','.join(row)}) VALUES ({marks})", list(row.values()))
    conn.close()


def two_shards(mesh: Mesh) -> list[str]:
    """Two devices; the first one's id is the lower and it holds the fact called shared."""
    low, high = sorted(mesh.device(label).device_id for label in ("left", "right"))
    mesh.load(
        pl.DataFrame(
            {
                "device": [low, low, high],
                "text": ["pump three is off", "pump four is on", "pump five is on"],
                "fact_id": ["shared", "f4", "f5"],
            }
        )
    )
    return [low, high]


@pytest.fixture
def copied(open_mesh, tmp_path):
    """Reopens a mesh of two shards after copying the shared fact behind its back."""

    def make(text=None):
        mesh = open_mesh()
        low, high = two_shards(mesh)
        assert mesh.search("pump", exhaustive=True).conflicts.is_empty()
        mesh.close()
        copy_fact(tmp_path / "mesh", low, high, text)
        return open_mesh(seed=None, encoder=None), low, high

    return make


def test_a_fact_that_shards_disagree_about_is_quarantined(copied):
    mesh, low, high = copied("pump three is on")
    found = mesh.search("pump", exhaustive=True)
    assert sorted(found.hits["fact_id"]) == ["f4", "f5"]
    assert found.complete
    told = [
        hashlib.sha256(text).hexdigest() for text in (b"pump three is off", b"pump three is on")
    ]
    expected = [("shared", low, told[0]), ("shared", high, told[1])]
    assert found.conflicts.select("fact_id", "device_id", "content_digest").rows() == expected
    assert found.receipt.verify()
    assert found.receipt.body.conflicts == ("fact:shared",)
    mesh.search("pump", exhaustive=True)  # met again, kept once
    kept = mesh.item_conflicts()
    assert kept.equals(found.conflicts)
    assert "broken" in set(mesh.check().filter(pl.col("check") == "catalogue")["outcome"])


def test_a_fact_that_shards_tell_alike_is_one_hit(copied):
    mesh, low, _ = copied()
    found = mesh.search("pump", exhaustive=True)
    assert found.hits.filter(pl.col("fact_id") == "shared")["device_id"].to_list() == [low]
    assert found.hits.height == 3
    assert found.conflicts.is_empty()
    assert mesh.item_conflicts().is_empty()
    assert found.receipt.verify()


def test_only_who_sees_both_copies_sees_a_conflict(copied):
    mesh, low, high = copied("pump three is on")
    for device in (low, high):
        one = mesh.search("pump", asker=device, budget=1)
        assert one.conflicts.is_empty()
        assert set(one.hits["device_id"]) == {device}
    frame = pl.DataFrame({"query_id": ["a", "b"], "text": ["pump", ""]})
    found = mesh.search(frame, exhaustive=True)
    assert [r.body.conflicts for r in found.receipts] == [("fact:shared",), ()]


def test_a_shard_of_another_device_is_not_taken_for_its_own(open_mesh, tmp_path):
    mesh = open_mesh()
    low, high = two_shards(mesh)
    mesh.close()
    shards = tmp_path / "mesh" / "shards"
    shutil.copy(shards / low / "memory.db", shards / high / "memory.db")
    (shards / high / "index.bin").unlink()
    found = open_mesh(seed=None, encoder=None).search("pump", exhaustive=True)
    assert set(found.hits["device_id"]) == {low}
    assert not found.complete
    error = found.trace.filter(pl.col("device_id") == high)["error"].item()
    assert "another mesh or device" in error


@given(
    st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0, float("-inf")]), min_size=65, max_size=900),
    st.integers(1, 64),
)
def test_the_nth_best_is_that_of_a_sort(scores, n):
    assert nth_best(np.array(scores), n) == sorted(scores)[-n]
