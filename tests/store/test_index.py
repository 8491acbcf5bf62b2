"""The index of a shard: grown or built it is the same, and a damaged one is never believed."""

from __future__ import annotations

import random
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mnemes_lab.errors import CorruptStoreError
from mnemes_lab.store import index as index_module
from mnemes_lab.store.index import ShardIndex
from mnemes_lab.text.cache import content_key
from mnemes_lab.text.encode import HashEncoder

DIM = 8
WORDS = ["pump", "valve", "off", "KX-77", "Düse", "泵站", "\u2028", "!!!"]
TIMES = ("closed_at", "valid_from", "valid_to", "expires_at")


def stamp(generation: int = 2, **changes: Any) -> dict[str, Any]:
    base = {"mesh_id": "m", "device_id": "d", "encoder": "e", "generation": generation}
    return base | changes


def invent(seed: int, n: int) -> tuple[list[dict[str, Any]], Any]:
    """Rows of a shard and their vectors; some vectors say nothing."""
    rng = random.Random(seed)
    rows = []
    for key in range(1, n + 1):
        text = " ".join(rng.choices(WORDS, k=rng.randint(1, 4)))
        row = {
            "row_key": key,
            "fact_id": f"f{key}",
            "text": text,
            "namespace": rng.choice(["a", "b", "ñ"]),
            "content_digest": content_key(text),
            "recorded_at": key,
        }
        row |= {t: rng.choice([None, rng.randrange(1, 40)]) for t in TIMES}
        rows.append(row | {"remainder": rng.choice([0, 0, 1])})
    vectors = np.random.default_rng(seed).normal(size=(n, DIM)).astype(np.float32)
    for at in range(n):
        if rng.random() < 0.15:
            vectors[at] = rng.choice([0.0, np.nan, np.inf])
    return rows, vectors


def told(index: ShardIndex) -> dict[str, Any]:
    """Everything an index knows, as plain values."""
    c = index.columns
    return {
        "stamp": index.stamp,
        "columns": [c.row_key.tolist(), c.fact_id, c.text, c.namespace, c.digest],
        "times": {name: at.tolist() for name, at in c.times.items()},
        "postings": {k: v.tolist() for k, v in index.postings.to_arrays().items()},
        "ann_rows": index.ann_rows.tolist(),
        "vectors": index.vectors(index.ann_rows).tobytes(),
        "last": index.last_recorded_at,
        "with_vector": index.with_vector,
    }


def nearest(
    index: ShardIndex, depth: int, mask: Any = None, *, exact: bool = True
) -> list[set[int]]:
    """The rows of largest approximate score for a few questions."""
    scores = index.scores(np.eye(DIM, dtype=np.float32)[:3], mask, depth, exact=exact)
    assert scores.shape == (3, len(index))
    best = [np.argsort(-row, kind="stable")[:depth] for row in scores]
    return [set(b[row[b] > -np.inf].tolist()) for b, row in zip(best, scores, strict=True)]


@settings(max_examples=40)
@given(
    seed=st.integers(0, 2**32), n=st.integers(0, 30), cuts=st.lists(st.integers(0, 30), max_size=3)
)
def test_a_grown_index_equals_one_built_at_once(seed, n, cuts):
    rows, vectors = invent(seed, n)
    opened = [row | {"closed_at": None} for row in rows]
    index = ShardIndex.build(stamp(1), [], vectors[:0])
    done = 0
    for generation, cut in enumerate([*sorted(min(c, n) for c in cuts), n], 2):
        closed = [(r["row_key"], r["closed_at"]) for r in rows if r["closed_at"] is not None]
        index = index.extend(stamp(generation), opened[done:cut], vectors[done:cut], closed)
        done = cut
    built = ShardIndex.build(stamp(index.generation), rows, vectors)
    assert told(index) == told(built)
    assert nearest(index, 5) == nearest(built, 5)


def test_growing_leaves_the_older_index_as_it_was():
    rows, vectors = invent(1, 20)
    old = ShardIndex.build(stamp(), rows[:10], vectors[:10])
    before, found = told(old), nearest(old, 4)
    new = old.extend(stamp(3), rows[10:], vectors[10:], [(1, 99), (15, 98)])
    assert (told(old), nearest(old, 4)) == (before, found)
    assert len(new) == 20
    assert new.columns.times["closed_at"][[0, 14]].tolist() == [99, 98]


def test_closing_times_of_unknown_rows_are_ignored():
    rows, vectors = invent(1, 3)
    index = ShardIndex.build(stamp(), [row | {"closed_at": None} for row in rows], vectors)
    index = index.extend(stamp(3), [], vectors[:0], [(2, 50), (77, 60)])
    assert index.columns.times["closed_at"].tolist()[1] == 50
    assert (index.columns.times["closed_at"] == 50).sum() == 1


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**32),
    valid=st.one_of(st.none(), st.integers(0, 42)),
    recorded=st.integers(0, 42),
    namespaces=st.one_of(st.none(), st.lists(st.sampled_from(["a", "b", "ñ", "zz"]))),
)
def test_what_is_visible_equals_looking_at_each_row(seed, valid, recorded, namespaces):
    rows, vectors = invent(seed, 12)
    index = ShardIndex.build(stamp(), rows, vectors)
    mask = index.visible(valid, recorded, namespaces)
    shown = [True] * 12 if mask is None else mask.tolist()
    expected = [
        row["recorded_at"] <= recorded
        and (row["closed_at"] is None or recorded < row["closed_at"])
        and (valid is not None or not row["remainder"])
        and (row["expires_at"] is None or recorded < row["expires_at"])
        and (valid is None or row["valid_from"] is None or row["valid_from"] <= valid)
        and (valid is None or row["valid_to"] is None or valid < row["valid_to"])
        and (namespaces is None or row["namespace"] in namespaces)
        for row in rows
    ]
    assert shown == expected
    usable = np.isfinite(vectors).all(axis=1)
    usable &= np.where(np.isfinite(vectors), vectors, 1).any(axis=1)
    for found in nearest(index, 99, mask):
        assert found == set(np.flatnonzero(np.array(expected) & usable).tolist())


def test_rows_without_a_usable_vector_are_found_by_their_words():
    vectors = np.ones((4, DIM), np.float32)
    vectors[0], vectors[1, 3], vectors[2, 0] = 0, np.nan, -np.inf
    rows, _ = invent(1, 4)
    index = ShardIndex.build(stamp(), [r | {"text": "pump"} for r in rows], vectors)
    assert index.ann_rows.tolist() == [3]
    assert nearest(index, 10) == [{3}] * 3
    assert index.postings.get("pump")[0].tolist() == [0, 1, 2, 3]
    everything_zero = ShardIndex.build(stamp(), rows, np.zeros((4, DIM), np.float32))
    assert nearest(everything_zero, 10) == [set()] * 3


# --- the graph of a large shard --------------------------------------------------------------
@pytest.fixture
def small_graph(monkeypatch: pytest.MonkeyPatch) -> int:
    """Shards of 64 rows already count as large."""
    monkeypatch.setattr(index_module, "HNSW_ROWS", 64)
    return 64


def spread(n: int, seed: int = 3) -> tuple[list[dict[str, Any]], Any]:
    """Rows with vectors of length one, a few of them zero or not finite."""
    rows, _ = invent(seed, n)
    vectors = np.random.default_rng(seed).normal(size=(n, DIM))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    vectors[5], vectors[6] = 0, np.nan
    return [row | dict.fromkeys(TIMES) for row in rows], vectors.astype(np.float32)


def test_a_large_shard_becomes_a_graph_however_it_grew(small_graph):
    rows, vectors = spread(100)
    built = ShardIndex.build(stamp(), rows, vectors)
    flat = ShardIndex.build(stamp(), rows[:60], vectors[:60])
    grown = flat.extend(stamp(), rows[60:], vectors[60:], [])
    by_one = built.extend(stamp(3), *[part[:0] for part in (rows, vectors)], [(1, 5)])
    assert hasattr(built.ann, "hnsw")
    assert not hasattr(flat.ann, "hnsw")
    assert hasattr(grown.ann, "hnsw")
    for index in (built, grown, by_one):
        assert index.ann_rows.tolist() == [i for i in range(100) if i not in (5, 6)]
        at = np.array([0, 7, 99])
        assert np.array_equal(index.vectors(at), vectors[at])


@pytest.mark.parametrize("masked", [False, True])
def test_an_exact_search_of_a_graph_misses_nothing(small_graph, masked, monkeypatch):
    rows, vectors = spread(200)
    graph = ShardIndex.build(stamp(), rows, vectors)
    monkeypatch.setattr(index_module, "HNSW_ROWS", 10**9)
    flat = ShardIndex.build(stamp(), rows, vectors)
    mask = np.arange(200) % 3 == 0 if masked else None
    for depth in (1, 10, 80, 500):
        assert nearest(graph, depth, mask) == nearest(flat, depth, mask)
    for found in nearest(graph, 10, mask, exact=False):
        assert 0 < len(found) <= 10
        assert found <= set(range(200)) - {5, 6}
        assert not masked or all(row % 3 == 0 for row in found)


def test_a_graph_is_kept_and_read_back(small_graph, tmp_path):
    rows, vectors = spread(100)
    index = ShardIndex.build(stamp(), rows, vectors)
    index.save(tmp_path / "index.bin")
    again = ShardIndex.load(tmp_path / "index.bin")
    assert told(again) == told(index)
    assert nearest(again, 10, exact=False) == nearest(index, 10, exact=False)
    more, more_vectors = spread(120)
    assert len(again.extend(stamp(3), more[100:], more_vectors[100:], [])) == 120


def test_a_mesh_answers_alike_with_and_without_a_graph(open_mesh, monkeypatch):
    rng = random.Random(5)
    texts = [f"pump {rng.randrange(40)} {rng.choice(WORDS)}" for _ in range(150)]
    frame = pl.DataFrame({"device": "a", "text": texts, "fact_id": [f"f{i}" for i in range(150)]})
    hits = []
    for rows in (10**9, 100):
        monkeypatch.setattr(index_module, "HNSW_ROWS", rows)
        mesh = open_mesh(f"rows-{rows}")
        mesh.load(frame.head(90))
        mesh.load(frame.tail(60))
        hits.append(mesh.search("pump 7 off", exhaustive=True, k=30).hits.to_dicts())
        routed = mesh.search("pump 7 off", k=30)
        assert routed.hits.height == 30
        assert set(routed.trace["certificate"]) == {"none"}  # a graph may miss some
    assert hits[0] == hits[1]


# --- keeping ---------------------------------------------------------------------------------
@pytest.mark.parametrize("n", [0, 1, 25])
def test_a_kept_index_is_read_back_whole(tmp_path, n):
    rows, vectors = invent(7, n)
    index = ShardIndex.build(stamp(), rows, vectors)
    path = tmp_path / "index.bin"
    index.save(path)
    again = ShardIndex.load(path)
    assert told(again) == told(index)
    assert nearest(again, 9) == nearest(index, 9)
    assert [p.name for p in tmp_path.iterdir()] == ["index.bin"]
    first = path.read_bytes()
    again.save(path)
    assert path.read_bytes() == first


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The bytes of a kept index."""
    rows, vectors = invent(7, 25)
    path = tmp_path_factory.mktemp("index") / "index.bin"
    ShardIndex.build(stamp(), rows, vectors).save(path)
    return path.read_bytes()


@settings(max_examples=150)
@given(data=st.data())
def test_damage_anywhere_is_noticed(kept, tmp_path_factory, data):
    path = tmp_path_factory.mktemp("damaged") / "index.bin"
    at = data.draw(st.integers(0, len(kept) - 1), "at")
    way = data.draw(st.sampled_from(["flip", "cut", "grow", "zeros"]), "way")
    broken = bytearray(kept)
    if way == "flip":
        broken[at] ^= 1 << data.draw(st.integers(0, 7), "bit")
    elif way == "cut":
        del broken[at:]
    elif way == "grow":
        broken[at:at] = b"\0"
    else:
        broken[at : at + 16] = bytes(len(broken[at : at + 16]))
    path.write_bytes(broken)
    if bytes(broken) == kept:
        return
    with pytest.raises(CorruptStoreError, match=r"index\.bin is damaged.*Hint"):
        ShardIndex.load(path)


def test_an_absent_index_is_no_damage(tmp_path):
    with pytest.raises(FileNotFoundError):
        ShardIndex.load(tmp_path / "index.bin")


# --- in a mesh -------------------------------------------------------------------------------
class Counting(HashEncoder):
    """A hash encoder that keeps what it was asked."""

    def __init__(self) -> None:
        super().__init__(16)
        self.asked: list[str] = []

    def encode(self, texts: Sequence[str]) -> Any:
        self.asked += texts
        return super().encode(texts)


FRAME = pl.DataFrame(
    {
        "device": ["a", "a", "b"],
        "text": ["pump off", "valve off", "pump on"],
        "fact_id": ["f1", "f2", "f3"],
    }
)


def folders(mesh: Any) -> list[Path]:
    return sorted((mesh.store.folder / "shards").iterdir())


@pytest.mark.parametrize(
    "damage", ["absent", "cut", "flipped", "empty", "folder", "of another shard"]
)
def test_an_unusable_index_is_made_again_without_encoding(open_mesh, damage):
    mesh = open_mesh(encoder="hash:16")
    mesh.load(FRAME)
    before = mesh.search("pump off", exhaustive=True).hits
    first, second = folders(mesh)
    mesh.close()
    path = first / "index.bin"
    raw = path.read_bytes()
    path.unlink()
    if damage == "cut":
        path.write_bytes(raw[: len(raw) // 2])
    elif damage == "flipped":
        path.write_bytes(raw[:500] + bytes([raw[500] ^ 1]) + raw[501:])
    elif damage == "empty":
        path.touch()
    elif damage == "folder":
        path.mkdir()
    elif damage == "of another shard":
        shutil.copy(second / "index.bin", path)
    encoder = Counting()
    mesh = open_mesh(encoder=encoder)
    found = mesh.search("pump off", exhaustive=True)
    assert found.complete
    assert found.hits.equals(before)
    assert encoder.asked == []
    mesh.close()
    assert list(first.glob("*.new")) == []
    if damage != "folder":
        assert ShardIndex.load(path).stamp["device_id"] == first.name


def test_an_index_of_another_encoder_is_not_used(open_mesh):
    mesh = open_mesh(encoder="hash:16")
    mesh.load(FRAME)
    old = (folders(mesh)[0] / "index.bin").read_bytes()
    mesh.reencode("hash:32")
    hits = mesh.search("pump off", exhaustive=True).hits
    mesh.close()
    (folders(mesh)[0] / "index.bin").write_bytes(old)
    again = open_mesh(encoder=None)
    assert again.search("pump off", exhaustive=True).hits.equals(hits)


def test_an_index_from_before_an_undone_write_is_not_continued(open_mesh, tmp_path):
    """Its last row is not the shard's, although the row's key is."""
    mesh = open_mesh(encoder="hash:16")
    mesh.load(FRAME)
    device = mesh.device("a").device_id
    mesh.close()
    shutil.copytree(tmp_path / "mesh", tmp_path / "copy")
    one, two = open_mesh(encoder=None), open_mesh("copy", encoder=None)
    one.load(pl.DataFrame({"device": ["a"], "text": ["pier nine"], "fact_id": ["x"]}))
    two.load(pl.DataFrame({"device": ["a"], "text": ["tea room"], "fact_id": ["y"]}))
    one.close(), two.close()
    shutil.copy(
        tmp_path / "copy" / "shards" / device / "index.bin",
        tmp_path / "mesh" / "shards" / device / "index.bin",
    )
    again = open_mesh(encoder=None)
    assert again.search("pier nine", exhaustive=True, k=1).hits["fact_id"].to_list() == ["x"]
    assert "y" not in set(again.search("tea room", exhaustive=True).hits["fact_id"])


@pytest.mark.parametrize("index_bytes", [1, 1 << 30])
def test_a_byte_budget_bounds_what_is_loaded_and_loses_nothing(open_mesh, index_bytes):
    mesh = open_mesh(encoder="hash:16", index_bytes=index_bytes)
    mesh.load(FRAME)
    frame = pl.DataFrame({"device": list("cdef"), "text": [f"pump {i}" for i in range(4)]})
    mesh.load(frame)
    for _ in range(2):
        assert mesh.search("pump", exhaustive=True, k=20).hits.height == 7
    loaded = len(mesh.indexes._loaded)
    assert loaded == (1 if index_bytes == 1 else 6)
    assert mesh.indexes.bytes == sum(index.nbytes for index, _ in mesh.indexes._loaded.values())


def test_nothing_is_encoded_twice(open_mesh):
    for run in range(2):
        encoder = Counting()
        mesh = open_mesh(encoder=encoder)
        mesh.load(FRAME)
        hits = mesh.search("pump off?", exhaustive=True).hits["fact_id"].to_list()
        assert sorted(hits) == ["f1", "f2", "f3"]
        expected = ["pump off", "pump off?", "pump on", "valve off"] if run == 0 else []
        assert sorted(encoder.asked) == expected
        mesh.close()
