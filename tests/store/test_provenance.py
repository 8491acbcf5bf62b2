"""Operations and edges: each write leaves its trail, once, checked, and for good."""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pandas as pd
import polars as pl
import pytest

from mnemes_lab import AsOf, LabClock, Mesh, as_of, schemas
from mnemes_lab.clock import from_us
from mnemes_lab.digest import sha256_hex
from mnemes_lab.errors import (
    ActorNotFoundError,
    AuthorizationDeniedError,
    ConflictError,
    DeviceNotActiveError,
    DeviceNotFoundError,
    EdgeNotFoundError,
    IdempotencyConflictError,
    IdError,
    InputError,
    InvalidAsOfError,
    InvalidProvenanceError,
    MissingColumnError,
    MnemesError,
    OperationNotFoundError,
    SchemaError,
)
from mnemes_lab.ids import is_uuid4
from mnemes_lab.mesh.agent import Agent

NOWHERE = str(uuid.UUID(int=7, version=4))


@pytest.fixture
def mesh(open_mesh):
    return open_mesh()


class Busy(NamedTuple):
    """A mesh with one of everything, for tests that leave nothing behind."""

    mesh: Mesh
    a: Agent
    b: Agent
    fact: str  # of a
    observed: str  # operation of a, of kind observe
    asserted: str  # operation of the owner, of kind assert
    edge: str  # supports, note:1 -> note:2


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Busy]:
    with Mesh.open(tmp_path_factory.mktemp("busy"), seed=7, encoder="hash:16") as mesh:
        a, b = mesh.agent("a"), mesh.agent("b")
        fact = a.remember("gate B2")
        edge = mesh.add_edge("supports", "note:1", "note:2")
        (asserted,) = mesh.edges(source="note:1")["operation_id"]
        (observed,) = mesh.operations(target_id=fact)["operation_id"]
        yield Busy(mesh, a, b, fact, observed, asserted, edge)


def shape(mesh: Mesh) -> tuple[int, int, int]:
    """How much the files hold: facts, operations, edges; an index of them does not count."""
    counts = [0, 0, 0]
    shards = sorted((mesh.store.folder / "shards").glob("*/memory.db"))
    for path in (mesh.store.path, *shards):
        own, tables = ("WHERE home = ''", 1) if path == mesh.store.path else ("", 0)
        with closing(sqlite3.connect(path)) as conn:
            for i, table in list(enumerate(("facts", "operations", "edges")))[tables:]:
                counts[i] += conn.execute(f"SELECT count(*) FROM {table} {own}").fetchone()[0]
    facts, operations, edges = counts
    return facts, operations, edges


def ends(frame: pl.DataFrame) -> list[tuple[str, str, str]]:
    """Type, source and target of edges."""
    keys = [
        pl.concat_str(f"{end}_kind", pl.lit(":"), f"{end}_id").alias(end)
        for end in ("source", "target")
    ]
    return frame.select(pl.col("edge_type").cast(pl.String), *keys).rows()


def sound(mesh: Mesh) -> bool:
    """Nothing is broken, and the frames are what their schemas say."""
    schemas.Edges.validate(mesh.edges())
    schemas.Operations.validate(mesh.operations())
    return set(mesh.check()["outcome"]) <= {"ok", "pending"}


def raw(mesh: Mesh, sql: str, device: str | None = None) -> list[Any]:
    """Rows of a file itself: of a device's shard, or of pooled.db."""
    path = mesh.store.path if device is None else mesh.store.shard_path(device)
    with closing(sqlite3.connect(path)) as conn:
        return conn.execute(sql).fetchall()


# --- what facts bring along ------------------------------------------------------------------
def test_what_an_agent_states_is_observed_and_recorded(mesh):
    agent = mesh.agent("a")
    seen = datetime(2030, 12, 31, tzinfo=UTC)
    fact = agent.remember("gate B2", observed_at=seen, valid_from=seen)
    (operation,) = mesh.operations(target_id=fact).to_dicts()
    recorded = mesh.facts()["recorded_at"].item()
    expected = {
        "idempotency_key": None,
        "requesting_device_id": agent.device.device_id,
        "requesting_actor_id": agent.actor_id,
        "recording_device_id": agent.device.device_id,
        "recording_server_id": mesh.store.mesh_id,
        "operation_kind": "observe",
        "target_kind": "fact",
        "target_id": fact,
        "content_digest": "sha256:" + sha256_hex("gate B2"),
        "observed_at": seen,
        "valid_time": seen,
        "recorded_at": recorded,
        "receipt_id": f"op-receipt:{operation['operation_id']}",
    }
    assert operation == {"operation_id": operation["operation_id"], **expected}
    assert is_uuid4(operation["operation_id"])
    edges = mesh.edges()
    assert sorted(ends(edges)) == [
        ("observed_by", f"fact:{fact}", f"actor:{agent.actor_id}"),
        ("recorded_by", f"fact:{fact}", f"operation:{operation['operation_id']}"),
    ]
    for edge in edges.iter_rows(named=True):
        assert edge["operation_id"] == operation["operation_id"]
        assert (edge["actor_id"], edge["device_id"]) == (agent.actor_id, agent.device.device_id)
        assert edge["recorded_at"] == recorded
        rest = ("valid_from", "valid_to", "observed_at", "content_digest", "metadata")
        assert {edge[name] for name in rest} == {None}
    assert sound(mesh)


def test_a_fact_is_derived_from_what_it_names(mesh):
    a, b = mesh.agent("a"), mesh.agent("b")
    first, second = a.remember("gate B2"), b.remember("B2 is shut")
    third = a.remember(
        "gate moved", derived_from=[first, f"fact:{second}", "document:plan:3", first]
    )
    fourth = b.remember("so it is", source=f"fact:{third}")
    b.remember("they say", source="a rumour")
    b.remember("who says", source="fact:nobody")
    assert sorted(ends(mesh.edges(types=["derived_from"]))) == sorted(
        [
            ("derived_from", f"fact:{third}", f"fact:{first}"),
            ("derived_from", f"fact:{third}", f"fact:{second}"),
            ("derived_from", f"fact:{third}", "document:plan:3"),
            ("derived_from", f"fact:{fourth}", f"fact:{third}"),
        ]
    )
    (operation,) = mesh.operations(target_id=third)["operation_id"]
    assert set(mesh.edges(source=f"fact:{third}")["operation_id"]) == {operation}
    assert sound(mesh)


def test_a_source_named_in_two_ways_is_one_edge(mesh):
    agent = mesh.agent("a")
    first = agent.remember("gate B2")
    second = agent.remember("gate B9", derived_from=[first], source=f"fact:{first}")
    wanted = [("derived_from", f"fact:{second}", f"fact:{first}")]
    assert ends(mesh.edges(types=["derived_from"])) == wanted


@pytest.mark.parametrize("verb", ["supersede", "update"])
def test_a_change_names_its_source_too(mesh, verb):
    agent = mesh.agent("a")
    first, told = agent.remember("gate B2"), agent.remember("the tower says B9")
    if verb == "supersede":
        changed = agent.supersede(first, "gate B9", source=f"fact:{told}")
    else:
        agent.update(first, text="gate B9", source=f"fact:{told}")
        changed = first
    sources = ends(mesh.edges(source=f"fact:{changed}", types=["derived_from"]))
    assert ("derived_from", f"fact:{changed}", f"fact:{told}") in sources


@pytest.mark.parametrize(
    "named",
    [
        *("fact:nobody", NOWHERE, "nothing", "", ":x", "fact:", 5, None, "note:\x00"),
        "note:\ud800",
    ],
    ids=repr,
)
def test_what_is_not_there_cannot_be_a_source(busy, named):
    before = shape(busy.mesh)
    with pytest.raises(InvalidProvenanceError):
        busy.a.remember("gate B9", derived_from=[busy.fact, named])
    assert shape(busy.mesh) == before


@pytest.mark.parametrize("kind", ["operation", "actor", "device", "receipt"])
def test_sources_that_the_mesh_keeps_itself_must_be_there(busy, kind):
    """As for any other edge."""
    before = shape(busy.mesh)
    with pytest.raises(InvalidProvenanceError, match="not there"):
        busy.a.remember(f"gate B9 by {kind}", derived_from=[f"{kind}:{NOWHERE}"])
    assert shape(busy.mesh) == before


@pytest.mark.parametrize("named", ["note:1", None, 5], ids=repr)
def test_sources_are_a_list(busy, named):
    before = shape(busy.mesh)
    with pytest.raises(InputError, match="derived_from"):
        busy.a.remember("gate B9", derived_from=named)
    assert shape(busy.mesh) == before


@pytest.mark.parametrize("who", ["agent", "owner"])
def test_what_replaces_a_fact_says_so(mesh, who):
    agent = mesh.agent("a")
    old = agent.remember("gate B2")
    before = mesh.edges()
    start = datetime(2031, 2, 1, tzinfo=UTC)
    verb = agent.supersede if who == "agent" else mesh.supersede
    new = verb(old, "gate B9", reason="it moved", valid_from=start)
    (change,) = mesh.operations(operation_kind="supersede").to_dicts()
    assert (change["target_kind"], change["target_id"]) == ("fact", old)
    assert change["valid_time"] == start
    assert change["content_digest"] == "sha256:" + sha256_hex("gate B9")
    fresh = mesh.edges().filter(~pl.col("edge_id").is_in(before["edge_id"].implode()))
    told = change["operation_id"]
    wanted = [("supersedes", f"fact:{new}", f"fact:{old}", told, start)]
    wanted += [("derived_from", f"fact:{new}", f"fact:{old}", told, None)]
    if who == "agent":
        (stated,) = mesh.operations(target_id=new).to_dicts()
        assert (stated["operation_kind"], stated["valid_time"]) == ("observe", start)
        told = stated["operation_id"]
        wanted += [("observed_by", f"fact:{new}", f"actor:{agent.actor_id}", told, None)]
        assert change["requesting_device_id"] == agent.device.device_id
    else:
        assert mesh.operations(target_id=new).is_empty()
        assert change["requesting_device_id"] == mesh.store.mesh_id
    wanted += [("recorded_by", f"fact:{new}", f"operation:{told}", told, None)]
    columns = fresh.select("operation_id", "valid_from").rows()
    assert sorted((*end, *rest) for end, rest in zip(ends(fresh), columns, strict=True)) == sorted(
        wanted
    )
    assert sound(mesh)


def test_an_update_is_recorded_again(mesh):
    agent = mesh.agent("a")
    fact = agent.remember("gate B2")
    assert agent.update(fact, text="gate B9") == 2
    mesh.update(fact, text="gate B7")
    kinds = mesh.operations(target_kind="fact")["operation_kind"].to_list()
    assert sorted(kinds) == ["observe", "observe", "supersede", "supersede"]
    types = mesh.edges(source=f"fact:{fact}")["edge_type"].to_list()
    assert sorted(types) == ["observed_by", "observed_by", *["recorded_by"] * 3]
    assert mesh.edges(types=["supersedes"]).is_empty()
    assert sound(mesh)


def test_what_takes_a_fact_away_is_an_operation_without_edges(mesh):
    agent = mesh.agent("a")
    first, second = agent.remember("gate B2"), agent.remember("gate B9")
    before = mesh.edges()
    agent.retract(first, reason="wrong")
    mesh.redact(second)
    assert mesh.edges().equals(before)
    last = mesh.operations().tail(2).select("operation_kind", "target_id", "requesting_actor_id")
    assert last.rows() == [("revoke", first, agent.actor_id), ("redact", second, None)]
    digests = mesh.operations().tail(2)["content_digest"].to_list()
    assert digests == ["sha256:" + sha256_hex(text) for text in ("gate B2", "gate B9")]


def test_a_load_is_one_operation_and_one_edge_per_fact(mesh, frame_kind):
    texts = ["gate B2", "gate B9", " ", "gate B2", "gate B7"]
    frame = frame_kind.make_frame({"device": ["a", "b", "a", "a", "a"], "text": texts})
    answers = mesh.load(frame, encode=False)
    outcomes = ["stored", "stored", "refused", "duplicate", "stored"]
    assert frame_kind.column(answers, "outcome") == outcomes
    (operation,) = mesh.operations(operation_kind="assert", target_kind="batch").to_dicts()
    assert operation["recording_device_id"] is None  # several
    assert operation["requesting_device_id"] == mesh.store.mesh_id
    assert operation["recorded_at"] == mesh.facts()["recorded_at"].unique().item()
    facts = [f for f, o in zip(answers["fact_id"], outcomes, strict=True) if o == "stored"]
    told = f"operation:{operation['operation_id']}"
    assert sorted(ends(mesh.edges())) == sorted(("recorded_by", f"fact:{f}", told) for f in facts)
    before = shape(mesh)
    mesh.load(frame, encode=False)
    assert shape(mesh) == before
    assert sound(mesh)


def test_a_load_of_one_device_lies_with_it(mesh):
    rows = [{"device": "a", "text": f"gate {i}"} for i in range(3)]
    mesh.load_records(rows, encode=False)
    device = mesh.device("a").device_id
    (operation,) = mesh.operations(target_kind="batch").to_dicts()
    assert operation["recording_device_id"] == device
    held = raw(mesh, "SELECT operation_id FROM operations", device)
    assert held == [(operation["operation_id"],)]
    assert raw(mesh, "SELECT count(*) FROM edges", device) == [(3,)]
    late = {"device": "a", "text": "gate B2", "valid_from": "2031-02-01T00:00:00Z"}
    mesh.load_records([late], encode=False)
    last = mesh.operations().row(-1, named=True)
    assert (last["target_kind"], last["valid_time"]) == ("fact", datetime(2031, 2, 1, tzinfo=UTC))


def test_looking_and_being_told_again_is_no_operation(mesh):
    agent = mesh.agent("a")
    agent.remember("gate B2")
    before = shape(mesh)
    agent.remember("gate B2")
    for row in ({"text": "gate B2", "namespace": "a"}, {"text": " "}):
        mesh.load_records([{"device": "a", **row}], encode=False)
    mesh.agent("a")
    mesh.search("gate", exhaustive=True)
    agent.device.heartbeat("2031-01-01T00:00:00Z")
    mesh.refresh()
    mesh.catalogue()
    mesh.rebuild_evidence()
    mesh.scrub()
    assert shape(mesh) == before


def test_changes_of_who_is_there_are_operations_of_the_owner(mesh):
    agent = mesh.agent("a")
    device = agent.device
    device.quarantine()
    device.reactivate()
    device.rotate()
    device.supply_terms("pump valve")
    mesh.rotate_receipt_key()
    device.revoke()
    shown = mesh.operations().select("operation_kind", "target_kind", "requesting_device_id")
    kinds = ["device", "actor", "device", "device", "credential", "summary", "receipt_key"]
    assert shown["target_kind"].to_list() == [*kinds, "device"]
    assert shown["operation_kind"].to_list() == [
        *("assert", "assert", "adjudicate", "adjudicate"),
        *("supersede", "assert", "supersede", "revoke"),
    ]
    assert set(shown["requesting_device_id"]) == {mesh.store.mesh_id}
    assert mesh.edges().is_empty()


# --- the same seed ---------------------------------------------------------------------------
def tell(mesh: Mesh, *, with_edges: bool = True) -> list[pl.DataFrame]:
    """A story with every verb, and what it leaves."""
    a, b = mesh.agent("a"), mesh.agent("b")
    first = a.remember("gate B2", idempotency_key="k")
    a.remember("gate B2", idempotency_key="k")
    rows = pl.DataFrame({"device": ["a", "b", "c"], "text": ["one", "two", "three"]})
    mesh.load(rows, encode=False)
    if with_edges:
        mesh.submit("observe", "note:1", content={"x": 1}, by=b)
        pairs = {"source": ["note:1", f"fact:{first}"], "target": ["note:2", "note:2"]}
        mesh.add_edges(pl.DataFrame({"edge_type": ["supports"] * 2, **pairs}), idempotency_key="e")
        b.add_edge("contradicts", f"fact:{first}", "note:3", metadata={"b": 1, "a": [None]})
    second = a.supersede(first, "gate B9", valid_from="2031-02-01T00:00:00Z")
    b.remember("they say B9", derived_from=[second])
    a.update(second, text="gate B9 left")
    mesh.redact(first)
    a.retract(second)
    b.device.quarantine()
    return [mesh.operations(), mesh.edges(), mesh.facts()]


def test_the_same_seed_gives_the_same_trail(open_mesh):
    one, other = tell(open_mesh("one")), tell(open_mesh("other"))
    for here, there in zip(one, other, strict=True):
        assert here.equals(there)
    assert one[0]["operation_id"].is_unique().all()
    assert one[1]["edge_id"].is_unique().all()
    assert not set(one[0]["operation_id"]) & set(one[1]["edge_id"])
    different = tell(open_mesh("different", seed=8))
    assert not set(one[1]["edge_id"]) & set(different[1]["edge_id"])
    without = tell(open_mesh("without"), with_edges=False)  # a trail moves no id of a fact
    assert set(one[2]["fact_id"]) == set(without[2]["fact_id"])
    assert one[1].height > without[1].height


def test_a_story_told_in_two_sittings_is_the_same_story(open_mesh):
    with open_mesh("one") as mesh:
        mesh.agent("a").remember("gate B2")
        mesh.add_edge("supports", "note:1", "note:2")
    with open_mesh("one") as mesh:
        mesh.agent("a").remember("gate B9")
        mesh.add_edge("supports", "note:2", "note:3")
        one = [mesh.operations(), mesh.edges()]
    mesh = open_mesh("other")
    for text, start in (("gate B2", 1), ("gate B9", 2)):
        mesh.agent("a").remember(text)
        mesh.add_edge("supports", f"note:{start}", f"note:{start + 1}")
    assert [
        frame.equals(again)
        for frame, again in zip(one, [mesh.operations(), mesh.edges()], strict=True)
    ] == [True, True]


# --- edges one by one ------------------------------------------------------------------------
def test_an_edge_comes_back_whole(open_mesh):
    with open_mesh("made") as mesh:
        agent = mesh.agent("a")
        fact = agent.remember("gate B2")
        (operation,) = mesh.operations(target_id=fact)["operation_id"]
        seen = datetime(2031, 1, 1, 12, tzinfo=UTC)
        edge = mesh.add_edge(
            "observed_by",
            ("fact", fact),
            f"operation:{operation}",
            operation_id=operation,
            valid_from=seen,
            valid_to="2031-01-01T14:00:00+01:00",
            observed_at=seen,
            content_digest="sha256:" + "a" * 64,
            metadata={"source": "integration", "Ünit": [1.0, None, True]},
        )
        told = mesh.edges()
    with open_mesh("made") as mesh:
        assert mesh.edges().equals(told)
        (row,) = mesh.edges().filter(edge_id=edge).to_dicts()
    recorded = row.pop("recorded_at")
    assert recorded > told["recorded_at"].min()
    assert row == {
        "edge_id": edge,
        "edge_type": "observed_by",
        "source_kind": "fact",
        "source_id": fact,
        "target_kind": "operation",
        "target_id": operation,
        "operation_id": operation,
        "actor_id": agent.actor_id,
        "device_id": agent.device.device_id,
        "valid_from": seen,
        "valid_to": seen + timedelta(hours=1),
        "observed_at": seen,
        "content_digest": "sha256:" + "a" * 64,
        "metadata": '{"source":"integration","Ünit":[1,null,true]}',
        "supersedes_edge_id": None,
    }


def test_every_type_of_edge_can_be_asked_for(mesh):
    agent = mesh.agent("a")
    fact = agent.remember("gate B2")
    for edge_type in schemas.EDGE_TYPES:
        mesh.add_edge(edge_type, "claim:c", f"fact:{fact}" if edge_type[0] != "s" else "claim:d")
    found = mesh.edges(source="claim:c")
    assert found["edge_type"].to_list() == schemas.EDGE_TYPES
    kinds = [mesh.operation(i)[0]["operation_kind"] for i in found["operation_id"]]
    assert kinds == ["observe", *["assert"] * 4, "supersede", "assert"]
    chosen = mesh.edges(source="claim:c", types=["contradicts", "supports"])
    assert chosen["edge_type"].to_list() == ["supports", "contradicts"]
    assert mesh.edges(target="claim:d")["edge_type"].to_list() == ["supports", "supersedes"]
    assert mesh.edges(source="claim:c", types=[]).is_empty()
    one = mesh.edges(operation_id=found["operation_id"][3])
    assert one["edge_type"].to_list() == ["supports"]
    assert mesh.edges(source="claim:c", target="claim:c").is_empty()
    assert sound(mesh)


@pytest.mark.parametrize(
    "wrong",
    [
        {"types": ["likes"]},
        {"types": [5]},
        {"source": "nothing"},
        {"target": 5},
        {"device": "nobody"},
        {"as_of": "2031-01-01T00:00:00Z"},
        {"types": 5},
        {"source": ""},
        {"operation_id": {"a": 1}},
    ],
    ids=repr,
)
def test_filters_that_make_no_sense_are_refused(busy, wrong):
    with pytest.raises((InputError, DeviceNotFoundError)):
        busy.mesh.edges(**wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"colour": "red"},
        {"operation_kind": {"a": 1}},
        {"operation_kind": "forget"},
        {"target_id": {"a": 1}},
        {"device": "nobody"},
        {"as_of": "2031-01-01T00:00:00Z"},
    ],
    ids=repr,
)
def test_filters_of_operations_that_make_no_sense_are_refused(busy, wrong):
    with pytest.raises((InputError, DeviceNotFoundError)):
        busy.mesh.operations(**wrong)


def test_operations_can_be_asked_for_by_any_of_their_columns(busy):
    frame = busy.mesh.operations()
    row = frame.filter(operation_id=busy.observed).row(0, named=True)
    for name, value in row.items():
        if value is not None:
            found = busy.mesh.operations(**{name: value})
            assert busy.observed in found["operation_id"].to_list()
            assert set(found[name]) == {value}


def test_operations_of_a_device_or_with_several_targets(busy):
    ask, observed = busy.mesh.operations, [busy.observed]
    for where in (
        {"device": busy.a.device, "target_id": busy.fact},
        {"device": "a", "target_id": busy.fact, "operation_kind": "observe"},
        {"target_id": [busy.fact, "nothing"]},
    ):
        assert ask(**where)["operation_id"].to_list() == observed
    for where in (
        {"device": "b", "target_id": busy.fact},
        {"target_id": busy.fact, "operation_kind": "assert"},
        {"target_id": []},
    ):
        assert ask(**where).is_empty()


def test_operations_of_several_kinds(busy):
    found = busy.mesh.operations(operation_kind=["observe", "revoke"], target_id=busy.fact)
    assert found["operation_id"].to_list() == [busy.observed]


def test_an_edge_lies_with_its_operation(mesh):
    a, b = mesh.agent("a"), mesh.agent("b")
    mine, theirs = a.remember("gate B2"), b.remember("gate B9")
    at = {name: agent.device.device_id for name, agent in (("a", a), ("b", b))}
    (operation,) = mesh.operations(target_id=mine)["operation_id"]
    places = {
        mesh.add_edge("supports", f"fact:{mine}", "note:1"): at["a"],
        mesh.add_edge("supports", "note:1", f"fact:{theirs}"): at["b"],
        mesh.add_edge("supports", f"fact:{theirs}", f"fact:{mine}"): at["b"],
        mesh.add_edge("supports", "note:1", "note:2"): "",
        mesh.add_edge("supports", "note:3", "note:4", operation_id=operation): at["a"],
        a.add_edge("supports", f"fact:{mine}", "note:5"): at["a"],
        a.add_edge("supports", f"fact:{theirs}", "note:5"): "",
        a.add_edge("supports", f"fact:{theirs}", f"fact:{mine}"): at["a"],
        b.add_edge("supports", "note:5", "note:6"): "",
    }
    for edge_id, home in places.items():
        found = {
            home
            for home in ("", *at.values())
            for table in [
                raw(mesh, "SELECT edge_id FROM edges", home)
                if home
                else raw(mesh, "SELECT edge_id FROM edges WHERE home = ''")
            ]
            if (edge_id,) in table
        }
        assert found == {home}
    shown = {
        e: (a_, d) for e, a_, d in mesh.edges().select("edge_id", "actor_id", "device_id").rows()
    }
    actors = [None] * 4 + [a.actor_id] * 4 + [b.actor_id]
    devices = [at["a"], at["b"], at["b"], None, *[at["a"]] * 4, at["b"]]
    assert [shown[e] for e in places] == list(zip(actors, devices, strict=True))
    assert sound(mesh)


DIGEST = "sha256:" + "0" * 64


def hostile(value: Any) -> Any:
    """Values too large to stand among parameters, by their names."""
    if value == "<deep>":
        nested: list[Any] = []
        for _ in range(100_000):
            nested = [nested]
        return nested
    large = {"<10 MB>": {"x": "y" * 10_000_000}, "<10 MB of text>": '"' + "y" * 10_000_000 + '"'}
    large |= {"<deep text>": "[" * 100_000 + "]" * 100_000}
    return large.get(value, value) if isinstance(value, str) else value


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        # what an edge is
        ({"edge_type": "likes"}, InvalidProvenanceError),
        ({"edge_type": "SUPPORTS"}, InvalidProvenanceError),
        ({"edge_type": ""}, InvalidProvenanceError),
        ({"edge_type": None}, InvalidProvenanceError),
        # its ends
        ({"source": ""}, InvalidProvenanceError),
        ({"source": " :x"}, InvalidProvenanceError),
        ({"source": "note:"}, InvalidProvenanceError),
        ({"source": "note: \t"}, InvalidProvenanceError),
        ({"source": "note"}, InvalidProvenanceError),
        ({"source": None}, InvalidProvenanceError),
        ({"source": 5}, InvalidProvenanceError),
        ({"source": ("a:b", "c")}, InvalidProvenanceError),
        ({"source": ("a", "b", "c")}, InvalidProvenanceError),
        ({"source": ("a", 5)}, InvalidProvenanceError),
        ({"source": "note:\x00"}, InvalidProvenanceError),
        ({"source": "note:\x1b[2J"}, InvalidProvenanceError),
        ({"target": "no\nte:1"}, InvalidProvenanceError),
        ({"target": "note:\ud800"}, InputError),
        ({"target": "note:" + "x" * 400}, InvalidProvenanceError),
        ({"target": "note:1"}, InvalidProvenanceError),
        ({"target": ("note", "1")}, InvalidProvenanceError),
        ({"target": "fact:nobody"}, InvalidProvenanceError),
        ({"target": "operation:not-a-uuid"}, InvalidProvenanceError),
        ({"target": f"operation:{NOWHERE}"}, InvalidProvenanceError),
        ({"target": f"actor:{NOWHERE}"}, InvalidProvenanceError),
        ({"target": f"device:{NOWHERE}"}, InvalidProvenanceError),
        ({"target": f"receipt:{NOWHERE}"}, InvalidProvenanceError),
        # its times
        (
            {"valid_from": "2031-01-01T12:10:00Z", "valid_to": "2031-01-01T12:00:00Z"},
            InvalidAsOfError,
        ),
        (
            {"valid_from": "2031-01-01T12:10:00+02:00", "valid_to": "2031-01-01T10:09:59Z"},
            InvalidAsOfError,
        ),
        ({"recorded_at": "2031-01-01T12:00:00Z"}, SchemaError),
        # its operation
        ({"operation_id": NOWHERE}, OperationNotFoundError),
        ({"operation_id": "nothing"}, OperationNotFoundError),
        ({"operation_id": "\x00"}, OperationNotFoundError),
        ({"operation_id": 5}, InputError),
        ({"edge_type": "observed_by", "operation_id": "asserted"}, InvalidProvenanceError),
        ({"by": "b", "operation_id": "observed"}, InvalidProvenanceError),
        ({"by": "b", "operation_id": "asserted"}, InvalidProvenanceError),
        ({"by": "somebody"}, InputError),
        ({"actor_id": NOWHERE}, SchemaError),
        # what it replaces
        ({"supersedes_edge_id": NOWHERE}, EdgeNotFoundError),
        ({"supersedes_edge_id": "nothing"}, EdgeNotFoundError),
        ({"supersedes_edge_id": "edge"}, InvalidProvenanceError),
        (
            {"supersedes_edge_id": "edge", "target": "note:2", "edge_type": "contradicts"},
            InvalidProvenanceError,
        ),
        (
            {"supersedes_edge_id": "edge", "source": "note:2", "target": "note:1"},
            InvalidProvenanceError,
        ),
        # what it carries
        ({"content_digest": ""}, InvalidProvenanceError),
        ({"content_digest": "sha256:" + "A" * 64}, InvalidProvenanceError),
        ({"content_digest": "sha256:" + "a" * 63}, InvalidProvenanceError),
        ({"content_digest": DIGEST + "\n"}, InvalidProvenanceError),
        ({"content_digest": "md5:" + "a" * 32}, InvalidProvenanceError),
        ({"metadata": "{invalid-json"}, InvalidProvenanceError),
        ({"metadata": ""}, InvalidProvenanceError),
        ({"metadata": "{'a': 1}"}, InvalidProvenanceError),
        ({"metadata": '{"a": NaN}'}, InvalidProvenanceError),
        ({"metadata": '{"a": 1e999}'}, InvalidProvenanceError),
        ({"metadata": '{"a": 9007199254740993}'}, InvalidProvenanceError),
        ({"metadata": '{"a": "\\ud800"}'}, InvalidProvenanceError),
        ({"metadata": "<deep text>"}, InvalidProvenanceError),
        ({"metadata": "1" * 5000}, InvalidProvenanceError),
        ({"metadata": {"a": float("nan")}}, InvalidProvenanceError),
        ({"metadata": {"a": float("inf")}}, InvalidProvenanceError),
        ({"metadata": {"a": "\ud800"}}, InvalidProvenanceError),
        ({"metadata": {"\ud800": 1}}, InvalidProvenanceError),
        ({"metadata": {1: 2}}, InvalidProvenanceError),
        ({"metadata": {1, 2}}, InvalidProvenanceError),
        ({"metadata": b"{}"}, InvalidProvenanceError),
        ({"metadata": {"a": datetime(2031, 1, 1, tzinfo=UTC)}}, InvalidProvenanceError),
        ({"metadata": "<10 MB>"}, InvalidProvenanceError),
        ({"metadata": "<10 MB of text>"}, InvalidProvenanceError),
        ({"metadata": "<deep>"}, InvalidProvenanceError),
        # its key
        ({"idempotency_key": " "}, IdError),
        ({"idempotency_key": "k" * 201}, IdError),
        ({"idempotency_key": "k\x00"}, IdError),
        ({"idempotency_key": 5}, IdError),
    ],
    ids=lambda value: (
        repr(value)[:60].encode("ascii", "replace").decode()
        if isinstance(value, dict)
        else value.__name__
    ),
)
def test_an_edge_that_breaks_a_rule_leaves_nothing(busy, changes, error):
    named = {"asserted": busy.asserted, "observed": busy.observed, "edge": busy.edge, "b": busy.b}
    row: dict[str, Any] = {"edge_type": "supports", "source": "note:1", "target": "note:3"}
    row |= {
        name: named.get(value, hostile(value)) if isinstance(value, str) else value
        for name, value in changes.items()
    }
    before = shape(busy.mesh)
    with pytest.raises(error) as caught:
        busy.mesh.add_edge(row.pop("edge_type"), row.pop("source"), row.pop("target"), **row)
    assert isinstance(caught.value, MnemesError)
    assert len(str(caught.value)) < 1000
    assert shape(busy.mesh) == before


@pytest.mark.parametrize("kind", ["\u200b", " fact", "fact ", "\u3164"], ids=ascii)
def test_a_kind_can_be_seen_and_is_not_nearly_another(busy, kind):
    before = shape(busy.mesh)
    with pytest.raises(InvalidProvenanceError):
        busy.mesh.add_edge("supports", (kind, "nobody"), "note:3")
    assert shape(busy.mesh) == before


def test_kind_and_id_are_told_apart(mesh):
    first = mesh.add_edge("supports", ("a", "b:c"), ("a", "b"))
    second = mesh.add_edge("supports", "a:b", "a:b:c")
    frame = mesh.edges().select("edge_id", "source_kind", "source_id", "target_kind", "target_id")
    assert frame.rows() == [(first, "a", "b:c", "a", "b"), (second, "a", "b", "a", "b:c")]
    assert mesh.edges(source="a:b:c")["edge_id"].to_list() == [first]
    assert mesh.edges(source="a:b")["edge_id"].to_list() == [second]


def test_an_empty_interval_is_an_interval_that_never_holds(mesh):
    noon = datetime(2031, 1, 1, 12, tzinfo=UTC)
    mesh.add_edge("supports", "note:1", "note:2", valid_from=noon, valid_to=noon)
    assert mesh.edges(as_of=AsOf()).height == 1
    for us in (-1, 0, 1):
        assert mesh.edges(as_of=AsOf(noon + timedelta(microseconds=us))).is_empty()


def test_metadata_is_kept_in_one_spelling(mesh):
    texts = ['{"b": 1.0,\n "a": {"d": [], "c": "\\u00fc"}}', {"a": {"c": "ü", "d": []}, "b": 1}]
    for i, metadata in enumerate(texts):
        mesh.add_edge("supports", "note:1", f"note:{i + 2}", metadata=metadata)
    assert mesh.edges()["metadata"].to_list() == ['{"a":{"c":"ü","d":[]},"b":1}'] * 2
    most = "y" * (65_536 - len('{"x":""}'))
    mesh.add_edge("supports", "note:1", "note:9", metadata={"x": most})
    with pytest.raises(InvalidProvenanceError, match="65536"):
        mesh.add_edge("supports", "note:1", "note:8", metadata={"x": most + "y"})


def test_an_edge_may_lead_to_anything_the_mesh_keeps(mesh):
    agent = mesh.agent("a")
    fact = agent.remember("gate B2")
    receipt = mesh.search("gate").receipt.receipt_id
    (operation,) = mesh.operations(target_id=fact)["operation_id"]
    targets = [
        f"fact:{fact}",
        f"operation:{operation}",
        f"actor:{agent.actor_id}",
        f"device:{agent.device.device_id}",
        f"receipt:{receipt}",
        "document:plan",
    ]
    ids = [mesh.add_edge("retrieved_from", "note:1", target) for target in targets]
    assert ends(mesh.edges(source="note:1")) == [("retrieved_from", "note:1", t) for t in targets]
    assert mesh.edges(source="note:1")["edge_id"].to_list() == ids


def test_text_is_data(mesh):
    odd = "x'; DROP TABLE edges; --\u2028<script>%_"
    edge = mesh.add_edge("supports", ("note", odd), "note:2", metadata={odd: odd})
    assert mesh.edges(source=f"note:{odd}")["edge_id"].to_list() == [edge]
    assert mesh.edges()["source_id"].to_list() == [odd]


def test_an_agent_that_may_not_act_records_nothing(mesh):
    a, b = mesh.agent("a"), mesh.agent("b")
    fact = a.remember("gate B2")
    a.device.quarantine()
    before = shape(mesh)
    frame = pl.DataFrame({"edge_type": ["supports"], "source": ["note:1"], "target": ["note:2"]})
    for write in (
        lambda: a.add_edge("supports", "note:1", "note:2"),
        lambda: mesh.add_edges(frame, by=a),
        lambda: a.submit("observe", "note:1", content="x"),
        lambda: mesh.supersede(fact, "gate B9", by=b),
        lambda: mesh.retract(fact),
    ):
        with pytest.raises(DeviceNotActiveError):
            write()
    assert shape(mesh) == before
    a.device.revoke()
    with pytest.raises(DeviceNotActiveError):
        a.add_edge("supports", "note:1", "note:2")
    b.add_edge("supports", f"fact:{fact}", "note:2")  # about it, by somebody else, elsewhere
    assert mesh.edges(source=f"fact:{fact}", types=["supports"])["device_id"].to_list() == [
        b.device.device_id
    ]


# --- edges in frames -------------------------------------------------------------------------
def test_a_bad_row_spoils_no_other(mesh, frame_kind):
    fact = mesh.agent("a").remember("gate B2")
    rows = [
        ("supports", "note:1", "note:2", None),
        ("likes", "note:1", "note:3", None),
        ("supports", "note:1", "note:1", None),
        ("supports", f"fact:{fact}", "note:4", "2031-01-01T00:00:00Z"),
        ("supports", "note:1", "note:5", "2031-01-01T00:00:00"),
        ("supports", None, "note:6", None),
        ("supports", "note:1", "fact:nobody", None),
        ("supports", "note:1", "note:2", None),
        ("supports", "note:1", "note:2", "2031-01-01T00:00:00Z"),
        ("observed_by", "note:7", "actor:nobody", None),
        ("observed_by", "note:7", "note:8", None),
    ]
    names = ("edge_type", "source", "target", "valid_from")
    frame = frame_kind.make_frame({n: [r[i] for r in rows] for i, n in enumerate(names)})
    before = frame.copy() if frame_kind.name == "pandas" else frame.clone()
    answers = mesh.add_edges(frame)
    assert frame.equals(before)
    frame_kind.check(answers)
    assert list(answers.columns) == list(schemas.EdgeAnswers.columns())
    outcome = frame_kind.column(answers, "outcome")
    wanted = (
        "stored refused refused stored refused refused refused duplicate refused refused stored"
    )
    assert outcome == wanted.split()
    ids, reasons = frame_kind.column(answers, "edge_id"), frame_kind.column(answers, "reason")
    assert frame_kind.column(answers, "row") == list(range(len(rows)))
    assert [i is None for i in ids] == [o == "refused" for o in outcome]
    assert [r is None for r in reasons] == [o != "refused" for o in outcome]
    assert ids[7] == ids[0]
    for at, word in (
        (1, "type"),
        (2, "itself"),
        (4, "offset"),
        (6, "not there"),
        (8, "valid_from"),
    ):
        assert word in reasons[at] or word in reasons[at].replace("RFC 3339", "offset")
    stored = sorted(i for i, o in zip(ids, outcome, strict=True) if o == "stored")
    added = mesh.edges().filter(~pl.col("edge_type").is_in(["recorded_by"]))
    assert sorted(added.filter(pl.col("actor_id").is_null())["edge_id"]) == stored
    assert sound(mesh)


def test_a_frame_is_one_operation(mesh):
    a = mesh.agent("a")
    fact = a.remember("gate B2")
    frame = pl.DataFrame(
        {
            "edge_type": ["supports", "contradicts"],
            "source": ["note:1", f"fact:{fact}"],
            "target": ["note:2", "note:2"],
        }
    )
    before = mesh.operations().height
    mesh.add_edges(frame, by=a)
    (operation,) = mesh.edges(target="note:2")["operation_id"].unique()
    assert mesh.operations().height == before + 1
    told, edges = mesh.operation(operation)
    assert (told["operation_kind"], told["target_kind"]) == ("assert", "batch")
    assert (told["requesting_actor_id"], edges.height) == (a.actor_id, 2)


def test_an_operation_over_several_files_is_told_in_one_way(mesh):
    """Its key and kind are the same whoever is asked: the frame, the index, each file."""
    a, b = mesh.agent("a"), mesh.agent("b")
    mine, theirs = a.remember("gate B2"), b.remember("gate B9")
    frame = pl.DataFrame(
        {
            "edge_type": ["supports", "observed_by", "supports"],
            "source": ["note:1", f"fact:{mine}", f"fact:{theirs}"],
            "target": ["note:2"] * 3,
        }
    )
    mesh.add_edges(frame, idempotency_key="k")
    (operation,) = mesh.edges(target="note:2")["operation_id"].unique()
    told, edges = mesh.operation(operation)
    assert (told["idempotency_key"], told["recording_device_id"]) == ("k", None)
    assert edges.height == 3
    found = mesh.lineage("note:2").operations.filter(operation_id=operation)
    assert found.to_dicts() == [told]
    files = [
        raw(mesh, "SELECT operation_id, operation_kind FROM operations", d.device.device_id)
        for d in (a, b)
    ]
    files.append(raw(mesh, "SELECT operation_id, operation_kind FROM operations"))
    assert {k for rows in files for i, k in rows if i == operation} == {told["operation_kind"]}


def test_objects_in_a_pandas_frame_are_read_one_by_one(mesh):
    frame = pd.DataFrame(
        {
            "edge_type": ["supports", 5, None, "supports", "supports"],
            "source": ["note:1", "note:1", "note:1", pd.NA, "note:1"],
            "target": ["note:2", "note:3", float("nan"), "note:4", "note:5"],
            "metadata": [None, None, None, None, {"a": 1}],
        },
        dtype=object,
        index=[3, 3, 1, 9, 9],
    )
    answers = mesh.add_edges(frame)
    assert isinstance(answers, pd.DataFrame)
    assert answers["outcome"].to_list() == ["stored", *["refused"] * 4]
    reasons = answers["reason"].to_list()
    assert "int 5" in reasons[1]
    assert "metadata" in reasons[4]
    assert mesh.edges().height == 1


@pytest.mark.parametrize(
    ("columns", "error"),
    [
        ({"edge_type": ["supports"], "source": ["note:1"]}, MissingColumnError),
        ({"edge_type": [1], "source": ["note:1"], "target": ["note:2"]}, SchemaError),
        (
            {"edge_type": ["supports"], "source": ["a:1"], "target": ["a:2"], "colour": ["red"]},
            SchemaError,
        ),
        (
            {"edge_type": ["supports"], "source": ["a:1"], "target": ["a:2"], "valid_to": [1]},
            SchemaError,
        ),
        (
            {
                "edge_type": ["supports"],
                "source": ["a:1"],
                "target": ["a:2"],
                "valid_to": [datetime(2031, 1, 1)],
            },
            SchemaError,
        ),
    ],
)
def test_a_frame_of_a_wrong_shape_stores_nothing(busy, frame_kind, columns, error):
    before = shape(busy.mesh)
    with pytest.raises(error):
        busy.mesh.add_edges(frame_kind.make_frame(columns))
    assert shape(busy.mesh) == before


@pytest.mark.parametrize("frame", [None, [{"edge_type": "supports"}], {}, "x", pl.LazyFrame({})])
def test_what_is_no_frame_stores_nothing(busy, frame):
    with pytest.raises(SchemaError):
        busy.mesh.add_edges(frame)


def test_no_rows_are_no_answers(busy):
    before = shape(busy.mesh)
    empty = pl.DataFrame(schema={"edge_type": pl.String, "source": pl.String, "target": pl.String})
    assert busy.mesh.add_edges(empty).equals(schemas.empty(schemas.EdgeAnswers))
    assert shape(busy.mesh) == before


def test_many_edges_at_once(mesh):
    n = 3000
    facts = mesh.load(pl.DataFrame({"device": ["a", "b"] * 3, "text": list("uvwxyz")}))["fact_id"]
    frame = pl.DataFrame(
        {
            "edge_type": ["supports"] * n,
            "source": [f"fact:{facts[i % 6]}" for i in range(n)],
            "target": [f"note:{i}" for i in range(n)],
        }
    )
    answers = mesh.add_edges(frame)
    assert answers["outcome"].unique().to_list() == ["stored"]
    assert mesh.edges(types=["supports"])["edge_id"].sort().equals(answers["edge_id"].sort())
    assert sound(mesh)


# --- the same edge again ---------------------------------------------------------------------
def test_an_operation_says_a_thing_once(mesh):
    agent = mesh.agent("a")
    agent.remember("gate B2")
    operation = mesh.operations()["operation_id"][-1]
    row = {"operation_id": operation, "valid_from": "2031-01-01T12:00:00Z", "metadata": {"a": 1}}
    first = mesh.add_edge("supports", "note:1", "note:2", **row)
    before = shape(mesh)
    assert mesh.add_edge("supports", "note:1", "note:2", **row) == first
    again = {**row, "valid_from": "2031-01-01T13:00:00+01:00", "metadata": '{ "a": 1.0 }'}
    assert mesh.add_edge("supports", ("note", "1"), "note:2", **again) == first
    assert agent.add_edge("supports", "note:1", "note:2", **row) == first
    for change in (
        {"valid_from": None},
        {"valid_to": "2032-01-01T00:00:00Z"},
        {"observed_at": "2031-01-01T12:00:00Z"},
        {"content_digest": DIGEST},
        {"metadata": {"a": 2}},
        {"metadata": None},
        {"supersedes_edge_id": first},
    ):
        with pytest.raises(IdempotencyConflictError, match=next(iter(change))):
            mesh.add_edge("supports", "note:1", "note:2", **{**row, **change})
    assert shape(mesh) == before
    other = mesh.add_edge("contradicts", "note:1", "note:2", **row)
    back = mesh.add_edge("supports", "note:2", "note:1", **row)
    anew = mesh.add_edge("supports", "note:1", "note:2")
    assert len({first, other, back, anew}) == 4


def test_the_database_itself_holds_an_operation_to_one_edge(busy):
    with closing(sqlite3.connect(busy.mesh.store.path)) as conn:
        columns = "home, edge_type, source, target, operation_id, recorded_at, generation"
        copy = f"INSERT INTO edges (edge_id, content_digest, {columns}) SELECT 'new', ?, {columns}"
        for digest in (None, DIGEST):
            with pytest.raises(sqlite3.IntegrityError, match="append-only"):
                conn.execute(f"{copy} FROM edges WHERE edge_id = '{busy.edge}'", (digest,))


# --- supersession on edges -------------------------------------------------------------------
def hours(hour: float) -> datetime:
    return datetime(2031, 1, 1, tzinfo=UTC) + timedelta(hours=hour)


@pytest.fixture
def clocked(open_mesh) -> tuple[Mesh, Callable[[float], None]]:
    """A mesh, and a way to set its clock to an hour of New Year's Day."""
    clock = LabClock(hours(-20), step_ms=1)
    mesh = open_mesh(clock=clock)

    def set_to(hour: float) -> None:
        clock.forward_to(
            int((hours(hour) - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1_000_000)
            - clock.step_us
        )

    return mesh, set_to


def test_a_record_time_hides_what_came_later(clocked):
    mesh, set_to = clocked
    edges = {}
    for hour in (10, 11):
        set_to(hour)
        edges[hour] = mesh.add_edge("supports", f"note:{hour}", "note:0")
    assert mesh.edges()["recorded_at"].to_list() == [hours(10), hours(11)]
    tick = timedelta(microseconds=1)
    for known, wanted in (
        (hours(10) - tick, []),
        (hours(10), [edges[10]]),
        (hours(10.5), [edges[10]]),
        (hours(11), [edges[10], edges[11]]),
        (hours(11.5), [edges[10], edges[11]]),
        ("2031-01-01T10:00:00Z", [edges[10]]),
        ("2031-01-01T10:00:00.000000+00:00", [edges[10]]),
        ("2031-01-01T09:59:59.999999Z", []),
        ("2031-01-01T12:00:00+02:00", [edges[10]]),
        ("2031-01-01T05:30:00-05:00", [edges[10]]),
    ):
        assert mesh.edges(as_of=AsOf(recorded_at=known))["edge_id"].to_list() == wanted


def test_half_a_second_after_is_after_however_it_is_spelled(clocked):
    mesh, set_to = clocked
    set_to(10 + 0.5 / 3600)
    mesh.add_edge("supports", "note:1", "note:0")
    assert mesh.edges()["recorded_at"].item() == hours(10) + timedelta(milliseconds=500)
    for zero in ("2031-01-01T10:00:00Z", "2031-01-01T10:00:00+00:00", "2031-01-01T10:00:00z"):
        assert mesh.edges(as_of=AsOf(recorded_at=zero)).is_empty()
    for half in ("2031-01-01T10:00:00.5Z", "2031-01-01T10:00:00.500000000+00:00"):
        assert mesh.edges(as_of=AsOf(recorded_at=half)).height == 1


def test_validity_and_record_are_two_things(clocked):
    mesh, set_to = clocked
    set_to(8)
    first = mesh.add_edge("supports", "note:x", "domain:d", valid_from=hours(9), valid_to=hours(11))
    set_to(12)
    second = mesh.add_edge(
        "supports", "note:y", "domain:d", valid_from=hours(10), valid_to=hours(13)
    )
    for valid, known, wanted in (
        (None, 9.5, {first}),
        (None, 12.5, {first, second}),
        (9.5, 9.5, {first}),
        (9.5, 12.5, {first}),
        (10, 12.5, {first, second}),
        (11, 12.5, {second}),
        (11, 9.5, set()),
        (13, 12.5, set()),
    ):
        point = AsOf(None if valid is None else hours(valid), hours(known))
        assert set(mesh.edges(as_of=point)["edge_id"]) == wanted


def seen(mesh: Mesh, point: AsOf | None = None, **where: Any) -> list[str]:
    """Sources and targets of what is not superseded, such as ``a>b``."""
    frame = mesh.edges(as_of=point, include_superseded=False, **where)
    return sorted(f"{s}>{t}" for s, t in frame.select("source_id", "target_id").rows())


def test_supersession_hides_both_sides_of_an_item_and_no_supersession(mesh):
    mesh.add_edge("supports", "note:b", "note:a")
    mesh.add_edge("supports", "note:a", "note:b")
    mesh.add_edge("supports", "note:b", "note:c")
    before = AsOf(recorded_at=from_us(mesh.store.now()))
    assert seen(mesh) == ["a>b", "b>a", "b>c"]
    mesh.add_edge("supersedes", "note:n1", "note:a")
    assert seen(mesh) == ["b>c", "n1>a"]
    mesh.add_edge("supersedes", "note:n2", "note:a")
    assert seen(mesh) == ["b>c", "n1>a", "n2>a"]
    mesh.add_edge("supersedes", "note:n3", "note:n1")
    assert seen(mesh) == ["b>c", "n1>a", "n2>a", "n3>n1"]
    assert seen(mesh, target="note:a") == ["n1>a", "n2>a"]
    assert seen(mesh, target="note:a", types=["supports"]) == []
    assert seen(mesh, before) == ["a>b", "b>a", "b>c"]
    assert mesh.edges().height == mesh.edges(as_of=AsOf(), include_superseded=True).height == 6
    assert mesh.edges(as_of=AsOf()).height == 4
    for kind in (mesh.edges(), mesh.edges().to_pandas()):
        assert len(as_of(kind)) == 4
        assert len(as_of(kind, include_superseded=True)) == 6


def test_an_item_of_another_kind_with_the_same_id_is_another_item(mesh):
    mesh.add_edge("supports", "note:a", "note:b")
    mesh.add_edge("supports", "page:a", "note:b")
    mesh.add_edge("supersedes", "note:n", "note:a")
    kept = mesh.edges(as_of=AsOf(), types=["supports"])
    assert kept["source_kind"].to_list() == ["page"]


def test_supersession_holds_from_its_own_beginning(mesh):
    """Evidence for an old claim counts until the new claim holds."""
    mesh.add_edge("supports", "evidence:e", "claim:old")
    mesh.add_edge("supersedes", "claim:new", "claim:old", valid_from=hours(12))
    where = {"target": "claim:old", "types": ["supports"]}
    assert seen(mesh, **where) == []
    assert seen(mesh, AsOf(hours(12)), **where) == []
    assert seen(mesh, AsOf(hours(12) - timedelta(microseconds=1)), **where) == ["e>old"]


def test_a_replaced_supersession_hides_nothing(mesh):
    mesh.add_edge("supports", "note:a", "note:b")
    wrong = mesh.add_edge("supersedes", "note:n", "note:a")
    assert seen(mesh) == ["n>a"]
    mesh.add_edge("supersedes", "note:n", "note:a", valid_from=hours(12), supersedes_edge_id=wrong)
    assert seen(mesh, AsOf(hours(11))) == ["n>a"]  # the replacement does not hold yet
    assert mesh.edges(as_of=AsOf(hours(11)))["edge_id"].to_list() == [wrong]
    later = mesh.edges(as_of=AsOf(hours(12)))
    assert seen(mesh, AsOf(hours(12))) == ["n>a"]
    assert later["supersedes_edge_id"].to_list() == [wrong]
    last = mesh.add_edge(
        "supersedes", "note:n", "note:a", valid_from=hours(1), valid_to=hours(1),
        supersedes_edge_id=later["edge_id"][0],
    )  # fmt: skip
    assert last in mesh.edges(as_of=AsOf())["edge_id"].to_list()
    assert seen(mesh, AsOf(hours(12))) == ["n>a"]  # never holds, so replaces nothing


def test_an_edge_is_replaced_edge_by_edge(mesh):
    first = mesh.add_edge("supports", "note:a", "note:b")
    beside = mesh.add_edge("supports", "note:a", "note:c")
    known = AsOf(recorded_at=from_us(mesh.store.now()))
    second = mesh.add_edge("supports", "note:a", "note:b", supersedes_edge_id=first)
    assert mesh.edges(as_of=AsOf())["edge_id"].to_list() == [beside, second]
    third = mesh.add_edge("supports", "note:a", "note:b", supersedes_edge_id=second)
    assert mesh.edges(as_of=AsOf())["edge_id"].to_list() == [beside, third]
    assert mesh.edges(as_of=known)["edge_id"].to_list() == [first, beside]
    assert mesh.edges(include_superseded=False)["edge_id"].to_list() == [beside, third]
    assert mesh.edges().height == 4


def test_what_a_fact_gave_way_to_hides_its_edges(mesh):
    agent = mesh.agent("a")
    old = agent.remember("gate B2")
    mesh.add_edge("supports", "note:1", f"fact:{old}")
    new = agent.supersede(old, "gate B9")
    shown = mesh.edges(as_of=AsOf())
    assert f"fact:{old}" not in [source for _, source, _ in ends(shown)]
    assert [e for e in ends(shown) if e[2] == f"fact:{old}"] == [
        ("supersedes", f"fact:{new}", f"fact:{old}")
    ]


def test_one_operation_and_its_edges(mesh):
    agent = mesh.agent("a")
    before = AsOf(recorded_at=from_us(mesh.store.now()))
    fact = agent.remember("gate B2")
    (operation,) = mesh.operations(target_id=fact)["operation_id"]
    told, edges = mesh.operation(operation)
    assert told == mesh.operations().filter(operation_id=operation).row(0, named=True)
    assert set(edges["edge_type"]) == {"observed_by", "recorded_by"}
    after = AsOf(recorded_at=from_us(mesh.store.now()))
    mesh.add_edge("supports", "note:1", "note:2", operation_id=operation)
    agent.supersede(fact, "gate B9")
    assert mesh.operation(operation)[1].height == 3
    assert mesh.operation(operation, as_of=after)[1].equals(edges)
    for id, point in ((operation, before), (NOWHERE, None), ("nothing", None)):
        with pytest.raises(OperationNotFoundError):
            mesh.operation(id, as_of=point)
    for id in (None, 5, b"x"):
        with pytest.raises((InputError, OperationNotFoundError)):
            mesh.operation(id)


# --- keys ------------------------------------------------------------------------------------
class Verb(NamedTuple):
    """A keyed request: as it is, and with something changed."""

    ask: Callable[..., Any]
    changed: Callable[..., Any]


def _verbs() -> dict[str, Verb]:
    def frame(target: str) -> pl.DataFrame:
        return pl.DataFrame(
            {"edge_type": ["supports"] * 2, "source": ["note:1"] * 2, "target": [target, "note:1"]}
        )

    return {
        "remember": Verb(
            lambda m, a, f, key: a.remember("gate B9", subject="gate", idempotency_key=key),
            lambda m, a, f, key: a.remember("gate B9", subject="gates", idempotency_key=key),
        ),
        "remember derived": Verb(
            lambda m, a, f, key: a.remember("B9", derived_from=[f], idempotency_key=key),
            lambda m, a, f, key: a.remember("B9", derived_from=["note:1"], idempotency_key=key),
        ),
        "remember for a while": Verb(
            lambda m, a, f, key: a.remember("B9", ttl=timedelta(1), idempotency_key=key),
            lambda m, a, f, key: a.remember("B9", ttl=timedelta(2), idempotency_key=key),
        ),
        "supersede": Verb(
            lambda m, a, f, key: a.supersede(f, "gate B9", reason="moved", idempotency_key=key),
            lambda m, a, f, key: a.supersede(f, "gate B9", reason="shut", idempotency_key=key),
        ),
        "update": Verb(
            lambda m, a, f, key: a.update(f, text="gate B9", idempotency_key=key),
            lambda m, a, f, key: a.update(f, text="gate B7", idempotency_key=key),
        ),
        "retract": Verb(
            lambda m, a, f, key: a.retract(f, reason="wrong", idempotency_key=key),
            lambda m, a, f, key: a.retract(f, idempotency_key=key),
        ),
        "redact": Verb(
            lambda m, a, f, key: a.redact(f, reason="asked", idempotency_key=key),
            lambda m, a, f, key: a.redact(f, idempotency_key=key),
        ),
        "submit": Verb(
            lambda m, a, f, key: a.submit("observe", "note:1", content="x", idempotency_key=key),
            lambda m, a, f, key: a.submit("assert", "note:1", content="x", idempotency_key=key),
        ),
        "submit of a fact": Verb(
            lambda m, a, f, key: a.submit("observe", f"fact:{f}", content=1, idempotency_key=key),
            lambda m, a, f, key: a.submit("observe", f"fact:{f}", content=2, idempotency_key=key),
        ),
        "add_edge": Verb(
            lambda m, a, f, key: a.add_edge("supports", "note:1", "note:2", idempotency_key=key),
            lambda m, a, f, key: a.add_edge("supports", "note:1", "note:3", idempotency_key=key),
        ),
        "add_edges": Verb(
            lambda m, a, f, key: m.add_edges(frame("note:2"), by=a, idempotency_key=key)[
                :, :3
            ].rows(),
            lambda m, a, f, key: m.add_edges(frame("note:3"), by=a, idempotency_key=key)[
                :, :3
            ].rows(),
        ),
    }


VERBS = _verbs()


@pytest.mark.parametrize("name", VERBS)
def test_a_repeated_request_is_answered_as_the_first_time(open_mesh, name):
    verb = VERBS[name]
    with open_mesh("made") as mesh:
        agent, twin = mesh.agent("a"), mesh.agent("twin", device="a")
        fact = agent.remember("gate B2")
        first = verb.ask(mesh, agent, fact, "k")
        after = shape(mesh)
        assert verb.ask(mesh, agent, fact, "k") == first
        for _ in range(2):  # a conflict leaves the key as it was
            with pytest.raises(IdempotencyConflictError, match="another request"):
                verb.changed(mesh, agent, fact, "k")
            with pytest.raises(IdempotencyConflictError, match="another request"):
                verb.ask(mesh, twin, fact, "k")
        assert verb.ask(mesh, agent, fact, "k") == first
        assert shape(mesh) == after
        (operation,) = mesh.operations(idempotency_key="k").to_dicts()
        assert operation["requesting_actor_id"] == agent.actor_id
    with open_mesh("made") as mesh:
        agent = mesh.agent("a")
        assert verb.ask(mesh, agent, fact, "k") == first
        with pytest.raises(IdempotencyConflictError):
            verb.changed(mesh, agent, fact, "k")
        mesh.rebuild_evidence()
        assert verb.ask(mesh, agent, fact, "k") == first
        assert shape(mesh) == after
        assert sound(mesh)


@pytest.mark.parametrize("name", ["remember", "submit", "add_edge", "add_edges"])
def test_a_key_belongs_to_the_device_that_asks(mesh, name):
    verb = VERBS[name]
    a, b = mesh.agent("a"), mesh.agent("b")
    fact = a.remember("gate B2")
    first, second = verb.ask(mesh, a, fact, "k"), verb.ask(mesh, b, fact, "k")
    assert first != second
    assert (verb.ask(mesh, a, fact, "k"), verb.ask(mesh, b, fact, "k")) == (first, second)
    found = mesh.operations(idempotency_key="k")
    devices = {a.device.device_id, b.device.device_id}
    assert set(found["requesting_device_id"]) == devices


def test_the_owner_has_keys_of_its_own(mesh):
    agent = mesh.agent("a")
    fact = agent.remember("gate B2", idempotency_key="k")
    new = mesh.supersede(fact, "gate B9", idempotency_key="k")
    assert mesh.supersede(fact, "gate B9", idempotency_key="k") == new
    with pytest.raises(IdempotencyConflictError):
        mesh.retract(new, idempotency_key="k")
    assert mesh.facts().filter(fact_id=new)["status"].item() == "active"


@pytest.mark.parametrize("first", VERBS)
def test_no_verb_answers_for_another(mesh, first):
    agent = mesh.agent("a")
    fact = agent.remember("gate B2")
    VERBS[first].ask(mesh, agent, fact, "k")
    before, names = shape(mesh), list(VERBS)
    for step in (1, 3, 5):
        other = names[(names.index(first) + step) % len(names)]
        with pytest.raises(IdempotencyConflictError):
            VERBS[other].ask(mesh, agent, fact, "k")
    assert shape(mesh) == before


def test_a_fact_told_again_under_a_new_key_is_an_operation(mesh):
    agent = mesh.agent("a")
    first = agent.remember("gate B2")
    before = shape(mesh)
    for _ in range(2):
        assert agent.remember("gate B2", idempotency_key="k") == first
    assert shape(mesh) == (before[0], before[1] + 1, before[2])
    agent.retract(first)
    assert agent.remember("gate B2", idempotency_key="k") == first
    assert agent.remember("gate B2") != first


def test_a_refused_request_uses_up_no_key(mesh):
    agent = mesh.agent("a")
    fact = agent.remember("gate B2")
    before = shape(mesh)
    for refused in (
        lambda: agent.remember(" ", idempotency_key="k"),
        lambda: agent.remember("x", derived_from=["fact:nobody"], idempotency_key="k"),
        lambda: agent.supersede(fact, " ", idempotency_key="k"),
        lambda: agent.update(fact, kind="?", idempotency_key="k"),
        lambda: agent.submit("revoke", f"fact:{fact}", content="x", idempotency_key="k"),
    ):
        with pytest.raises(InputError):
            refused()
        assert shape(mesh) == before
    assert agent.remember("gate B9", idempotency_key="k") != fact


def test_a_refused_edge_uses_up_no_key(mesh):
    before = shape(mesh)
    with pytest.raises(InvalidProvenanceError):
        mesh.add_edge("supports", "note:1", "note:1", idempotency_key="k")
    assert shape(mesh) == before
    mesh.add_edge("supports", "note:1", "note:2", idempotency_key="k")


def test_answers_of_a_frame_are_repeated_whole(mesh):
    frame = pl.DataFrame(
        {
            "edge_type": ["supports", "likes", "supports"],
            "source": ["note:1"] * 3,
            "target": ["note:2", "note:2", "fact:nobody"],
        }
    )
    first = mesh.add_edges(frame, idempotency_key="k")
    mesh.load_records([{"device": "a", "text": "gate B2", "fact_id": "nobody"}])
    again = mesh.add_edges(frame, idempotency_key="k")
    assert again.select("row", "outcome", "edge_id").equals(
        first.select("row", "outcome", "edge_id")
    )
    assert again["reason"].is_null().to_list() == [True, False, False]
    assert mesh.add_edges(frame)["outcome"].to_list() == ["stored", "refused", "stored"]


def test_many_at_once_with_one_key_are_one_request(mesh):
    agent = mesh.agent("a")
    fact = agent.remember("gate B2")
    with ThreadPoolExecutor(8) as workers:
        for name in ("remember", "submit", "add_edge"):
            asks = [workers.submit(VERBS[name].ask, mesh, agent, fact, name) for _ in range(8)]
            assert len({ask.result() for ask in asks}) == 1
            assert mesh.operations(idempotency_key=name).height == 1
    assert sound(mesh)


def test_many_writers_lose_nothing(mesh):
    agent = mesh.agent("a")
    fact = agent.remember("gate B2")

    def write(i: int) -> str:
        return mesh.add_edge("supports", f"note:{i}", f"fact:{fact}")

    with ThreadPoolExecutor(16) as workers:
        ids = list(workers.map(write, range(16)))
    found = mesh.edges(target=f"fact:{fact}", types=["supports"])
    assert sorted(found["edge_id"]) == sorted(ids)
    assert len(set(ids)) == 16
    assert found["recorded_at"].is_unique().all()
    assert sound(mesh)


# --- operations of one's own -----------------------------------------------------------------
def test_an_operation_comes_back_whole(open_mesh):
    mine = str(uuid.UUID(int=99, version=4))
    seen = datetime(2031, 1, 1, 12, tzinfo=UTC)
    with open_mesh("made") as mesh:
        agent = mesh.agent("a")
        fact = agent.remember("gate B2")
        told = agent.submit(
            "adjudicate",
            f"fact:{fact}",
            content={"b": 1, "a": "ü"},
            observed_at=seen,
            valid_time="2031-01-01T13:00:00+01:00",
            idempotency_key="k",
            operation_id=f"urn:uuid:{mine.upper()}",
        )
        assert told.operation_id == mine
        assert told.receipt_id == f"op-receipt:{mine}"
    with open_mesh("made") as mesh:
        operation, edges = mesh.operation(mine)
        assert edges.is_empty()
        assert operation == {
            "operation_id": mine,
            "idempotency_key": "k",
            "requesting_device_id": agent.device.device_id,
            "requesting_actor_id": agent.actor_id,
            "recording_device_id": agent.device.device_id,
            "recording_server_id": mesh.store.mesh_id,
            "operation_kind": "adjudicate",
            "target_kind": "fact",
            "target_id": fact,
            "content_digest": "sha256:" + sha256_hex('{"a":"ü","b":1}'),
            "observed_at": seen,
            "valid_time": seen,
            "recorded_at": told.recorded_at,
            "receipt_id": told.receipt_id,
        }


def test_an_operation_about_a_fact_lies_with_it_if_the_asker_may_write_there(mesh):
    a, b = mesh.agent("a"), mesh.agent("b")
    fact = a.remember("gate B2")
    home, away = a.device.device_id, b.device.device_id
    for told, place, device in (
        (mesh.submit("observe", f"fact:{fact}", content="1"), home, home),
        (a.submit("observe", f"fact:{fact}", content="2"), home, home),
        (b.submit("observe", f"fact:{fact}", content="3"), "", away),
        (mesh.submit("observe", f"fact:{fact}", content="4", by=b.device), "", None),
        (mesh.submit("observe", "note:1", content="5", by="a"), "", None),
        (mesh.submit("observe", "note:1", content="6", actor_id=b.actor_id), "", away),
    ):
        files = {"": raw(mesh, "SELECT operation_id FROM operations WHERE home = ''")}
        files[home] = raw(mesh, "SELECT operation_id FROM operations", home)
        assert [p for p, rows in files.items() if (told.operation_id,) in rows] == [place]
        assert mesh.operation(told.operation_id)[0]["recording_device_id"] == device
    assert sound(mesh)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"kind": "forget"}, InvalidProvenanceError),
        ({"kind": None}, InvalidProvenanceError),
        ({"kind": ["observe"]}, InvalidProvenanceError),
        ({"target": "nothing"}, InvalidProvenanceError),
        ({"target": None}, InvalidProvenanceError),
        ({"target": "note:\x00"}, InvalidProvenanceError),
        ({"target": "note:" + "x" * 400}, InvalidProvenanceError),
        ({"content": None}, InvalidProvenanceError),
        ({"content": {1, 2}}, InvalidProvenanceError),
        ({"content": float("nan")}, InvalidProvenanceError),
        ({"content": {"a": 2**60}}, InvalidProvenanceError),
        ({"content": "\ud800"}, InvalidProvenanceError),
        ({"content": {"a": "\ud800"}}, InvalidProvenanceError),
        ({"content": "<deep>"}, InvalidProvenanceError),
        ({"content_digest": DIGEST}, InvalidProvenanceError),
        ({"content": None, "content_digest": "sha256:"}, InvalidProvenanceError),
        ({"content": None, "content_digest": DIGEST.upper()}, InvalidProvenanceError),
        ({"content": None, "content_digest": DIGEST + " "}, InvalidProvenanceError),
        ({"content": None, "content_digest": 5}, InvalidProvenanceError),
        ({"operation_id": "nothing"}, IdError),
        ({"operation_id": ""}, IdError),
        ({"operation_id": 5}, IdError),
        ({"operation_id": "00000000-0000-1000-8000-000000000001"}, IdError),
        ({"operation_id": "00000000-0000-0000-0000-000000000000"}, IdError),
        ({"operation_id": "observed"}, ConflictError),
        ({"operation_id": "asserted"}, ConflictError),
        ({"by": "nobody"}, DeviceNotFoundError),
        ({"actor_id": NOWHERE}, ActorNotFoundError),
        ({"by": "b", "actor_id": "a's"}, AuthorizationDeniedError),
        ({"by": "agent b", "actor_id": "a's"}, AuthorizationDeniedError),
        ({"idempotency_key": ""}, IdError),
        ({"idempotency_key": "\u200b"}, IdError),
    ],
    ids=lambda value: (
        repr(value)[:60].encode("ascii", "replace").decode()
        if isinstance(value, dict)
        else value.__name__
    ),
)
def test_an_operation_that_breaks_a_rule_leaves_nothing(busy, changes, error):
    named = {
        "asserted": busy.asserted,
        "observed": busy.observed,
        "a's": busy.a.actor_id,
        "agent b": busy.b,
    }
    ask: dict[str, Any] = {"kind": "observe", "target": f"fact:{busy.fact}", "content": "x"}
    ask |= {n: named.get(v, hostile(v)) if isinstance(v, str) else v for n, v in changes.items()}
    before = shape(busy.mesh)
    with pytest.raises(error):
        busy.mesh.submit(ask.pop("kind"), ask.pop("target"), **ask)
    assert shape(busy.mesh) == before


@pytest.mark.parametrize("kind", ["supersede", "revoke", "redact"])
def test_what_changes_a_fact_is_recorded_by_doing_it(busy, kind):
    before = shape(busy.mesh)
    with pytest.raises(InvalidProvenanceError, match=r"mesh\.(supersede|retract|redact) does it"):
        busy.a.submit(kind, f"fact:{busy.fact}", content="x")
    assert shape(busy.mesh) == before


def test_an_id_is_of_one_operation_in_the_whole_mesh(mesh):
    """Wherever the two would lie: with a fact, with another one, with the mesh itself."""
    a, b = mesh.agent("a"), mesh.agent("b")
    here, there = a.remember("gate B2"), b.remember("gate B9")
    targets = ["note:1", f"fact:{here}", f"fact:{there}"]
    for n, first in enumerate(targets):
        taken = str(uuid.UUID(int=1000 + n, version=4))
        mesh.submit("observe", first, content="x", operation_id=taken)
        before = shape(mesh)
        for target in targets:
            with pytest.raises(ConflictError, match="id already"):
                mesh.submit("assert", target, content="y", operation_id=taken)
        assert shape(mesh) == before


def test_another_id_is_another_request(mesh):
    first = mesh.submit("observe", "note:1", content="x", idempotency_key="k")
    again = {"content": "x", "idempotency_key": "k", "operation_id": first.operation_id}
    assert mesh.submit("observe", "note:1", **again) == first
    with pytest.raises(IdempotencyConflictError):
        mesh.submit("observe", "note:1", **{**again, "operation_id": NOWHERE})


def test_an_agent_of_another_mesh_is_nobody_here(open_mesh):
    mesh, elsewhere = open_mesh("one"), open_mesh("other")
    mesh.agent("a")
    stranger = elsewhere.agent("a")  # the same seed, so even the ids agree
    with pytest.raises(InputError, match="agent of the mesh"):
        mesh.add_edge("supports", "note:1", "note:2", by=stranger)


@pytest.mark.parametrize("reason", [5, {"a": 1}, [1], b"x", "\ud800"], ids=ascii)
@pytest.mark.parametrize("verb", ["supersede", "retract", "redact"])
def test_a_reason_is_text(busy, verb, reason):
    before = shape(busy.mesh)
    more = ["gate B9"] if verb == "supersede" else []
    with pytest.raises(InputError, match="text"):
        getattr(busy.a, verb)(busy.fact, *more, reason=reason)
    assert shape(busy.mesh) == before


# --- append-only -----------------------------------------------------------------------------
CHANGES = [
    "UPDATE edges SET metadata = '{{}}'",
    "UPDATE edges SET recorded_at = recorded_at",
    "UPDATE operations SET answer = ''",
    "UPDATE operations SET requesting_actor_id = NULL",
    "DELETE FROM edges WHERE operation_id IN (SELECT operation_id FROM operations {own})",
    "DELETE FROM operations {own}",
    "INSERT INTO edges SELECT * FROM edges {own} ON CONFLICT DO UPDATE SET metadata = '{{}}'",
    "INSERT INTO operations SELECT * FROM operations {own}"
    " ON CONFLICT DO UPDATE SET answer = excluded.answer",
]


@pytest.mark.parametrize("place", ["shard", "pooled"])
@pytest.mark.parametrize("sql", CHANGES)
def test_the_files_refuse_changes(busy, place, sql):
    """Whatever opens them; what lies in pooled.db as an index of the shards may go."""
    mesh, shard = busy.mesh, busy.mesh.store.shard_path(busy.a.device.device_id)
    path = shard if place == "shard" else mesh.store.path
    own = "WHERE true" if place == "shard" else "WHERE home = ''"
    with closing(sqlite3.connect(path)) as conn:
        before = [conn.execute(f"SELECT * FROM {t}").fetchall() for t in ("edges", "operations")]
        assert all(before)
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            conn.execute(sql.format(own=own))
        conn.rollback()
        after = [conn.execute(f"SELECT * FROM {t}").fetchall() for t in ("edges", "operations")]
        assert after == before


@pytest.mark.parametrize("place", ["shard", "pooled"])
@pytest.mark.parametrize("table", ["edges", "operations"])
def test_the_files_refuse_replacements(busy, place, table):
    """`REPLACE` deletes the row that is there, without asking a trigger of deletes."""
    mesh, shard = busy.mesh, busy.mesh.store.shard_path(busy.a.device.device_id)
    path = shard if place == "shard" else mesh.store.path
    own = "" if place == "shard" else "WHERE home = ''"
    with closing(sqlite3.connect(path)) as conn:
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            conn.execute(f"REPLACE INTO {table} SELECT * FROM {table} {own}")
        conn.rollback()


def test_the_index_may_be_dropped_and_comes_back(mesh):
    agent = mesh.agent("a")
    fact = agent.remember("gate B2")
    mesh.add_edge("supports", "note:1", f"fact:{fact}")
    mesh.add_edge("supports", "note:1", "note:2")
    found = mesh.lineage(f"fact:{fact}").edges
    with closing(sqlite3.connect(mesh.store.path)) as conn:
        for table in ("edges", "operations"):
            assert conn.execute(f"DELETE FROM {table} WHERE home <> ''").rowcount > 0
        conn.commit()
    assert mesh.edges().height == 4
    assert "broken" in set(mesh.check()["outcome"])
    mesh.rebuild_evidence()
    assert mesh.lineage(f"fact:{fact}").edges.equals(found)
    assert sound(mesh)


def test_the_files_check_what_goes_in(busy):
    """The rules that need no look elsewhere hold in the database too."""
    start, end = 10, 9
    columns = "home, edge_id, edge_type, source, target, operation_id, recorded_at, generation"
    with closing(sqlite3.connect(busy.mesh.store.path)) as conn:
        for values in (
            f"'', 'x', 'likes', 'a:1', 'a:2', 'o', 1, 0, {start}, NULL",
            f"'', 'x', 'supports', 'a:1', 'a:1', 'o', 1, 0, {start}, NULL",
            f"'', 'x', 'supports', 'a:1', 'a:2', 'o', 1, 0, {start}, {end}",
            f"'', 'x', 'supports', NULL, 'a:2', 'o', 1, 0, {start}, NULL",
            f"'', 'x', 'supports', 'a:1', 'a:2', 'o', 'now', 0, {start}, NULL",
        ):
            with pytest.raises(sqlite3.IntegrityError):
                conn.execute(
                    f"INSERT INTO edges ({columns}, valid_from, valid_to) VALUES ({values})"
                )
        conn.rollback()


def test_the_order_of_items_is_not_confused_by_colons(busy):
    """A source and target that read the same run together stay two items in the database."""
    before = busy.mesh.edges().height
    edge = busy.mesh.add_edge("supports", ("a", "b:c"), ("a", "b"), operation_id=busy.asserted)
    assert busy.mesh.edges().filter(edge_id=edge).height == 1
    assert busy.mesh.edges().height == before + 1


def test_a_busy_mesh_is_sound(open_mesh):
    with open_mesh("made") as mesh:
        tell(mesh)
        assert sound(mesh)
    with open_mesh("made", seed=None, read_only=True) as reader:
        frames = [reader.operations(), reader.edges()]
        schemas.Edges.validate(frames[1])
        for write in (
            lambda: reader.add_edge("supports", "note:1", "note:2"),
            lambda: reader.submit("observe", "note:1", content="x"),
            lambda: reader.rebuild_evidence(),
        ):
            with pytest.raises(MnemesError, match="reading only"):
                write()
    with open_mesh("made") as mesh:
        assert sound(mesh)
        assert [
            frame.equals(again)
            for frame, again in zip(frames, [mesh.operations(), mesh.edges()], strict=True)
        ] == [True, True]
