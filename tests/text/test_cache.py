"""Vectors are kept by content, and a cache is never a reason to fail."""

from __future__ import annotations

import hashlib
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mnemes_lab.errors import EncoderError, InputError, NotAMeshError, StoreError
from mnemes_lab.text import cache as module
from mnemes_lab.text.cache import VectorCache, content_key, encode_cached
from mnemes_lab.text.encode import HashEncoder, Vectors

PRINT = "hash-v1:8"


class Counting:
    """Hashed words, and a record of what was asked; fails after `limit` texts."""

    def __init__(self, dim: int = 8, limit: int | None = None) -> None:
        self.inner = HashEncoder(dim)
        self.name, self.dim, self.fingerprint = "counting", dim, self.inner.fingerprint
        self.batches: list[list[str]] = []
        self.limit = limit

    @property
    def asked(self) -> list[str]:
        return [text for batch in self.batches for text in batch]

    def encode(self, texts: Sequence[str]) -> Vectors:
        if self.limit is not None and len(self.asked) + len(texts) > self.limit:
            raise RuntimeError("interrupted")
        self.batches.append(list(texts))
        return self.inner.encode(texts)


def some(n: int, *, first: int = 0, dim: int = 8) -> tuple[list[bytes], Vectors]:
    keys = [content_key(str(i)) for i in range(first, first + n)]
    return keys, np.random.default_rng(first).standard_normal((n, dim)).astype(np.float32)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "vectors.db"


@pytest.fixture
def cache(file: Path) -> Iterator[VectorCache]:
    with VectorCache(file) as opened:
        yield opened


def edit(file: Path, statement: str, *values: object) -> None:
    """Change the file behind the cache's back."""
    db = sqlite3.connect(file, isolation_level=None)
    db.execute(statement, values)
    db.close()


# --- get and put -----------------------------------------------------------------------------
@pytest.mark.parametrize("where", ["file", "memory"])
def test_what_was_put_is_got_bit_for_bit(where: str, file: Path) -> None:
    keys, vectors = some(1203)  # more than two questions to the database
    with VectorCache(file if where == "file" else None) as cache:
        cache.put(PRINT, keys, vectors)
        asked = [keys[7], content_key("absent"), keys[7], *reversed(keys)]
        got, found = cache.get(PRINT, asked, 8)
        assert found.tolist() == [True, False, True] + [True] * 1203
        assert got[3:].tobytes() == vectors[::-1].tobytes()
        assert got[0].tobytes() == got[2].tobytes() == vectors[7].tobytes()
        assert not got[1].any()
        assert cache.stats == {
            "entries": 1203, "hits": 1205, "misses": 1, "unsaved": 0, "damaged": 0,
            "set_aside": 0, "in_memory": where == "memory",
        }  # fmt: skip


def test_vectors_outlive_the_object(file: Path) -> None:
    keys, vectors = some(3)
    with VectorCache(str(file)) as cache:
        cache.put(PRINT, keys, vectors)
    with VectorCache(file) as cache:
        assert cache.get(PRINT, keys, 8)[0].tobytes() == vectors.tobytes()


def test_encoders_do_not_share_vectors(cache: VectorCache) -> None:
    keys, vectors = some(2)
    cache.put(PRINT, keys, vectors)
    assert not cache.get("other", keys, 8)[1].any()
    cache.put("other", keys, -vectors)
    assert np.array_equal(cache.get("other", keys, 8)[0], -vectors)
    assert np.array_equal(cache.get(PRINT, keys, 8)[0], vectors)


def test_the_first_vector_stays(cache: VectorCache) -> None:
    keys, vectors = some(2)
    cache.put(PRINT, keys, vectors)
    cache.put(PRINT, keys, vectors + 1)
    assert np.array_equal(cache.get(PRINT, keys, 8)[0], vectors)


def test_no_keys_no_vectors(cache: VectorCache) -> None:
    cache.put(PRINT, [], np.zeros((0, 8)))
    vectors, found = cache.get(PRINT, [], 8)
    assert (vectors.shape, found.shape) == ((0, 8), (0,))


@pytest.mark.parametrize(
    ("keys", "vectors"),
    [
        ([b"short"], np.zeros((1, 8))),
        (["x" * 32], np.zeros((1, 8))),
        ([bytes(32)], np.zeros((2, 8))),
        ([bytes(32)], np.zeros(8)),
        ([bytes(32)], np.full((1, 8), np.nan)),
    ],
)
def test_what_cannot_be_filed_is_refused(
    cache: VectorCache, keys: list[bytes], vectors: np.ndarray
) -> None:
    with pytest.raises(InputError):
        cache.put(PRINT, keys, vectors)
    assert cache.stats["entries"] == 0


def test_a_closed_cache_says_so(file: Path) -> None:
    cache = VectorCache(file)
    cache.close()
    cache.close()
    with pytest.raises(StoreError, match="closed"):
        cache.get(PRINT, [bytes(32)], 8)


def test_threads_share_a_cache(cache: VectorCache) -> None:
    def work(first: int) -> None:
        keys, vectors = some(50, first=first)
        cache.put(PRINT, keys, vectors)
        got, found = cache.get(PRINT, keys, 8)
        right.append(bool(found.all()) and got.tobytes() == vectors.tobytes())

    right: list[bool] = []
    threads = [threading.Thread(target=work, args=(1000 * i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert right == [True] * 4
    assert cache.stats["entries"] == 200


# --- forgetting ------------------------------------------------------------------------------
def test_forgetting_is_for_every_encoder_and_leaves_no_bytes(file: Path) -> None:
    keys, vectors = some(3)
    with VectorCache(file) as cache:
        cache.put(PRINT, keys, vectors)
        cache.put("other", keys, vectors)
        assert cache.forget([keys[0], keys[0], content_key("absent")]) == 2
        assert cache.get(PRINT, keys, 8)[1].tolist() == [False, True, True]
        assert cache.forget([]) == 0
        left = b"".join(path.read_bytes() for path in file.parent.iterdir())
        assert vectors[1].tobytes() in left
        assert vectors[0].tobytes() not in left and keys[0] not in left


def test_forgetting_removes_a_damaged_file_too(file: Path) -> None:
    keys, _ = some(1)
    file.parent.mkdir()
    file.write_bytes(b"not a database" * 100)
    with VectorCache(file) as cache:
        assert [path.name for path in file.parent.glob("*.damaged")] == ["vectors.db.damaged"]
        cache.forget(keys)
    assert not list(file.parent.glob("*.damaged"))


def test_forgetting_never_fails_silently(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys, vectors = some(1)
    with VectorCache(file) as cache:
        cache.put(PRINT, keys, vectors)
        cache._db.execute("PRAGMA busy_timeout = 0")  # type: ignore[union-attr]
        other = sqlite3.connect(file, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="still holds"):
            cache.forget(keys)
        cache.put(PRINT, *some(2, first=9))  # given up, and counted
        assert cache.stats["unsaved"] == 2
        other.close()
        assert cache.forget(keys) == 1


# --- damage ----------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "damage", ["substr(vector, 1, 20)", "zeroblob(length(vector))", "'text'", "x''"]
)
def test_a_damaged_vector_is_absent_and_then_rewritten(
    cache: VectorCache, file: Path, damage: str
) -> None:
    keys, vectors = some(3)
    cache.put(PRINT, keys, vectors)
    edit(file, f"UPDATE vectors SET vector = {damage} WHERE key = ?", keys[1])
    got, found = cache.get(PRINT, keys, 8)
    assert found.tolist() == [True, False, True] and not got[1].any()
    assert (cache.stats["damaged"], cache.stats["entries"]) == (1, 2)
    cache.put(PRINT, keys, vectors)
    assert np.array_equal(cache.get(PRINT, keys, 8)[0], vectors)


def test_a_flipped_bit_is_noticed(cache: VectorCache, file: Path) -> None:
    keys, vectors = some(1)
    cache.put(PRINT, keys, vectors)
    raw = bytearray(module._seal(vectors[0].tobytes()))
    raw[5] ^= 1
    edit(file, "UPDATE vectors SET vector = ?", bytes(raw))
    assert not cache.get(PRINT, keys, 8)[1].any()


def test_a_vector_of_another_length_is_replaced(cache: VectorCache) -> None:
    keys, vectors = some(2)
    cache.put(PRINT, keys, np.ones((2, 5)))
    cache.put(PRINT, keys, vectors)
    assert np.array_equal(cache.get(PRINT, keys, 8)[0], vectors)


def test_a_damaged_file_is_set_aside_at_opening(file: Path) -> None:
    file.parent.mkdir()
    file.write_bytes(b"not a database" * 100)
    with VectorCache(file) as cache:
        assert cache.stats["set_aside"] == 1 and not cache.stats["in_memory"]
        keys, vectors = some(2)
        cache.put(PRINT, keys, vectors)
    assert file.with_name("vectors.db.damaged").read_bytes() == b"not a database" * 100
    with VectorCache(file) as cache:
        assert cache.get(PRINT, keys, 8)[1].all()


def test_a_file_damaged_inside_is_set_aside_in_use(file: Path) -> None:
    keys, vectors = some(2000)
    with VectorCache(file) as cache:
        cache.put(PRINT, keys, vectors)
    raw = file.read_bytes()
    page = module._PAGE_BYTES
    file.write_bytes(raw[:page] + b"\xa5" * (len(raw) - page))
    with VectorCache(file) as cache:
        assert not cache.get(PRINT, keys, 8)[1].any()
        assert cache.stats["set_aside"] == 1
        cache.put(PRINT, keys, vectors)
        assert cache.get(PRINT, keys, 8)[1].all()


def test_a_database_of_something_else_is_refused_untouched(file: Path) -> None:
    file.parent.mkdir()
    edit(file, "CREATE TABLE facts (text)")
    before = file.read_bytes()
    with pytest.raises(NotAMeshError, match="not a vector cache"):
        VectorCache(file)
    assert file.read_bytes() == before
    assert [path.name for path in file.parent.iterdir()] == ["vectors.db"]


def test_where_nothing_can_be_written_it_works_in_memory(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file, not a folder")
    for path in (tmp_path / "taken" / "vectors.db", tmp_path):
        with VectorCache(path) as cache:
            keys, vectors = some(2)
            cache.put(PRINT, keys, vectors)
            assert cache.get(PRINT, keys, 8)[1].all()
            assert cache.stats["in_memory"]


def test_a_file_that_cannot_be_written_is_left_and_memory_used(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys, vectors = some(1)
    with VectorCache(file) as cache:
        cache.put(PRINT, keys, vectors)
    connect = sqlite3.connect

    def read_only(where: str, **options: object) -> sqlite3.Connection:
        where = where if where == ":memory:" else f"file:{where}?mode=ro"
        return connect(where, uri=True, **options)  # type: ignore[call-overload,no-any-return]

    monkeypatch.setattr(sqlite3, "connect", read_only)
    with VectorCache(file) as cache:
        assert cache.stats["in_memory"]
        cache.put(PRINT, keys, vectors)
        with pytest.raises(StoreError, match="still holds"):
            cache.forget(keys)


# --- encoding through the cache --------------------------------------------------------------
@settings(max_examples=30)
@given(st.lists(st.text(alphabet=st.characters(), max_size=6), max_size=12))
def test_cached_vectors_equal_fresh_ones_in_order(texts: list[str]) -> None:
    encoder = Counting()
    with VectorCache(None) as cache:
        first = encode_cached(encoder, texts, cache)
        assert sorted(encoder.asked) == sorted(set(texts))
        second = encode_cached(encoder, texts, cache)
    assert sorted(encoder.asked) == sorted(set(texts))
    assert first.shape == (len(texts), 8) and first.dtype == np.float32
    assert first.tobytes() == second.tobytes() == encoder.inner.encode(texts).tobytes()


def test_an_interrupted_run_continues_where_it_stopped(file: Path) -> None:
    texts = [f"pump {i}" for i in range(2500)]
    with VectorCache(file) as cache, pytest.raises(EncoderError, match="interrupted"):
        encode_cached(Counting(limit=2100), texts, cache)
    with VectorCache(file) as cache:
        assert cache.stats["entries"] == 2048
        encoder = Counting()
        vectors = encode_cached(encoder, texts, cache)
    assert encoder.asked == texts[2048:]
    assert vectors.tobytes() == HashEncoder(8).encode(texts).tobytes()


def test_texts_are_encoded_in_steps(cache: VectorCache) -> None:
    encoder = Counting()
    encode_cached(encoder, [f"pump {i}" for i in range(1100)], cache)
    assert [len(batch) for batch in encoder.batches] == [1024, 76]


def test_the_caller_may_choose_the_key(cache: VectorCache) -> None:
    def keyed(text: str) -> bytes:
        return hashlib.blake2b(text.encode(), key=b"secret", digest_size=32).digest()

    encode_cached(Counting(), ["pump"], cache, key=keyed)
    assert cache.get(PRINT, [keyed("pump"), content_key("pump")], 8)[1].tolist() == [True, False]


def test_bits_another_process_filed_first_are_the_ones_returned(
    cache: VectorCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    earlier = np.eye(8, dtype=np.float32)[:1]
    put = cache.put

    def late(fingerprint: str, keys: Sequence[bytes], vectors: Vectors) -> None:
        put(fingerprint, keys, earlier)
        put(fingerprint, keys, vectors)

    monkeypatch.setattr(cache, "put", late)
    assert np.array_equal(encode_cached(Counting(), ["pump"], cache), earlier)


def test_without_a_working_cache_the_vectors_are_still_right(
    cache: VectorCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "put", lambda *_: None)
    vectors = encode_cached(Counting(), ["pump", "!"], cache)
    assert vectors.tobytes() == HashEncoder(8).encode(["pump", "!"]).tobytes()


def test_the_progress_bar_goes_to_standard_error_and_only_when_asked(
    cache: VectorCache, capsys: pytest.CaptureFixture[str]
) -> None:
    encode_cached(Counting(), ["pump"], cache, progress=True)  # one step needs no bar
    encode_cached(Counting(), [f"valve {i}" for i in range(1030)], cache)
    assert capsys.readouterr() == ("", "")
    encode_cached(Counting(), [f"pump {i}" for i in range(1030)], cache, progress=True)
    shown = capsys.readouterr()
    assert shown.out == "" and "Encoding" in shown.err
