"""`check` names each kind of damage, and finds none where there is none."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import polars as pl
import pytest

from mnemes_lab import Mesh, schemas

FRAME = pl.DataFrame(
    {
        "device": ["a", "a", "b"],
        "text": ["pump seven is off", "valve two is off", "pump nine is on"],
        "fact_id": ["f1", "f2", "f3"],
    }
)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed mesh of two devices, three facts and two receipts."""
    folder = tmp_path_factory.mktemp("template") / "mesh"
    with Mesh.open(folder, seed=7, encoder="hash:64") as mesh:
        mesh.load(FRAME)
        mesh.search("pump", exhaustive=True)
        mesh.search("valve", asker="a")
    return folder


@pytest.fixture
def folder(template: Path, tmp_path: Path) -> Path:
    """A copy of it to damage."""
    return Path(shutil.copytree(template, tmp_path / "mesh"))


def bad(mesh: Mesh) -> dict[tuple[str, str], tuple[str, str]]:
    """What is not in order: (item, check) to outcome and detail."""
    report = mesh.check()
    assert schemas.Report.is_valid(report)
    return {
        (row["item"], row["check"]): (row["outcome"], row["detail"])
        for row in report.filter(pl.col("outcome") != "ok").iter_rows(named=True)
    }


def device_of(folder: Path, label: str) -> str:
    with closing(sqlite3.connect(folder / "pooled.db")) as conn:
        query = "SELECT device_id FROM devices WHERE label = ?"
        return conn.execute(query, [label]).fetchone()[0]


def sql(path: Path, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(path)) as conn, conn:
        assert conn.execute(statement, values).rowcount != 0


@pytest.fixture
def reopened(open_mesh) -> Callable[[], Mesh]:
    return lambda: open_mesh(seed=None, encoder=None)


def test_a_whole_mesh_is_in_order(folder, reopened):
    mesh = reopened()
    assert bad(mesh) == {}
    looked_at = set(mesh.check().select("item", "check").iter_rows())
    a = f"shards/{device_of(folder, 'a')}"
    assert {
        ("pooled.db", c) for c in ("sqlite", "links", "pending writes", "receipts")
    } <= looked_at
    shard = ("sqlite", "links", "catalogue", "content", "fact index", "index")
    assert {(a, c) for c in shard} <= looked_at


def test_an_empty_mesh_and_an_unwritten_device_are_in_order(open_mesh):
    mesh = open_mesh()
    assert bad(mesh) == {}
    mesh.device("quiet")
    assert bad(mesh) == {}


def test_a_mesh_is_in_order_after_every_kind_of_change(folder, reopened):
    mesh = reopened()
    mesh.update("f1", text="pump seven is on")
    mesh.retract("f2")
    mesh.supersede("f3", "pump nine is off")
    mesh.device("b").revoke()
    mesh.rotate_receipt_key()
    mesh.search("pump", exhaustive=True)
    mesh.reencode("hash:32")
    mesh.search("pump", exhaustive=True)
    assert {outcome for outcome, _ in bad(mesh).values()} <= {"pending"}
    mesh.search("pump", exhaustive=True)
    mesh.close()
    assert {outcome for outcome, _ in bad(reopened()).values()} <= {"pending"}


def test_a_flipped_bit_in_a_text_is_named(folder, reopened):
    path = folder / "shards" / device_of(folder, "a") / "memory.db"
    raw = path.read_bytes()
    assert raw.count(b"pump seven is off") == 1
    path.write_bytes(raw.replace(b"pump seven is off", b"pump seven is ofg"))
    found = bad(reopened())
    (key,) = found
    assert key == (f"shards/{device_of(folder, 'a')}", "content")
    assert found[key] == ("broken", "1 texts differ from their digest: ['f1']")


def test_a_text_that_is_no_text_any_more_is_named(folder, reopened):
    path = folder / "shards" / device_of(folder, "a") / "memory.db"
    path.write_bytes(path.read_bytes().replace(b"pump seven is off", b"pump seven is \xff\xff\xff"))
    found = bad(reopened())
    assert [outcome for outcome, _ in found.values()] == ["broken"]
    assert next(iter(found))[0] == f"shards/{device_of(folder, 'a')}"


def test_a_deleted_shard_is_named(folder, reopened):
    a = device_of(folder, "a")
    shutil.rmtree(folder / "shards" / a)
    found = bad(reopened())
    assert found[f"shards/{a}", "file"][0] == "broken"
    assert "missing" in found[f"shards/{a}", "file"][1]
    assert found[f"shards/{a}", "index"][0] == "pending"
    assert not (folder / "shards" / a).exists()  # nothing was made in its place


def test_a_truncated_index_is_named_and_heals(folder, reopened):
    a = device_of(folder, "a")
    path = folder / "shards" / a / "index.bin"
    path.write_bytes(path.read_bytes()[:100])
    mesh = reopened()
    found = bad(mesh)
    assert list(found) == [(f"shards/{a}", "index")]
    assert found[f"shards/{a}", "index"][0] == "broken"
    assert "rebuilt" in found[f"shards/{a}", "index"][1]
    assert mesh.search("pump", exhaustive=True).complete
    mesh.close()
    assert bad(reopened()) == {}


def test_an_absent_or_late_index_is_only_pending(folder, reopened):
    a = device_of(folder, "a")
    (folder / "shards" / a / "index.bin").unlink()
    mesh = reopened()
    assert bad(mesh)[f"shards/{a}", "index"] == ("pending", "not made yet")
    mesh.retract("f3")
    found = bad(mesh)
    assert found[f"shards/{device_of(folder, 'b')}", "index"][0] == "pending"


def test_an_older_shard_is_named(folder, reopened, tmp_path):
    a = device_of(folder, "a")
    shutil.copytree(folder / "shards" / a, tmp_path / "older")
    mesh = reopened()
    mesh.load(pl.DataFrame({"device": ["a"], "text": ["gate six opened"], "fact_id": ["f4"]}))
    mesh.close()
    shutil.rmtree(folder / "shards" / a)
    shutil.copytree(tmp_path / "older", folder / "shards" / a)
    mesh = reopened()
    found = bad(mesh)
    assert found[f"shards/{a}", "catalogue"][0] == "broken"
    assert "f4" in found[f"shards/{a}", "fact index"][1]
    answer = mesh.search("gate six", exhaustive=True)
    assert not answer.complete
    assert "older than the catalogue" in answer.trace["error"].drop_nulls().item()


def test_a_shard_in_the_place_of_another_is_named(folder, reopened):
    a, b = (folder / "shards" / device_of(folder, label) for label in "ab")
    shutil.copy(a / "memory.db", b / "memory.db")
    found = bad(reopened())
    assert found[f"shards/{b.name}", "file"][0] == "broken"
    assert f"shards/{a.name}" not in {item for item, _ in found}


@pytest.mark.parametrize(
    ("statement", "check"),
    [
        ("DELETE FROM facts WHERE fact_id = 'f2'", "catalogue"),
        ("UPDATE facts SET text = 'valve two is on' WHERE fact_id = 'f2'", "content"),
        ("UPDATE facts SET content_digest = zeroblob(32) WHERE fact_id = 'f2'", "content"),
        ("UPDATE facts SET fact_id = 'f9' WHERE fact_id = 'f2'", "fact index"),
        ("UPDATE shard_state SET generation = 9", "catalogue"),
        ("UPDATE shard_state SET mesh_id = 'another'", "file"),
        ("UPDATE shard_state SET facts = 9", "catalogue"),
        ("DELETE FROM shard_state", "file"),
    ],
)
def test_a_row_changed_behind_the_meshs_back_is_named(folder, reopened, statement, check):
    a = device_of(folder, "a")
    sql(folder / "shards" / a / "memory.db", statement)
    found = bad(reopened())
    assert found[f"shards/{a}", check][0] == "broken"
    assert {item for item, _ in found} == {f"shards/{a}"}


@pytest.mark.parametrize(
    "change",
    [
        "body = replace(body, 'overlap', 'overlaq')",
        "body = substr(body, 1, 100)",
        "body = ''",
        "receipt_id = '00000000-0000-4000-8000-000000000001'",
        "results = results + 1",
        "selected = 0",
        "eligible = 9",
        "exhaustive = 1 - exhaustive",
        "requester_device_id = 'somebody'",
        "recorded_at = recorded_at - 1",
        "version = 1",
        "key_id = 'another'",
    ],
)
def test_a_changed_receipt_is_named(folder, open_mesh, reopened, change):
    path = folder / "pooled.db"
    where = "WHERE receipt_id = (SELECT max(receipt_id) FROM receipts)"
    mesh = reopened()
    sql(path, f"UPDATE receipts SET {change} {where}")
    found = bad(mesh)
    assert list(found) == [("pooled.db", "receipts")]
    assert found["pooled.db", "receipts"][0] == "broken"
    assert "1 do not verify" in found["pooled.db", "receipts"][1]


def test_receipts_swapped_between_rows_are_named(folder, reopened):
    path = folder / "pooled.db"
    mesh = reopened()
    sql(path, "UPDATE receipts SET body = (SELECT body FROM receipts r WHERE r.receipt_id = "
              "(SELECT min(receipt_id) FROM receipts))")  # fmt: skip
    assert bad(mesh)["pooled.db", "receipts"][0] == "broken"


def test_a_stray_folder_is_named(folder, reopened):
    stranger = "00000000-0000-4000-8000-000000000001"
    (folder / "shards" / stranger).mkdir()
    (folder / "shards" / "notes").write_text("x")
    found = bad(reopened())
    assert set(found) == {(f"shards/{stranger}", "file"), ("shards/notes", "file")}
    assert {outcome for outcome, _ in found.values()} == {"broken"}


def test_a_lost_entry_of_the_fact_index_is_named(folder, reopened):
    sql(folder / "pooled.db", "DELETE FROM fact_index WHERE fact_id = 'f3'")
    found = bad(reopened())
    assert list(found) == [(f"shards/{device_of(folder, 'b')}", "fact index")]


def test_a_broken_link_is_named(folder, reopened):
    sql(folder / "pooled.db", "DELETE FROM devices WHERE label = 'b'")
    assert bad(reopened())["pooled.db", "links"][0] == "broken"


def test_a_write_that_waits_to_be_finished_is_pending(folder, reopened):
    mesh = reopened()
    a = device_of(folder, "a")
    sql(folder / "pooled.db", "INSERT INTO pending_writes VALUES (?, 2, 'keep', 0)", a)
    assert bad(mesh)["pooled.db", "pending writes"][0] == "pending"
    mesh.device("new")  # the next writer finishes it
    assert bad(mesh) == {}


@pytest.mark.parametrize("page", [1, 2, 3, 4])
def test_a_page_of_rubbish_is_named(folder, reopened, page):
    a = device_of(folder, "a")
    path = folder / "shards" / a / "memory.db"
    raw = bytearray(path.read_bytes())
    assert len(raw) > (page + 1) * 4096
    raw[page * 4096 : page * 4096 + 64] = b"\xa5" * 64
    path.write_bytes(raw)
    found = bad(reopened())
    assert "broken" in {outcome for outcome, _ in found.values()}
    assert {item for item, _ in found} == {f"shards/{a}"}


def test_a_damaged_vector_cache_costs_time_and_nothing_else(folder, reopened):
    mesh = reopened()
    before = mesh.search("pump off", exhaustive=True).hits
    mesh.close()
    (folder / "vectors.db").write_bytes(b"rubbish" * 1000)
    for path in folder.glob("shards/*/index.bin"):
        path.unlink()
    mesh = reopened()
    assert mesh.search("pump off", exhaustive=True).hits.equals(before)
    assert {outcome for outcome, _ in bad(mesh).values()} <= {"pending"}


# --- one bad shard holds up nobody else --------------------------------------------------------
def overwrite(path, offset: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


def spoil(folder, label: str, how: str) -> None:
    """Damage a device's shard the way disks and people do."""
    path = folder / "shards" / device_of(folder, label) / "memory.db"
    if how == "cut":
        path.write_bytes(path.read_bytes()[:100])
    elif how == "gone":
        path.unlink()
    elif how == "flipped":
        for page in range(1, path.stat().st_size // 4096):
            overwrite(path, page * 4096, b"\xff" * 64)
    else:
        other = folder / "shards" / device_of(folder, "b") / "memory.db"
        shutil.copy(other, path)


@pytest.mark.parametrize("how", ["cut", "gone", "flipped", "swapped"])
def test_a_damaged_shard_refuses_its_own_rows_only(folder, reopened, how):
    spoil(folder, "a", how)
    mesh = reopened()
    rows = [{"device": d, "text": f"new on {d}"} for d in ("b", "a", "c")]
    answers = mesh.load_records(rows, encode=False)
    assert answers["outcome"].to_list() == ["stored", "refused", "stored"]
    assert device_of(folder, "a") in answers["reason"][1]
    mesh.agent("b").remember("and one more")
    mesh.close()
    mesh = reopened()
    damaged = device_of(folder, "a")
    broken = {item for (item, _), (outcome, _) in bad(mesh).items() if outcome == "broken"}
    assert broken == {f"shards/{damaged}"}
    found = mesh.search("new", exhaustive=True)
    assert not found.complete
    assert {"new on b", "new on c", "and one more"} <= set(found.texts())


def test_a_shard_damaged_after_a_write_was_announced_is_fenced_off(folder, reopened):
    mesh = reopened()
    a, b = (mesh.device(label).device_id for label in "ab")
    generation = {r["device_id"]: r["generation"] for r in mesh.catalogue().to_dicts()}
    mesh.store.announce({d: generation[d] for d in (a, b)}, [], "undo")
    mesh.close()
    spoil(folder, "a", "cut")
    mesh = reopened()
    assert list(mesh.store.stuck) == [a]
    answers = mesh.load_records([{"device": d, "text": "late"} for d in "ab"], encode=False)
    assert answers["outcome"].to_list() == ["refused", "stored"]
    assert "late" in mesh.facts(device="b")["text"].to_list()
