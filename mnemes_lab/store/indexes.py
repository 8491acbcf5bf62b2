"""All indexes of a mesh: brought up to date when asked for, held under a byte budget."""

from __future__ import annotations

import contextlib
import os
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from sqlalchemy import RowMapping, select

from mnemes_lab.errors import CorruptStoreError, EncoderMismatchError, StoreError
from mnemes_lab.store import tables as t
from mnemes_lab.store.index import Floats32, ShardIndex
from mnemes_lab.store.shard import state_of
from mnemes_lab.store.store import Store
from mnemes_lab.text.cache import VectorCache, encode_cached
from mnemes_lab.text.encode import Encoder

_ROW = (
    "row_key",
    "fact_id",
    "text",
    "namespace",
    "content_digest",
    "recorded_at",
    "closed_at",
    "valid_from",
    "valid_to",
    "expires_at",
    "remainder",
)
_SAVE_SHARE = 20  # save again once a twentieth of the rows is new


class Indexes:
    """The indexes of a mesh's shards, least recently used ones dropped beyond a byte budget."""

    def __init__(
        self, store: Store, encoder: Encoder, cache: VectorCache, *, byte_budget: int = 1 << 30
    ) -> None:
        """Nothing is loaded yet."""
        self.store, self.encoder, self.cache = store, encoder, cache
        self.byte_budget = byte_budget
        self.progress = False  # whether to show a bar while encoding
        self.bytes = 0
        self._loaded: OrderedDict[str, tuple[ShardIndex, tuple[int, ...]]] = OrderedDict()
        self._locks: dict[str, threading.Lock] = {}
        self._files: dict[str, str] = {}
        self._guard = threading.Lock()

    def get(self, device_id: str, generation: int) -> ShardIndex:
        """The index of a shard at a generation of the catalogue.

        Raises:
            CorruptStoreError: the shard is missing, damaged or older than the catalogue.
            EncoderMismatchError: the shard was encoded by another model.
        """
        index = self._held(device_id, generation)
        if index is not None:
            return index
        with self._guard:
            lock = self._locks.setdefault(device_id, threading.Lock())
        with lock:  # of two threads that miss, the second finds what the first has made
            index = self._held(device_id, generation)
            if index is None:
                known = self._loaded.get(device_id)
                index = self._bring_up(device_id, generation, known[0] if known else None)
                self._hold(device_id, index, _signature(self._file(device_id)))
            return index

    def settle(self, device_ids: Iterable[str]) -> None:
        """Look at the files of these shards, and distrust what was loaded from one that changed.

        A search does this once for all its shards: asking the system between two scans would cost
        more than the scans of small shards.
        """
        with self._guard:
            for device_id in device_ids:
                known = self._loaded.get(device_id)
                if known is not None and known[1] != _signature(self._file(device_id)):
                    self._loaded[device_id] = (known[0], ())

    def _file(self, device_id: str) -> str:
        file = self._files.get(device_id)
        if file is None:
            file = self._files[device_id] = str(self.store.shard_path(device_id))
        return file

    def _held(self, device_id: str, generation: int) -> ShardIndex | None:
        """The loaded index if it is of this generation and nobody distrusts it."""
        with self._guard:
            known = self._loaded.get(device_id)
            if known is None or known[0].generation != generation or not known[1]:
                return None
            self._loaded.move_to_end(device_id)
            return known[0]

    def _hold(self, device_id: str, index: ShardIndex, signature: tuple[int, ...]) -> None:
        with self._guard:
            old = self._loaded.pop(device_id, None)
            self._loaded[device_id] = (index, signature)
            self.bytes += index.nbytes - (old[0].nbytes if old else 0)
            dropped = []
            while self.bytes > self.byte_budget and len(self._loaded) > 1:
                name, (gone, _) = self._loaded.popitem(last=False)
                self.bytes -= gone.nbytes
                dropped.append((name, gone))
        for name, gone in dropped:
            self._save(name, gone, always=True)

    def _stamp(self, device_id: str, generation: int) -> dict[str, Any]:
        return {
            "mesh_id": self.store.mesh_id,
            "device_id": device_id,
            "encoder": self.encoder.fingerprint,
            "generation": generation,
        }

    def _bring_up(self, device_id: str, generation: int, held: ShardIndex | None) -> ShardIndex:
        stamp = self._stamp(device_id, generation)
        path = self.store.shard_path(device_id)
        if generation == 1 and not path.exists():
            return ShardIndex.build(stamp, [], np.zeros((0, self.encoder.dim), np.float32))
        base = held or self._load(device_id)
        if base is not None and not _continues(base.stamp, stamp):
            base = None
        handle = self.store.shard(device_id)
        with handle.reading() as conn:
            state = state_of(conn, device_id)
            self._check_state(state, stamp)
            if base is not None and base.generation < state["redacted_generation"]:
                base = None  # it may hold text that must be gone
            last = int(base.columns.row_key[-1]) if base is not None and len(base) else 0
            if base is not None and last:
                query = select(t.facts.c.fact_id).where(t.facts.c.row_key == last)
                if conn.execute(query).scalar_one_or_none() != base.columns.fact_id[-1]:
                    base, last = None, 0
            known = t.facts_at(generation)
            there = known.c.redacted == 0
            fresh = select(*(known.c[name] for name in _ROW)).where(known.c.row_key > last, there)
            rows = conn.execute(fresh.order_by(known.c.row_key)).mappings().all()
            closed = conn.execute(
                select(known.c.row_key, known.c.closed_at).where(known.c.closed_at.is_not(None))
            ).all()
        vectors = self._vectors(rows)
        if base is None:
            index = ShardIndex.build(stamp, rows, vectors)
        else:
            index = base.extend(stamp, rows, vectors, [(k, c) for k, c in closed])
        self._save(device_id, index, always=False)
        return index

    def _check_state(self, state: RowMapping, stamp: Mapping[str, Any]) -> None:
        if state["generation"] < stamp["generation"]:
            raise CorruptStoreError(
                f"The shard of device {stamp['device_id']} is older than the catalogue "
                f"(generation {state['generation']}, expected {stamp['generation']}).",
                hint="was it restored from a backup? restore the whole folder together",
            )
        if state["encoder"] not in (None, self.encoder.fingerprint):
            raise EncoderMismatchError(
                f"The shard of device {stamp['device_id']} was encoded by {state['encoder']!r}, "
                f"this mesh uses {self.encoder.fingerprint!r}.",
                hint="mesh.reencode()",
            )

    def _vectors(self, rows: Iterable[RowMapping]) -> Floats32:
        texts = [row["text"] for row in rows]
        if not texts:
            return np.zeros((0, self.encoder.dim), np.float32)
        return encode_cached(self.encoder, texts, self.cache, progress=self.progress)

    def _load(self, device_id: str) -> ShardIndex | None:
        with contextlib.suppress(CorruptStoreError, OSError, ValueError, KeyError):
            return ShardIndex.load(self.path(device_id))
        return None

    def path(self, device_id: str) -> Path:
        """Where a shard's index is kept."""
        return self.store.shard_path(device_id).with_name("index.bin")

    def _save(self, device_id: str, index: ShardIndex, *, always: bool) -> None:
        fresh = len(index) - index.saved_rows
        if fresh and not self.store.read_only and (always or fresh * _SAVE_SHARE >= len(index)):
            with contextlib.suppress(OSError, StoreError):  # one that is not kept is made again
                query = select(t.shard_state.c.redacted_generation)
                redacted = self.store.shard(device_id).rows(query)[0]["redacted_generation"]
                if index.generation >= redacted:  # an older one holds text that must be gone
                    index.save(self.path(device_id))

    def forget(self, device_id: str | None = None) -> None:
        """Drop everything held in memory without saving; or all of one shard, its file too."""
        with self._guard:
            if device_id is None:
                self._loaded.clear()
                self.bytes = 0
                return
            known = self._loaded.pop(device_id, None)
            self.bytes -= known[0].nbytes if known else 0
        self.path(device_id).unlink(missing_ok=True)

    def close(self) -> None:
        """Keep what is new, then drop everything."""
        for device_id, (index, _) in list(self._loaded.items()):
            self._save(device_id, index, always=True)
        self.forget()

    def verdict(self, device_id: str, generation: int) -> tuple[str, str | None]:
        """What `check` says of a kept index: ok, pending (made again when needed) or broken."""
        path = self.path(device_id)
        if not path.exists():
            return "pending", "not made yet"
        try:
            index = ShardIndex.load(path)
        except (StoreError, OSError, ValueError, KeyError) as error:
            return "broken", f"{error} It is rebuilt from the shard when next needed."
        if not _continues(index.stamp, self._stamp(device_id, generation)):
            return "pending", "made for another encoder, shard or time; rebuilt when next needed"
        if index.generation < generation:
            return "pending", "behind its shard; brought up when next needed"
        wordless = len(index) - index.with_vector
        return "ok", f"{wordless} versions are found by their words only" if wordless else None


def _continues(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    same = all(old.get(k) == new[k] for k in ("mesh_id", "device_id", "encoder"))
    return same and old["generation"] <= new["generation"]


def _signature(path: str) -> tuple[int, ...]:
    """What tells that a file was replaced or changed since it was last looked at."""
    try:
        found = os.stat(path)
    except OSError:
        return ()
    return found.st_ino, found.st_size, found.st_mtime_ns
