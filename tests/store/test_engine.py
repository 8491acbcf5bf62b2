"""Opening SQLite files: pragmas, transactions, identities, and what goes wrong by its name."""

from __future__ import annotations

import re
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import polars as pl
import pytest
from sqlalchemy import insert, select
from sqlalchemy.exc import OperationalError

from mnemes_lab import Mesh
from mnemes_lab.errors import (
    CorruptStoreError,
    NotAMeshError,
    ReadOnlyError,
    SchemaAheadError,
    StoreBusyError,
    StoreError,
)
from mnemes_lab.store import tables as t
from mnemes_lab.store.engine import (
    check_identity,
    create_schema,
    empty_log,
    file_identity,
    make_engine,
    named,
    transaction,
)

STATE = {"only": 1, "mesh_id": "m", "device_id": "d", "generation": 1, "facts": 0}
STATE |= {"last_recorded_at": 0}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A new shard with one row of state."""
    path = tmp_path / "memory.db"
    engine = make_engine(path)
    create_schema(engine, t.shard, t.SHARD_ID, t.GENERATION)
    with transaction(engine, path) as conn:
        conn.execute(insert(t.shard_state).values(STATE))
    engine.dispose()
    return path


def pragma(engine, path, name):
    with transaction(engine, path) as conn:
        return conn.exec_driver_sql(f"PRAGMA {name}").scalar_one()


def test_a_writer_is_durable_and_careful(path):
    engine = make_engine(path)
    found = {
        name: pragma(engine, path, name)
        for name in ("busy_timeout", "journal_mode", "synchronous", "foreign_keys",
                     "trusted_schema", "cell_size_check", "query_only")
    }  # fmt: skip
    engine.dispose()
    assert found == {
        "busy_timeout": 5000,
        "journal_mode": "wal",
        "synchronous": 2,  # FULL: what is acknowledged survives a power cut
        "foreign_keys": 1,
        "trusted_schema": 0,
        "cell_size_check": 1,
        "query_only": 0,
    }


def test_a_reader_cannot_write(path):
    engine = make_engine(path, readonly=True)
    assert pragma(engine, path, "query_only") == 1
    assert pragma(engine, path, "busy_timeout") == 5000
    with pytest.raises(ReadOnlyError), transaction(engine, path) as conn:
        conn.execute(insert(t.shard_state).values(STATE | {"only": 1}))
    engine.dispose()


def test_a_reader_does_not_make_a_file(tmp_path):
    engine = make_engine(tmp_path / "absent.db", readonly=True)
    with pytest.raises(StoreError, match="cannot be opened"), transaction(engine, tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_transaction_is_whole_or_nothing(path):
    engine = make_engine(path)
    with pytest.raises(ZeroDivisionError), transaction(engine, path) as conn:
        conn.execute(t.shard_state.update().values(facts=99))
        raise ZeroDivisionError
    with transaction(engine, path) as conn:
        assert conn.execute(select(t.shard_state.c.facts)).scalar_one() == 0
        conn.execute(t.shard_state.update().values(facts=5))
    with transaction(engine, path) as conn:
        assert conn.execute(select(t.shard_state.c.facts)).scalar_one() == 5
    engine.dispose()


def test_no_value_changes_its_type_on_the_way_in(path):
    with closing(sqlite3.connect(path)) as conn:
        for wrong in ("'seven'", "1.5", "x'00'"):
            with pytest.raises(sqlite3.IntegrityError, match="cannot store"):
                conn.execute(f"UPDATE shard_state SET facts = {wrong}")


@pytest.mark.parametrize("name", ["a b?c=1#d%41&mode=memory.db", "ñ-泵.db", "it's.db"])
def test_any_file_name_is_just_a_name(tmp_path, name):
    path = tmp_path / name
    engine = make_engine(path)
    create_schema(engine, t.shard, t.SHARD_ID, 1)
    engine.dispose()
    assert [p.name for p in tmp_path.iterdir()] == [name]
    assert file_identity(path) == (t.SHARD_ID, 1)


# --- writes never begin as reads -------------------------------------------------------------
class Recorder:
    """Statements of every SQLite connection, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.log: list[tuple[int, str]] = []
        plain = sqlite3.connect

        def connect(*args, **kwargs):
            conn = plain(*args, **kwargs)
            number = len({n for n, _ in self.log}) + id(conn)
            conn.set_trace_callback(lambda sql: self.log.append((number, sql)))
            return conn

        monkeypatch.setattr(sqlite3, "connect", connect)

    def faults(self) -> list[str]:
        """Writes of a transaction that began without the write lock, and writes without one."""
        begun: dict[int, str] = {}
        out = []
        for number, sql in self.log:
            first = re.sub(r"^--.*", "", sql).strip().split(None, 1)[0].upper()
            if first == "BEGIN":
                begun[number] = sql.strip().upper()
            elif first in ("COMMIT", "ROLLBACK", "END"):
                begun.pop(number, None)
            elif first in ("INSERT", "UPDATE", "DELETE", "CREATE", "ALTER", "REPLACE", "DROP") and (
                begun.get(number) != "BEGIN IMMEDIATE"
            ):
                out.append(f"{begun.get(number, 'no transaction')}: {sql[:80]}")
        return out

    def count(self, word: str) -> int:
        return sum(sql.lstrip().upper().startswith(word) for _, sql in self.log)


def test_the_recorder_sees_a_write_after_a_plain_begin(tmp_path, monkeypatch):
    recorder = Recorder(monkeypatch)
    with closing(sqlite3.connect(tmp_path / "x.db", isolation_level=None)) as conn:
        conn.execute("CREATE TABLE a (b)")
        conn.execute("BEGIN")
        conn.execute("SELECT * FROM a").fetchall()
        conn.execute("INSERT INTO a VALUES (1)")
        conn.execute("COMMIT")
        conn.execute("BEGIN IMMEDIATE")
        conn.execute("DELETE FROM a")
        conn.execute("COMMIT")
    assert recorder.faults() == [
        "no transaction: CREATE TABLE a (b)",
        "BEGIN: INSERT INTO a VALUES (1)",
    ]


def test_every_write_of_a_mesh_takes_the_lock_first(tmp_path, monkeypatch):
    recorder = Recorder(monkeypatch)
    for _ in range(2):
        with Mesh.open(tmp_path / "mesh", seed=3, encoder="hash:16") as mesh:
            frame = pl.DataFrame({"device": ["a", "b"], "text": ["pump off", "pump on"]})
            mesh.load(frame)
            agent = mesh.agent("planner")
            fact_id = agent.remember("valve off")
            mesh.update(fact_id, text="valve on")
            newer = mesh.supersede(fact_id, "valve is on")
            mesh.retract(newer)
            mesh.search("pump", exhaustive=True)
            agent.device.heartbeat()
            agent.device.rotate()
            mesh.device("a").supply_terms("pump")
            mesh.device("b").quarantine()
            mesh.device("b").reactivate()
            mesh.rotate_receipt_key()
            mesh.reencode("hash:32")
            mesh.reencode("hash:16")
            mesh.facts(), mesh.history(newer), mesh.check()
    assert recorder.faults() == []
    assert recorder.count("BEGIN IMMEDIATE") > 40
    assert recorder.count("BEGIN") > recorder.count("BEGIN IMMEDIATE")  # readers take no lock


# --- names of failures -----------------------------------------------------------------------
@pytest.mark.parametrize(
    ("said", "error", "told"),
    [
        ("database is locked", StoreBusyError, r"memory\.db for .*5 s"),
        ("database table is locked", StoreBusyError, "Another writer"),
        ("attempt to write a readonly database", ReadOnlyError, "cannot be written"),
        ("unable to open database file", StoreError, "cannot be opened"),
        ("database or disk is full", StoreError, "no room"),
        ("disk I/O error", StoreError, "disk I/O error"),
        ("database disk image is malformed", CorruptStoreError, "damaged"),
    ],
)
def test_what_sqlite_says_becomes_a_named_error(tmp_path, said, error, told):
    raw = sqlite3.OperationalError(said)
    for raised in (raw, OperationalError("SELECT 1", {}, raw)):
        with pytest.raises(error, match=told) as caught, named(tmp_path / "memory.db"):
            raise raised
        assert "memory.db" in str(caught.value)
        assert "SELECT" not in str(caught.value)


def test_other_errors_pass_unchanged(tmp_path):
    with pytest.raises(KeyError), named(tmp_path):
        raise KeyError("mine")


def test_a_locked_file_names_the_wait(path, impatient):
    engine = make_engine(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreBusyError, match=r"memory\.db for .*0\.2 s"):
            transaction(engine, path).__enter__()
        other.execute("COMMIT")
    with transaction(engine, path) as conn:  # the connection is none the worse for it
        assert conn.execute(select(t.shard_state.c.facts)).scalar_one() == 0
    engine.dispose()


def test_a_reader_is_not_kept_waiting_by_a_writer(path, impatient):
    engine = make_engine(path, readonly=True)
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        writer.execute("UPDATE shard_state SET facts = 7")
        with transaction(engine, path) as conn:
            assert conn.execute(select(t.shard_state.c.facts)).scalar_one() == 0
        writer.execute("COMMIT")
    with transaction(engine, path) as conn:
        assert conn.execute(select(t.shard_state.c.facts)).scalar_one() == 7
    engine.dispose()


# --- identities ------------------------------------------------------------------------------
@pytest.mark.parametrize("open_elsewhere", [False, True])
def test_identity_is_read_with_and_without_a_log(path, open_elsewhere):
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        if open_elsewhere:
            other.execute("UPDATE shard_state SET facts = 1")
            other.execute("PRAGMA user_version = 77")  # lies in the log, not yet in the file
            assert path.with_name("memory.db-wal").stat().st_size > 0
        expected = 77 if open_elsewhere else t.GENERATION
        assert file_identity(path) == (t.SHARD_ID, expected)


def test_reading_an_identity_drops_no_lock(path):
    """Closing any descriptor of a file drops the process's locks on it; so none is opened."""
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        check_identity(path, t.SHARD_ID, t.GENERATION)
        other = sqlite3.connect(path, isolation_level=None, timeout=0)
        with closing(other), pytest.raises(sqlite3.OperationalError, match="locked"):
            other.execute("BEGIN IMMEDIATE")
        writer.execute("COMMIT")


@pytest.mark.parametrize(
    "content", [b"", b"SQLite format 3\0", b"x" * 200, b"SQLite format 4\0" * 9]
)
def test_what_is_no_database_is_refused_by_name(tmp_path, content):
    path = tmp_path / "pooled.db"
    path.write_bytes(content)
    with pytest.raises(NotAMeshError, match=r"pooled\.db is not a database of a mesh.*Hint"):
        check_identity(path, t.POOLED_ID, 1)
    assert path.read_bytes() == content


def test_another_kind_of_file_is_refused(path, tmp_path):
    with pytest.raises(NotAMeshError, match="was not written by mnemes-lab"):
        check_identity(path, t.POOLED_ID, 1)
    plain = tmp_path / "plain.db"
    with closing(sqlite3.connect(plain)) as conn:
        conn.execute("CREATE TABLE notes (text)")
    with pytest.raises(NotAMeshError, match="Found '0x0'"):
        check_identity(plain, t.POOLED_ID, 1)


def test_a_newer_generation_is_refused_and_an_older_one_told(path):
    for version in (0, 1):
        with closing(sqlite3.connect(path)) as conn:
            conn.execute(f"PRAGMA user_version = {version}")
        assert check_identity(path, t.SHARD_ID, 1) == version
    with closing(sqlite3.connect(path)) as conn:
        conn.execute("PRAGMA user_version = 2")
    with pytest.raises(SchemaAheadError, match="generation 2, this version reads up to 1"):
        check_identity(path, t.SHARD_ID, 1)


# --- one file --------------------------------------------------------------------------------
def test_the_log_is_moved_into_the_file_once_nobody_has_it_open(path):
    reader = make_engine(path, readonly=True)
    writer = make_engine(path)
    pragma(reader, path, "user_version")
    with transaction(writer, path) as conn:
        conn.execute(t.shard_state.update().values(facts=3))
    log = path.with_name("memory.db-wal")
    empty_log(path)  # others have it open: nothing happens
    assert log.exists()
    writer.dispose()
    reader.dispose()
    assert log.exists()  # a reader that closes last cannot do it
    empty_log(path)
    assert not log.exists()
    copy = path.with_name("copy.db")
    shutil.copy(path, copy)
    with closing(sqlite3.connect(copy)) as conn:
        assert conn.execute("SELECT facts FROM shard_state").fetchone() == (3,)
    empty_log(path)  # nothing to do is fine


def threads_write(path: Path, times: int) -> Callable[[], None]:
    engine = make_engine(path)

    def work() -> None:
        for _ in range(times):
            with transaction(engine, path) as conn:
                held = conn.execute(select(t.shard_state.c.facts)).scalar_one()
                conn.execute(t.shard_state.update().values(facts=held + 1))
        engine.dispose()

    return work


def test_reading_then_writing_loses_no_update(path):
    """Four writers that each read and then write: all of it counts, and nobody is refused."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(threads_write(path, 25)) for _ in range(4)]:
            done.result()
    with closing(sqlite3.connect(path)) as conn:
        assert conn.execute("SELECT facts FROM shard_state").fetchone() == (100,)
