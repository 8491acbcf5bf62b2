"""Bulk loads through both kinds of frame: the same answers, the same facts."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pandas as pd
import polars as pl
import pytest

from mnemes_lab import schemas
from mnemes_lab.errors import MissingColumnError, SchemaError
from mnemes_lab.mesh import loading


@pytest.fixture
def mesh(open_mesh):
    return open_mesh()


def test_a_frame_is_answered_in_kind(mesh, frame_kind):
    frame = frame_kind.make_frame(
        {
            "device": ["a", "b", "a", "", "a"],
            "text": ["pump off", "pump on", "pump off", "x", "  "],
            "namespace": ["n", None, "n", None, None],
        }
    )
    answers = mesh.load(frame, encode=False)
    outcomes = ["stored", "stored", "duplicate", "refused", "refused"]
    assert frame_kind.column(answers, "row") == [0, 1, 2, 3, 4]
    assert frame_kind.column(answers, "outcome") == outcomes
    ids = frame_kind.column(answers, "fact_id")
    assert ids[0] == ids[2] != ids[1]
    assert ids[3:] == [None, None]
    assert frame_kind.column(answers, "reason")[3] == "device is blank"
    assert list(answers.columns) == list(schemas.Answers.columns())
    assert sorted(mesh.facts()["namespace"]) == ["general", "n"]


def test_the_callers_frame_is_left_as_it_was(mesh, frame_kind):
    frame = frame_kind.make_frame({"device": ["a"], "text": ["pump off"], "subject": [None]})
    before = frame.copy() if frame_kind.name == "pandas" else frame.clone()
    mesh.load(frame, encode=False)
    assert frame.equals(before)


def test_both_kinds_give_equal_meshes(open_mesh):
    data = {
        "device": ["a", "b", "c", "a"],
        "text": ["pump off", "Düse 泵站", "x", "pump off"],
        "fact_id": ["f1", None, "f3", None],
        "subject": [None, "Düse", None, ""],
        "valid_from": [datetime(2031, 1, 1, tzinfo=UTC), None, None, None],
        "observed_at": ["2031-01-01T00:00:00+02:00", None, "2031-01-01T00:00:00.123456789z", None],
        "kind": ["observation", None, None, "preference"],
    }
    seen = []
    for name, make in (("polars", pl.DataFrame), ("pandas", pd.DataFrame)):
        mesh = open_mesh(name)
        answers = mesh.load(make(data))
        found = mesh.search(make({"query_id": ["q"], "text": ["pump düse"]}), exhaustive=True)
        frames = [answers, found.hits, found.trace, found.conflicts]
        plain = [pl.from_pandas(f) if name == "pandas" else f for f in frames]
        rows = [f.with_columns(pl.col(pl.Enum).cast(pl.String)).rows() for f in plain]
        seen.append((rows, mesh.facts().rows(), [r.to_json() for r in found.receipts]))
        assert {type(f) for f in frames} == {make}
    assert seen[0] == seen[1]


def test_a_pandas_index_means_nothing(mesh):
    frame = pd.DataFrame({"device": ["a", "b"], "text": ["one", "two"]}, index=[5, 5])
    filtered = pd.concat([frame, frame])[lambda f: f["text"] == "two"]
    assert mesh.load(frame, encode=False)["row"].tolist() == [0, 1]
    assert mesh.load(filtered, encode=False)["outcome"].tolist() == ["duplicate"] * 2


def test_category_columns_are_text_and_unused_categories_nobody(mesh, frame_kind):
    values = ["a", "b", "a"]
    if frame_kind.name == "pandas":
        agents = pd.Categorical(values, categories=["a", "b", "unused"])
        frame = pd.DataFrame({"device": agents, "text": ["x", "y", "z"]})
    else:
        agents = pl.Series(values, dtype=pl.Enum(["a", "b", "unused"]))
        frame = pl.DataFrame({"device": agents, "text": ["x", "y", "z"]})
    mesh.load(frame, encode=False)
    assert sorted(mesh.devices()["label"]) == ["a", "b"]
    assert mesh.facts().height == 3


def test_ids_that_are_numbers_are_refused_whole(mesh, frame_kind):
    """A gap would have made them floats, and the float another number."""
    frame = frame_kind.make_frame(
        {"device": ["a", "a"], "text": ["x", "y"], "fact_id": [9007199254740993, None]}
    )
    with pytest.raises(SchemaError, match="fact_id"):
        mesh.load(frame)
    assert mesh.facts().is_empty()


def test_instants_of_different_zones_in_one_column(mesh, frame_kind):
    """Read one by one, or the frame is refused: never one zone for all."""
    noon = datetime(2031, 6, 11, 12)
    values = [noon.replace(tzinfo=ZoneInfo(z)) for z in ("Asia/Tokyo", "America/Lima")] + [noon]
    frame = frame_kind.objects("valid_from", values)
    rows = {"device": ["a"] * 3, "text": ["tokyo", "lima", "nowhere"]}
    if frame_kind.name == "pandas":
        frame = frame.assign(**rows)
    else:
        frame = frame.with_columns(**{k: pl.Series(v) for k, v in rows.items()})
    answers = mesh.load(frame, encode=False)
    assert frame_kind.column(answers, "outcome") == ["stored", "stored", "refused"]
    assert "no offset" in frame_kind.column(answers, "reason")[2]
    kept = dict(mesh.facts().select("text", "valid_from").iter_rows())
    assert kept["tokyo"] == datetime(2031, 6, 11, 3, tzinfo=UTC)
    assert kept["lima"] == datetime(2031, 6, 11, 17, tzinfo=UTC)


def test_a_column_that_is_all_missing_reads_as_absent(mesh, frame_kind):
    frame = frame_kind.make_frame(
        {"device": ["a"], "text": ["x"], "subject": [None], "expires_at": [None], "kind": [None]}
    )
    assert frame_kind.column(mesh.load(frame, encode=False), "outcome") == ["stored"]


def test_records_and_frames_are_read_alike(open_mesh, frame_kind):
    rows = [
        {"device": "a", "text": "x", "valid_from": "2031-01-01T00:00:00Z"},
        {"device": "a", "text": "x", "valid_from": "soon"},
        {"device": "a", "text": "", "valid_from": None},
    ]
    by_record = open_mesh("records").load_records(rows, encode=False)
    frame = frame_kind.make_frame({k: [row[k] for row in rows] for k in rows[0]})
    by_frame = open_mesh("frame").load(frame, encode=False)
    for name in ("outcome", "reason", "fact_id"):
        assert frame_kind.column(by_frame, name) == by_record[name].to_list()


def test_a_load_in_several_batches_is_one_answer(mesh, monkeypatch):
    monkeypatch.setattr(loading, "LOAD_BATCH", 7)
    n = 23
    texts = [f"note {i % 20}" if i != 9 else "" for i in range(n)]
    frame = pl.DataFrame({"device": [f"d{i % 3}" for i in range(n)], "text": texts})
    answers = mesh.load(frame, encode=False)
    assert answers["row"].to_list() == list(range(n))
    assert answers["outcome"].to_list().count("refused") == 1
    assert answers["outcome"][9] == "refused"
    assert mesh.facts().height == (answers["outcome"] == "stored").sum()
    again = mesh.load(frame, encode=False)
    assert set(again["outcome"]) == {"duplicate", "refused"}
    stored = answers.filter(pl.col("outcome") == "stored")
    assert again.filter(pl.col("row").is_in(stored["row"].to_list()))["fact_id"].equals(
        stored["fact_id"]
    )


def test_loading_without_encoding_leaves_it_to_the_next_search(mesh):
    frame = pl.DataFrame({"device": ["a"], "text": ["pump off"]})
    mesh.load(frame, encode=False)
    assert mesh.cache.stats["entries"] == 0
    assert mesh.search("pump").texts() == ["pump off"]
    assert mesh.cache.stats["entries"] > 0


def test_missing_and_unknown_columns_are_named(mesh, frame_kind):
    with pytest.raises(MissingColumnError, match=r"'device', 'text'.*Hint"):
        mesh.load(frame_kind.make_frame({"fact": ["x"]}))
    with pytest.raises(SchemaError, match=r"device_id.*Hint"):
        mesh.load(frame_kind.make_frame({"device": ["a"], "text": ["x"], "device_id": ["y"]}))
    assert mesh.devices().is_empty()


def test_facts_frames_travel_from_mesh_to_mesh(open_mesh, frame_kind):
    """What one mesh shows, another one stores under the same ids."""
    source, target = open_mesh("source"), open_mesh("target", seed=8)
    labels = dict(source.devices().select("device_id", "label").iter_rows())
    source.load(
        pl.DataFrame(
            {"device": ["a", "b"], "text": ["pump off", "pump on"], "subject": ["pump", None]}
        ),
        encode=False,
    )
    labels = dict(source.devices().select("device_id", "label").iter_rows())
    columns = ["fact_id", "text", "namespace", "subject", "kind", "sensitivity", "valid_from"]
    shown = source.facts().with_columns(device=pl.col("device_id").replace_strict(labels))
    frame = shown.select("device", *columns)
    if frame_kind.name == "pandas":
        frame = frame.with_columns(pl.col(pl.Enum).cast(pl.String)).to_pandas()
    assert frame_kind.column(target.load(frame, encode=False), "outcome") == ["stored"] * 2
    assert target.facts().select(columns).equals(source.facts().select(columns))
