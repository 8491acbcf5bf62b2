"""Several processes, one mesh: everyone's acknowledged writes are there, and nobody is refused.

The processes are forks of one that has only imported things, so that importing is paid for once
and no thread is running yet when they part.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from mnemes_lab import Mesh
from mnemes_lab.errors import NotAMeshError, StoreError
from mnemes_lab.store import tables as t
from mnemes_lab.store.engine import create_schema, make_engine

FORKS = """
import faiss, json, os, signal, sqlite3, sys, time
import numpy as np, pandas, polars as pl
from contextlib import closing
from mnemes_lab import AsOf, Mesh
from mnemes_lab.store import tables as t
from mnemes_lab.store.engine import make_engine, transaction

class Lengths:
    name, dim, fingerprint = "lengths", 4, "lengths:4"

    def encode(self, texts):
        return np.array([[len(t), t.count("a"), t.count("7"), 1] for t in texts], np.float32)

def fork(work, *args):
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(120)
        code = 1
        try:
            os.close(reading)
            os.write(writing, json.dumps(work(*args)).encode())
            code = 0
        except BaseException as error:
            os.write(writing, json.dumps(f"{type(error).__name__}: {error}").encode())
        finally:
            os._exit(code)
    os.close(writing)
    return child, reading

def collect(children):
    out = []
    for child, reading in children:
        with os.fdopen(reading, "rb") as pipe:
            out.append(json.loads(pipe.read()))
        os.waitpid(child, 0)
    print(json.dumps(out))
"""


def run(script: str, *arguments: object) -> list:
    """What each of a script's processes answers."""
    done = subprocess.run(
        [sys.executable, "-c", FORKS + script, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


WRITERS = """
def write(number, folder):
    told = []
    with Mesh.open(folder, encoder=Lengths()) as mesh:
        agent = mesh.agent(f"writer {number}")
        for i in range(8):
            text = f"note {i} of writer {number}"
            if i % 3 == 0:
                told.append((agent.remember(text), text))
            else:
                devices = ("shared", f"own {number}")
                rows = [{"device": d, "text": f"{text} for {d}"} for d in devices]
                answers = mesh.load_records(rows, encode=i % 2 == 0)
                assert answers["outcome"].to_list() == ["stored", "stored"]
                told += zip(answers["fact_id"], (row["text"] for row in rows))
        assert mesh.search("note", exhaustive=True).complete
    return told

def read(folder):
    "A reader with one transaction that outlasts all writers, and many short looks meanwhile."
    looks = 0
    with closing(sqlite3.connect(f"{folder}/pooled.db", isolation_level=None)) as long:
        long.execute("BEGIN")
        before = long.execute("SELECT count(*) FROM fact_index").fetchone()[0]
        with Mesh.open(folder, encoder=Lengths(), read_only=True) as mesh:
            known = set()
            while not os.path.exists(f"{folder}/../done"):
                seen = set(mesh.facts()["fact_id"])
                assert known <= seen, "a fact has vanished"
                known, looks = seen, looks + 1
        assert long.execute("SELECT count(*) FROM fact_index").fetchone()[0] == before
    return looks

def start(folder):
    with Mesh.open(folder, encoder=Lengths()) as mesh:
        mesh.load_records([{"device": "shared", "text": "note at the start"}])

folder, link = sys.argv[1:]
os.waitpid(fork(start, folder)[0], 0)
reader = fork(read, folder)
writers = [fork(write, n, link if n % 2 else folder) for n in range(4)]
for child, _ in writers:
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
open(f"{folder}/../done", "w").close()
collect([reader, *writers])
"""


def test_four_writers_and_a_long_reader_share_a_mesh(tmp_path):
    """Two of the writers come through a symbolic link."""
    folder, link = tmp_path / "mesh", tmp_path / "link"
    link.symlink_to(folder)
    looks, *told = run(WRITERS, folder, link)
    assert isinstance(looks, int), looks
    assert looks > 0
    acknowledged = {}
    for answers in told:
        assert isinstance(answers, list), answers
        assert len(answers) == 3 + 5 * 2
        acknowledged |= dict(answers)
    with Mesh.open(folder, encoder="hash:16", reencode=True) as mesh:
        there = dict(mesh.facts().select("fact_id", "text").iter_rows())
        assert acknowledged.items() <= there.items()
        assert len(there) == len(acknowledged) + 1 == 53
        assert mesh.devices()["label"].n_unique() == mesh.devices().height == 9
        assert mesh.check().filter(pl.col("outcome") == "broken").is_empty()
        assert mesh.search("note 7", exhaustive=True, k=200).hits.height == 53
        assert mesh.devices().filter(pl.col("label") == "shared").height == 1
        for path in folder.glob("shards/*/memory.db"):
            with closing(sqlite3.connect(path)) as conn:
                rows = conn.execute("SELECT recorded_at, generation FROM facts ORDER BY row_key")
                order = rows.fetchall()
                assert order == sorted(order)  # whoever wrote later recorded later


INCREMENTS = """
from pathlib import Path
from sqlalchemy import select

def increment(path):
    engine = make_engine(path)
    for _ in range(50):
        with transaction(engine, path) as conn:
            held = conn.execute(select(t.shard_state.c.facts)).scalar_one()
            conn.execute(t.shard_state.update().values(facts=held + 1))
    engine.dispose()
    return "done"

collect([fork(increment, Path(sys.argv[1])) for _ in range(4)])
"""


def test_reading_then_writing_in_four_processes_loses_nothing(tmp_path):
    path = tmp_path / "memory.db"
    engine = make_engine(path)
    create_schema(engine, t.shard, t.SHARD_ID, t.GENERATION)
    engine.dispose()
    with closing(sqlite3.connect(path)) as conn, conn:
        conn.execute("INSERT INTO shard_state VALUES (1, 'm', 'd', 1, 0, 0, NULL, 0)")
    assert run(INCREMENTS, path) == ["done"] * 4
    with closing(sqlite3.connect(path)) as conn:
        assert conn.execute("SELECT facts FROM shard_state").fetchone() == (200,)
        assert conn.execute("PRAGMA integrity_check").fetchone() == ("ok",)


SUBMISSIONS = """
import random
from pathlib import Path

def submit(folder, keys):
    told = []
    with Mesh.open(folder, encoder="hash:64") as mesh:
        device = mesh.device("shared")
        for key in keys:
            done = mesh.submit("observe", f"reading:{key}", by=device, content=key,
                               idempotency_key=key)
            told.append((key, done.receipt_id))
    return told

folder, total = Path(sys.argv[1]), int(sys.argv[2])
keys = [f"key-{i // 2}" for i in range(total)]  # every key twice
random.Random(7).shuffle(keys)
collect([fork(submit, folder, keys[number::4]) for number in range(4)])
"""


def test_four_processes_submit_with_retries_and_every_key_has_one_receipt(tmp_path):
    """As many submissions as in `MNEMES_SUBMISSIONS`, half of them retries of another's key."""
    total = int(os.environ.get("MNEMES_SUBMISSIONS", "600"))
    folder = tmp_path / "mesh"
    with Mesh.open(folder, encoder="hash:64") as mesh:
        mesh.device("shared")
    told = run(SUBMISSIONS, folder, total)
    receipts: dict[str, set[str]] = {}
    for one in told:
        assert isinstance(one, list), one
        for key, receipt_id in one:
            receipts.setdefault(key, set()).add(receipt_id)
    assert len(receipts) == total // 2
    assert all(len(found) == 1 for found in receipts.values())
    with Mesh.open(folder, encoder="hash:64") as mesh:
        stored = mesh.operations(operation_kind="observe")
        assert sorted(stored["idempotency_key"]) == sorted(receipts)
        assert {f for found in receipts.values() for f in found} == set(stored["receipt_id"])
        assert stored["recorded_at"].n_unique() == stored.height
        assert mesh.check().filter(pl.col("outcome") == "broken").rows() == []


# --- where nothing can be written ------------------------------------------------------------
NOBODY = 65534
AS_NOBODY = """
def look(folder, read_only):
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
    try:
        encoder = None if read_only else Lengths()
        with Mesh.open(folder, encoder=encoder, read_only=read_only) as mesh:
            report = mesh.check()
            return {
                "texts": sorted(mesh.facts()["text"]),
                "labels": sorted(mesh.devices()["label"]),
                "receipts": [mesh.receipt(r).verify() for r in mesh.receipts()["receipt_id"]],
                "broken": report.filter(pl.col("outcome") == "broken").rows(),
            }
    except Exception as error:
        return f"{type(error).__name__}: {error}"

collect([fork(look, *args) for args in json.loads(sys.argv[1])])
"""


def lock_up(folder: Path) -> None:
    """Give everything to a user who may read it and write none of it."""
    for path in [folder, *folder.rglob("*")]:
        os.chown(path, NOBODY, NOBODY)
        path.chmod(0o555 if path.is_dir() else 0o400)


def files(folder: Path) -> dict[str, bytes]:
    found = (p for p in folder.rglob("*") if p.is_file())
    return {str(p.relative_to(folder)): p.read_bytes() for p in found}


TEXTS = ["pump off", "pump on"]


def fill(folder: Path) -> Mesh:
    mesh = Mesh.open(folder, encoder="hash:16")
    mesh.load(pl.DataFrame({"device": ["a", "b"], "text": TEXTS}))
    mesh.search("pump")
    return mesh


@pytest.fixture(scope="module")
def told() -> Iterator[dict[str, Any]]:
    """What somebody is told who looks into folders that he may read and not write."""
    if os.geteuid() != 0:
        pytest.skip("only root can act as somebody else")
    shelf = Path(tempfile.mkdtemp())  # unlike a test's own folder, open to any user
    shelf.chmod(0o755)
    whole, unfinished, empty_logs, empty = (
        shelf / name for name in ("whole", "unfinished", "empty-logs", "empty")
    )
    mesh = fill(whole)
    shutil.copytree(whole, unfinished)
    mesh.close()
    assert (unfinished / "pooled.db-wal").stat().st_size > 0
    for path in unfinished.rglob("*-shm"):  # SQLite would have to make these anew
        path.unlink()
    shutil.copytree(unfinished, shelf / "writable")
    shutil.copytree(whole, empty_logs)
    for path in [empty_logs / "pooled.db", *empty_logs.glob("shards/*/memory.db")]:
        path.with_name(path.name + "-wal").touch()
    empty.mkdir()
    for folder in (whole, unfinished, empty_logs, empty):
        lock_up(folder)
    before = files(shelf)
    asked = {
        "whole": (whole, True),
        "whole, to write": (whole, False),
        "unfinished": (unfinished, True),
        "empty logs": (empty_logs, True),
        "absent": (empty / "mesh", True),
        "absent, to write": (empty / "mesh", False),
    }
    answers = run(AS_NOBODY, json.dumps([[str(path), way] for path, way in asked.values()]))
    assert files(shelf) == before
    yield {"shelf": shelf, **dict(zip(asked, answers, strict=True))}
    shutil.rmtree(shelf)


def test_a_folder_that_cannot_be_written_can_be_read(told):
    expected = {"texts": TEXTS, "labels": ["a", "b"], "receipts": [True], "broken": []}
    assert told["whole"] == expected
    assert told["whole, to write"].startswith("ReadOnlyError: The mesh's folder cannot be written")
    assert "Hint: open it with read_only=True" in told["whole, to write"]


def test_an_unfinished_log_in_such_a_folder_is_read_or_named(told):
    """A copy of an open mesh, without the helper files that SQLite would have to make anew."""
    read = told["unfinished"]
    if isinstance(read, str):
        assert read.startswith("StoreError: pooled.db cannot be opened")
        assert "unfinished write-ahead log; copy the whole folder to a writable place" in read
    else:
        assert read["texts"] == TEXTS
    with Mesh.open(told["shelf"] / "writable") as mesh:  # where it can be written, all is there
        assert sorted(mesh.facts()["text"]) == TEXTS


def test_an_empty_log_in_such_a_folder_is_no_obstacle(told):
    assert isinstance(told["empty logs"], dict), told["empty logs"]
    assert told["empty logs"]["texts"] == TEXTS


def test_a_folder_that_cannot_be_made_is_named(told):
    assert told["absent"].startswith("NotAMeshError")
    assert told["absent, to write"].startswith("ReadOnlyError: The folder cannot be made")


# --- the files of a mesh that was cut off -----------------------------------------------------
def test_the_older_copy_of_a_torn_mesh_is_kept(tmp_path):
    """A torn copy is refused by name, and the one it was copied from is none the worse."""
    folder = tmp_path / "mesh"
    fill(folder).close()
    for size in (0, 100):
        torn = tmp_path / f"torn-at-{size}"
        shutil.copytree(folder, torn)
        os.truncate(torn / "pooled.db", size)
        with pytest.raises((NotAMeshError, StoreError), match=r"pooled\.db.*Hint"):
            Mesh.open(torn)
        assert (torn / "pooled.db").stat().st_size == size
    with Mesh.open(folder) as mesh:
        assert sorted(mesh.facts()["text"]) == TEXTS
        assert json.loads(mesh.receipt(mesh.receipts()["receipt_id"].item()).to_json())
