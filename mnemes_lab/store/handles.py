"""The shards a store holds open: few at a time, least recently used ones closed."""

from __future__ import annotations

import threading
from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import select

from mnemes_lab.errors import CorruptStoreError
from mnemes_lab.store import tables as t
from mnemes_lab.store.shard import HandleMetrics, Shard, make_shard

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from sqlalchemy import RowMapping, Select


class ShardHandles:
    """The half of :class:`mnemes_lab.store.store.Store` that opens shards."""

    folder: Path
    mesh_id: str
    read_only: bool
    capacity: int
    total_opens: int
    _handles: OrderedDict[str, Shard]
    _guard: threading.Lock

    if TYPE_CHECKING:

        def rows(self, query: Select[Any]) -> Sequence[RowMapping]:
            """Of the store."""

    def shard_path(self, device_id: str) -> Path:
        """Where a device's shard lies; ids are canonical UUIDs, so no text becomes a path."""
        return self.folder / "shards" / device_id / "memory.db"

    def shard(self, device_id: str) -> Shard:
        """The open shard of a registered device, from the cache of handles.

        Raises:
            CorruptStoreError: the file is missing although something was written to it.
        """
        with self._guard:
            handle = self._handles.get(device_id)
            if handle is not None:
                self._handles.move_to_end(device_id)
                return handle
        path = self.shard_path(device_id)
        if not path.exists():
            self._need_new(device_id)
            make_shard(path, self.mesh_id, device_id)
        opened = Shard(path, device_id, self.mesh_id, frozen=self.read_only)
        with self._guard:
            handle = self._handles.setdefault(device_id, opened)
            self.total_opens += handle is opened
            evicted = []
            while len(self._handles) > self.capacity:
                evicted.append(self._handles.popitem(last=False)[1])
        for old in evicted:
            old.close()
        return handle

    def _need_new(self, device_id: str) -> None:
        """A shard may be missing only while nothing was written to it."""
        found = self.rows(select(t.catalogue).where(t.catalogue.c.device_id == device_id))
        if not found or found[0]["generation"] > 1 or self.read_only:
            raise CorruptStoreError(
                f"The shard of device {device_id} is missing.",
                hint="restore shards/<device_id>/memory.db from a backup",
            )

    def drop_handles(self) -> None:
        """Close every cached shard; the count of opens stays."""
        with self._guard:
            handles, self._handles = list(self._handles.values()), OrderedDict()
        for handle in handles:
            handle.close()

    @property
    def handles(self) -> HandleMetrics:
        """How many shards are open, may be, and were ever opened."""
        return HandleMetrics(len(self._handles), self.capacity, self.total_opens)
