"""Making a mesh's folder, and what a folder must be before anything is written to it."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import filelock
from sqlalchemy import insert

from mnemes_lab.clock import Clock, LabClock, SystemClock
from mnemes_lab.errors import NotAMeshError, ReadOnlyError
from mnemes_lab.ids import IdSource, RandomIds, SeededIds
from mnemes_lab.store import tables as t
from mnemes_lab.store.engine import BUSY_SECONDS, create_schema, make_engine, named

_OURS = ("pooled.db.new", ".probe-", ".writer.lock")  # what a mesh being made consists of


def make_mesh(
    folder: Path, path: Path, seed: int | None, clock: Clock | None, read_only: bool
) -> None:
    """Make the folder and its pooled.db, whole or not at all.

    Raises:
        NotAMeshError: the folder holds something else, or there is nothing to read.
        ReadOnlyError: the folder cannot be made or written.
    """
    names = sorted(n.name for n in folder.iterdir()) if folder.exists() else []
    foreign = [n for n in names if not n.startswith(_OURS)]
    if foreign and not path.exists():  # unless another opener has just made it
        raise NotAMeshError(
            "The folder is not empty and holds no mesh.",
            found=foreign[:5],
            hint="give a new or empty folder",
        )
    if read_only:
        raise NotAMeshError(
            "There is no mesh to read.", found=folder.name, hint="open without read_only"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ReadOnlyError(f"The folder cannot be made: {error.strerror}.") from error
    need_writable(folder)
    now = (clock or (SystemClock() if seed is None else LabClock())).now()
    ids: IdSource = RandomIds() if seed is None else SeededIds(seed)
    with filelock.FileLock(folder / ".writer.lock", timeout=BUSY_SECONDS):
        if path.exists():
            return
        fresh = path.with_name("pooled.db.new")
        for suffix in ("", "-journal", "-wal", "-shm"):
            fresh.with_name(fresh.name + suffix).unlink(missing_ok=True)
        engine = make_engine(fresh)
        with named(path):
            create_schema(engine, t.pooled, t.POOLED_ID, t.GENERATION)
            with engine.begin() as conn:
                conn.execute(
                    insert(t.mesh).values(
                        only=1,
                        mesh_id=ids.uuid4s(1)[0],
                        created_at=now,
                        seed=None if seed is None else str(seed),
                        ids_position=1,
                        last_instant=now,
                        changes=0,
                    )
                )
        engine.dispose()
        os.replace(fresh, path)
        (folder / "shards").mkdir(exist_ok=True)


def need_writable(folder: Path) -> None:
    """Refuse a folder in which no file can be made."""
    probe = folder / f".probe-{os.getpid()}-{threading.get_ident()}"
    try:
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise ReadOnlyError(
            f"The mesh's folder cannot be written ({error.strerror}).",
            hint="open it with read_only=True to look at its frames",
        ) from error
