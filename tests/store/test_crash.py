"""Writers that die or fail at any statement: all of a write is there afterwards, or none of it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from sqlalchemy import Engine, event, select

from mnemes_lab import Mesh
from mnemes_lab.errors import StoreError
from mnemes_lab.store import engine as engine_module
from mnemes_lab.store import tables as t

ENCODER = """
import numpy as np

class Lengths:
    name, dim, fingerprint = "lengths", 4, "lengths:4"

    def encode(self, texts):
        return np.array([[len(t), t.count("a"), t.count("7"), 1] for t in texts], np.float32)
"""
BATCHES = """
def batch(number):
    devices = ["a"] if number % 3 == 2 else ["a", "b", "c"]
    rows = [(d, f"batch {number} row {i} of {d}") for i in range(4) for d in devices]
    return [{"device": d, "text": text} for d, text in rows]
"""
# Forks one writer for each of some points in its work and lets it kill itself there. Forking from
# a process that has only imported things saves importing them again for every writer.
WRITER = f"""
import faiss, json, os, random, signal, sys
import pandas, polars as pl
from sqlalchemy import Engine, event, select
from mnemes_lab import Mesh
{ENCODER}
{BATCHES}
folder, seed, points, batches = sys.argv[1], *map(int, sys.argv[2:])

def write(name, deadly):
    signal.alarm(120)
    events = 0

    def happened(*_):
        nonlocal events
        events += 1
        if events == deadly:
            os.kill(os.getpid(), signal.SIGKILL)

    told = os.open(f"{{folder}}/{{name}}.told", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    with Mesh.open(f"{{folder}}/{{name}}", encoder=Lengths()) as mesh:
        for what in ("before_cursor_execute", "after_cursor_execute", "commit"):
            event.listen(Engine, what, happened)
        for what in ("replace", "link", "fsync"):
            plain = getattr(os, what)
            setattr(os, what, lambda *a, _do=plain: (happened(), _do(*a), happened()))
        for number in range(batches):
            answers = mesh.load_records(batch(number), encode=number % 2 == 0)
            os.write(told, (json.dumps([number, answers["fact_id"].to_list()]) + "\\n").encode())
    os.write(told, f"{{events}}\\n".encode())

def fork(name, deadly):
    child = os.fork()
    if child == 0:
        try:
            write(name, deadly)
        finally:
            os._exit(7)
    return os.waitpid(child, 0)[1]

fork("whole", 0)
total = int(open(f"{{folder}}/whole.told").read().split()[-1])
for point in sorted(random.Random(seed).sample(range(1, total), points)):
    status = fork(f"killed-at-{{point}}", point)
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL, (point, status)
print(total)
"""
shared: dict[str, Any] = {}
exec(ENCODER + BATCHES, shared)
Lengths, batch = shared["Lengths"], shared["batch"]


def by_batch(mesh: Mesh) -> dict[int, set[str]]:
    """Texts that are there, by the batch they belong to."""
    out: dict[int, set[str]] = defaultdict(set)
    for text in mesh.facts()["text"]:
        out[int(text.split()[1])].add(text)
    return dict(out)


def whole(number: int) -> set[str]:
    return {row["text"] for row in batch(number)}


def broken(mesh: Mesh) -> list[tuple]:
    return mesh.check().filter(pl.col("outcome") == "broken").rows()


def test_a_killed_writer_leaves_whole_batches(tmp_path: Path) -> None:
    """Kill -9 at ten random points of loads over several devices."""
    batches = 6
    done = subprocess.run(
        [sys.executable, "-c", WRITER, str(tmp_path), "5", "10", str(batches)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    killed = sorted(p for p in tmp_path.iterdir() if p.name.startswith("killed") and p.is_dir())
    assert len(killed) == 10
    for folder in killed:
        told = Path(f"{folder}.told").read_text().splitlines()
        acknowledged = dict(json.loads(line) for line in told)
        with Mesh.open(folder, encoder=Lengths()) as mesh:
            there = by_batch(mesh)
            ids = dict(mesh.facts().select("fact_id", "text").iter_rows())
            for number, fact_ids in acknowledged.items():
                assert [ids[f] for f in fact_ids] == [row["text"] for row in batch(number)]
            for number, texts in there.items():
                assert texts == whole(number), (folder.name, number)
            assert set(there) - set(acknowledged) <= {len(acknowledged)}  # the one in hand
            assert broken(mesh) == []
            found = mesh.search("batch row of a", exhaustive=True, k=200)
            assert found.complete
            assert found.hits.height == len(ids)
            # Whoever did not hear an answer asks again, and nothing is there twice.
            again = [row for number in range(batches) for row in batch(number)]
            answers = mesh.load_records(again, encode=False)
            numbers = [int(row["text"].split()[1]) for row in again]
            expected = ["duplicate" if number in there else "stored" for number in numbers]
            assert answers["outcome"].to_list() == expected
            assert by_batch(mesh) == {number: whole(number) for number in range(batches)}
        assert {p.name for p in folder.glob("shards/*/*")} <= {"memory.db", "index.bin"}
    points = {len(Path(f"{folder}.told").read_text().splitlines()) for folder in killed}
    assert len(points) > 3  # they died at quite different times


# --- faults instead of deaths ----------------------------------------------------------------
class Fault(Exception):
    """What a test breaks."""


@contextmanager
def fault_at(number: int) -> Iterator[list[int]]:
    """Break the writing statement or commit of this number; answers how many there were."""
    seen = [0]

    def happened() -> None:
        seen[0] += 1
        if seen[0] == number:
            raise Fault(number)

    def statement(_conn: object, _cursor: object, sql: str, *_: object) -> None:
        if sql.split(None, 1)[0] in ("INSERT", "UPDATE", "DELETE"):
            happened()

    def commit(conn: Any) -> None:
        if conn.engine.pool.size() == 1:  # readers have more connections
            happened()

    listeners = (("before_cursor_execute", statement), ("commit", commit))
    for what, listener in listeners:
        event.listen(Engine, what, listener)
    try:
        yield seen
    finally:
        for what, listener in listeners:
            event.remove(Engine, what, listener)


@pytest.mark.parametrize("devices", [["a"], ["a", "b"]])
def test_a_load_that_fails_anywhere_is_there_whole_or_not_at_all(open_mesh, devices):
    mesh = open_mesh()
    mesh.load_records([{"device": d, "text": "batch 0 start"} for d in devices], encode=False)
    number, kept = 0, set()
    while True:
        number += 1
        rows = [
            {"device": d, "text": f"batch {number} row {i} of {d}"} for i in "12" for d in devices
        ]
        texts = {row["text"] for row in rows}
        with fault_at(number) as seen:
            try:
                mesh.load_records(rows, encode=False)
            except Fault:
                pass
            else:
                break
        assert by_batch(mesh).get(number, set()) in (set(), texts)
        mesh.agent("a").remember(f"batch 0 note {number}")  # the next writer finishes or undoes
        if there := by_batch(mesh).get(number, set()):
            assert there == texts
            kept.add(number)
        again = set(mesh.load_records(rows, encode=False)["outcome"])
        assert again == ({"duplicate"} if there else {"stored"})
        assert by_batch(mesh)[number] == texts
    assert seen[0] == number - 1 > 8
    assert broken(mesh) == []
    assert mesh.search("batch", exhaustive=True, k=500).hits.height == mesh.facts().height
    assert bool(kept) == (len(devices) == 1)  # one device is kept, several are undone


CHANGES = {
    "supersede": lambda mesh, fact_id, text: mesh.supersede(fact_id, text),
    "update": lambda mesh, fact_id, text: mesh.update(fact_id, text=text),
    "retract": lambda mesh, fact_id, text: mesh.retract(fact_id),
}


def current(mesh: Mesh) -> set[str]:
    return set(mesh.facts().filter(pl.col("status") == "active")["text"])


@pytest.mark.parametrize("change", sorted(CHANGES))
def test_a_change_that_fails_anywhere_is_there_whole_or_not_at_all(open_mesh, change):
    mesh = open_mesh()
    number = 0
    while True:
        number += 1
        old, new = f"old {number}", f"new {number}"
        fact_id = mesh.agent("a").remember(old)
        before = current(mesh)
        after = (before - {old}) | ({new} if change != "retract" else set())
        with fault_at(number) as seen:
            try:
                CHANGES[change](mesh, fact_id, new)
            except Fault:
                pass
            else:
                break
        assert current(mesh) in (before, after)
        found = set(mesh.search("old new", exhaustive=True, k=500).texts())
        assert found in (before, after)
        mesh.device(f"next {number}")  # the next writer
        assert current(mesh) in (before, after)
        assert set(mesh.search("old new", exhaustive=True, k=500).texts()) == current(mesh)
        assert mesh.history(fact_id)["status"].to_list().count("active") == int(
            current(mesh) == before or change == "supersede" or change == "update"
        )
    assert current(mesh) == after
    assert seen[0] == number - 1 > 6
    assert broken(mesh) == []


def evidence(mesh: Mesh) -> tuple[set[str], set[str], set[str]]:
    """Keys of operations, edges, and keys that are taken."""
    taken = {r["idempotency_key"] for r in mesh.store.rows(select(t.operation_keys))}
    return (
        set(mesh.operations()["idempotency_key"].drop_nulls()),
        set(mesh.edges()["edge_id"]),
        taken,
    )


@pytest.mark.parametrize("verb", ["remember", "supersede", "redact", "submit", "edges"])
def test_a_key_is_there_with_its_effect_or_not_at_all(open_mesh, verb):
    """Break a keyed request anywhere: afterwards the same request is answered, and only once."""
    mesh = open_mesh()
    agent, other = mesh.agent("a"), mesh.agent("b")
    number = 0
    while True:
        number += 1
        key = f"key {number}"
        mine, theirs = agent.remember(f"mine {number}"), other.remember(f"theirs {number}")
        edges = pl.DataFrame(
            {
                "edge_type": ["supports"] * 3,
                "source": [f"doc:{number}", f"fact:{mine}", f"fact:{theirs}"],
                "target": ["claim:x", f"doc:{number}", f"doc:{number}"],
            }
        )
        ask = {
            "remember": lambda k, n=number: agent.remember(f"new {n}", idempotency_key=k),
            "supersede": lambda k, f=mine, n=number: agent.supersede(
                f, f"newer {n}", idempotency_key=k
            ),
            "redact": lambda k, f=mine: agent.redact(f, idempotency_key=k),
            "submit": lambda k, f=mine: agent.submit(
                "adjudicate", f"fact:{f}", content="x", idempotency_key=k
            ),
            "edges": lambda k, e=edges: mesh.add_edges(e, idempotency_key=k).rows(),
        }[verb]
        before = evidence(mesh)
        first = None
        with fault_at(number) as seen, suppress(Fault):
            first = ask(key)
        if first is not None:
            break
        mesh.device(f"next {number}")  # the next writer finishes or undoes
        keys, edge_ids, taken = evidence(mesh)
        assert keys == taken
        assert keys - before[0] in (set(), {key})
        if key not in keys:
            assert edge_ids == before[1]
        again = ask(key)
        assert ask(key) == again
        assert evidence(mesh)[0] == evidence(mesh)[2] == before[0] | {key}
    assert ask(key) == first
    assert seen[0] == number - 1 > 4
    mesh.scrub()
    assert broken(mesh) == []
    mesh.rebuild_evidence()
    assert broken(mesh) == []


@pytest.mark.parametrize("change", ["load", *sorted(CHANGES)])
def test_nobody_sees_a_write_before_it_is_published(open_mesh, change, monkeypatch):
    """Between writing a shard and publishing it, every reader still sees what was."""
    mesh, reader = open_mesh(), open_mesh()
    fact_id = mesh.agent("a").remember("old")
    before = reader.facts()
    hits = reader.search("old new", exhaustive=True).hits
    seen = []
    publish = mesh.store.publish

    def look_first(written, **options):
        seen.append(reader.facts().drop("status").equals(before.drop("status")))
        seen.append(current(reader) == {"old"})
        seen.append(reader.search("old new", exhaustive=True).hits.equals(hits))
        publish(written, **options)

    monkeypatch.setattr(mesh.store, "publish", look_first)
    if change == "load":
        mesh.load_records([{"device": "a", "text": "new"}], encode=False)
    else:
        CHANGES[change](mesh, fact_id, "new")
    assert seen == [True] * 3
    expected = {"load": {"old", "new"}, "retract": set()}.get(change, {"new"})
    assert current(reader) == expected
    assert set(reader.search("old new", exhaustive=True).texts()) == expected


def test_a_full_disk_is_named_and_stores_nothing(open_mesh, monkeypatch):
    mesh = open_mesh()
    mesh.load_records([{"device": "a", "text": "pump off"}], encode=False)
    mesh.store.drop_handles()
    pragmas = engine_module._RW
    monkeypatch.setattr(engine_module, "_RW", (*pragmas, "PRAGMA max_page_count=1"))
    with pytest.raises(StoreError, match=r"no room to write shards/.*memory\.db.*Hint"):
        mesh.load_records([{"device": "a", "text": f"{i} " * 50} for i in range(500)], encode=False)
    monkeypatch.setattr(engine_module, "_RW", pragmas)
    mesh.store.drop_handles()
    assert current(mesh) == {"pump off"}
    mesh.load_records([{"device": "a", "text": "pump on"}], encode=False)
    assert current(mesh) == {"pump off", "pump on"}
    assert broken(mesh) == []


def test_a_live_writer_keeps_nobody_from_opening(open_mesh, impatient):
    """Its note looks like that of a dead one until its turn is over."""
    mesh = open_mesh()
    mesh.load_records([{"device": "a", "text": "pump off"}], encode=False)
    device = mesh.device("a").device_id
    with mesh.store.writing():
        mesh.store.announce({device: 2}, [], "keep")
        other = open_mesh(seed=None, encoder=None)
        assert other.facts()["text"].to_list() == ["pump off"]
        mesh.store.publish({device: (2, 1)})
    other.device("b")
    assert broken(mesh) == []
