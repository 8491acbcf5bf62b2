"""The files of a mesh and the rules that keep them whole.

Layout of a mesh's folder::

    pooled.db                          devices, actors, catalogue, summaries, receipts
    shards/<device_id>/memory.db       the facts of one device: the authority
    shards/<device_id>/index.bin       its index, rebuilt whenever stale, missing or damaged
    vectors.db                         cache of embeddings, content-addressed
    .writer.lock                       held by the one process that is writing

Rules of a write that touches both kinds of file:

1. One writer at a time holds ``.writer.lock`` (waits 5 s). The system drops the lock of a process
   that dies.
2. *Announce*: a transaction in ``pooled.db`` reserves the new fact ids and notes, per device, the
   shard's generation and what to do after a crash: ``undo`` or ``keep``.
3. *Write*: one transaction per shard, its rows stamped with the next generation.
4. *Publish*: a transaction in ``pooled.db`` moves the catalogue to the new generations and removes
   the notes. Only now is the write acknowledged, and only now do readers see it: they look no
   further than the catalogue's generation.

Whoever takes the lock and finds a note knows that its writer died. ``undo`` (a load over several
devices) removes the rows past the noted generation; ``keep`` (one device, so one transaction)
publishes what the shard says. Either way nothing is half written.
"""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import filelock
from sqlalchemy import (
    Connection,
    Engine,
    RowMapping,
    Select,
    case,
    insert,
    select,
    update,
)

from mnemes_lab.clock import Clock, LabClock, SystemClock
from mnemes_lab.errors import (
    CorruptStoreError,
    NotAMeshError,
    ReadOnlyError,
    StoreBusyError,
    StoreError,
)
from mnemes_lab.ids import IdSource, RandomIds, SeededIds
from mnemes_lab.store import recovery
from mnemes_lab.store import tables as t
from mnemes_lab.store.creation import make_mesh, need_writable
from mnemes_lab.store.engine import (
    BUSY_SECONDS,
    bring_forward,
    check_identity,
    empty_log,
    make_engine,
    named,
    transaction,
)
from mnemes_lab.store.handles import ShardHandles
from mnemes_lab.store.shard import Shard


class Store(ShardHandles):
    """An open mesh folder. Everything else in this room is a function on it."""

    def __init__(
        self, folder: Path, *, read_only: bool, clock: Clock | None, handles: int = 4
    ) -> None:
        """Use :meth:`open`."""
        self.folder, self.read_only = folder, read_only
        self.path = folder / "pooled.db"
        self.capacity = max(1, handles)
        self.total_opens = 0
        self._handles: OrderedDict[str, Shard] = OrderedDict()
        self._guard = threading.Lock()
        self._turn = threading.RLock()
        self._depth = 0
        self._file_lock = filelock.FileLock(
            folder / ".writer.lock", timeout=BUSY_SECONDS, thread_local=False, poll_interval=0.005
        )
        self.reader = make_engine(self.path, readonly=True)
        self.writer: Engine | None = None if read_only else make_engine(self.path)
        self.closed = False
        self.stuck: dict[str, str] = {}  # shards that an unfinished write left unusable, and why
        self.encoder: str | None = None  # fingerprint stamped into the shards that are written
        try:
            state = self.state()
        except BaseException:
            self.close()
            raise
        self.mesh_id: str = state["mesh_id"]
        self.seed = int(state["seed"]) if state["seed"] is not None else None
        self.clock: Clock = clock or (SystemClock() if self.seed is None else LabClock())
        self._seen: int = state["last_instant"]
        self.clock.forward_to(self._seen)
        self.ids: IdSource = RandomIds()
        if self.seed is not None:
            self.ids = SeededIds(self.seed, position=state["ids_position"])

    # --- opening -----------------------------------------------------------------------------
    @classmethod
    def open(
        cls,
        folder: str | Path,
        *,
        seed: int | None = None,
        clock: Clock | None = None,
        read_only: bool = False,
        handles: int = 4,
    ) -> Store:
        """Open a mesh's folder; make it when it does not exist or is empty.

        Raises:
            NotAMeshError: the folder holds something else, or the path is a file.
            SchemaAheadError: written by a newer version; untouched.
            ReadOnlyError: the folder cannot be written and `read_only` is false.
            StoreError: `seed` differs from the one the mesh was made with.
        """
        folder = Path(folder)
        if folder.exists() and not folder.is_dir():
            raise NotAMeshError(
                f"{folder.name} is a file, not a mesh's folder.", hint="give a folder"
            )
        path = folder / "pooled.db"
        if not path.exists():
            make_mesh(folder, path, seed, clock, read_only)
        found = check_identity(path, t.POOLED_ID, t.GENERATION)
        if not read_only:
            need_writable(folder)
        if found < t.GENERATION:
            bring_forward(path, t.GENERATION, read_only=read_only)
        store = cls(folder, read_only=read_only, clock=clock, handles=handles)
        if seed is not None and store.seed != seed:
            made = "without a seed" if store.seed is None else f"with seed {store.seed}"
            store.close()
            raise StoreError(
                f"This mesh was made {made}.", found=seed, hint="open it without seed, or elsewhere"
            )
        if not read_only and store._notes():  # of a dead writer, or of one that is writing now
            with contextlib.suppress(StoreBusyError), store.writing():
                pass  # taking the turn finishes what a dead writer left
        return store

    def close(self) -> None:
        """Close every file. Safe to call twice."""
        self.closed = True
        with self._guard:
            handles, self._handles = list(self._handles.values()), OrderedDict()
        for handle in handles:
            handle.close()
        for engine in (self.reader, self.writer):
            if engine is not None:
                engine.dispose()
        if not self.read_only:
            with contextlib.suppress(StoreError):
                empty_log(self.path)

    # --- pooled.db ---------------------------------------------------------------------------
    def rows(self, query: Select[Any]) -> Sequence[RowMapping]:
        """The rows of a query on pooled.db."""
        self._need_open()
        with transaction(self.reader, self.path) as conn:
            return conn.execute(query).mappings().all()

    def changes(self) -> int:
        """How often devices or shards have changed: asked before every search, so asked plainly.

        Whoever looks at what others have written never looks from before they wrote it.
        """
        self._need_open()
        with named(self.path), contextlib.closing(self.reader.raw_connection()) as conn:
            cursor = conn.cursor()
            cursor.execute("SELECT changes, last_instant FROM mesh")
            found = cursor.fetchone()
        if found is None:
            raise CorruptStoreError("pooled.db has lost the mesh's state.", hint="restore a backup")
        self.clock.forward_to(found[1])
        return int(found[0])

    def rows_raw(self, sql: str) -> list[Any]:
        """The rows of a pragma on pooled.db."""
        with transaction(self.reader, self.path) as conn:
            return list(conn.exec_driver_sql(sql).all())

    def state(self) -> RowMapping:
        """The mesh's one row of state."""
        found = self.rows(select(t.mesh))
        if not found:
            raise CorruptStoreError("pooled.db has lost the mesh's state.", hint="restore a backup")
        return found[0]

    @contextlib.contextmanager
    def pooled(self) -> Iterator[Connection]:
        """One write transaction on pooled.db. Keeps the clock and id stream with it."""
        self._need_open()
        if self.writer is None:
            raise ReadOnlyError(
                "The mesh was opened for reading only.", hint="open without read_only"
            )
        with transaction(self.writer, self.path) as conn:
            last = conn.exec_driver_sql("SELECT last_instant FROM mesh").scalar_one()
            self.clock.forward_to(last)  # of whoever wrote last, in this process or another
            yield conn
            conn.execute(
                update(t.mesh).values(
                    ids_position=getattr(self.ids, "position", 0),
                    last_instant=case(
                        (t.mesh.c.last_instant > self._seen, t.mesh.c.last_instant),
                        else_=self._seen,
                    ),
                )
            )

    def now(self) -> int:
        """An instant for the record: later than every one before it."""
        self._seen = self.clock.now()
        return self._seen

    def present(self) -> int:
        """The instant a reader looks from. No clock of experiments is moved by looking.

        It lies before the record time of any write that is not published yet, or that write would
        later change what was seen from here.
        """
        self.clock.forward_to(self.state()["last_instant"])
        peek = getattr(self.clock, "peek", None)  # the next write will have that very instant
        now = int(self.clock.now()) if peek is None else int(peek()) - 1
        p = t.pending_writes.c
        unpublished = self.rows(select(p.written_at).where(p.written_at > 0))
        return min([now, *(int(row["written_at"]) - 1 for row in unpublished)])

    # --- writing -----------------------------------------------------------------------------
    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the writer's turn, first finishing what a dead writer left.

        Raises:
            StoreBusyError: another writer kept the turn for 5 s.
            ReadOnlyError: the mesh was opened for reading only.
        """
        self._need_open()
        if self.read_only:
            raise ReadOnlyError(
                "The mesh was opened for reading only.", hint="open without read_only"
            )
        if not self._turn.acquire(timeout=BUSY_SECONDS):
            raise _busy()
        try:
            try:
                with self._file_lock:
                    self._depth += 1
                    try:
                        if self._depth == 1:
                            self.clock.forward_to(self.state()["last_instant"])
                            recovery.finish(self, self._notes())
                        yield
                    finally:
                        self._depth -= 1
            except filelock.Timeout:
                raise _busy() from None
        finally:
            self._turn.release()

    def announce(
        self,
        generations: Mapping[str, int],
        reserved: list[tuple[str, str, int]],
        on_crash: str,
        *,
        keys: Sequence[tuple[str, str, str, int]] = (),
        also: Callable[[Connection], None] | None = None,
    ) -> None:
        """Reserve fact ids and keys, and note the shards about to be written (step 2)."""
        with self.pooled() as conn:
            if also is not None:
                also(conn)
            if keys:
                sql = str(insert(t.operation_keys).compile(dialect=conn.dialect))
                conn.exec_driver_sql(sql, list(keys))
            if reserved:
                sql = str(insert(t.fact_index).compile(dialect=conn.dialect))
                conn.exec_driver_sql(sql, reserved)
            conn.execute(
                insert(t.pending_writes),
                [
                    {
                        "device_id": d,
                        "base_generation": g,
                        "on_crash": on_crash,
                        "written_at": self._seen,
                    }
                    for d, g in sorted(generations.items())
                ],
            )

    def publish(
        self,
        written: Mapping[str, tuple[int, int]],
        *,
        also: Callable[[Connection], None] | None = None,
    ) -> None:
        """Move the catalogue to the new generations and counts (step 4)."""
        try:
            with self.pooled() as conn:
                recovery.publish(conn, written)
                if also is not None:
                    also(conn)
        except StoreBusyError as error:
            raise StoreBusyError(
                "Another writer kept pooled.db, so the write could not be published.",
                hint="the next writer finishes or undoes it whole; check with mesh.facts()",
            ) from error

    def _notes(self) -> Sequence[RowMapping]:
        return self.rows(select(t.pending_writes).order_by(t.pending_writes.c.device_id))

    def abandon(self, *, untouched: str | None = None) -> None:
        """After a failure between announce and publish: finish or undo at once, if possible.

        Args:
            untouched: A shard whose transaction failed: nothing was written to it.
        """
        with contextlib.suppress(StoreError):
            notes = self._notes()
            for note in notes:
                if note["device_id"] == untouched:
                    recovery.settle(self, note)
            recovery.finish(self, [note for note in notes if note["device_id"] != untouched])

    def _need_open(self) -> None:
        if self.closed:
            raise StoreError("The mesh is closed.", hint="open it again")


def _busy() -> StoreBusyError:
    return StoreBusyError(
        f"Another writer kept the mesh for more than {BUSY_SECONDS:g} s; nothing was written.",
        hint="try again, or close the other process",
    )
