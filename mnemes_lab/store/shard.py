"""One device's file: making it and holding it open."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import Connection, RowMapping, Select, insert, select

from mnemes_lab.errors import CorruptStoreError
from mnemes_lab.store import tables as t
from mnemes_lab.store.engine import (
    bring_forward,
    check_identity,
    create_schema,
    make_engine,
    named,
    transaction,
)


class HandleMetrics(NamedTuple):
    """State of the cache of open shards."""

    open: int
    capacity: int
    total_opens: int


class Shard:
    """An open shard: one engine over one device's file."""

    def __init__(self, path: Path, device_id: str, mesh_id: str, *, frozen: bool) -> None:
        """Check what the file is, bring an older one forward unless `frozen`, open it lazily."""
        self.path, self.device_id, self.mesh_id = path, device_id, mesh_id
        with named(path):
            found = check_identity(path, t.SHARD_ID, t.GENERATION)
        if found < t.GENERATION:
            bring_forward(path, t.GENERATION, read_only=frozen)
        self.engine = make_engine(path, readonly=frozen)

    @contextlib.contextmanager
    def begin(self, *, reading: bool = False) -> Iterator[Connection]:
        """One transaction, which may write unless it is only `reading`.

        Raises:
            CorruptStoreError: the file is damaged, or holds the shard of somebody else.
        """
        with transaction(self.engine, self.path, reading=reading) as conn:
            state = state_of(conn, self.device_id)
            if (state["mesh_id"], state["device_id"]) != (self.mesh_id, self.device_id):
                raise CorruptStoreError(
                    f"The shard of device {self.device_id} belongs to another mesh or device.",
                    hint="restore the right memory.db",
                )
            yield conn

    def reading(self) -> contextlib.AbstractContextManager[Connection]:
        """One transaction that only reads, and so waits for no writer."""
        return self.begin(reading=True)

    def rows(self, query: Select[Any]) -> Sequence[RowMapping]:
        """The rows of a query."""
        with self.reading() as conn:
            return conn.execute(query).mappings().all()

    def close(self) -> None:
        """Close idle connections. The last one to close moves the write-ahead log into the file."""
        self.engine.dispose()


def state_of(conn: Connection, device_id: str) -> RowMapping:
    """A shard's one row of state.

    Raises:
        CorruptStoreError: it is gone.
    """
    found = conn.execute(select(t.shard_state)).mappings().first()
    if found is None:
        raise CorruptStoreError(
            f"The shard of device {device_id} has lost its state.",
            hint="restore shards/<device_id>/memory.db from a backup",
        )
    return found


def make_shard(path: Path, mesh_id: str, device_id: str) -> None:
    """Make an empty shard, whole or not at all; one that is there already stays."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f"memory.db.{os.getpid()}.{threading.get_ident()}.new")
    engine = make_engine(fresh)
    with named(path):
        create_schema(engine, t.shard, t.SHARD_ID, t.GENERATION)
        with engine.begin() as conn:
            conn.execute(
                insert(t.shard_state).values(
                    only=1,
                    mesh_id=mesh_id,
                    device_id=device_id,
                    generation=1,
                    facts=0,
                    last_recorded_at=0,
                )
            )
    engine.dispose()
    with contextlib.suppress(FileExistsError):
        os.link(fresh, path)  # another thread's file, if there first, stays
    fresh.unlink()
