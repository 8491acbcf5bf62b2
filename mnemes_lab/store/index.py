"""The index of one shard: vectors, postings, and the columns that filters and hits need.

An index is derived: it holds nothing the shard does not, and it only *nominates*. It covers the
rows of its shard up to one generation, in order of acceptance, so it grows by appending; a fact
that is replaced or withdrawn keeps its row and gets a closing time.

On disk it is one file: a magic, the SHA-256 of the rest, and an uncompressed npz without pickle.
A file that is missing, damaged, of another encoder or of another shard is rebuilt.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mnemes_lab.errors import CorruptStoreError
from mnemes_lab.text.lexicon import Postings

HNSW_ROWS = 200_000  # from here a flat scan of 384 dimensions costs more than about 20 ms
FORMAT = 1
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
    def of(cls, rows: Sequence[Mapping[str, Any]]) -> Columns:
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
        self.row_of_ann = None if len(ann_rows) == len(columns) else ann_rows
        self._namespaces = {n: i for i, n in enumerate(sorted(set(columns.namespace)))}
        self._codes = np.array([self._namespaces[n] for n in columns.namespace], np.int32)
        self.last_recorded_at = int(columns.times["recorded_at"][-1]) if len(columns) else 0
        self.saved_rows = 0

    # --- making ------------------------------------------------------------------------------
    @classmethod
    def build(
        cls, stamp: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], vectors: Floats32
    ) -> ShardIndex:
        """Index rows from nothing; rows of zero vectors are found by their words only."""
        columns = Columns.of(rows)
        postings = Postings.build(columns.text)
        ann, kept = _ann(None, vectors, 0)
        return cls(stamp, columns, postings, ann, kept)

    def extend(
        self,
        stamp: Mapping[str, Any],
        rows: Sequence[Mapping[str, Any]],
        vectors: Floats32,
        closed: Sequence[tuple[int, int]],
    ) -> ShardIndex:
        """The index with new rows at the end and closing times (row_key, closed_at) brought up."""
        columns = self.columns.plus(Columns.of(rows)) if rows else self.columns
        closed_at = np.full(len(columns), OPEN_END, np.int64)
        if closed:
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

        if total >= HNSW_ROWS and not _is_hnsw(self.ann):  # now the graph pays
            everything = np.zeros((total, self.ann.d), np.float32)
            everything[self.ann_rows] = self.matrix()
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

    @property
    def generation(self) -> int:
        """The shard's generation it covers."""
        return int(self.stamp["generation"])

    @property
    def nbytes(self) -> int:
        """About how much memory it takes."""
        texts = sum(map(len, self.columns.text)) + 200 * len(self)
        return int(self.ann.ntotal * self.ann.d * 4 + self.postings.nbytes + texts)

    def visible(
        self, valid: int | None, recorded: int, namespaces: Sequence[str] | None
    ) -> Mask | None:
        """Which rows a question may find; None means all of them."""
        times = self.columns.times
        keep = (times["recorded_at"] <= recorded) & (recorded < times["closed_at"])
        keep &= recorded < times["expires_at"]
        if valid is not None:
            keep &= (times["valid_from"] <= valid) & (valid < times["valid_to"])
        if namespaces is not None:
            wanted = [self._namespaces[n] for n in namespaces if n in self._namespaces]
            keep &= np.isin(self._codes, wanted)
        return None if keep.all() else keep

    def matrix(self) -> Floats32:
        """The stored vectors, without copying; row i belongs to fact row `ann_rows[i]`."""
        import faiss

        flat = faiss.downcast_index(self.ann.storage) if _is_hnsw(self.ann) else self.ann
        n, d = flat.ntotal, flat.d
        if not n:
            return np.zeros((0, d), np.float32)
        view: Floats32 = faiss.rev_swig_ptr(flat.get_xb(), n * d).reshape(n, d)
        return view

    def vectors(self, rows: Ints) -> Floats32:
        """The vectors of some fact rows."""
        at = rows if self.row_of_ann is None else np.searchsorted(self.ann_rows, rows)
        return self.matrix()[at]

    def nearest(
        self, queries: Floats32, depth: int, mask: Mask | None, *, exact: bool
    ) -> tuple[Floats32, Ints]:
        """Nominate the rows of largest inner product per query, best first; -1 where fewer."""
        import faiss

        index = self.ann
        if exact and _is_hnsw(index):
            index = faiss.downcast_index(index.storage)
        depth = min(depth, index.ntotal)
        if not depth:
            return np.zeros((len(queries), 0), np.float32), np.zeros((len(queries), 0), np.int64)
        params = None
        if mask is not None:
            bits = np.packbits(mask[self.ann_rows], bitorder="little")
            selector = faiss.IDSelectorBitmap(bits)
            params = (
                faiss.SearchParametersHNSW(sel=selector, efSearch=max(64, 2 * depth))
                if _is_hnsw(index)
                else faiss.SearchParameters(sel=selector)
            )
        elif _is_hnsw(index):
            params = faiss.SearchParametersHNSW(efSearch=max(64, 2 * depth))
        scores, at = index.search(queries, depth, params=params)
        if self.row_of_ann is not None:
            at = np.where(at >= 0, self.row_of_ann[at], -1)
        return scores, at

    # --- keeping -----------------------------------------------------------------------------
    def save(self, path: Path) -> None:
        """Write the file beside its name and move it into place."""
        import faiss

        col = self.columns
        buffer = io.BytesIO()
        np.savez(
            buffer,
            allow_pickle=False,
            stamp=_blob(json.dumps({**self.stamp, "format": FORMAT})),
            row_key=col.row_key,
            ids=_blob(json.dumps([col.fact_id, col.namespace], ensure_ascii=False)),
            text=_blob("".join(col.text)),
            text_ends=np.cumsum([len(x) for x in col.text] or [0], dtype=np.int64),
            digest=np.frombuffer(b"".join(col.digest), np.uint8),
            ann=faiss.serialize_index(self.ann),
            ann_rows=self.ann_rows,
            **col.times,
            **{f"p_{k}": v for k, v in self.postings.to_arrays().items()},
        )
        body = buffer.getbuffer()
        fresh = path.with_name(f"{path.name}.{os.getpid()}.new")
        with fresh.open("wb") as file:
            file.write(_MAGIC + hashlib.sha256(body).digest())
            file.write(body)
        os.replace(fresh, path)
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
        body = memoryview(raw)[40:]
        if raw[:8] != _MAGIC or hashlib.sha256(body).digest() != raw[8:40]:
            raise CorruptStoreError(f"{path.name} is damaged.", hint="it is rebuilt from the shard")
        data = np.load(io.BytesIO(body), allow_pickle=False)
        stamp = json.loads(bytes(data["stamp"]))
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
        postings = Postings.from_arrays({k[2:]: data[k] for k in data.files if k[:2] == "p_"})
        index = cls(
            stamp, columns, postings, faiss.deserialize_index(data["ann"]), data["ann_rows"]
        )
        index.saved_rows = len(index)
        return index


def _blob(text: str) -> npt.NDArray[np.uint8]:
    return np.frombuffer(text.encode(), np.uint8)


def _is_hnsw(ann: Any) -> bool:
    return hasattr(ann, "hnsw")


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
