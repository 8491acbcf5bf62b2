"""The mesh: what its verbs answer, together and after each other."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from mnemes_lab import AsOf, LabClock, Mesh, schemas
from mnemes_lab.errors import (
    BudgetError,
    DeviceNotFoundError,
    EncoderError,
    EncoderMismatchError,
    InputError,
    ReceiptNotFoundError,
    SchemaError,
)
from mnemes_lab.text.encode import HashEncoder


def facts(**texts: str) -> pl.DataFrame:
    return pl.DataFrame({"device": list(texts), "text": list(texts.values())})


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed mesh of three devices with a fact each."""
    folder = tmp_path_factory.mktemp("template") / "mesh"
    with Mesh.open(folder, seed=7, encoder="hash:64") as mesh:
        mesh.load(facts(a="pump seven is off", b="valve two leaks", c="tea is at five"))
    return folder


@pytest.fixture
def mesh(template: Path, open_mesh, tmp_path: Path) -> Mesh:
    """A copy of it, opened."""
    shutil.copytree(template, tmp_path / "mesh")
    return open_mesh()


# --- searching -------------------------------------------------------------------------------
def test_a_search_answers_hits_trace_and_receipt(mesh):
    asker = mesh.device("a")
    found = mesh.search("which pump is off", asker=asker, k=2, budget=1)
    assert found.texts() == ["pump seven is off"]
    for name, schema in (("hits", schemas.Hits), ("trace", schemas.Trace)):
        assert schema.is_valid(getattr(found, name)), name
    assert found.hits["query_id"].to_list() == ["q0"]
    assert found.trace["query_id"].to_list() == ["q0"] * 3
    assert found.trace["selected"].to_list() == [True, False, False]
    assert found.trace["results"].to_list() == [1, 0, 0]
    assert found.trace["latency_ms"].is_null().to_list() == [False, True, True]
    assert set(found.trace["receipt_id"]) == {found.receipt.receipt_id}
    body = found.receipt.body
    assert (body.k, body.budget, body.selected, body.requester_device_id) == (
        2,
        1,
        1,
        asker.device_id,
    )
    assert found.receipt.verify()
    assert found.receipt.is_for("which pump is off")
    assert not found.receipt.is_for("which pump is on")
    assert (found.complete, found.notice) == (True, None)
    assert "1 hits" in repr(found)
    assert "1 of 3 shards" in repr(found.receipt)


def test_a_receipt_is_on_record_before_the_answer(mesh, open_mesh):
    found = mesh.search("pump", asker="a")
    other = open_mesh(seed=None, encoder=None)
    assert other.receipt(found.receipt.receipt_id).to_json() == found.receipt.to_json()
    row = other.receipts().row(0, named=True)
    assert schemas.Receipts.is_valid(other.receipts())
    assert (row["selected"], row["eligible"], row["results"]) == (2, 3, found.hits.height)
    with pytest.raises(ReceiptNotFoundError, match="Hint"):
        mesh.receipt("00000000-0000-4000-8000-000000000001")


def test_the_question_lies_in_no_file(mesh, tmp_path):
    secret = "zyzzogeton 9f5f31"
    mesh.search(secret, exhaustive=True)
    mesh.close()
    for path in (p for p in tmp_path.rglob("*") if p.is_file()):
        assert secret.encode() not in path.read_bytes()
        assert b"zyzzogeton" not in path.read_bytes()


def test_nobody_asking_is_the_mesh_itself(mesh):
    body = mesh.search("pump").receipt.body
    assert body.requester_device_id == body.mesh_id == mesh.store.mesh_id


def test_every_way_to_name_the_asker_is_the_same(mesh):
    agent = mesh.agent("a")
    device = agent.device
    seen = {
        mesh.search("x", asker=who).receipt.body.requester_device_id
        for who in (agent, device, "a", device.device_id, device.device_id.upper())
    }
    assert seen == {device.device_id}


def test_a_batch_may_name_an_asker_per_question(mesh):
    b, c = mesh.device("b").device_id, mesh.device("c").device_id
    frame = pl.DataFrame(
        {"query_id": ["x", "y", "z"], "text": ["q", "q", "q"], "device_id": [b, None, c]}
    )
    found = mesh.search(frame, asker="a", budget=1)
    asked_by = [r.body.requester_device_id for r in found.receipts]
    assert asked_by == [b, mesh.device("a").device_id, c]
    first = found.trace.filter("selected")["device_id"].to_list()
    assert first == asked_by  # who asks is asked first when nothing else counts
    assert found.receipts.verify()
    with pytest.raises(InputError, match="one receipt per question"):
        _ = found.receipt


def test_searches_are_counted_and_timed(mesh):
    for _ in range(3):
        mesh.search("pump", exhaustive=True)
    mesh.search("pump", budget=1)
    rows = mesh.catalogue()
    assert sorted(rows["searches"]) == [3, 3, 4]
    assert rows["ewma_latency_ms"].to_list() == pytest.approx([1.0] * 3)  # the lab clock's answer
    assert schemas.Catalogue.is_valid(rows)


def test_an_empty_batch_is_an_empty_answer(mesh):
    frame = pl.DataFrame(schema={"query_id": pl.String, "text": pl.String})
    found = mesh.search(frame)
    assert found.hits.is_empty()
    assert found.trace.is_empty()
    assert list(found.receipts) == []
    assert found.complete


def test_a_large_batch_is_answered_like_small_ones(mesh, monkeypatch):
    """Questions go in blocks; a block's border changes nothing."""
    from mnemes_lab.router import search

    texts = [f"{word} {i}" for i in range(12) for word in ("pump off", "valve", "tea")]
    frame = pl.DataFrame({"query_id": [f"q{i:02d}" for i in range(36)], "text": texts})
    answers = []
    for cells in (1 << 25, 1):
        monkeypatch.setattr(search, "_CELLS", cells)
        found = mesh.search(frame, budget=1, expand=True, k=2)
        drop = ["receipt_id"]
        answers.append((found.hits.to_dicts(), found.trace.drop(drop).to_dicts()))
    assert answers[0] == answers[1]


@pytest.mark.parametrize(
    "options",
    [{"k": 0}, {"k": True}, {"budget": 0}, {"budget": 1.5}, {"max_shards": 0},
     {"budget": 3, "max_shards": 2}],
)  # fmt: skip
def test_budgets_that_cannot_be_met_are_refused(mesh, options):
    with pytest.raises(BudgetError):
        mesh.search("pump", **options)
    assert mesh.receipts().is_empty()


@pytest.mark.parametrize(
    "options",
    [{"router": "Overlap"}, {"namespaces": "general"}, {"namespaces": [1]}, {"asker": 7}],
)
def test_other_options_that_mean_nothing_are_refused(mesh, options):
    with pytest.raises((InputError, DeviceNotFoundError)):
        mesh.search("pump", **options)


def test_a_large_k_is_capped(mesh):
    body = mesh.search("pump", k=10**6, exhaustive=True).receipt.body
    assert body.k == 1000


def test_namespaces_restrict_and_none_does_not(mesh):
    mesh.load(facts(a="pump nine is on").with_columns(namespace=pl.lit("night")))

    def texts(namespaces):
        return set(mesh.search("pump", exhaustive=True, namespaces=namespaces).texts())

    assert texts(["night"]) == {"pump nine is on"}
    assert texts(["general", "night"]) == texts(None)
    assert texts([]) == texts(["nowhere"]) == set()
    assert mesh.search("x", namespaces=["b", "a", "b"]).receipt.body.namespaces == ("a", "b")


# --- agents ----------------------------------------------------------------------------------
def test_the_ten_lines_of_a_newcomer(open_mesh):
    mesh = open_mesh()
    planner, assistant = mesh.agent("planner"), mesh.agent("assistant")
    planner.remember("Flight AA1234 to Las Vegas now departs at 8:00 PM")
    assistant.remember("Flight AA1234 to Las Vegas departs at 5:00 PM")
    found = mesh.search("when does AA1234 leave?", asker=planner, k=5, budget=1)
    assert found.texts() == ["Flight AA1234 to Las Vegas now departs at 8:00 PM"]
    assert found.receipt.verify()
    both = mesh.search("when does AA1234 leave?", asker=planner, exhaustive=True)
    assert len(both.texts()) == 2


def test_an_agent_remembers_and_recalls_in_its_namespace(open_mesh):
    mesh = open_mesh()
    planner, other = mesh.agent("planner"), mesh.agent("other")
    fact_id = planner.remember("pump seven is off", subject="pump", source="log")
    other.remember("pump eight is off")
    row = mesh.facts().filter(pl.col("fact_id") == fact_id).row(0, named=True)
    assert (row["namespace"], row["subject"], row["source"]) == ("planner", "pump", "log")
    assert planner.recall("pump").texts() == ["pump seven is off"]
    newer = planner.supersede(fact_id, "pump seven is on", reason="seen")
    assert planner.recall("pump").texts() == ["pump seven is on"]
    planner.retract(newer)
    assert planner.recall("pump").texts() == []
    assert planner.remember("pump nine is off") == planner.remember("pump nine is off")
    assert "planner" in repr(planner)


def test_a_superseded_fact_is_found_in_the_past(open_mesh):
    mesh = open_mesh()
    agent = mesh.agent("a")
    first = agent.remember("the dock is open")
    agent.supersede(first, "the dock is closed")
    then = mesh.facts().filter(pl.col("fact_id") == first)["recorded_at"].item()
    assert agent.recall("dock").texts() == ["the dock is closed"]
    assert agent.recall("dock", as_of=AsOf(recorded_at=then)).texts() == ["the dock is open"]


def test_update_is_found_by_its_new_words_only(open_mesh):
    mesh = open_mesh()
    fact_id = mesh.agent("a").remember("kestrel")
    assert mesh.search("kestrel").hits["lexical_rank"].to_list() == [1]
    mesh.update(fact_id, text="heron")
    assert mesh.search("heron").hits["lexical_rank"].to_list() == [1]
    assert mesh.search("kestrel").hits["lexical_rank"].to_list() in ([], [None])


@pytest.mark.parametrize("what", ["device", "agent"])
def test_whoever_comes_second_finds_what_the_first_one_registered(open_mesh, what):
    """Two processes that register the same name at once end with one."""
    late, early = open_mesh(), open_mesh()
    shared = late.device("shared") if what == "agent" else None
    real, made = late.store.writing, []

    @contextmanager
    def overtaken():
        if not made:
            made.append(None)
            made.append(early.device("x") if shared is None else early.agent("x", device="shared"))
        with real():
            yield

    late.store.writing = overtaken
    if shared is None:
        assert late.device("x").device_id == made[1].device_id
    else:
        assert late.agent("x", device=shared).actor_id == made[1].actor_id
    assert late.devices().height == 1
    assert late.actors().height == (what == "agent")


def test_what_another_process_wrote_is_found_although_its_clock_is_ahead(open_mesh):
    behind = open_mesh(clock=LabClock("2031-01-01T00:00:00Z"))
    ahead = open_mesh(clock=LabClock("2031-06-01T00:00:00Z"))
    fact_id = ahead.agent("a").remember("the dock is open")
    assert behind.search("dock").texts() == ["the dock is open"]
    newer = behind.supersede(fact_id, "the dock is closed")
    for mesh in (behind, ahead):
        assert mesh.search("dock").texts() == ["the dock is closed"]
        statuses = dict(mesh.facts().select("fact_id", "status").iter_rows())
        assert statuses == {fact_id: "superseded", newer: "active"}
    assert behind.history(newer)["recorded_at"].is_sorted()


# --- shards that fail ------------------------------------------------------------------------
def break_shard(mesh: Mesh, label: str) -> str:
    """Damage a device's shard and forget what is known of it."""
    device = mesh.device(label).device_id
    mesh.close()
    folder = mesh.store.folder / "shards" / device
    (folder / "memory.db").write_bytes(b"rubbish" * 100)
    return device


@pytest.mark.parametrize("with_index", [False, True])
@pytest.mark.parametrize(
    "options", [{"exhaustive": True}, {"budget": 3}, {"budget": 1, "expand": True}]
)
def test_a_failing_shard_is_named_while_others_answer(open_mesh, mesh, with_index, options):
    device = break_shard(mesh, "b")
    if not with_index:
        (mesh.store.folder / "shards" / device / "index.bin").unlink()
    mesh = open_mesh(seed=None, encoder=None)
    found = mesh.search("pump valve tea", **options)
    assert set(found.texts()) == {"pump seven is off", "tea is at five"}
    failed = found.trace.filter(pl.col("device_id") == device).row(0, named=True)
    assert (failed["selected"], failed["reason"], failed["results"]) == (True, "failed", 0)
    assert "memory.db" in failed["error"]
    assert found.trace.filter(pl.col("device_id") != device)["error"].is_null().all()
    assert not found.complete
    assert "failed" in found.notice
    assert set(found.trace["certificate"]) == {"none"}
    body = found.receipt.body
    assert not body.complete
    assert [error for *_, error in body.outcomes if error] == [failed["error"]]
    assert found.receipt.verify()


def test_a_failing_shard_does_not_spoil_the_past_either(open_mesh, mesh):
    then = mesh.facts()["recorded_at"].max()
    mesh.load(facts(a="later"))
    break_shard(mesh, "b")
    mesh = open_mesh(seed=None, encoder=None)
    found = mesh.search("pump valve tea", exhaustive=True, as_of=AsOf(recorded_at=then))
    assert set(found.texts()) == {"pump seven is off", "tea is at five"}
    assert not found.complete


def test_a_failing_shard_that_is_not_asked_keeps_nobody_from_an_answer(open_mesh, mesh):
    device = break_shard(mesh, "b")
    mesh = open_mesh(seed=None, encoder=None)
    found = mesh.search("pump seven", budget=1)
    assert found.texts() == ["pump seven is off"]
    assert found.trace.filter(pl.col("device_id") == device)["reason"].to_list() == ["over_budget"]


def test_a_shard_that_fails_and_heals_is_searched_again(open_mesh, mesh):
    device = mesh.device("b").device_id
    path = mesh.store.folder / "shards" / device / "memory.db"
    mesh.close()
    good = path.read_bytes()
    path.write_bytes(b"rubbish" * 100)
    mesh = open_mesh(seed=None, encoder=None)
    assert not mesh.search("valve", exhaustive=True).complete
    path.write_bytes(good)
    found = mesh.search("valve", exhaustive=True)
    assert found.complete
    assert "valve two leaks" in found.texts()


# --- encoders --------------------------------------------------------------------------------
class Spy(HashEncoder):
    """A hash encoder that counts its calls and can be told to fail."""

    def __init__(self, dim: int = 16, *, fingerprint: str | None = None) -> None:
        super().__init__(dim)
        self.texts: list[str] = []
        self.fail_after: int | None = None
        if fingerprint:
            self.fingerprint = fingerprint

    def encode(self, texts: Sequence[str]) -> Any:
        self.texts += texts
        if self.fail_after is not None and len(self.texts) > self.fail_after:
            raise RuntimeError("out of order")
        return super().encode(texts)


def test_a_second_run_encodes_nothing(open_mesh):
    table = facts(a="pump off", b="pump off", c="valve on")
    answers = []
    for _ in range(2):
        spy = Spy()
        mesh = open_mesh(encoder=spy)
        mesh.load(table)
        found = mesh.search("is the pump off?", exhaustive=True)
        answers.append((found.hits.to_dicts(), sorted(spy.texts)))
        mesh.close()
    assert answers[0][0] == answers[1][0]
    assert answers[0][1] == ["is the pump off?", "pump off", "valve on"]  # equal texts once
    assert answers[1][1] == []


def test_another_size_is_refused_on_open_naming_both(open_mesh):
    open_mesh(encoder="hash:8").close()
    with pytest.raises(EncoderMismatchError, match=r"hash:8.*8 dimensions.*hash:16.*16 dim.*Hint"):
        open_mesh(encoder="hash:16")
    assert open_mesh(encoder=None).encoder.dim == 8


def test_another_model_of_equal_size_is_refused_too(open_mesh):
    open_mesh(encoder=Spy(16)).close()
    with pytest.raises(EncoderMismatchError, match="other-model"):
        open_mesh(encoder=Spy(16, fingerprint="other-model"))
    open_mesh(encoder=Spy(16)).close()


@pytest.mark.parametrize("way", ["open", "verb"])
def test_reencoding_changes_vectors_and_nothing_else(open_mesh, way):
    mesh = open_mesh(encoder="hash:16")
    mesh.load(facts(a="pump seven is off", b="valve two leaks"))
    fact_id = mesh.facts()["fact_id"][0]
    mesh.update(fact_id, text="pump eight is off")
    before, history = mesh.facts(), mesh.history(fact_id)
    mesh.search("pump", exhaustive=True)
    spy = Spy(32)
    if way == "open":
        mesh.close()
        mesh = open_mesh(encoder=spy, reencode=True)
    else:
        assert mesh.reencode(spy) is mesh
    assert mesh.facts().equals(before)
    assert mesh.history(fact_id).drop("status").equals(history.drop("status"))
    found = mesh.search("pump", exhaustive=True)
    assert found.complete
    assert found.receipt.body.encoder == spy.fingerprint
    mesh.load(facts(a="tea at five"))
    assert "tea at five" in mesh.search("tea", exhaustive=True).texts()
    assert {o for o in mesh.check()["outcome"]} <= {"ok", "pending"}
    mesh.close()
    with pytest.raises(EncoderMismatchError):
        open_mesh(encoder="hash:16")
    again = open_mesh(encoder="hash:32")
    assert again.search("pump", exhaustive=True).complete


def test_an_interrupted_reencoding_changes_nothing_and_continues(open_mesh):
    mesh = open_mesh(encoder="hash:16")
    names = [f"d{i}" for i in range(6)]
    mesh.load(pl.DataFrame({"device": names, "text": [f"note {n}" for n in names]}))
    before = mesh.facts(), mesh.search("note", exhaustive=True).hits
    spy = Spy(32)
    spy.fail_after = 3
    with pytest.raises(EncoderError, match="out of order"):
        mesh.reencode(spy)
    assert mesh.facts().equals(before[0])
    assert mesh.search("note", exhaustive=True).hits.equals(before[1])
    mesh.load(facts(d0="another note"))
    assert set(mesh.check()["outcome"]) <= {"ok", "pending"}
    mesh.close()
    with pytest.raises(EncoderError):
        open_mesh(encoder=spy, reencode=True)
    again = open_mesh(encoder="hash:16")  # still the old one's
    assert again.search("note", exhaustive=True).complete
    done = len(spy.texts)
    spy.fail_after = None
    again.reencode(spy)
    assert len(spy.texts) - done < 7  # it did not begin again
    assert again.search("note", exhaustive=True).hits.height == 7


def test_an_encoder_that_fails_on_new_facts_loses_none_of_them(open_mesh):
    spy = Spy()
    mesh = open_mesh(encoder=spy)
    mesh.load(facts(a="pump off"))
    spy.fail_after = 0
    answers = mesh.load(facts(a="pump on", b="valve on"))
    assert answers["outcome"].to_list() == ["stored", "stored"]
    assert mesh.facts().height == 3
    spy.fail_after = None
    found = mesh.search("pump valve on", exhaustive=True)
    assert found.complete
    assert found.hits.height == 3


class Odd:
    """An encoder that gives some texts a vector that says nothing."""

    name, dim, fingerprint = "odd", 4, "odd:4"
    odd: Sequence[float] = (0.0, 0.0, 0.0, 0.0)

    def encode(self, texts: Sequence[str]) -> Any:
        plain = [1.0, 0.5, 0.25, 0.125]
        return np.array([self.odd if "odd" in t else plain for t in texts], np.float32)


def test_a_zero_vector_leaves_the_words(open_mesh):
    mesh = open_mesh(encoder=Odd())
    mesh.load(facts(a="odd pump", b="pump off", c="valve off", d="odd valve"))
    for question, first in (("odd pump", "odd pump"), ("pump", "pump off")):
        found = mesh.search(question, exhaustive=True)
        assert found.complete
        assert found.texts()[0] in {first, "odd pump"}
        scores = found.hits.select("score", "lexical_score", "vector_score")
        assert all(np.isfinite(x) for row in scores.rows() for x in row if x is not None)
        assert found.hits["score"].is_sorted(descending=True)
    assert set(mesh.search("odd pump", exhaustive=True).texts()) == {
        "odd pump",
        "pump off",
        "odd valve",
    }


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_question_whose_vector_is_not_finite_is_answered_by_words(open_mesh, bad):
    mesh = open_mesh(encoder=Odd())
    mesh.load(facts(a="pump off", b="valve off"))
    mesh.encoder.odd = (bad, 0.0, 0.0, 1.0)
    found = mesh.search("odd pump", exhaustive=True)
    assert found.texts() == ["pump off"]
    assert found.notice is not None


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_one_fact_whose_vector_is_not_finite_does_not_hide_the_others(open_mesh, bad):
    encoder = Odd()
    encoder.odd = (bad, 0.0, 0.0, 1.0)
    mesh = open_mesh(encoder=encoder)
    mesh.load(facts(a="odd pump", b="valve off"))
    mesh.load(facts(a="pump off"))
    found = mesh.search("pump", exhaustive=True)
    assert {"pump off", "odd pump"} <= set(found.texts())
    assert found.hits["score"].is_finite().all()
    told = mesh.check().filter(pl.col("check") == "index")["detail"].drop_nulls()
    assert told.to_list() == ["1 versions are found by their words only"]


# --- offline ---------------------------------------------------------------------------------
OFFLINE = """
import socket, sys, tempfile
import polars as pl

def refuse(*_, **__):
    raise AssertionError("a connection was attempted")

socket.socket.connect = socket.create_connection = socket.getaddrinfo = refuse
from mnemes_lab import Mesh

with tempfile.TemporaryDirectory() as folder, Mesh.open(folder, encoder="hash:16") as mesh:
    mesh.load(pl.DataFrame({"device": ["a"], "text": ["pump off"]}))
    assert mesh.search("pump").texts() == ["pump off"]
    mesh.check()
print(*sys.modules)
"""


def test_proxy_settings_do_not_matter_to_a_local_search():
    """No client is built, so there is nothing that a proxy could break."""
    proxies = {"ALL_PROXY": "socks5://127.0.0.1:9", "HTTPS_PROXY": "http://127.0.0.1:9"}
    proxies |= {"NO_PROXY": "127.0.0.1,10.0.0.0/8,::1"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", OFFLINE],
        env={**os.environ, **proxies},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    clients = {"openai", "httpx", "requests", "urllib3", "aiohttp", "torch"}
    assert not clients & set(done.stdout.split())


# --- frames ----------------------------------------------------------------------------------
def test_every_frame_is_what_its_schema_promises(mesh):
    mesh.agent("a").remember(
        "x", ttl=timedelta(days=1), observed_at=datetime(2031, 1, 1, tzinfo=UTC)
    )
    mesh.search("pump")
    for name in ("devices", "actors", "facts", "catalogue", "summaries", "receipts"):
        frame = getattr(mesh, name)()
        assert schemas.PUBLIC[name].is_valid(frame), name
        assert not frame.is_empty(), name
    assert mesh.item_conflicts().is_empty()
    assert schemas.ItemConflicts.is_valid(mesh.item_conflicts())


def test_facts_of_one_device(mesh):
    b = mesh.device("b")
    for who in (b, "b", b.device_id):
        assert mesh.facts(device=who)["text"].to_list() == ["valve two leaks"]
    with pytest.raises(DeviceNotFoundError):
        mesh.facts(device="nobody")


def test_a_frame_of_another_shape_is_refused(mesh):
    for frame in (pl.DataFrame({"text": ["x"]}), 7, None, [{"query_id": "q", "text": "x"}]):
        with pytest.raises(SchemaError):
            mesh.search(frame)
    twice = pl.DataFrame({"query_id": ["q", "q"], "text": ["x", "y"]})
    with pytest.raises(SchemaError, match="repeated"):
        mesh.search(twice)


def test_the_mesh_is_a_context_manager_and_says_what_it_is(tmp_path):
    with Mesh.open(tmp_path / "m", seed=3, encoder="hash:16") as mesh:
        assert repr(mesh) == "Mesh('m', encoder='hash', seed=3)"
    assert mesh.store.closed
    with pytest.raises(InputError, match="folder"):
        Mesh.open("postgresql://localhost/x")


def test_a_replacement_may_bring_its_own_id(open_mesh):
    mesh = open_mesh()
    old = mesh.agent("a").remember("pump off")
    assert mesh.supersede(old, "pump on", fact_id="pump-2") == "pump-2"
    assert mesh.facts().filter(fact_id="pump-2")["text"].item() == "pump on"


class OwnEncoder:
    """An encoder only its author has."""

    name, dim, fingerprint = "mine", 4, "mine-1"

    def encode(self, texts):
        return np.array([[len(text), 1.0, 2.0, 3.0] for text in texts], np.float32)


def test_a_mesh_whose_encoder_is_not_at_hand_still_opens(tmp_path):
    with Mesh.open(tmp_path / "m", encoder=OwnEncoder()) as mesh:
        mesh.agent("a").remember("pump off")
        mesh.search("pump")
    with Mesh.open(tmp_path / "m") as mesh:
        assert mesh.facts()["text"].to_list() == ["pump off"]
        assert "broken" not in mesh.check()["outcome"].cast(pl.String).to_list()
        with pytest.raises(EncoderError, match=r"'mine'.*not at hand.*Hint: pass it"):
            mesh.search("a question nobody asked")
        mesh.reencode("hash:16")
        assert mesh.search("pump", k=1).texts() == ["pump off"]


def test_changing_the_encoder_while_opening_leaves_nothing_stale(tmp_path):
    with Mesh.open(tmp_path / "m", encoder="hash:16") as mesh:
        mesh.load_records([{"device": d, "text": f"{d} off"} for d in "ab"])
    with Mesh.open(tmp_path / "m", encoder="hash:8", reencode=True) as mesh:
        assert set(mesh.check()["outcome"].cast(pl.String)) == {"ok"}
