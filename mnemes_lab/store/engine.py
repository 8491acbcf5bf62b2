"""Opening SQLite files the careful way, and mapping what can go wrong to named errors.

Every connection is made by our own `creator`, so that the transaction control of SQLAlchemy and
of Python's sqlite3 never mix: ``isolation_level=None`` and an explicit ``BEGIN``. Anything that
may write begins with ``BEGIN IMMEDIATE``, since a read that turns into a write fails at once with
SQLITE_BUSY_SNAPSHOT however long the busy timeout is.

A file says what it is: ``application_id`` names the kind, ``user_version`` the generation of its
tables. Both are read before anything is written. A file of a newer generation is refused
untouched; an older one is brought forward in one transaction after a backup.
"""

from __future__ import annotations

import os
import sqlite3
import struct
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import Connection, Engine, MetaData, create_engine, event
from sqlalchemy.exc import DatabaseError, OperationalError
from sqlalchemy.pool import QueuePool
from sqlalchemy.util import LRUCache

from mnemes_lab.errors import (
    CorruptStoreError,
    MigrationError,
    NotAMeshError,
    ReadOnlyError,
    SchemaAheadError,
    StoreBusyError,
    StoreError,
)
from mnemes_lab.store.migrations import add_evidence

BUSY_SECONDS = 5.0
_RW = (
    "PRAGMA busy_timeout=5000",
    "PRAGMA journal_mode=WAL",
    "PRAGMA synchronous=FULL",
    "PRAGMA foreign_keys=ON",
    "PRAGMA trusted_schema=OFF",
    "PRAGMA cell_size_check=ON",
    "PRAGMA journal_size_limit=67108864",
    "PRAGMA temp_store=MEMORY",
    "PRAGMA secure_delete=ON",  # what is taken out of a page is overwritten with zeros
)
_RO = (
    "PRAGMA busy_timeout=5000",
    "PRAGMA query_only=ON",
    "PRAGMA trusted_schema=OFF",
    "PRAGMA cell_size_check=ON",
    "PRAGMA temp_store=MEMORY",
)

# Every shard asks the same few statements: compiled once for all engines, not once per file.
_COMPILED: LRUCache[Any, Any] = LRUCache(500)

Migration = Callable[[Connection], None]
MIGRATIONS: dict[int, Migration] = {  # generation -> step to the next one, for both kinds of file
    1: add_evidence
}


def make_engine(path: Path, *, readonly: bool = False) -> Engine:
    """An engine over one SQLite file; nothing is opened until the first connection."""
    uri = f"file:{quote(str(path.absolute()))}?mode={'ro' if readonly else 'rwc'}"
    if readonly and not os.access(path.parent, os.W_OK) and not _has_log(path):
        uri += "&immutable=1"  # nobody can write here, and WAL needs a folder it may write to

    def creator() -> sqlite3.Connection:
        return sqlite3.connect(
            uri, uri=True, isolation_level=None, check_same_thread=False, timeout=BUSY_SECONDS
        )

    engine = create_engine(
        "sqlite://",
        creator=creator,
        poolclass=QueuePool,
        pool_size=4,
        max_overflow=0,
        hide_parameters=True,
        execution_options={"compiled_cache": _COMPILED},
    )

    @event.listens_for(engine, "connect")
    def _connect(dbapi: sqlite3.Connection, _record: object) -> None:
        for pragma in _RO if readonly else _RW:
            dbapi.execute(pragma).fetchall()

    @event.listens_for(engine, "begin")
    def _begin(conn: Connection) -> None:
        reading = readonly or conn.get_execution_options().get("reading", False)
        conn.exec_driver_sql("BEGIN" if reading else "BEGIN IMMEDIATE")

    return engine


def _wal(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


def _has_log(path: Path) -> bool:
    """Whether a file has a write-ahead log with something in it, or is open somewhere."""
    log, shared = _wal(path), path.with_name(path.name + "-shm")
    return shared.exists() or (log.exists() and log.stat().st_size > 0)


def empty_log(path: Path) -> None:
    """Move a file's write-ahead log into it, unless somebody still has the file open."""
    if _wal(path).exists():
        with named(path), closing(sqlite3.connect(path, timeout=BUSY_SECONDS)) as conn:
            conn.execute("SELECT count(*) FROM sqlite_master").fetchone()  # closing does the rest


@contextmanager
def named(path: Path) -> Iterator[None]:
    """Turn what SQLite says about a file into the package's own errors."""
    try:
        yield
    except (DatabaseError, sqlite3.DatabaseError) as error:
        raise _name(error, path) from error


def _shown(path: Path) -> str:
    """A file's name, with its device where it is a shard."""
    return f"shards/{path.parent.name}/{path.name}" if path.name == "memory.db" else path.name


def _name(error: Exception, path: Path) -> StoreError:
    text = str(getattr(error, "orig", None) or error)
    low, name = text.lower(), _shown(path)
    if "locked" in low or "busy" in low:
        return StoreBusyError(
            f"Another writer kept {name} for over {BUSY_SECONDS:g} s; nothing was written.",
            hint="try again, or close the other process",
        )
    if "readonly" in low or "read-only" in low:
        return ReadOnlyError(f"{name} cannot be written.", hint="check the folder's permissions")
    if "unable to open" in low:
        hint = (
            "the folder is read-only and holds an unfinished write-ahead log; "
            "copy the whole folder to a writable place"
            if _wal(path).exists() and not os.access(path.parent, os.W_OK)
            else "is the file missing or its folder not writable?"
        )
        return StoreError(f"{name} cannot be opened.", hint=hint)
    if "full" in low:
        return StoreError(f"There is no room to write {name}.", hint="free some disk space")
    if isinstance(error, OperationalError | sqlite3.OperationalError) and "malformed" not in low:
        return StoreError(f"{name}: {text}.")
    return CorruptStoreError(
        f"{name} is damaged: {text}.", hint="run `mnemes-lab check`, restore from a backup"
    )


@contextmanager
def transaction(engine: Engine, path: Path, *, reading: bool = False) -> Iterator[Connection]:
    """One transaction; commits on success, rolls back on any error, names what SQLite says.

    One that is only `reading` does not wait for writers.
    """
    with named(path), engine.connect().execution_options(reading=reading) as conn, conn.begin():
        yield conn


def file_identity(path: Path) -> tuple[int, int]:
    """The application id and generation a file declares, without changing it.

    Without a write-ahead log nobody has the file open, so its header is read directly. With one,
    SQLite must read it: opening and closing the file ourselves would drop the locks of a
    connection of this process.

    Raises:
        NotAMeshError: not an SQLite file.
    """
    if _has_log(path):
        with named(path):
            conn = sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro", uri=True)
            try:
                app = conn.execute("PRAGMA application_id").fetchone()[0]
                return int(app), int(conn.execute("PRAGMA user_version").fetchone()[0])
            finally:
                conn.close()
    header = path.read_bytes()[:100] if path.stat().st_size < 100 else _head(path)
    if header[:16] != b"SQLite format 3\0" or len(header) < 72:
        raise NotAMeshError(
            f"{path.name} is not a database of a mesh.",
            found=header[:16],
            hint="restore the file from a backup, or open another folder",
        )
    return struct.unpack(">i", header[68:72])[0], struct.unpack(">i", header[60:64])[0]


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(100)


def check_identity(path: Path, application_id: int, version: int) -> int:
    """Refuse a file of another kind or of a newer generation; answer its generation.

    Raises:
        NotAMeshError, SchemaAheadError
    """
    app, found = file_identity(path)
    if app != application_id:
        raise NotAMeshError(
            f"{path.name} was not written by mnemes-lab.",
            found=hex(app & 0xFFFFFFFF),
            hint="open another folder, or move the file away",
        )
    if found > version:
        raise SchemaAheadError(
            f"{path.name} was written by a newer mnemes-lab; it was left untouched.",
            found=f"generation {found}, this version reads up to {version}",
            hint="upgrade mnemes-lab",
        )
    return found


def create_schema(engine: Engine, tables: MetaData, application_id: int, version: int) -> None:
    """Make all tables of a new file and stamp it, in one transaction."""
    with engine.begin() as conn:
        tables.create_all(conn, checkfirst=False)
        conn.exec_driver_sql(f"PRAGMA application_id={application_id}")
        conn.exec_driver_sql(f"PRAGMA user_version={version}")


def bring_forward(path: Path, version: int, *, read_only: bool) -> None:
    """Migrate a file that an older version wrote.

    Raises:
        ReadOnlyError: nothing may be written.
        MigrationError: a step failed; the file is unchanged.
    """
    if read_only:
        raise ReadOnlyError(
            f"{path.name} was written by an older mnemes-lab.",
            hint="open the mesh once without read_only to bring it forward",
        )
    engine = make_engine(path)
    try:
        migrate(engine, path, version, MIGRATIONS)
    finally:
        engine.dispose()


def migrate(engine: Engine, path: Path, version: int, steps: dict[int, Migration]) -> Path | None:
    """Bring an older file to generation `version` in one transaction, after a backup.

    Returns:
        The backup, ``<name>.generation-<found>.bak`` beside the file; None when another process
        was faster.

    Raises:
        MigrationError: a step failed; the file is unchanged.
    """
    with transaction(engine, path) as conn:  # nobody else migrates or writes meanwhile
        found = int(conn.exec_driver_sql("PRAGMA user_version").scalar_one())
        if found >= version:
            return None
        backup = path.with_name(f"{path.name}.generation-{found}.bak")
        _copy(path, backup)
        try:
            for step in range(found, version):
                steps[step](conn)
            conn.exec_driver_sql(f"PRAGMA user_version={version}")
        except Exception as error:
            raise MigrationError(
                f"{path.name} could not be brought from generation {found} to {version}: {error}.",
                hint=f"nothing was changed; a copy lies in {backup.name}",
            ) from error
    return backup


def _copy(path: Path, backup: Path) -> None:
    """A copy of a file as last committed, put in place when whole."""
    fresh = backup.with_name(backup.name + ".new")
    fresh.unlink(missing_ok=True)
    uri = f"file:{quote(str(path.absolute()))}?mode=ro"
    with (
        closing(sqlite3.connect(uri, uri=True)) as source,
        closing(sqlite3.connect(fresh)) as target,
    ):
        source.backup(target, pages=-1)
    os.replace(fresh, backup)
