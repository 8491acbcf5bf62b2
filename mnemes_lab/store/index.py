"""The index of one shard: vectors, postings, and the columns that filters and hits need.

An index is derived: it holds nothing the shard does not, and it only *nominates*. It covers the
rows of its shard up to one generation, in order of acceptance, so it grows by appending; a fact
that is replaced or withdrawn keeps its row and gets a closing time.

On disk it is one file: a magic, a checksum of the rest, and plain arrays.
A file that is missing, damaged, of another encoder or of another shard is rebuilt.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sqlalchemy import RowMapping

from mnemes_lab.errors import CorruptStoreError
from mnemes_lab.text.lexicon import Postings

HNSW_ROWS = 200_000  # from here a flat scan of 384 dimensions costs more than about 20 ms
FORMAT = 2
OPEN_START, OPEN_END = np.iinfo(np.int64).min, np.iinfo(np.int64).max
_MAGIC = b"MNEMESIX"
Ints = npt.NDArray[np.int64]
Floats32 = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]
_INTERVALS = {
    "recorded_at": OPEN_START,
    "closed_at": OPEN_END,
    "valid_from": OPEN_START,
    "valid_to": OPEN_END,
    "expires_at": OPEN_END,
    "remainder": 0,  # 1: shown only to who asks for a valid time
}


@dataclass(frozen=True)
class Columns:
    """What is known of each indexed row, aligned by position."""

    row_key: Ints
    fact_id: list[str]
    text: list[str]
    namespace: list[str]
    digest: list[bytes]
    times: dict[str, Ints]

    @classmethod
    def of(cls, rows: Sequence[RowMapping]) -> Columns:
        """From rows of the `facts` table; open ends become the extreme integers."""
        return cls(
            np.array([r["row_key"] for r in rows], np.int64),
            [r["fact_id"] for r in rows],
            [r["text"] for r in rows],
            [r["namespace"] for r in rows],
            [r["content_digest"] for r in rows],
            {
                name: np.array([end if r[name] is None else r[name] for r in rows], np.int64)
                for name, end in _INTERVALS.items()
            },
        )

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.fact_id)

    def plus(self, other: Columns) -> Columns:
        """These rows, then the other ones."""
        return Columns(
            np.concatenate([self.row_key, other.row_key]),
            self.fact_id + other.fact_id,
            self.text + other.text,
            self.namespace + other.namespace,
            self.digest + other.digest,
            {name: np.concatenate([self.times[name], other.times[name]]) for name in _INTERVALS},
        )


class ShardIndex:
    """Search structures over the first rows of one shard."""

    def __init__(
        self,
        stamp: Mapping[str, Any],
        columns: Columns,
        postings: Postings,
        ann: Any,
        ann_rows: Ints,
    ) -> None:
        """Use :meth:`build`, :meth:`extend` or :meth:`from_bytes`."""
        self.stamp = dict(stamp)
        self.columns, self.postings = columns, postings
        self.ann, self.ann_rows = ann, ann_rows
        self.generation = int(stamp["generation"])
        self.with_vector = int(ann.ntotal)
        self.is_graph = hasattr(ann, "hnsw")  # asked of every shard in every search
        self.row_of_ann = None if len(ann_rows) == len(columns) else ann_rows
        self._namespaces = {n: i for i, n in enumerate(sorted(set(columns.namespace)))}
        self._codes = np.array([self._namespaces[n] for n in columns.namespace], np.int32)
        self.last_recorded_at = int(columns.times["recorded_at"][-1]) if len(columns) else 0
        self.saved_rows = 0

    # --- making ------------------------------------------------------------------------------
    @classmethod
    def build(
        cls, stamp: Mapping[str, Any], rows: Sequence[RowMapping], vectors: Floats32
    ) -> ShardIndex:
        """Index rows from nothing; rows of zero vectors are found by their words only."""
        columns = Columns.of(rows)
        postings = Postings.build(columns.text)
        ann, kept = _ann(None, vectors, 0)
        return cls(stamp, columns, postings, ann, kept)

    def extend(
        self,
        stamp: Mapping[str, Any],
        rows: Sequence[RowMapping],
        vectors: Floats32,
        closed: Sequence[tuple[int, int]],
    ) -> ShardIndex:
        """The index with new rows at the end and closing times (row_key, closed_at) brought up."""
        columns = self.columns.plus(Columns.of(rows)) if rows else self.columns
        closed_at = np.full(len(columns), OPEN_END, np.int64)
        if closed and len(columns):
            keys, times = (np.array(part, np.int64) for part in zip(*closed, strict=True))
            at = np.searchsorted(columns.row_key, keys)
            within = (at < len(columns)) & (
                columns.row_key[np.minimum(at, len(columns) - 1)] == keys
            )
            closed_at[at[within]] = times[within]
        columns = Columns(
            columns.row_key,
            columns.fact_id,
            columns.text,
            columns.namespace,
            columns.digest,
            {**columns.times, "closed_at": closed_at},
        )
        postings = self.postings.append([r["text"] for r in rows]) if rows else self.postings
        ann, kept = self._grown(vectors, len(columns))
        grown = ShardIndex(stamp, columns, postings, ann, kept)
        grown.saved_rows = self.saved_rows
        return grown

    def _grown(self, vectors: Floats32, total: int) -> tuple[Any, Ints]:
        """A copy of the vector index with more vectors; searches may still hold this one."""
        import faiss

        if total >= HNSW_ROWS and not self.is_graph:  # now the graph pays
            everything = np.zeros((total, self.ann.d), np.float32)
            everything[self.ann_rows] = self.matrix
            everything[len(self) :] = vectors
            return _ann(None, everything, 0)
        if not len(vectors):
            return self.ann, self.ann_rows
        ann, added = _ann(faiss.clone_index(self.ann), vectors, len(self))
        return ann, np.concatenate([self.ann_rows, added])

    # --- asking ------------------------------------------------------------------------------
    def __len__(self) -> int:
        """Number of rows."""
        return len(self.columns)

    @cached_property
    def nbytes(self) -> int:
        """About how much memory it takes."""
        texts = sum(map(len, self.columns.text)) + 200 * len(self)
        return int(self.ann.ntotal * self.ann.d * 4 + self.postings.nbytes + texts)

    def visible(
        self, valid: int | None, recorded: int, namespaces: Sequence[str] | None
    ) -> Mask | None:
        """Which rows a question may find; None means all of them."""
        if namespaces is None and self._all_open(valid, recorded):
            return None
        times = self.columns.times
        keep = (times["recorded_at"] <= recorded) & (recorded < times["closed_at"])
        keep &= recorded < times["expires_at"]
        if valid is not None:
            keep &= (times["valid_from"] <= valid) & (valid < times["valid_to"])
        else:
            keep &= times["remainder"] == 0
        if namespaces is not None:
            wanted = [self._namespaces[n] for n in namespaces if n in self._namespaces]
            keep &= np.isin(self._codes, wanted)
        return None if keep.all() else keep

    def _all_open(self, valid: int | None, recorded: int) -> bool:
        """Whether every row passes, from the extremes alone."""
        ends = self._extremes
        on_record = ends["recorded_at"] <= recorded < min(ends["closed_at"], ends["expires_at"])
        on_record &= valid is not None or not ends["remainder"]
        return on_record and (valid is None or ends["valid_from"] <= valid < ends["valid_to"])

    @cached_property
    def _extremes(self) -> dict[str, int]:
        if not len(self):
            return dict.fromkeys(_INTERVALS, OPEN_END)
        starts = ("recorded_at", "valid_from", "remainder")
        return {
            name: int(at.max() if name in starts else at.min())
            for name, at in self.columns.times.items()
        }

    @cached_property
    def matrix(self) -> Floats32:
        """The stored vectors, without copying; row i belongs to fact row `ann_rows[i]`."""
        import faiss

        flat: Any = faiss.downcast_index(self.ann.storage) if self.is_graph else self.ann
        n, d = flat.ntotal, flat.d
        if not n:
            return np.zeros((0, d), np.float32)
        view: Floats32 = faiss.rev_swig_ptr(flat.get_xb(), n * d).reshape(n, d)
        return view

    def vectors(self, rows: Ints) -> Floats32:
        """The vectors of some fact rows."""
        at = rows if self.row_of_ann is None else np.searchsorted(self.ann_rows, rows)
        return self.matrix[at]

    def scores(self, queries: Floats32, mask: Mask | None, depth: int, *, exact: bool) -> Floats32:
        """Approximate inner product of each query with each row, -inf where there is none.

        A flat index is scanned by one matrix product over its stored vectors: every row gets its
        score, and a batch of 100 costs less than half of `IndexFlat.search` here. The graph of a
        large shard nominates about `depth` rows; `exact` scans it too.

        Returns:
            float32, queries by rows.
        """
        if self.is_graph and not exact:
            return self._walk(queries, depth, mask)
        found = queries @ self.matrix.T
        if self.row_of_ann is not None:
            every = np.full((len(queries), len(self)), -np.inf, np.float32)
            every[:, self.row_of_ann] = found
            found = every
        if mask is not None:
            found[:, ~mask] = -np.inf
        return found

    def _walk(self, queries: Floats32, depth: int, mask: Mask | None) -> Floats32:
        import faiss

        selector = None
        if mask is not None:
            bits = np.packbits(mask[self.ann_rows], bitorder="little")
            selector = faiss.IDSelectorBitmap(bits)  # type: ignore[call-arg,arg-type]
        params = faiss.SearchParametersHNSW(  # type: ignore[attr-defined]
            sel=selector, efSearch=max(64, 2 * depth)
        )
        near, at = self.ann.search(queries, min(depth, self.with_vector), params=params)
        every = np.full((len(queries), len(self)), -np.inf, np.float32)
        for row, (values, places) in enumerate(zip(near, at, strict=True)):
            every[row, self.ann_rows[places[places >= 0]]] = values[places >= 0]
        return every

    # --- keeping -----------------------------------------------------------------------------
    def save(self, path: Path) -> None:
        """Write the file beside its name and move it into place."""
        import faiss

        col = self.columns
        parts: dict[str, npt.NDArray[Any]] = {
            "row_key": col.row_key,
            "ids": _blob(json.dumps([col.fact_id, col.namespace], ensure_ascii=False)),
            "text": _blob("".join(col.text)),
            "text_ends": np.cumsum([len(x) for x in col.text], dtype=np.int64),
            "digest": np.frombuffer(b"".join(col.digest), np.uint8),
            "ann": faiss.serialize_index(self.ann),
            "ann_rows": self.ann_rows,
            **col.times,
            **{f"p_{name}": part for name, part in self.postings.to_arrays().items()},
        }
        body = _pack({**self.stamp, "format": FORMAT}, parts)
        fresh = path.with_name(f"{path.name}.{os.getpid()}.new")
        try:
            with fresh.open("wb") as file:
                file.write(_MAGIC + zlib.crc32(body).to_bytes(4, "big"))
                file.write(body)
            os.replace(fresh, path)
        finally:
            fresh.unlink(missing_ok=True)  # there only after a failure
        self.saved_rows = len(self)

    @classmethod
    def load(cls, path: Path) -> ShardIndex:
        """Read a saved index.

        Raises:
            CorruptStoreError: damaged, or of another format.
            FileNotFoundError: there is none.
        """
        import faiss

        raw = path.read_bytes()
        if raw[:8] != _MAGIC or zlib.crc32(memoryview(raw)[12:]) != int.from_bytes(
            raw[8:12], "big"
        ):
            raise CorruptStoreError(f"{path.name} is damaged.", hint="it is rebuilt from the shard")
        stamp, data = _unpack(raw)
        if stamp.pop("format") != FORMAT:
            raise CorruptStoreError(f"{path.name} has another format.", hint="it is rebuilt")
        fact_ids, namespaces = json.loads(bytes(data["ids"]))
        text, ends = bytes(data["text"]).decode(), data["text_ends"].tolist()
        starts = [0, *ends[:-1]]
        digest = bytes(data["digest"])
        columns = Columns(
            data["row_key"],
            fact_ids,
            [text[a:b] for a, b in zip(starts, ends, strict=True)] if fact_ids else [],
            namespaces,
            [digest[i : i + 32] for i in range(0, len(digest), 32)],
            {name: data[name] for name in _INTERVALS},
        )
        postings = Postings.from_arrays({k[2:]: data[k] for k in data if k[:2] == "p_"})
        index = cls(
            stamp, columns, postings, faiss.deserialize_index(data["ann"]), data["ann_rows"]
        )
        index.saved_rows = len(index)
        return index


def _pack(stamp: Mapping[str, Any], parts: Mapping[str, npt.NDArray[Any]]) -> bytes:
    """The stamp, what arrays follow, and their bytes, each at a multiple of 8."""
    told, chunks, at = [], [], 0
    for name, part in parts.items():
        chunk = part.tobytes()
        told.append([name, part.dtype.str, at, len(part)])
        chunks.append(chunk + bytes(-len(chunk) % 8))
        at += len(chunks[-1])
    head = json.dumps([stamp, told]).encode()
    head += b" " * (-(len(head) + 4 + 12) % 8)
    return b"".join([len(head).to_bytes(4, "big"), head, *chunks])


def _unpack(raw: bytes) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
    """Read what :func:`_pack` wrote, after magic and checksum, without copying the arrays."""
    start = 16 + int.from_bytes(raw[12:16], "big")
    stamp, told = json.loads(raw[16:start])
    return stamp, {
        name: np.frombuffer(raw, dtype, count, start + at) for name, dtype, at, count in told
    }


def _blob(text: str) -> npt.NDArray[np.uint8]:
    return np.frombuffer(text.encode(), np.uint8)


def _ann(ann: Any, vectors: Floats32, offset: int) -> tuple[Any, Ints]:
    """Add the usable vectors to an index (a new one if none); answer it and their fact rows."""
    import faiss

    usable = np.isfinite(vectors).all(axis=1) & vectors.any(axis=1)
    rows = np.flatnonzero(usable).astype(np.int64)
    if ann is None:
        dim = vectors.shape[1]
        if len(vectors) < HNSW_ROWS:
            ann = faiss.IndexFlatIP(dim)
        else:
            ann = faiss.IndexHNSWFlat(dim, 32, faiss.METRIC_INNER_PRODUCT)
    if len(rows):
        ann.add(np.ascontiguousarray(vectors[rows], np.float32))
    return ann, rows + offset
