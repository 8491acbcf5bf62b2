"""What is exported reads back as what it was, or is refused by name; and damage is seen."""

from __future__ import annotations

import builtins
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prov.constants import PROV_TYPE, PROV_VALUE
from prov.model import (
    ProvAssociation,
    ProvAttribution,
    ProvDelegation,
    ProvDerivation,
    ProvDocument,
    ProvElement,
    ProvGeneration,
    ProvInfluence,
    ProvRelation,
)

from mnemes_lab import AsOf, schemas
from mnemes_lab.digest import canonical_json, sha256_hex
from mnemes_lab.errors import (
    CorruptStoreError,
    IdError,
    InputError,
    MissingExtraError,
    NotAMeshError,
    ReadOnlyError,
    SchemaAheadError,
    SchemaError,
)
from mnemes_lab.frames import give_back
from mnemes_lab.store.evidence import Evidence
from mnemes_lab.view import parquet
from mnemes_lab.view.export import FRAMES, graph_json, graphml, to_networkx
from mnemes_lab.view.parquet import read_parquet, write_parquet
from mnemes_lab.view.prov import prov_json, to_prov

AT = datetime(2031, 6, 11, 9, 30, 0, 123456, tzinfo=UTC)
MESH = "00000000-0000-4000-8000-00000000000a"
DEFAULTS: dict[str, dict[str, Any]] = {
    "devices": dict(
        device_id="d", label="van", platform="", hostname="", status="active", first_seen_at=AT,
        last_seen_at=AT, status_changed_at=AT, clock_ahead_ms=0.0,
    ),
    "actors": dict(
        actor_id="a", device_id="d", name="rosa", kind="agent", tool_profile="agent",
        recorded_at=AT,
    ),
    "facts": dict(
        fact_id="f", device_id="d", namespace="rosa", text="Gate 6 is open", kind="observation",
        sensitivity="internal", status="active", content_digest="0" * 64, recorded_at=AT,
        valid_from=AT, version=1,
    ),
    "operations": dict(
        operation_id="o", requesting_device_id="d", requesting_actor_id="a",
        recording_server_id=MESH, operation_kind="observe", target_kind="fact", target_id="f",
        content_digest="sha256:" + "0" * 64, recorded_at=AT, receipt_id="op-receipt:o",
    ),
    "edges": dict(
        edge_id="e", edge_type="observed_by", source_kind="fact", source_id="f",
        target_kind="actor", target_id="a", operation_id="o", recorded_at=AT,
    ),
}  # fmt: skip
ITEMS = [
    dict(item_kind="fact", item_id="f", depth=0, label="Gate 6 is open", recorded_at=AT),
    dict(item_kind="actor", item_id="lonely", depth=1, device="van"),
]
# Names with everything that means something in XML, JSON, PROV-N, IRIs or paths.
HOSTILE = [
    "👩🏽‍🔧 ñandú", 'a"b\'c\\d', "]]></data><x y='&amp;'>", "a\u2028b\u2029c\u0085d", "%2F/%2f/..",
    ":a:b", "mesh:item/fact/f", ".-", "{[()]}|^`,;=", "..\\..\\x", "\\u000b", "\ufeff\u200b x",
]  # fmt: skip
CONTROLS = ["a\x00b", "a\x0bb", "a\\u000bb", "a\r\nb\tc", "a\ufffeb\uffff", "\x1b[31m"]


def frame(name: str, *rows: dict[str, Any]) -> pl.DataFrame:
    filled = [{**DEFAULTS[name], **row} for row in rows]
    return pl.DataFrame(filled, schema=schemas.dtypes(FRAMES[name]))


def edge(edge_type: str = "derived_from", source: str = "fact:f", target: str = "fact:g", **more):
    ends = zip(("source", "target"), (source.split(":", 1), target.split(":", 1)), strict=True)
    named = {f"{end}_{part}": x for end, ref in ends for part, x in zip(("kind", "id"), ref)}  # noqa: B905
    return {"edge_type": edge_type, **named, **more}


def make(as_of: AsOf | None = None, mesh_id: str = MESH, **frames: Any) -> Evidence:
    """Evidence of the given rows or frames; what is not given is empty."""
    given_ = {
        name: frames.get(name, []) if not isinstance(frames.get(name), list) else frames[name]
        for name in FRAMES
    }
    return Evidence(
        mesh_id,
        as_of,
        **{
            name: frame(name, *rows) if isinstance(rows, list) else rows
            for name, rows in given_.items()
        },
    )


TINY = make(
    devices=[{}], actors=[{}], facts=[{}, {"fact_id": "g", "status": "superseded"}],
    operations=[{}],
    edges=[{"metadata": '{"a":1}'}, edge("supersedes", edge_id="e2", valid_to=AT)],
)  # fmt: skip

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20) | st.sampled_from(
    HOSTILE + CONTROLS
)
ids = texts.filter(str.strip) | st.sampled_from(HOSTILE)
kinds = st.sampled_from(["fact", "operation", "actor", "device", "note", "a/b", "%61/b", "ñ"])
instants = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=st.just(UTC))
edge_rows = st.lists(
    st.fixed_dictionaries(
        {
            "edge_id": ids,
            "edge_type": st.sampled_from(schemas.EDGE_TYPES),
            "source_kind": kinds,
            "source_id": ids,
            "target_kind": kinds,
            "target_id": ids,
            "operation_id": ids,
            "recorded_at": instants,
            "valid_from": st.none() | instants,
            "metadata": st.none() | texts,
        }
    ),
    max_size=6,
    unique_by=lambda row: row["edge_id"],
)


def known(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if value is not None}


# --- graphs --------------------------------------------------------------------------------------
def test_items_are_nodes_and_rows_are_edges(frame_kind):
    edges = give_back(TINY.edges, frame_kind.name)
    graph = to_networkx(edges, frame_kind.make_frame(pl.DataFrame(ITEMS).to_dict(as_series=False)))
    assert isinstance(graph, nx.MultiDiGraph)
    assert dict(graph.nodes(data=True)) == {
        "actor:a": {"kind": "actor", "id": "a"},
        "actor:lonely": {"kind": "actor", "id": "lonely", "depth": 1, "device": "van"},
        "fact:f": {
            "kind": "fact", "id": "f", "depth": 0, "label": "Gate 6 is open", "recorded_at": AT,
        },
        "fact:g": {"kind": "fact", "id": "g"},
    }  # fmt: skip
    assert list(graph.nodes) == sorted(graph.nodes)
    assert [key for *_, key in graph.edges(keys=True)] == ["e", "e2"]
    assert graph.edges["fact:f", "fact:g", "e2"] == {
        **DEFAULTS["edges"], "edge_id": "e2", "edge_type": "supersedes", "target_kind": "fact",
        "target_id": "g", "valid_to": AT,
    }  # fmt: skip


def test_two_edges_between_two_items_stay_two_and_the_order_of_rows_means_nothing():
    rows = [edge(edge_id="e1"), edge("supersedes", edge_id="e2"), edge(edge_id="e3", source="x:y")]
    one, two = to_networkx(frame("edges", *rows)), to_networkx(frame("edges", *rows[::-1]))
    assert one.number_of_edges() == 3
    assert graph_json(one) == graph_json(two)
    assert graphml(one) == graphml(two)


def test_an_empty_graph_is_written():
    graph = to_networkx(schemas.empty(schemas.Edges), schemas.empty(schemas.Items))
    assert json.loads(graph_json(graph))["nodes"] == []
    assert len(nx.parse_graphml(graphml(graph))) == 0


def test_items_that_could_be_taken_for_others_are_refused():
    with pytest.raises(IdError, match="colon"):
        to_networkx(frame("edges", {"source_kind": "a:b", "source_id": "c"}))
    with pytest.raises(IdError, match="kind and an id"):
        to_networkx(frame("edges", {"target_id": "  "}))


def test_what_is_no_frame_of_edges_is_refused(frame_kind):
    with pytest.raises(SchemaError, match="repeated"):
        to_networkx(frame("edges", {}, {}))
    with pytest.raises(SchemaError, match="target_kind"):
        to_networkx(frame_kind.make_frame({"edge_id": ["e"]}))
    with pytest.raises(SchemaError, match="DataFrame"):
        to_networkx([{"edge_id": "e"}])


@given(edge_rows)
@settings(max_examples=20)
def test_node_link_json_reads_back(rows: list[dict[str, Any]]):
    graph = to_networkx(frame("edges", *rows))
    text = graph_json(graph)
    back = nx.node_link_graph(json.loads(text), name="key", edges="edges")
    assert dict(back.nodes(data=True)) == dict(graph.nodes(data=True))
    wanted = {key: dict(data) for *_, key, data in graph.edges(keys=True, data=True)}
    found = {key: dict(data) for *_, key, data in back.edges(keys=True, data=True)}
    for data in wanted.values():
        for name in ("recorded_at", "valid_from"):
            if name in data:
                assert datetime.fromisoformat(found[data["edge_id"]][name]) == data[name]
                found[data["edge_id"]][name] = data[name]
    assert found == wanted
    assert "\x1b" not in text and "\u2028" not in text  # nothing acts when it is shown


@given(edge_rows)
@settings(max_examples=20)
def test_graphml_reads_back(rows: list[dict[str, Any]]):
    graph = to_networkx(frame("edges", *rows))
    back = nx.parse_graphml(graphml(graph), edge_key_type=str, force_multigraph=True)
    assert len(back) == len(graph) and back.number_of_edges() == graph.number_of_edges()
    # Two edges of one pair keep apart too: the reader names them by their ids.
    by_id = {data["edge_id"]: data for *_, data in back.edges(data=True)}
    for row in rows:
        if all(c in "\t\n\r" or (c >= " " and c not in "\ufffe\uffff") for c in row["edge_id"]):
            assert by_id[row["edge_id"]]["edge_type"] == row["edge_type"]


@pytest.mark.parametrize("text", HOSTILE + CONTROLS)
def test_text_in_graphml_is_the_text_or_shows_what_xml_cannot_hold(text: str):
    graph = to_networkx(frame("edges", {"source_id": "x" + text, "metadata": text}))
    back = nx.parse_graphml(graphml(graph))
    shown = "".join(c if c in "\t\n\r" or " " <= c < "\ufffe" or c > "\uffff" else
                    f"\\u{ord(c):04x}" for c in text)  # fmt: skip
    [(source, _, data)] = back.edges(data=True)
    assert data["metadata"] == shown
    assert back.nodes[source]["id"] == "x" + shown


def test_ids_that_look_alike_once_escaped_stay_two_nodes():
    rows = [edge(source=f"note:a{x}b", edge_id=x) for x in ("\x0b", "\\u000b", "\\\\u000b")]
    back = nx.parse_graphml(graphml(to_networkx(frame("edges", *rows))))
    assert len(back) == 4 and back.number_of_edges() == 3


def test_writing_a_graph_leaves_it_alone():
    graph = to_networkx(TINY.edges)
    before = {key: dict(data) for *_, key, data in graph.edges(keys=True, data=True)}
    graphml(graph), graph_json(graph)
    assert {key: dict(data) for *_, key, data in graph.edges(keys=True, data=True)} == before
    assert graph.edges["fact:f", "actor:a", "e"]["recorded_at"] == AT


@pytest.mark.parametrize("name", ["source", "target", "key"])
def test_an_attribute_is_not_lost_to_a_name_of_the_json(name: str):
    graph = to_networkx(TINY.edges.with_columns(pl.lit("mine").alias(name)))
    assert graph.edges["fact:f", "actor:a", "e"][name] == "mine"
    with pytest.raises(SchemaError, match=name):
        graph_json(graph)
    assert "mine" in graphml(graph)


# --- values of extra columns: S6 -----------------------------------------------------------------
def column(value: Any, dtype: Any = None) -> pl.DataFrame:
    return frame("edges", {}).with_columns(pl.Series("seen on", [value], dtype=dtype))


WRITTEN = [
    (date(2031, 1, 2), None),
    (date(2031, 1, 2), pl.Object),
    (datetime(2031, 1, 2, tzinfo=UTC), None),
    (datetime(2031, 1, 2, tzinfo=timezone(timedelta(hours=14))), pl.Object),
    (pd.Timestamp("2031-01-02T03:04:05Z"), pl.Object),
    (True, None),
    (np.bool_(True), pl.Object),
    (2**63 + 1, pl.UInt64),
    (np.int16(7), pl.Object),
    (0.1, None),
    (np.float32(0.5), pl.Object),
    ("pump\u2028'\"", pl.Categorical),
    ("", None),
]
REFUSED = [
    (time(9, 30), None),
    (timedelta(1), None),
    ([1], None),
    ({"a": 1}, None),
    (b"\0", None),
    (Decimal("1.5"), None),
    (datetime(2031, 1, 2), None),
    (float("inf"), None),
    (object(), pl.Object),
    (["a"], pl.Object),
    (2**64, pl.Object),
    (10**5000, pl.Object),
    (np.datetime64("2031-01-02T00:00", "ns"), pl.Object),
    ("half \ud83d", pl.Object),
    (10**18, pl.Datetime("us", "UTC")),
    (float, pl.Object),
]


def test_extra_columns_are_written_everywhere():
    columns = [pl.Series(f"c {n}", [x], dtype=dtype) for n, (x, dtype) in enumerate(WRITTEN)]
    names = {each.name for each in columns}
    evidence = make(edges=frame("edges", {}).with_columns(columns))
    graph = to_networkx(evidence.edges)
    [data] = [data for *_, data in graph.edges(data=True)]
    for n, (value, _) in enumerate(WRITTEN):
        found = data[f"c {n}"]
        assert found == value and type(found) in (str, bool, int, float, datetime, date)
    assert names <= set(json.loads(graph_json(graph))["edges"][0])
    [back] = [data for *_, data in nx.parse_graphml(graphml(graph)).edges(data=True)]
    assert {name for name in names if name in back} == names
    document, text = to_prov(evidence), prov_json(evidence)
    assert ProvDocument.deserialize(content=text, format="json") == document
    told = json.loads(text)["wasAttributedTo"]["mesh:edge/e"]
    assert told["mnemes:c%200"] == {"$": "2031-01-02", "type": "xsd:date"} == told["mnemes:c%201"]
    assert told["mnemes:c%203"] == {"$": "2031-01-01T10:00:00+00:00", "type": "xsd:dateTime"}
    assert all(name.replace(" ", "%20") in document.get_provn() for name in names)


@pytest.mark.parametrize(("value", "dtype"), REFUSED, ids=lambda x: type(x).__name__)
def test_an_extra_column_nobody_can_write_is_refused_by_name(value: Any, dtype: Any):
    if dtype == pl.Datetime("us", "UTC"):
        edges = frame("edges", {}).with_columns(
            pl.Series("seen on", [value], dtype=pl.Int64).cast(dtype)
        )
    else:
        edges = column(value, dtype)
    with pytest.raises(InputError, match=r"edges\.seen on"):
        to_networkx(edges)


def test_prov_refuses_by_name_too():
    with pytest.raises(SchemaError, match=r"facts\.seen on .*list"):
        prov_json(make(facts=frame("facts", {}).with_columns(pl.Series("seen on", [[1]]))))


@pytest.mark.parametrize("value", [None, float("nan"), pd.NaT, pd.NA, np.float64("nan")], ids=repr)
def test_what_means_missing_is_left_out(value: Any):
    [data] = [data for *_, data in to_networkx(column(value, pl.Object)).edges(data=True)]
    assert "seen on" not in data


@pytest.mark.parametrize("name", [7, None, ("a", "b"), "half \ud83d"], ids=repr)
def test_a_column_without_a_text_as_name_is_refused(name: Any):
    edges = give_back(column("x"), "pandas")
    edges.columns = pd.Index([*edges.columns[:-1], name], dtype=object)
    with pytest.raises(SchemaError, match=r"[Cc]olumn( name)? of edges"):
        to_networkx(edges)


def test_a_column_may_have_any_other_name():
    names = [*HOSTILE, *CONTROLS, "", "prov:type", "item_kind"]
    evidence = make(edges=frame("edges", {}).with_columns(pl.lit(x).alias(x) for x in names))
    document = to_prov(evidence)
    assert ProvDocument.deserialize(content=prov_json(evidence), format="json") == document
    told = {value for _, value in only(document, ProvRelation).extra_attributes}
    assert told >= set(names)
    graph = to_networkx(evidence.edges)
    assert json.loads(graph_json(graph))["edges"][0].items() >= {x: x for x in names}.items()
    [data] = [data for *_, data in nx.parse_graphml(graphml(graph)).edges(data=True)]
    assert data["]]></data><x y='&amp;'>"] == "]]></data><x y='&amp;'>"


# --- PROV ----------------------------------------------------------------------------------------
def attributes(record: Any) -> dict[str, Any]:
    return {str(name): value for name, value in record.extra_attributes}


def only(document: ProvDocument, kind: type) -> Any:
    [record] = document.get_records(kind)
    return record


def test_facts_operations_and_those_who_act():
    document = to_prov(TINY)
    fact = document.get_record("mesh:item/fact/f")[0]
    assert fact.get_provn().startswith("entity(")
    told = attributes(fact)
    assert told["prov:value"] == "Gate 6 is open" and str(told["prov:type"]) == "mnemes:fact"
    assert told["mnemes:content_digest"] == "0" * 64 and told["mnemes:valid_from"] == AT
    assert told["mnemes:fact_id"] == "f" and told["mnemes:version"] == 1
    assert "mnemes:text" not in told and "mnemes:subject" not in told
    operation = document.get_record("mesh:item/operation/o")[0]
    assert operation.get_startTime() == operation.get_endTime() == AT
    device = document.get_record("mesh:item/device/d")[0]
    assert device.get_provn().startswith("agent(") and device.label == "van"
    assert [str(x) for x in only(document, ProvDelegation).args[:2]] == [
        "mesh:item/actor/a", "mesh:item/device/d",
    ]  # fmt: skip
    assert [str(x) for x in only(document, ProvAssociation).args[:2]] == [
        "mesh:item/operation/o", "mesh:item/actor/a",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("device", "actor", "name"),
    [
        ("d", "a", "actor/a"),
        ("d", None, "device/d"),
        (MESH, None, f"mesh/{MESH}"),
        ("unknown", None, "device/unknown"),
    ],
)
def test_an_operation_is_associated_with_whoever_asked(device: str, actor: str | None, name: str):
    row = {"requesting_device_id": device, "requesting_actor_id": actor}
    document = to_prov(make(operations=[row], devices=[{}]))
    agent = only(document, ProvAssociation).args[1]
    assert str(agent) == f"mesh:item/{name}"
    assert document.get_record(agent)[0].get_provn().startswith("agent(")


@pytest.mark.parametrize(
    ("row", "kind", "ends", "prov_type"),
    [
        (edge("observed_by", target="actor:a"), ProvAttribution, "fg", None),
        (edge("observed_by", target="device:d"), ProvAttribution, "fg", None),
        (edge("observed_by", target="operation:o"), ProvGeneration, "fg", None),
        (edge("recorded_by", target="operation:o"), ProvGeneration, "fg", None),
        (edge("recorded_by", target="actor:a"), ProvAttribution, "fg", None),
        (edge("recorded_by", "note:n", "actor:a"), ProvAttribution, "fg", None),
        (edge("derived_from"), ProvDerivation, "fg", None),
        (edge("supersedes"), ProvDerivation, "fg", "prov:Revision"),
        (edge("retrieved_from", target="search:s"), ProvDerivation, "fg", "prov:PrimarySource"),
        (edge("supports"), ProvInfluence, "gf", "mnemes:supports"),
        (edge("contradicts"), ProvInfluence, "gf", "mnemes:contradicts"),
        # ends that the relation does not take
        (edge("observed_by", target="fact:g"), ProvInfluence, "fg", "mnemes:observed_by"),
        (edge("recorded_by", "actor:a", "device:d"), ProvInfluence, "fg", "mnemes:recorded_by"),
        (edge("supersedes", "operation:o", "fact:f"), ProvInfluence, "fg", "mnemes:supersedes"),
        (edge("derived_from", target="actor:a"), ProvInfluence, "fg", "mnemes:derived_from"),
        (edge("retrieved_from", target="device:d"), ProvInfluence, "fg", "mnemes:retrieved_from"),
    ],
    ids=lambda x: str(x.get("edge_type")) if isinstance(x, dict) else None,
)
def test_an_edge_becomes_the_relation_that_fits(
    row: dict[str, Any], kind: type, ends: str, prov_type: str | None
):
    document = to_prov(make(edges=[{**row, "metadata": "{}", "valid_to": AT}]))
    record = only(document, ProvRelation)
    assert type(record) is kind
    assert str(record.identifier) == "mesh:edge/e"
    named = {
        end: f"mesh:item/{row[f'{side}_kind']}/{row[f'{side}_id']}"
        for end, side in (("f", "source"), ("g", "target"))
    }
    assert [str(x) for x in record.args[:2]] == [named[end] for end in ends]
    told = attributes(record)
    assert str(told.pop("prov:type", None)) == str(prov_type)
    wanted = known({**DEFAULTS["edges"], **row, "metadata": "{}", "valid_to": AT})
    assert {name.removeprefix("mnemes:"): value for name, value in told.items()} == wanted


def test_a_redacted_fact_keeps_none_of_its_words():
    words = dict.fromkeys(["text", "subject", "predicate", "object", "source"], "kestrel-9")
    evidence = make(facts=[{**words, "status": "redacted"}, {**words, "fact_id": "g"}])
    document = to_prov(evidence)
    hidden = document.get_record("mesh:item/fact/f")[0]
    assert not hidden.get_attribute(PROV_VALUE) and "kestrel-9" not in hidden.get_provn()
    assert attributes(hidden)["mnemes:content_digest"] == "0" * 64
    assert document.get_record("mesh:item/fact/g")[0].value == {"kestrel-9"}


def test_the_document_says_which_mesh_and_as_of_when():
    document = to_prov(make(as_of=AsOf(recorded_at=AT)))
    assert attributes(document.get_record("mesh:evidence")[0]) == {
        "mnemes:mesh_id": MESH,
        "mnemes:recorded_at": "2031-06-11T09:30:00.123456+00:00",
    }


def test_two_meshes_share_no_name():
    other = to_prov(TINY._replace(mesh_id="another: mesh/%"))
    names = {record.identifier.uri for record in to_prov(TINY).get_records()}
    assert not names & {record.identifier.uri for record in other.get_records()}


@given(st.lists(st.tuples(kinds, ids), unique=True, max_size=8))
@settings(max_examples=8)
def test_names_are_plain_and_never_collide(refs: list[tuple[str, str]]):
    rows = [edge(edge_id=f"{n}", source=f"{kind}:{id_}") for n, (kind, id_) in enumerate(refs)]
    document = to_prov(make(edges=rows))
    elements = list(document.get_records(ProvElement))
    described = {(attributes(x).get("mnemes:item_kind"), attributes(x).get("mnemes:item_id"))
                 for x in elements}  # fmt: skip
    wanted = {*refs, *([("fact", "g")] if refs else []), (None, None)}  # the evidence itself
    assert described == wanted and len(elements) == len(wanted)
    assert all(x.identifier.localpart.isascii() for x in elements)


@given(edge_rows, st.lists(st.tuples(ids, texts), max_size=4, unique_by=lambda pair: pair[0]))
@settings(max_examples=8)
def test_prov_json_reads_back_equal_and_loses_no_column(
    rows: list[dict[str, Any]], told: list[tuple[str, str]]
):
    facts = [{"fact_id": id_, "text": text, "source": text} for id_, text in told]
    evidence = make(edges=rows, facts=facts)
    text = prov_json(evidence)
    back = ProvDocument.deserialize(content=text, format="json")
    assert back == to_prov(evidence)
    found = {}
    for record in back.get_records(ProvRelation):
        columns = {name[7:]: x for name, x in attributes(record).items() if name[:7] == "mnemes:"}
        found[columns["edge_id"]] = columns
    assert found == {row["edge_id"]: known(row) for row in rows}
    values = [attributes(x) for x in back.get_records(ProvElement) if x.get_attribute(PROV_VALUE)]
    assert {x["mnemes:fact_id"]: x["prov:value"] for x in values} == dict(told)
    assert text.isascii()


def test_the_order_of_rows_means_nothing_to_prov():
    turned = Evidence(*TINY[:2], *(table.reverse() for table in TINY[2:]))
    assert prov_json(turned) == prov_json(TINY)


def test_the_bytes_are_the_same_in_another_process(tmp_path: Path):
    write_parquet(TINY, tmp_path / "evidence")
    script = (
        "import sys\n"
        "from mnemes_lab.view.parquet import read_parquet\n"
        "from mnemes_lab.view.prov import prov_json\n"
        "sys.stdout.write(prov_json(read_parquet(sys.argv[1])))\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "evidence")],
        env={**os.environ, "PYTHONHASHSEED": "4242", "TZ": "Asia/Tokyo"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert run.stdout == prov_json(TINY)


def test_every_type_is_named_once():
    # A second one would be read back in another order by some releases.
    for record in to_prov(TINY).get_records():
        assert len(record.get_attribute(PROV_TYPE)) <= 1


def test_without_prov_the_extra_is_named(monkeypatch: pytest.MonkeyPatch):
    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("prov"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtraError, match=r"mnemes-lab\[prov\]"):
        to_prov(TINY)


@pytest.mark.parametrize("write", [to_prov, prov_json, lambda it: write_parquet(it, "unused")])
def test_what_is_no_evidence_is_refused(write: Callable[[Any], Any]):
    for wrong in (None, tuple(TINY), TINY.facts):
        with pytest.raises(InputError, match="evidence"):
            write(wrong)
    for mesh_id in (None, "", "half \ud83d"):
        with pytest.raises(InputError):
            write(TINY._replace(mesh_id=mesh_id))
    with pytest.raises(InputError, match="as_of"):
        write(TINY._replace(as_of="2031-01-01T00:00:00Z"))
    with pytest.raises(SchemaError, match="facts"):
        write(TINY._replace(facts=TINY.facts.drop("version").with_columns(version=pl.lit(-1))))


# --- Parquet -------------------------------------------------------------------------------------
def same(one: Evidence, two: Evidence) -> bool:
    frames = zip(one[2:], two[2:], strict=True)
    return one.mesh_id == two.mesh_id and all(
        a.schema == b.schema and a.equals(b) for a, b in frames
    )


@dataclass
class Exported:
    """A folder of evidence, to be damaged."""

    folder: Path

    @property
    def manifest(self) -> dict[str, Any]:
        return json.loads((self.folder / "manifest.json").read_text(encoding="utf-8"))

    def sign(self, manifest: dict[str, Any]) -> None:
        """Write a manifest that matches its digest, as somebody who means harm would."""
        manifest.pop("digest", None)
        manifest["digest"] = sha256_hex(canonical_json(manifest))
        (self.folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")

    def replace(self, table: pl.DataFrame, **said: Any) -> None:
        """Put other facts in, with everything the manifest says of bytes in order."""
        path = self.folder / "facts.parquet"
        table.write_parquet(path)
        raw = path.read_bytes()
        manifest = self.manifest
        manifest["frames"]["facts"] |= {"bytes": len(raw), "sha256": sha256_hex(raw), **said}
        self.sign(manifest)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("export") / "evidence"
    write_parquet(TINY, folder)
    return folder


@pytest.fixture
def exported(original: Path, tmp_path: Path) -> Exported:
    return Exported(Path(shutil.copytree(original, tmp_path / "evidence")))


def test_evidence_reads_back_equal(tmp_path: Path):
    as_of = AsOf(valid_at="2031-01-02T03:04:05+02:00", recorded_at=AT)
    manifest = write_parquet(TINY._replace(as_of=as_of), tmp_path / "new" / "evidence")
    back = read_parquet(tmp_path / "new" / "evidence")
    assert same(back, TINY)
    assert back.facts.schema["status"] == pl.Enum(schemas.FACT_STATUSES)
    assert back.as_of is not None and back.as_of.micros(0) == as_of.micros(0)
    assert manifest["as_of"] == {
        "valid_at": "2031-01-02T01:04:05+00:00",
        "recorded_at": "2031-06-11T09:30:00.123456+00:00",
    }
    assert write_parquet(back, tmp_path / "again") == manifest


def test_frames_of_pandas_are_written_alike(tmp_path: Path):
    wrapped = Evidence(*TINY[:2], *(give_back(x, "pandas") for x in TINY[2:]))
    assert write_parquet(wrapped, tmp_path / "a") == write_parquet(TINY, tmp_path / "b")
    assert same(read_parquet(tmp_path / "a"), TINY)
    assert prov_json(wrapped) == prov_json(TINY)


@given(
    edge_rows,
    st.lists(st.tuples(ids, texts, st.none() | texts), max_size=5, unique_by=lambda row: row[0]),
    st.floats(0, 1e9, allow_nan=False),
)
@settings(max_examples=6)
def test_any_evidence_reads_back_equal(rows: Any, told: Any, ahead: float):
    evidence = make(
        edges=rows,
        facts=[{"fact_id": id_, "text": text, "source": source} for id_, text, source in told],
        devices=[{"clock_ahead_ms": ahead}],
    )
    with tempfile.TemporaryDirectory() as folder:
        write_parquet(evidence, folder)
        assert same(read_parquet(folder), evidence)


def test_the_manifest_says_what_is_there(exported: Exported):
    manifest = exported.manifest
    assert {"format", "format_version", "package_version", "mesh_id", "as_of", "frames"} < set(
        manifest
    )
    assert manifest["mesh_id"] == MESH and manifest["as_of"] is None
    assert sorted(path.name for path in exported.folder.iterdir()) == sorted(
        ["manifest.json", *(entry["file"] for entry in manifest["frames"].values())]
    )
    facts = manifest["frames"]["facts"]
    raw = (exported.folder / "facts.parquet").read_bytes()
    assert facts["rows"] == 2 and facts["bytes"] == len(raw)
    assert facts["sha256"] == hashlib.sha256(raw).hexdigest()
    assert list(facts["columns"]) == TINY.facts.columns
    assert {facts["columns"][name] for name in ("text", "recorded_at", "version", "status")} == {
        "text", "instant", "int64", "enum: active, superseded, retracted, expired, redacted",
    }  # fmt: skip


def test_the_content_digest_is_what_the_description_says():
    table = frame("devices", {"label": "ñ \u2028 \x00"}, {"device_id": "c", "clock_ahead_ms": 1.5})
    us = (AT - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    names = json.dumps(table.columns, separators=(",", ":"))
    lines = [
        f'["c","van","","","active",{us},{us},{us},1.5]',
        f'["d","ñ \u2028 \\u0000","","","active",{us},{us},{us},0.0]',
    ]
    told = "".join(f"{line}\n" for line in [names, *lines])
    assert parquet.content_digest(table) == hashlib.sha256(told.encode()).hexdigest()


def test_the_content_digest_knows_content_from_its_form():
    facts = TINY.facts
    file = io.BytesIO()
    facts.write_parquet(file, compression="snappy", row_group_size=1)
    other = pl.read_parquet(io.BytesIO(file.getvalue()))
    digest = parquet.content_digest
    assert digest(other.reverse()) == digest(facts)
    changed = [facts.with_columns(pl.lit(x).alias(name)) for name, x in
               [("text", "Gate 6 is open "), ("source", ""), ("version", 2)]]  # fmt: skip
    swapped = facts.with_columns(subject=pl.lit("x")), facts.with_columns(object=pl.lit("x"))
    every = [facts, facts.head(1), facts.drop("source"), *changed, *swapped]
    assert len({digest(table) for table in every}) == len(every)


def test_nothing_is_overwritten(tmp_path: Path, exported: Exported):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes").write_text("mine")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere" / "at all")
    for name in ("file", "full", "evidence"):
        with pytest.raises(NotAMeshError, match="Hint: give a new name"):
            write_parquet(TINY, tmp_path / name)
    assert (tmp_path / "file").read_text() == "mine"
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["notes"]
    assert same(read_parquet(exported.folder), TINY)
    write_parquet(TINY, tmp_path / "dangling")  # a link names the place it leads to
    assert same(read_parquet(tmp_path / "nowhere" / "at all"), TINY)


def test_an_empty_folder_is_filled_also_behind_a_link(tmp_path: Path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "empty")
    write_parquet(TINY, str(tmp_path / "link"))
    assert same(read_parquet(tmp_path / "empty"), TINY)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "link"]


@pytest.mark.parametrize("fails", ["fsync", "rename"])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_failure_leaves_no_half_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str, error: BaseException
):
    calls = []

    def fail(*args: Any) -> None:
        calls.append(args)
        if fails == "rename" or len(calls) == 3:
            raise error

    monkeypatch.setattr(parquet.os, fails, fail)
    wanted = ReadOnlyError if isinstance(error, OSError) else KeyboardInterrupt
    with pytest.raises(wanted):
        write_parquet(TINY, tmp_path / "evidence")
    assert calls and list(tmp_path.iterdir()) == []


def test_of_two_writers_one_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    real = os.rename

    def late(source: Any, target: Any) -> None:
        monkeypatch.setattr(parquet.os, "rename", real)
        write_parquet(make(mesh_id="first"), tmp_path / "evidence")
        real(source, target)

    monkeypatch.setattr(parquet.os, "rename", late)
    with pytest.raises(NotAMeshError, match="already"):
        write_parquet(TINY, tmp_path / "evidence")
    assert read_parquet(tmp_path / "evidence").mesh_id == "first"
    assert [path.name for path in tmp_path.iterdir()] == ["evidence"]


@pytest.mark.parametrize("folder", [None, 7, b"x", "a\0b"])
def test_what_is_no_path_is_refused(folder: Any):
    for call in (lambda: write_parquet(TINY, folder), lambda: read_parquet(folder)):
        with pytest.raises(InputError, match="path"):
            call()


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ReadOnlyError, match="cannot be written"):
        write_parquet(TINY, tmp_path / "file" / "evidence")
    with pytest.raises(ReadOnlyError, match="cannot be written"):
        write_parquet(TINY, tmp_path / ("n" * 300))
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_column_no_reader_could_check_is_refused(tmp_path: Path):
    facts = TINY.facts.with_columns(checked_on=pl.lit(date(2031, 1, 2)))
    with pytest.raises(SchemaError, match="checked_on"):
        write_parquet(TINY._replace(facts=facts), tmp_path / "evidence")
    assert list(tmp_path.iterdir()) == []


def broken(exported: Exported, *told: str) -> None:
    with pytest.raises(CorruptStoreError) as error:
        read_parquet(exported.folder)
    for part in told:
        assert part in str(error.value)


def test_every_damaged_file_is_named(exported: Exported):
    folder = exported.folder
    raw = bytearray((folder / "facts.parquet").read_bytes())
    raw[len(raw) // 2] ^= 1
    (folder / "facts.parquet").write_bytes(raw)
    (folder / "edges.parquet").write_bytes((folder / "edges.parquet").read_bytes()[:-1])
    (folder / "actors.parquet").unlink()
    (folder / "devices.parquet").write_bytes(b"")
    (folder / "operations.parquet").unlink()
    (folder / "operations.parquet").mkdir()
    (folder / "more.parquet").write_bytes(b"")
    broken(
        exported, "facts.parquet does not match its SHA-256", "edges.parquet has", "more.parquet",
        "actors.parquet is missing", "devices.parquet has 0 bytes", "operations.parquet is missing",
    )  # fmt: skip


@given(st.data())
@settings(max_examples=15)
def test_any_changed_byte_is_seen(original: Path, data: st.DataObject):
    name = data.draw(st.sampled_from(sorted(os.listdir(original))))
    raw = bytearray((original / name).read_bytes())
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(original, folder, dirs_exist_ok=True)
        (Path(folder) / name).write_bytes(raw)
        try:
            back = read_parquet(folder)
        except (CorruptStoreError, NotAMeshError, SchemaAheadError):
            return
        assert name == "manifest.json" and same(back, TINY)  # a blank of it became another


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "nonsense",
        "[" * 100_000,
        "9" * 5000,
        '{"a": "\\ud83d',
        "\0",
        " " * 2**20,
    ],
    ids=range(8),
)
def test_a_manifest_that_is_no_json_is_named(exported: Exported, text: str):
    (exported.folder / "manifest.json").write_text(text, encoding="utf-8")
    broken(exported, "manifest.json")


@pytest.mark.parametrize("value", [[], "x", 3, None, {}, {"format": "other"}, {"format": [1]}])
def test_a_manifest_of_something_else_is_not_ours(exported: Exported, value: Any):
    (exported.folder / "manifest.json").write_text(json.dumps(value), encoding="utf-8")
    with pytest.raises(NotAMeshError, match="something else"):
        read_parquet(exported.folder)


def test_a_folder_without_a_manifest_holds_no_evidence(tmp_path: Path):
    (tmp_path / "file").write_text("mine")
    for name in ("nowhere", "file", "."):
        with pytest.raises(NotAMeshError, match="no exported evidence"):
            read_parquet(tmp_path / name)


def test_a_newer_format_is_left_alone(exported: Exported):
    exported.sign(exported.manifest | {"format_version": 2})
    with pytest.raises(SchemaAheadError, match="upgrade"):
        read_parquet(exported.folder)


@pytest.mark.parametrize(
    "change",
    [
        {"mesh_id": "another"},
        {"as_of": {"valid_at": None, "recorded_at": "2031-01-01T00:00:00+00:00"}},
        {"more": float("nan")},
        {"digest": None},
    ],
)
def test_a_changed_manifest_does_not_match_its_digest(exported: Exported, change: dict[str, Any]):
    text = json.dumps(exported.manifest | change)
    (exported.folder / "manifest.json").write_text(text, encoding="utf-8")
    broken(exported, "manifest.json does not match")


@pytest.mark.parametrize(
    "change",
    [
        {"format_version": 0},
        {"format_version": "1"},
        {"format_version": True, "frames": None},
        {"mesh_id": None},
        {"frames": []},
        {"as_of": "now"},
        {"as_of": {}},
        {"as_of": {"valid_at": None, "recorded_at": 7}},
        {"as_of": {"valid_at": None, "recorded_at": "2031-01-01T00:00:00Z"}},
        {"as_of": {"valid_at": None, "recorded_at": None, "x": 1}},
    ],
)
def test_a_manifest_of_another_shape_is_refused(exported: Exported, change: dict[str, Any]):
    exported.sign(exported.manifest | change)
    broken(exported, "manifest.json")


@pytest.mark.parametrize(
    "name",
    ["../facts.parquet", "/etc/passwd", "edges.parquet", "FACTS.parquet", "facts.parquet\0", None],
)  # fmt: skip
def test_no_manifest_leads_to_another_file(exported: Exported, name: Any):
    manifest = exported.manifest
    manifest["frames"]["facts"]["file"] = name
    exported.sign(manifest)
    broken(exported, "facts.parquet has another name in the manifest")


def test_frames_that_are_unknown_or_not_listed_are_named(exported: Exported):
    manifest = exported.manifest
    manifest["frames"]["../secrets"] = manifest["frames"].pop("facts")
    manifest["frames"]["edges"] = "edges.parquet"
    exported.sign(manifest)
    broken(exported, "facts.parquet is not in", "edges.parquet is not in", "'../secrets'")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda t: t.head(1), "rows, content_digest"),
        (lambda t: t.with_columns(text=pl.lit("Gate 6 is shut")), "content_digest"),
        (lambda t: t.with_columns(version=pl.lit(1, pl.Int32)), "version as Int32"),
        (lambda t: t.with_columns(text=pl.lit(b"x")), "text as Binary"),
        (lambda t: t.with_columns(more=pl.lit("x")), "unknown column 'more'"),
        (lambda t: t.drop("text"), "text"),
        (lambda t: t.with_columns(version=pl.lit(-1, pl.Int64)), "version: too small"),
        (lambda t: pl.concat([t, t]), "repeated"),
        (lambda t: t.with_columns(status=pl.lit("lost", pl.Enum(["lost"]))), "not one of"),
    ],
)
def test_a_file_that_is_not_what_it_should_be_is_refused(
    exported: Exported, change: Callable[[pl.DataFrame], pl.DataFrame], told: str
):
    exported.replace(change(TINY.facts))
    broken(exported, "facts.parquet", told)


@pytest.mark.parametrize("raw", [b"", b"PAR1", b"PAR1" + b"\xff" * 64 + b"PAR1", b"x" * 100])
def test_a_file_that_is_no_parquet_is_refused(exported: Exported, raw: bytes):
    (exported.folder / "facts.parquet").write_bytes(raw)
    manifest = exported.manifest
    manifest["frames"]["facts"] |= {"bytes": len(raw), "sha256": sha256_hex(raw)}
    exported.sign(manifest)
    broken(exported, "facts.parquet is not a Parquet file")


def test_evidence_from_before_a_word_was_added_is_read(exported: Exported):
    # A later version may know more statuses; what was written before it still reads.
    older = TINY.facts.with_columns(pl.col("status").cast(pl.Enum(schemas.FACT_STATUSES[:3])))
    columns = exported.manifest["frames"]["facts"]["columns"]
    columns["status"] = "enum: active, superseded, retracted"
    exported.replace(older, columns=columns)
    assert same(read_parquet(exported.folder), TINY)
