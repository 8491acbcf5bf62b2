"""A mesh's folder: making, opening, refusing, closing; handles; the writer's turn."""

from __future__ import annotations

import shutil
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import polars as pl
import pytest
from sqlalchemy import select

from mnemes_lab import LabClock, Mesh
from mnemes_lab.errors import (
    CorruptStoreError,
    NotAMeshError,
    ReadOnlyError,
    StoreBusyError,
    StoreError,
)
from mnemes_lab.ids import is_uuid4
from mnemes_lab.store import control
from mnemes_lab.store import tables as t
from mnemes_lab.store.store import Store


def files(folder: Path) -> dict[str, bytes]:
    """Every file below a folder with its bytes."""
    found = (p for p in folder.rglob("*") if p.is_file())
    return {str(p.relative_to(folder)): p.read_bytes() for p in found}


def load(mesh: Mesh, **texts: str) -> pl.DataFrame:
    return mesh.load(
        pl.DataFrame({"device": list(texts), "text": list(texts.values())}), encode=False
    )


# --- making and opening ----------------------------------------------------------------------
def test_a_new_folder_becomes_a_mesh_and_stays_the_same_one(open_store, tmp_path):
    store = open_store("deep/er/mesh")
    assert is_uuid4(store.mesh_id)
    mesh_id = store.mesh_id
    store.close()
    assert sorted(files(tmp_path / "deep/er/mesh")) == [".writer.lock", "pooled.db"]
    assert (tmp_path / "deep/er/mesh/shards").is_dir()
    assert open_store("deep/er/mesh").mesh_id == mesh_id


@pytest.mark.parametrize("leftover", [".writer.lock", "pooled.db.new", "pooled.db.new-wal"])
def test_an_empty_or_half_made_folder_becomes_a_mesh(open_store, tmp_path, leftover):
    (tmp_path / "mesh").mkdir()
    (tmp_path / "mesh" / leftover).write_bytes(b"rubbish" if "new" in leftover else b"")
    assert open_store().state()["changes"] == 0


@pytest.mark.parametrize("name", ["notes.txt", "memory/memory.db", ".hidden", "vectors.db"])
def test_a_folder_that_holds_something_else_is_left_alone(tmp_path, name):
    target = tmp_path / "mesh" / name
    target.parent.mkdir(parents=True)
    target.write_bytes(b"mine")
    with pytest.raises(NotAMeshError, match=r"holds no mesh.*Hint: give a new or empty folder"):
        Store.open(tmp_path / "mesh")
    assert files(tmp_path / "mesh") == {name: b"mine"}


def test_a_file_is_no_folder(tmp_path):
    path = tmp_path / "mesh.txt"
    path.write_text("mine")
    with pytest.raises(NotAMeshError, match=r"mesh\.txt is a file"):
        Store.open(path)
    assert path.read_text() == "mine"


def test_a_database_of_something_else_is_left_alone(tmp_path):
    (tmp_path / "mesh").mkdir()
    with closing(sqlite3.connect(tmp_path / "mesh" / "pooled.db")) as conn:
        conn.execute("CREATE TABLE notes (text)")
    before = files(tmp_path)
    for read_only in (False, True):
        with pytest.raises(NotAMeshError, match="was not written by mnemes-lab"):
            Store.open(tmp_path / "mesh", read_only=read_only)
    assert files(tmp_path) == before


def test_reading_makes_nothing(tmp_path):
    with pytest.raises(NotAMeshError, match="no mesh to read"):
        Store.open(tmp_path / "mesh", read_only=True)
    assert list(tmp_path.iterdir()) == []


def test_a_moved_folder_is_the_same_mesh(open_mesh, tmp_path):
    mesh = open_mesh()
    load(mesh, a="pump off")
    mesh.close()
    shutil.move(tmp_path / "mesh", tmp_path / "elsewhere")
    assert open_mesh("elsewhere").search("pump").texts() == ["pump off"]


def test_two_openers_make_one_mesh(open_store, tmp_path):
    """Whoever comes second finds what the first one made."""
    made: list[Store] = []
    threads = [
        threading.Thread(target=lambda: made.append(Store.open(tmp_path / "mesh")))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({store.mesh_id for store in made}) == 1
    assert len(made) == 4
    for store in made:
        store.close()


# --- seeds and clocks ------------------------------------------------------------------------
def test_a_seed_is_kept_and_another_one_refused(open_store):
    store = open_store(seed=7)
    store.close()
    assert open_store().seed == 7
    open_store(seed=7)
    with pytest.raises(StoreError, match=r"with seed 7.*Found 8"):
        open_store(seed=8)
    open_store("plain").close()
    with pytest.raises(StoreError, match="without a seed"):
        open_store("plain", seed=7)


@pytest.mark.parametrize("seed", [0, -3, 2**100])
def test_any_whole_number_is_a_seed(open_store, seed):
    first = open_store("a", seed=seed)
    again = open_store("b", seed=seed)
    assert first.mesh_id == again.mesh_id
    first.close()
    assert open_store("a").seed == seed


def test_instants_never_repeat_or_go_back(open_store):
    store = open_store(clock=LabClock("2031-01-01T00:00:00Z"))
    last = store.now()
    with store.pooled():
        pass
    store.close()
    earlier = open_store(clock=LabClock("2030-01-01T00:00:00Z"))  # somebody set the clock back
    assert earlier.now() > last


# --- read-only -------------------------------------------------------------------------------
def test_opened_for_reading_nothing_can_be_written(open_mesh, tmp_path):
    mesh = open_mesh()
    load(mesh, a="pump off")
    mesh.search("pump")
    mesh.close()
    before = files(tmp_path / "mesh")
    reader = open_mesh(seed=None, encoder=None, read_only=True)
    assert reader.facts()["text"].to_list() == ["pump off"]
    assert reader.devices().height == reader.catalogue().height == 1
    assert reader.receipts().height == 1
    assert reader.receipt(reader.receipts()["receipt_id"].item()).verify()
    assert set(reader.check()["outcome"]) <= {"ok", "pending"}
    fact_id = reader.facts()["fact_id"].item()
    for write in (
        lambda: load(reader, a="pump on"),
        lambda: reader.device("b"),
        lambda: reader.agent("b"),
        lambda: reader.retract(fact_id),
        lambda: reader.supersede(fact_id, "x"),
        lambda: reader.device("a").revoke(),
        lambda: reader.device("a").heartbeat(),
        lambda: reader.device("a").supply_terms("x"),
        lambda: reader.bootstrap("x"),
        lambda: reader.reencode("hash:32"),
    ):
        with pytest.raises(ReadOnlyError, match="opened for reading only"):
            write()
    with pytest.raises(StoreError, match="reading only"):
        reader.search("pump")
    reader.close()
    after = {n: b for n, b in files(tmp_path / "mesh").items() if not n.endswith("-shm")}
    assert {n: b for n, b in after.items() if b or n in before} == before


# --- closing ---------------------------------------------------------------------------------
def test_closing_twice_is_fine_and_using_a_closed_mesh_is_named(open_mesh):
    mesh = open_mesh()
    load(mesh, a="pump off")
    mesh.close()
    mesh.close()
    for use in (
        lambda: mesh.search("pump"),
        lambda: load(mesh, a="x"),
        lambda: mesh.devices(),
        lambda: mesh.facts(),
        lambda: mesh.device("b"),
    ):
        with pytest.raises(StoreError, match="is closed"):
            use()


def test_a_closed_mesh_is_whole_files_without_logs(open_mesh, tmp_path):
    """So that a copy of memory.db alone is a copy of all its facts."""
    mesh = open_mesh(handles=1)
    for i in range(3):
        load(mesh, a=f"pump {i}", b=f"valve {i}", c=f"pier {i}")
        mesh.search(f"pump {i}", exhaustive=True)
        mesh.facts()
    mesh.close()
    assert [name for name in files(tmp_path / "mesh") if name.endswith(("-wal", "-shm"))] == []
    for path in (tmp_path / "mesh" / "shards").glob("*/memory.db"):
        with closing(sqlite3.connect(f"file:{path}?immutable=1", uri=True)) as conn:
            assert conn.execute("SELECT count(*) FROM facts").fetchone() == (3,)


def test_a_failed_opening_leaves_no_file_open(tmp_path):
    Mesh.open(tmp_path / "mesh", seed=1, encoder="hash:16").close()
    for _ in range(3):
        with pytest.raises(ValueError, match="encoded by"):
            Mesh.open(tmp_path / "mesh", encoder="hash:32")
    names = set(files(tmp_path / "mesh"))
    assert not {n for n in names if n.endswith(("-wal", "-shm"))}


# --- handles ---------------------------------------------------------------------------------
def test_handles_are_few_and_counted(open_mesh):
    mesh = open_mesh(handles=2)
    load(mesh, a="x", b="y", c="z")
    mesh.close()
    store = open_mesh(seed=None, encoder=None, handles=2).store
    assert store.handles == (0, 2, 0)
    devices = sorted(row["device_id"] for row in store.rows(select(t.devices.c.device_id)))
    for device in devices:
        store.shard(device)
    assert store.handles == (2, 2, 3)
    store.shard(devices[2])
    assert store.handles == (2, 2, 3)  # a hit opens nothing
    store.shard(devices[0])
    assert store.handles == (2, 2, 4)  # the least recently used had gone
    store.drop_handles()
    assert store.handles == (0, 2, 4)


def test_at_least_one_handle_is_kept(open_store):
    assert open_store(handles=0).handles.capacity == 1


def test_an_evicted_handle_serves_who_still_holds_it(open_mesh):
    mesh = open_mesh(handles=1)
    load(mesh, a="x", b="y")
    first, second = sorted(mesh.devices()["device_id"])
    handle = mesh.store.shard(first)
    with handle.begin() as conn:
        mesh.store.shard(second)
        assert conn.execute(select(t.facts.c.text)).scalar_one() in ("x", "y")


# --- shards ----------------------------------------------------------------------------------
def test_shards_lie_where_their_device_says(open_mesh, tmp_path):
    mesh = open_mesh()
    labels = ["../../escape", "CON", "a/b", "name.", "Laptop", "laptop"]
    mesh.load(pl.DataFrame({"device": labels, "text": ["x"] * len(labels)}), encode=False)
    paths = {
        mesh.store.shard_path(d).relative_to(tmp_path / "mesh") for d in mesh.devices()["device_id"]
    }
    assert len({str(p).lower() for p in paths}) == len(labels)
    for path in paths:
        assert path.parts[0] == "shards"
        assert is_uuid4(path.parts[1])
        assert path.parts[2:] == ("memory.db",)
        assert (tmp_path / "mesh" / path).is_file()
    assert {p.name for p in tmp_path.iterdir()} == {"mesh"}


def test_a_shard_is_made_by_its_first_write(open_store, tmp_path):
    store = open_store()
    device, _ = control.register_device(store, "laptop")
    assert list((tmp_path / "mesh" / "shards").iterdir()) == []
    store.shard(device)
    assert [p.name for p in (tmp_path / "mesh" / "shards" / device).iterdir()] == ["memory.db"]


def test_no_shard_is_made_for_a_stranger_or_in_place_of_a_lost_one(open_mesh, tmp_path):
    mesh = open_mesh()
    with pytest.raises(CorruptStoreError, match="missing"):
        mesh.store.shard("00000000-0000-4000-8000-000000000001")
    load(mesh, a="x")
    device = mesh.device("a").device_id
    mesh.close()
    shutil.rmtree(tmp_path / "mesh" / "shards" / device)
    mesh = open_mesh(seed=None, encoder=None)
    answer = mesh.load(pl.DataFrame({"device": ["a", "b"], "text": ["y", "z"]}))
    assert answer["outcome"].to_list() == ["refused", "stored"]
    assert "missing" in answer["reason"][0] and "Hint: restore" in answer["reason"][0]
    assert not (tmp_path / "mesh" / "shards" / device / "memory.db").exists()


# --- torn files ------------------------------------------------------------------------------
@pytest.mark.parametrize("size", [0, 50, 100, 5000])
@pytest.mark.parametrize("read_only", [False, True])
def test_a_torn_control_file_is_named_and_never_replaced(open_mesh, tmp_path, size, read_only):
    mesh = open_mesh()
    load(mesh, a="pump off")
    mesh.close()
    path = tmp_path / "mesh" / "pooled.db"
    torn = path.read_bytes()[:size]
    path.write_bytes(torn)
    with pytest.raises(StoreError, match=r"pooled\.db"):
        open_mesh(seed=None, encoder=None, read_only=read_only)
    assert path.read_bytes() == torn


@pytest.mark.parametrize("size", [0, 50, 100, 5000])
def test_a_torn_shard_is_named_and_never_replaced(open_mesh, tmp_path, size):
    mesh = open_mesh()
    load(mesh, a="pump off", b="pump on")
    mesh.close()
    device = mesh.store.folder.name and sorted((tmp_path / "mesh" / "shards").iterdir())[0].name
    path = tmp_path / "mesh" / "shards" / device / "memory.db"
    torn = path.read_bytes()[:size]
    path.write_bytes(torn)
    mesh = open_mesh(seed=None, encoder=None)
    found = mesh.search("pump", exhaustive=True)
    assert not found.complete
    assert found.hits.height == 1
    assert found.notice is not None
    assert "memory.db" in found.trace.filter(pl.col("device_id") == device)["error"].item()
    with pytest.raises(StoreError, match=r"memory\.db"):
        mesh.facts()
    assert mesh.facts(device=found.hits["device_id"].item()).height == 1
    assert path.read_bytes() == torn


# --- the writer's turn -----------------------------------------------------------------------
def test_the_turn_may_be_taken_again_by_who_has_it(open_store):
    store = open_store()
    with store.writing(), store.writing():
        control.register_device(store, "a")
    control.register_device(store, "b")


def test_another_writer_is_waited_for_and_then_named(open_store, impatient):
    first, second = open_store(), open_store()
    waited = r"kept the mesh for .*0\.2 s; nothing was written"
    with first.writing(), pytest.raises(StoreBusyError, match=waited):
        control.register_device(second, "b")
    control.register_device(second, "b")  # the turn is free again
    assert [row["label"] for row in first.rows(select(t.devices.c.label))] == ["b"]


def test_threads_of_one_mesh_take_turns(open_mesh, impatient):
    mesh = open_mesh()
    entered, done = threading.Event(), threading.Event()

    def hold() -> None:
        with mesh.store.writing():
            entered.set()
            done.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    entered.wait(30)
    with pytest.raises(StoreBusyError):
        mesh.device("late")
    done.set()
    thread.join()
    mesh.device("late")


def test_an_error_gives_the_turn_back(open_store):
    first, second = open_store(), open_store()
    with pytest.raises(ZeroDivisionError), first.writing():
        raise ZeroDivisionError
    control.register_device(second, "b")


@pytest.mark.parametrize("seconds", [5])
def test_a_raw_lock_on_the_control_file_is_named_after_the_real_wait(open_store, tmp_path, seconds):
    """The one test that waits as long as a user would."""
    store = open_store()
    with closing(sqlite3.connect(tmp_path / "mesh" / "pooled.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreBusyError, match=rf"pooled\.db for .*{seconds} s"):
            control.register_device(store, "a")
        other.execute("ROLLBACK")
    control.register_device(store, "a")


def test_a_search_that_cannot_write_its_receipt_says_so(open_mesh, tmp_path, impatient):
    mesh = open_mesh()
    load(mesh, a="pump off")
    mesh.refresh()
    with closing(sqlite3.connect(tmp_path / "mesh" / "pooled.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreBusyError, match=r"pooled\.db"):
            mesh.search("pump")
        other.execute("ROLLBACK")
    assert mesh.search("pump").texts() == ["pump off"]
    assert mesh.receipts().height == 1
