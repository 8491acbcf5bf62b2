"""Vectors kept by content, so that no text is encoded twice.

A vector is filed under the encoder's fingerprint and a 32-byte key of the text, in one SQLite file.
It is a cache and behaves like one: a damaged vector counts as absent, a damaged file is set aside
and a new one begun, and where nothing can be written it works in memory. It is never the reason
that a search fails. Only a file that belongs to something else is refused.

The first vector filed under a key stays, so that everyone who asks for a text gets the same bits,
also from encoders whose last bits vary between batches.
"""

from __future__ import annotations

import hashlib
import sqlite3
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from mnemes_lab.errors import InputError, NotAMeshError, NotFiniteError, StoreError
from mnemes_lab.text.encode import Encoder, Vectors, checked

T = TypeVar("T")
Found = npt.NDArray[np.bool_]

_APPLICATION_ID = 0x4D4E5643  # "MNVC", written into the file so that it is known again
# Keys lead, so that they can be forgotten for every encoder at once. Pages of 8 KiB hold whole rows
# of 384 numbers; smaller pages, or rows clustered by key, make writing three times slower.
_PAGE_BYTES = 8192
_TABLE = """CREATE TABLE IF NOT EXISTS vectors (
    key BLOB NOT NULL, fingerprint TEXT NOT NULL, vector BLOB NOT NULL,
    PRIMARY KEY (key, fingerprint))"""
_PUT = """INSERT INTO vectors (key, fingerprint, vector) VALUES (?, ?, ?)
    ON CONFLICT DO UPDATE SET vector = excluded.vector
    WHERE length(vector) <> length(excluded.vector)"""
_DROP = "DELETE FROM vectors WHERE key = ? AND fingerprint = ?"
_FORGET = "DELETE FROM vectors WHERE key = ?"
_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_ASK = 500  # keys per question: SQLite before 3.32 takes at most 999 parameters
_CHUNK = 1024  # texts encoded between two writes


class VectorCache:
    """Vectors by (encoder fingerprint, 32-byte key), on disk or in memory.

    Threads may share one, processes its file. Reading 100,000 vectors of 384 numbers takes
    between one and two seconds.

    Example:
        >>> cache = VectorCache(None)
        >>> cache.put("hash-v1:8", [bytes(32)], np.eye(8)[:1])
        >>> vectors, found = cache.get("hash-v1:8", [bytes(32), b"?" * 32], 8)
        >>> vectors.shape, found.tolist()
        ((2, 8), [True, False])
        >>> cache.close()
    """

    def __init__(self, path: Path | str | None) -> None:
        """Open the cache at `path`, or begin it there; None keeps it in memory.

        Raises:
            NotAMeshError: the file is a healthy database of something else.
        """
        self._wanted = None if path is None else Path(path)
        self._path = self._wanted  # becomes None where only memory is left
        self._lock = threading.RLock()
        self._counts = {"hits": 0, "misses": 0, "unsaved": 0, "damaged": 0, "set_aside": 0}
        self._db: sqlite3.Connection | None = self._open()

    def get(self, fingerprint: str, keys: Sequence[bytes], dim: int) -> tuple[Vectors, Found]:
        """Look vectors up.

        Args:
            fingerprint: Of the encoder.
            keys: 32 bytes each, repeats welcome.
            dim: Numbers in a vector.

        Returns:
            float32 ``(len(keys), dim)``, zero where nothing was found, and which were found.
            A vector that is damaged or has another length is removed and counts as not found.
        """
        vectors, found = self._look_up(fingerprint, keys, dim)
        self._count(hits=int(found.sum()), misses=int((~found).sum()))
        return vectors, found

    def put(self, fingerprint: str, keys: Sequence[bytes], vectors: npt.ArrayLike) -> None:
        """File one vector per key; one already filed stays unless its length differs.

        A write that the disk or another process prevents is given up and counted as unsaved.

        Raises:
            InputError: not one finite row per key.
        """
        _check(keys)
        rows = np.ascontiguousarray(vectors, "<f4")
        if rows.ndim != 2 or len(rows) != len(keys) or not np.isfinite(rows).all():
            raise InputError(f"Expected one finite vector for each of {len(keys)} keys.")
        sealed = [_seal(row.tobytes()) for row in rows]
        # In the order of the index, neighbouring rows share its pages.
        filed = sorted((k, fingerprint, blob) for k, blob in zip(keys, sealed, strict=True))
        if self._ask(lambda db: _write(db, _PUT, filed), None) is None:
            self._count(unsaved=len(filed))

    def forget(self, keys: Sequence[bytes]) -> int:
        """Remove vectors for every encoder, and overwrite where they were.

        Also removes a damaged file set aside earlier, which may still hold them.

        Returns:
            How many vectors there were.

        Raises:
            StoreError: another process or the disk prevented it.
        """
        _check(keys)
        out_of_reach = self._path is None and self._wanted is not None and self._wanted.exists()
        rows = [(key,) for key in sorted(set(keys))]
        removed = self._ask(lambda db: _write(db, _FORGET, rows), None)
        if removed is None or out_of_reach:
            raise StoreError(
                "The vector cache could not be written, so its file still holds the vectors.",
                found=str(self._wanted),
                hint="try again when no other process writes to it",
            )
        # Until the journal is emptied it still holds the pages as they were.
        self._ask(lambda db: db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall(), [])
        if self._path is not None:
            _damaged_name(self._path).unlink(missing_ok=True)
        return removed

    @property
    def stats(self) -> dict[str, Any]:
        """Vectors held (``entries``), and since opening: hits, misses, and what went wrong.

        ``unsaved`` vectors could not be written, ``damaged`` ones could not be read, ``set_aside``
        files were damaged; ``in_memory`` tells that nothing outlives this object.
        """
        count = "SELECT count(*) FROM vectors"
        entries = self._ask(lambda db: int(db.execute(count).fetchone()[0]), 0)
        return {"entries": entries, **self._counts, "in_memory": self._path is None}

    def close(self) -> None:
        """Close the file; closing twice is fine."""
        with self._lock:
            if self._db is not None:
                self._db.close()
                self._db = None

    def __enter__(self) -> VectorCache:
        """Use it in a ``with`` statement, which closes it."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    def _count(self, **more: int) -> None:
        with self._lock:
            for what, number in more.items():
                self._counts[what] += number

    def _look_up(self, fingerprint: str, keys: Sequence[bytes], dim: int) -> tuple[Vectors, Found]:
        _check(keys)
        place = {key: i for i, key in enumerate(dict.fromkeys(keys))}
        vectors = np.zeros((len(place), dim), np.float32)
        found = np.zeros(len(place), bool)
        bad: list[tuple[bytes, str]] = []
        asked = sorted(place)  # in the order of the index
        for start in range(0, len(asked), _ASK):
            some = asked[start : start + _ASK]
            rows = self._rows(fingerprint, some)
            whole = [(key, blob) for key, blob in rows if _is_whole(blob, dim)]
            if len(whole) < len(rows):
                bad += [(key, fingerprint) for key, blob in rows if not _is_whole(blob, dim)]
            where = [place[key] for key, _ in whole]
            # One conversion for many rows; the seal at the end of each is cut off as a column.
            numbers = np.frombuffer(b"".join([blob for _, blob in whole]), "<f4")
            vectors[where] = numbers.reshape(-1, dim + 1)[:, :dim]
            found[where] = True
        if bad:
            self._ask(lambda db: _write(db, _DROP, bad), None)
            self._count(damaged=len(bad))
        if len(place) == len(keys):
            return vectors, found
        each = [place[key] for key in keys]
        return vectors[each], found[each]

    def _rows(self, fingerprint: str, keys: Sequence[bytes]) -> list[tuple[bytes, bytes]]:
        marks = ",".join("?" * len(keys))
        query = f"SELECT key, vector FROM vectors WHERE fingerprint = ? AND key IN ({marks})"
        nothing: list[tuple[bytes, bytes]] = []
        return self._ask(lambda db: db.execute(query, [fingerprint, *keys]).fetchall(), nothing)

    def _open(self) -> sqlite3.Connection:
        """Open the file, or a new one after setting a damaged one aside, or memory."""
        for last in (False, False, True):  # one try more for a damaged file, one for a busy one
            if self._path is None:
                break
            try:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                return _connect(str(self._path))
            except sqlite3.DatabaseError as error:
                again = self._set_aside() if _is_kind(error, _DAMAGE) else _is_kind(error, _BUSY)
                if last or not again:
                    self._path = None
            except OSError:
                self._path = None
        return _connect(":memory:")

    def _set_aside(self) -> bool:
        """Rename the damaged file; false when that is impossible."""
        self._count(set_aside=1)
        if self._path is None:
            return False
        try:
            self._path.replace(_damaged_name(self._path))
            for end in ("-wal", "-shm"):
                self._path.with_name(self._path.name + end).unlink(missing_ok=True)
        except OSError:
            return False
        return True

    def _ask(self, question: Callable[[sqlite3.Connection], T], nothing: T) -> T:
        """Put a question to the database; `nothing` when it cannot answer just now."""
        with self._lock:
            for _ in range(2):
                if self._db is None:
                    raise StoreError("The vector cache is closed.", hint="open it again")
                try:
                    return question(self._db)
                except sqlite3.DatabaseError as error:
                    if _is_kind(error, _DAMAGE):
                        self.close()
                        self._path = self._path if self._set_aside() else None
                        self._db = self._open()
                    elif not isinstance(error, sqlite3.OperationalError):
                        raise
                    else:
                        return nothing
            return nothing


def _connect(where: str) -> sqlite3.Connection:
    db = sqlite3.connect(where, timeout=5.0, isolation_level=None, check_same_thread=False)
    try:
        # In this order: another process may be beginning the same file, and writes both at once.
        filled = db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        mark = db.execute("PRAGMA application_id").fetchone()[0]
        if filled and mark != _APPLICATION_ID:
            raise NotAMeshError(
                "This is a database, but not a vector cache; it was left as it is.", found=where
            )
        db.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = NORMAL")  # losing the last writes costs time, not truth
        db.execute("PRAGMA secure_delete = ON")
        with _transaction(db):
            db.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
            db.execute(_TABLE)
    except BaseException:
        db.close()
        raise
    return db


@contextmanager
def _transaction(db: sqlite3.Connection) -> Iterator[None]:
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):
            db.execute("ROLLBACK")
        raise


def _write(db: sqlite3.Connection, statement: str, rows: Sequence[tuple[Any, ...]]) -> int:
    with _transaction(db):
        return db.executemany(statement, rows).rowcount if rows else 0


def _seal(raw: bytes) -> bytes:
    """The numbers and their CRC-32: flipped bits are noticed, not searched with."""
    return raw + zlib.crc32(raw).to_bytes(4, "little")


def _is_whole(blob: object, dim: int) -> bool:
    return (
        isinstance(blob, bytes)
        and len(blob) == 4 * (dim + 1)
        and zlib.crc32(memoryview(blob)[:-4]) == int.from_bytes(blob[-4:], "little")
    )


def _is_kind(error: sqlite3.DatabaseError, kinds: tuple[int, ...]) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in kinds  # the low byte is the kind


def _damaged_name(path: Path) -> Path:
    return path.with_name(path.name + ".damaged")


def _check(keys: Sequence[bytes]) -> None:
    if not all(isinstance(key, bytes) and len(key) == 32 for key in keys):
        raise InputError("Cache keys are 32 bytes, such as a SHA-256 digest.")


# --- encoding through the cache --------------------------------------------------------------
def content_key(text: str) -> bytes:
    """SHA-256 of a text's UTF-8 bytes.

    Example:
        >>> content_key("").hex()[:16]
        'e3b0c44298fc1c14'
    """
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def encode_cached(
    encoder: Encoder,
    texts: Sequence[str],
    cache: VectorCache,
    *,
    key: Callable[[str], bytes] | None = None,
    progress: bool = False,
) -> Vectors:
    """Vectors of texts, encoding only what the cache does not hold.

    Equal texts are encoded once and share their vector. What is encoded is filed every 1,024 texts,
    so an interrupted run continues where it stopped.

    Args:
        encoder: Called through :func:`~mnemes_lab.text.encode.checked`.
        texts: In any order, repeats welcome.
        cache: Where vectors are kept.
        key: Text to 32 bytes; :func:`content_key` unless given, for example a keyed digest.
        progress: Show a bar on standard error when there is more than one step.

    Returns:
        float32 ``(len(texts), encoder.dim)`` in the order of `texts`; zero rows for texts with
        nothing to encode, and for those the encoder answers with numbers that are not finite
        (these are not filed, so they are tried again another time).

    Raises:
        EncoderError: the encoder failed; what was encoded before is in the cache.

    Example:
        >>> from mnemes_lab.text.encode import HashEncoder
        >>> with VectorCache(None) as cache:
        ...     vectors = encode_cached(HashEncoder(64), ["pump", "valve", "pump"], cache)
        ...     vectors.shape, bool((vectors[0] == vectors[2]).all()), cache.stats["entries"]
        ((3, 64), True, 2)
    """
    place = {text: i for i, text in enumerate(dict.fromkeys(texts))}
    distinct = list(place)
    keys = [(key or content_key)(text) for text in distinct]
    vectors, found = cache.get(encoder.fingerprint, keys, encoder.dim)
    missing = np.flatnonzero(~found)
    steps = [missing[i : i + _CHUNK].tolist() for i in range(0, len(missing), _CHUNK)]
    for step in _shown(steps) if progress and len(steps) > 1 else steps:
        unusable: set[int] = set()
        try:
            fresh = checked(encoder, [distinct[i] for i in step])
        except NotFiniteError as error:  # of a few texts, which must not cost the others theirs
            fresh, unusable = error.vectors, set(error.rows)
        wanted = [keys[i] for i in step]
        good = [at for at in range(len(step)) if at not in unusable]
        cache.put(encoder.fingerprint, [wanted[at] for at in good], fresh[good])
        # Another process may have filed other last bits first: what is filed is what counts.
        filed, there = cache._look_up(encoder.fingerprint, wanted, encoder.dim)
        vectors[step] = np.where(there[:, None], filed, fresh)
    return vectors[[place[text] for text in texts]]


def _shown(steps: list[list[int]]) -> Iterator[list[int]]:
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True)) as bar:
        task = bar.add_task("Encoding", total=sum(map(len, steps)))
        for step in steps:
            yield step
            bar.advance(task, len(step))
