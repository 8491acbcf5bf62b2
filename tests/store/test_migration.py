"""Files of other versions: a newer one is left alone, an older one is brought forward or kept."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import polars as pl
import pytest

from mnemes_lab import Mesh
from mnemes_lab.errors import MigrationError, ReadOnlyError, SchemaAheadError
from mnemes_lab.store import engine
from mnemes_lab.store import tables as t


def files(folder: Path) -> dict[str, bytes]:
    found = (p for p in folder.rglob("*") if p.is_file())
    return {str(p.relative_to(folder)): p.read_bytes() for p in found}


def set_version(path: Path, version: int) -> None:
    with closing(sqlite3.connect(path)) as conn:
        conn.execute(f"PRAGMA user_version = {version}")


def version_of(path: Path) -> int:
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as conn:
        return conn.execute("PRAGMA user_version").fetchone()[0]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed mesh of two devices with a fact each."""
    folder = tmp_path_factory.mktemp("template") / "mesh"
    with Mesh.open(folder, seed=7, encoder="hash:64") as mesh:
        mesh.load(pl.DataFrame({"device": ["a", "b"], "text": ["pump off", "pump on"]}))
        mesh.search("pump")
    return folder


@pytest.fixture
def folder(template: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(template, tmp_path / "mesh"))


def shards(folder: Path) -> list[Path]:
    return sorted(folder.glob("shards/*/memory.db"))


# --- newer -----------------------------------------------------------------------------------
@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("version", [t.GENERATION + 1, 99])
def test_a_newer_mesh_is_refused_untouched(open_mesh, folder, read_only, version):
    set_version(folder / "pooled.db", version)
    before = files(folder)
    told = rf"newer mnemes-lab.*generation {version}, this version reads up to {t.GENERATION}"
    with pytest.raises(SchemaAheadError, match=told):
        open_mesh(read_only=read_only)
    assert files(folder) == before


def test_a_newer_shard_is_refused_untouched_and_the_others_answer(open_mesh, folder):
    path = shards(folder)[0]
    set_version(path, t.GENERATION + 1)
    before = files(path.parent)
    mesh = open_mesh()
    found = mesh.search("pump", exhaustive=True)
    assert not found.complete
    assert found.hits.height == 1
    assert "newer mnemes-lab" in found.trace["error"].drop_nulls().item()
    with pytest.raises(SchemaAheadError):
        mesh.load(pl.DataFrame({"device": [path.parent.name], "text": ["x"]}))
    report = mesh.check().filter(pl.col("outcome") == "broken")
    assert report["item"].to_list() == [f"shards/{path.parent.name}"]
    mesh.close()
    assert files(path.parent) == before


# --- older -----------------------------------------------------------------------------------
def is_shard(conn) -> bool:
    return conn.exec_driver_sql("PRAGMA application_id").scalar_one() == t.SHARD_ID


@pytest.fixture
def older(folder: Path) -> Path:
    """The same mesh as an older version might have written it: two columns had other names."""
    for path in shards(folder):
        with closing(sqlite3.connect(path)) as conn, conn:
            conn.execute("ALTER TABLE facts RENAME COLUMN text TO statement")
            conn.execute("PRAGMA user_version = 0")
    with closing(sqlite3.connect(folder / "pooled.db")) as conn, conn:
        conn.execute("ALTER TABLE devices RENAME COLUMN label TO called")
        conn.execute("PRAGMA user_version = 0")
    return folder


def rename(conn) -> None:
    if is_shard(conn):
        conn.exec_driver_sql("ALTER TABLE facts RENAME COLUMN statement TO text")
    else:
        conn.exec_driver_sql("ALTER TABLE devices RENAME COLUMN called TO label")


@pytest.mark.parametrize("first", ["search", "facts", "load", "check"])
def test_an_older_mesh_is_brought_forward_after_a_backup(open_mesh, older, monkeypatch, first):
    """Whatever is done first, every file that it reads has been brought forward before."""
    monkeypatch.setitem(engine.MIGRATIONS, 0, rename)
    originals = {path: path.read_bytes() for path in [older / "pooled.db", *shards(older)]}
    mesh = open_mesh()
    if first == "search":
        assert sorted(mesh.search("pump", exhaustive=True).texts()) == ["pump off", "pump on"]
    elif first == "facts":
        assert sorted(mesh.facts()["text"]) == ["pump off", "pump on"]
    elif first == "load":
        labels = pl.DataFrame({"device": ["a", "b"], "text": ["pump off", "valve off"]})
        assert mesh.load(labels)["outcome"].to_list() == ["duplicate", "stored"]
    else:
        assert set(mesh.check()["outcome"]) <= {"ok", "pending"}
    mesh.close()
    for path, original in originals.items():
        assert version_of(path) == t.GENERATION
        backup = path.with_name(f"{path.name}.generation-0.bak")
        assert version_of(backup) == 0
        table = "facts" if path.name == "memory.db" else "devices"
        for copy, name in ((backup, "statement"), (path, "text")):
            with closing(sqlite3.connect(copy)) as conn:
                columns = {row[1] for row in conn.execute(f"PRAGMA table_info({table})")}
            assert name in columns or table == "devices"
        assert original != path.read_bytes()
    again = open_mesh()
    assert "pump off" in set(again.facts()["text"])
    assert {p.name for p in older.rglob("*.bak")} == {
        "pooled.db.generation-0.bak",
        "memory.db.generation-0.bak",
    }


def test_a_failing_step_leaves_the_file_as_it_was(open_mesh, older, monkeypatch):
    def fail(conn) -> None:
        rename(conn)
        raise ZeroDivisionError("half way")

    monkeypatch.setitem(engine.MIGRATIONS, 0, fail)
    before = files(older)
    with pytest.raises(MigrationError, match=r"pooled\.db.*generation 0 to 2: half way.*bak"):
        open_mesh()
    after = files(older)
    assert after.pop("pooled.db.generation-0.bak")
    assert after == before
    monkeypatch.setitem(engine.MIGRATIONS, 0, rename)
    assert open_mesh().facts().height == 2  # a second attempt finds what it needs


def test_a_failing_step_of_a_shard_names_the_shard(open_mesh, older, monkeypatch):
    def fail(conn) -> None:
        rename(conn)
        if is_shard(conn):
            raise ZeroDivisionError("half way")

    monkeypatch.setitem(engine.MIGRATIONS, 0, fail)
    path = shards(older)[0]
    before = path.read_bytes()
    mesh = open_mesh()
    with pytest.raises(MigrationError, match=r"memory\.db"):
        mesh.facts()
    found = mesh.search("pump", exhaustive=True)
    assert found.trace["error"].str.contains("MigrationError").all()
    mesh.close()
    assert path.read_bytes() == before


def test_without_a_step_nothing_is_changed(open_mesh, older):
    before = files(older)
    with pytest.raises(MigrationError, match="generation 0 to 2"):
        open_mesh()
    after = files(older)
    after.pop("pooled.db.generation-0.bak", None)
    assert after == before


def test_an_older_mesh_is_not_brought_forward_by_a_reader(open_mesh, older, monkeypatch):
    monkeypatch.setitem(engine.MIGRATIONS, 0, rename)
    before = files(older)
    with pytest.raises(ReadOnlyError, match="older mnemes-lab.*Hint: open the mesh once without"):
        open_mesh(seed=None, encoder=None, read_only=True)
    assert files(older) == before


def test_a_second_process_finds_the_file_brought_forward(older, monkeypatch):
    """Both saw the old version; the second one looks again once it has the lock."""
    path = shards(older)[0]
    calls = []
    steps = {0: lambda conn: (calls.append(1), rename(conn))[1]}
    backup = path.with_name("memory.db.generation-0.bak")
    for expected in (backup, None):
        made = engine.make_engine(path)
        assert engine.migrate(made, path, 1, steps) == expected
        made.dispose()
    assert calls == [1]
    assert version_of(backup) == 0


# --- generation 1 ----------------------------------------------------------------------------
def make_first_generation(folder: Path) -> None:
    """Take out of a mesh what generation 2 added."""
    with closing(sqlite3.connect(folder / "pooled.db")) as conn, conn:
        for table in ("edges", "operations", "operation_keys", "scrubs"):
            conn.execute(f"DROP TABLE {table}")
        conn.execute("ALTER TABLE devices DROP COLUMN clock_ahead_us")
        conn.execute("ALTER TABLE catalogue DROP COLUMN evidence_generation")
        conn.execute("ALTER TABLE catalogue DROP COLUMN evidence_row")
        conn.execute("ALTER TABLE pending_writes DROP COLUMN written_at")
        conn.execute("PRAGMA user_version = 1")
    for path in shards(folder):
        with closing(sqlite3.connect(path)) as conn, conn:
            conn.execute("DROP TABLE edges")
            conn.execute("DROP TABLE operations")
            conn.execute("DROP INDEX uq_facts_dedupe_key")
            conn.execute("CREATE UNIQUE INDEX old_dedupe ON facts (dedupe_key)")
            conn.execute("ALTER TABLE facts DROP COLUMN remainder")
            conn.execute("ALTER TABLE facts DROP COLUMN redacted")
            conn.execute("ALTER TABLE shard_state DROP COLUMN redacted_generation")
            conn.execute("PRAGMA writable_schema = ON")
            conn.execute(
                "UPDATE sqlite_master SET sql = replace(sql, ?, '') WHERE name = 'facts'",
                (", 'redacted'",),
            )
            conn.execute("PRAGMA user_version = 1")


def test_a_mesh_without_evidence_is_brought_forward(open_mesh, folder):
    make_first_generation(folder)
    with (
        closing(sqlite3.connect(shards(folder)[0])) as conn,
        pytest.raises(sqlite3.IntegrityError, match="closed_as"),
    ):
        conn.execute("UPDATE facts SET closed_as = 'redacted'")
    mesh = open_mesh()
    before = mesh.facts()
    assert sorted(before["text"]) == ["pump off", "pump on"]
    assert mesh.operations().height == mesh.edges().height == 0  # nobody knows who asked
    old = before["fact_id"][0]
    new = mesh.supersede(old, "pump gone")
    assert mesh.lineage(f"fact:{new}", direction="outgoing").depths[f"fact:{old}"] == 1
    assert mesh.redact(old)
    assert sorted(mesh.facts()["status"]) == ["active", "active", "redacted"]
    assert mesh.check().filter(pl.col("outcome") == "broken").rows() == []
    mesh.close()
    fresh = folder.parent / "fresh"
    with Mesh.open(fresh, seed=7, encoder="hash:64") as made:
        made.load(pl.DataFrame({"device": ["a", "b"], "text": ["pump off", "pump on"]}))
    for old_path, new_path in zip(
        [folder / "pooled.db", *shards(folder)], [fresh / "pooled.db", *shards(fresh)], strict=True
    ):
        assert shape(old_path) == shape(new_path)


def shape(path: Path) -> dict[str, list]:
    """Tables with their columns, indexes and triggers of a file."""
    with closing(sqlite3.connect(path)) as conn:
        names = conn.execute("SELECT type, name FROM sqlite_master ORDER BY 1, 2").fetchall()
        columns = {
            name: sorted(row[1:4] for row in conn.execute(f"PRAGMA table_info({name})"))
            for kind, name in names
            if kind == "table"
        }
    return {"names": names, **columns}
