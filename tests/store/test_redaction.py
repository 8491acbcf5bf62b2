"""Redaction: no surface shows the text any more, no file holds it, and the tombstone stays."""

from __future__ import annotations

import hashlib
import sqlite3
from contextlib import closing
from pathlib import Path

import polars as pl
import pytest

from mnemes_lab import AsOf, Mesh
from mnemes_lab.errors import AuthorizationDeniedError, ConflictError, FactNotFoundError
from mnemes_lab.store import redaction

SECRET = "the vault of Marisol opens with QZ4711XW"
TRACES = (b"Marisol", b"marisol", b"QZ4711XW", b"qz4711xw", SECRET.encode())


def traces(folder: Path) -> list[str]:
    """Files that hold a trace of the secret."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return [p.name for p in files if any(trace in p.read_bytes() for trace in TRACES)]


def vectors(folder: Path) -> int:
    """How many vectors are filed under the secret's digest."""
    key = hashlib.sha256(SECRET.encode()).digest()
    with closing(sqlite3.connect(folder / "vectors.db")) as conn:
        return conn.execute("SELECT count(*) FROM vectors WHERE key = ?", (key,)).fetchone()[0]


@pytest.fixture
def told(open_mesh, tmp_path):
    """A mesh that holds the secret on every surface, and the fact's id."""
    mesh = open_mesh()
    agent = mesh.agent("keeper")
    mesh.load_records([{"device": "keeper", "text": f"pump {i} runs"} for i in range(300)])
    fact_id = agent.remember(
        "the vault opens", subject="Marisol", object="QZ4711XW", source="Marisol"
    )
    assert mesh.update(fact_id, text=SECRET) == 2
    assert SECRET in mesh.search("marisol vault", exhaustive=True).texts()
    mesh.refresh()
    mesh.indexes.close()
    mesh.store.drop_handles()
    assert "marisol" in str(mesh.summaries()["terms"].to_list())
    assert {"memory.db", "index.bin"} <= set(traces(tmp_path / "mesh"))
    assert vectors(tmp_path / "mesh") == 1
    return mesh, fact_id, tmp_path / "mesh"


def test_the_text_is_gone_from_every_surface_and_file(told):
    mesh, fact_id, folder = told
    before = mesh.current()
    assert mesh.redact(fact_id, reason="asked for by its subject")
    shown = mesh.facts().filter(pl.col("fact_id") == fact_id).row(0, named=True)
    assert (shown["status"], shown["text"]) == ("redacted", "")
    assert shown["subject"] is shown["object"] is shown["source"] is None
    assert shown["content_digest"] == hashlib.sha256(SECRET.encode()).hexdigest()
    assert mesh.history(fact_id)["text"].to_list() == ["", ""]
    assert mesh.history(fact_id)["reason"].to_list()[-1] == "asked for by its subject"
    for as_of in (None, before, AsOf()):
        found = mesh.search("marisol vault qz4711xw", exhaustive=True, as_of=as_of, k=400)
        assert fact_id not in found.hits["fact_id"].to_list()
        assert found.hits.height == 300
        assert SECRET not in str(mesh.facts(as_of=as_of).to_dicts())
    assert "marisol" not in str(mesh.summaries()["terms"].to_list())
    assert "redacted" in mesh.lineage(f"fact:{fact_id}").items["label"][0]
    assert vectors(folder) == 0
    assert traces(folder) == []
    assert mesh.check().filter(pl.col("outcome") == "broken").rows() == []
    mesh.close()
    assert traces(folder) == []


def test_what_is_kept_says_that_something_was_there(told):
    mesh, fact_id, _ = told
    mesh.redact(fact_id)
    kinds = mesh.operations(target_id=fact_id)["operation_kind"].to_list()
    assert kinds == ["observe", "supersede", "redact"]
    digests = mesh.operations(target_id=fact_id)["content_digest"].to_list()
    assert digests[-1] == "sha256:" + hashlib.sha256(SECRET.encode()).hexdigest()
    assert mesh.edges(source=f"fact:{fact_id}")["edge_type"].to_list().count("recorded_by") == 2


def test_other_facts_keep_their_answers(told):
    mesh, fact_id, _ = told
    point = mesh.current()
    before = mesh.facts(as_of=point).filter(pl.col("fact_id") != fact_id)
    edges = mesh.edges(as_of=point)
    mesh.redact(fact_id)
    assert mesh.facts(as_of=point).filter(pl.col("fact_id") != fact_id).equals(before)
    assert mesh.edges(as_of=point).equals(edges)


def test_the_same_words_may_be_said_again(told):
    mesh, fact_id, _ = told
    mesh.redact(fact_id)
    again = mesh.agent("keeper").remember(SECRET)
    assert again != fact_id
    assert SECRET in mesh.search("marisol vault", exhaustive=True).texts()


def test_redacting_twice_or_changing_what_is_gone_is_refused(told):
    mesh, fact_id, _ = told
    mesh.redact(fact_id, idempotency_key="r1")
    assert mesh.redact(fact_id, idempotency_key="r1")  # a retry
    for change in (mesh.redact, mesh.retract):
        with pytest.raises(ConflictError, match="redacted already"):
            change(fact_id)
    with pytest.raises(ConflictError, match="redacted already"):
        mesh.supersede(fact_id, "new words")
    with pytest.raises(FactNotFoundError):
        mesh.redact("no such fact")


def test_an_agent_redacts_facts_of_its_own_device_only(told):
    mesh, fact_id, folder = told
    with pytest.raises(AuthorizationDeniedError):
        mesh.agent("stranger").redact(fact_id)
    assert mesh.agent("keeper").redact(fact_id)
    assert traces(folder) == []


def test_a_fact_that_was_superseded_before_is_redacted_too(told):
    mesh, fact_id, folder = told
    new = mesh.supersede(fact_id, "the vault has a new lock", subject="the vault")
    assert mesh.redact(fact_id)
    assert traces(folder) == []
    history = mesh.history(new)
    assert history["fact_id"].to_list() == [fact_id, fact_id, new]
    assert history["status"].to_list() == ["redacted", "redacted", "active"]


def test_an_open_reader_delays_the_scrubbing_and_check_says_so(told, impatient):
    mesh, fact_id, folder = told
    path = next(folder.glob("shards/*/memory.db"))
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM facts").fetchall()
        assert not mesh.redact(fact_id)
        assert (
            mesh.search("marisol qz4711xw", exhaustive=True)
            .hits["text"]
            .str.contains("QZ4711")
            .sum()
            == 0
        )
        report = mesh.check().filter(pl.col("check") == "redactions").row(0, named=True)
        assert report["outcome"] == "pending"
        reader.execute("ROLLBACK")
    assert mesh.scrub() == []
    assert mesh.check().filter(pl.col("check") == "redactions")["outcome"].item() == "ok"
    assert traces(folder) == []


def test_whoever_opens_the_mesh_next_finishes_the_scrubbing(told, monkeypatch):
    mesh, fact_id, folder = told

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(redaction, "_scrub", die)
        with pytest.raises(KeyboardInterrupt):
            mesh.redact(fact_id)
    mesh.close()
    with Mesh.open(folder) as again:
        assert again.facts().filter(pl.col("fact_id") == fact_id)["text"].item() == ""
        assert traces(folder) == []


def test_another_process_does_not_bring_the_text_back(told, open_mesh):
    """It holds an index of before, and keeps its indexes when it closes."""
    mesh, fact_id, folder = told
    other = open_mesh(seed=None, encoder=None)
    assert SECRET in other.search("marisol vault", exhaustive=True).texts()
    assert mesh.redact(fact_id)
    for index, _ in other.indexes._loaded.values():
        index.saved_rows = 0  # as if it were new to the other one
    other.close()
    mesh.close()
    assert traces(folder) == []


def test_copies_made_by_migrations_go_too(told):
    mesh, fact_id, folder = told
    shard = next(folder.glob("shards/*/memory.db"))
    copy = shard.with_name("memory.db.generation-1.bak")
    copy.write_bytes(shard.read_bytes())
    mesh.redact(fact_id)
    assert not copy.exists()
    assert traces(folder) == []
