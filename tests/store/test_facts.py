"""Facts: every row is answered, nothing is overwritten, and the past stays as it was."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from mnemes_lab import AsOf, LabClock, Mesh, schemas
from mnemes_lab.clock import from_us, to_us
from mnemes_lab.digest import sha256_hex
from mnemes_lab.errors import (
    ConflictError,
    DeviceNotActiveError,
    FactNotFoundError,
    InputError,
    MissingColumnError,
    SchemaError,
)
from mnemes_lab.store.changes import supersede
from mnemes_lab.store.held import content_key
from mnemes_lab.store.rules import MAX_TEXT_BYTES


@pytest.fixture
def mesh(open_mesh):
    return open_mesh()


@pytest.fixture(scope="module")
def unused(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mesh]:
    """A mesh for tests after which no fact is stored."""
    with Mesh.open(tmp_path_factory.mktemp("unused"), seed=7, encoder="hash:64") as mesh:
        yield mesh


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mesh]:
    """A mesh for tests that mind nobody else's facts."""
    with Mesh.open(tmp_path_factory.mktemp("shared"), seed=7, encoder="hash:64") as mesh:
        yield mesh


def load(mesh: Mesh, *rows: dict[str, Any] | str) -> list[dict[str, Any]]:
    """Store records on device `a` unless they say otherwise; answers as rows."""
    full = [{"device": "a", **({"text": r} if isinstance(r, str) else r)} for r in rows]
    return mesh.load_records(full, encode=False).to_dicts()


def current(mesh: Mesh, **options: Any) -> dict[str, str]:
    """Text by id of the facts that are current."""
    frame = mesh.facts(**options).filter(pl.col("status") == "active")
    return dict(frame.select("fact_id", "text").iter_rows())


# --- adding ----------------------------------------------------------------------------------
def test_what_is_stored_comes_back_whole(mesh):
    when = datetime(2031, 6, 11, 9, 30, tzinfo=UTC)
    row = {
        "text": "  Düse 泵站\u2028 said 'on'; -- \\ \x1b[0m \U0001f469\U0001f3fd\u200d\U0001f527 ",
        "fact_id": "f:1/ñ",
        "namespace": "team:blue/2031",
        "subject": "Düse",
        "predicate": "is",
        "object": "",
        "source": "log\n2",
        "kind": "observation",
        "sensitivity": "restricted",
        "observed_at": when,
        "valid_from": when,
        "valid_to": when + timedelta(microseconds=1),
        "expires_at": "9999-12-31T23:59:59.999999Z",
    }
    (answer,) = load(mesh, row)
    assert answer["outcome"] == "stored"
    kept = mesh.facts().row(0, named=True)
    expected = row | {"expires_at": datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)}
    assert {name: kept[name] for name in row} == expected
    assert kept["content_digest"] == sha256_hex(row["text"])
    assert (kept["status"], kept["version"], kept["superseded_by"]) == ("active", 1, None)
    assert schemas.Facts.is_valid(mesh.facts())


def test_defaults_are_filled_in(mesh):
    load(mesh, "pump off")
    kept = mesh.facts().row(0, named=True)
    assert [kept[n] for n in ("namespace", "kind", "sensitivity")] == [
        "general",
        "durable_fact",
        "internal",
    ]


def test_every_row_is_answered_in_its_place(mesh):
    answers = load(
        mesh,
        "pump off",
        "",
        "pump off",
        {"text": "x", "device": "b", "fact_id": "f1"},
        {"text": "y", "device": "b", "fact_id": "f1"},
        {"text": "z", "valid_from": "yesterday"},
        {"text": "valve", "kind": "rumour"},
        {"text": "w", "device": " "},
    )
    assert [a["row"] for a in answers] == list(range(8))
    assert [a["outcome"] for a in answers] == [
        "stored", "refused", "duplicate", "stored", "refused", "refused", "refused", "refused",
    ]  # fmt: skip
    told = [a["reason"] for a in answers]
    words = {1: "blank", 2: "repeats another row", 4: "taken by a fact with other"}
    words |= {5: "RFC 3339", 6: "unknown kind. Hint", 7: "device is blank"}
    for row, why in words.items():
        assert why in told[row]
    assert answers[2]["fact_id"] == answers[0]["fact_id"]
    assert [told[0], told[3]] == [None, None]
    assert sorted(current(mesh).values()) == ["pump off", "x"]
    frame = mesh.load_records([{"device": "a", "text": "q"}], encode=False)
    assert schemas.Answers.is_valid(frame)


def test_the_same_content_is_one_fact(mesh):
    (first,) = load(mesh, "pump off")
    again = load(mesh, "pump off", "pump off")
    assert [a["outcome"] for a in again] == ["duplicate", "duplicate"]
    assert {a["fact_id"] for a in again} == {first["fact_id"]}
    others = load(
        mesh,
        {"text": "pump off", "namespace": "n"},
        {"text": "pump off", "subject": "pump"},
        {"text": "pump off", "object": "off"},
        {"text": "pump off", "valid_from": "2031-01-01T00:00:00Z"},
        {"text": "pump off", "valid_to": "2031-01-01T00:00:00Z"},
        {"text": "pump off", "device": "b"},
        "Pump off",
        "pump off ",
    )
    assert {a["outcome"] for a in others} == {"stored"}
    assert len({a["fact_id"] for a in others}) == 8


def test_no_two_fields_run_together(mesh):
    """What makes facts the same is a list of fields, not their joined text."""
    answers = load(
        mesh,
        {"text": "t", "subject": "ab", "predicate": "c"},
        {"text": "t", "subject": "a", "predicate": "bc"},
        {"text": "t", "subject": "abc"},
        {"text": "t", "predicate": "abc"},
        {"text": "t", "subject": ""},
        {"text": "t", "subject": "null"},
        {"text": "t"},
    )
    assert {a["outcome"] for a in answers} == {"stored"}


def test_a_brought_id_is_a_fact_of_its_own(mesh):
    load(mesh, "pump off")
    answers = load(
        mesh, {"text": "pump off", "fact_id": "mine"}, {"text": "pump off", "fact_id": "yours"}
    )
    assert [a["outcome"] for a in answers] == ["stored", "stored"]
    (again,) = load(mesh, {"text": "pump off", "fact_id": "mine"})
    assert (again["outcome"], again["fact_id"]) == ("duplicate", "mine")
    for row, words in (
        ({"text": "pump on"}, "other content"),
        ({"text": "pump off", "namespace": "n"}, "other content"),
        ({"text": "pump off", "device": "b"}, "another device"),
    ):
        (refused,) = load(mesh, {**row, "fact_id": "mine"})
        assert refused["outcome"] == "refused"
        assert "'mine' is taken" in refused["reason"]
        assert words in refused["reason"]
        assert "Hint" in refused["reason"]
    assert len(current(mesh)) == 3


def test_a_conflict_within_one_load_refuses_the_later_row(mesh):
    answers = load(
        mesh,
        {"text": "one", "fact_id": "f"},
        {"text": "one", "fact_id": "f"},
        {"text": "two", "fact_id": "f"},
        {"text": "one", "fact_id": "f", "device": "b"},
    )
    assert [a["outcome"] for a in answers] == ["stored", "duplicate", "refused", "refused"]
    assert current(mesh) == {"f": "one"}


@pytest.mark.parametrize(
    ("fact_id", "fine"),
    [
        ("x" * 200, True),
        ("x" * 201, False),
        ("泵" * 200, True),
        ("../../etc", True),
        ("a b\u00a0c", True),
        ("", False),
        ("  ", False),
        ("\u200b", False),
        ("a\nb", False),
        ("a\x00b", False),
        ("a\x7f", False),
    ],
)
def test_which_ids_may_be_brought(shared, fact_id, fine):
    (answer,) = load(shared, {"text": "x", "fact_id": fact_id})
    assert answer["outcome"] == ("stored" if fine else "refused")
    if fine:
        assert shared.history(fact_id)["text"].to_list() == ["x"]
    else:
        assert "fact_id" in answer["reason"]


def test_a_text_may_be_a_megabyte_and_no_more(mesh):
    long, longer = "é" * (MAX_TEXT_BYTES // 2), "é" * (MAX_TEXT_BYTES // 2) + "x"
    answers = load(mesh, long, longer, "short")
    assert [a["outcome"] for a in answers] == ["stored", "refused", "stored"]
    assert "1048576 bytes" in answers[1]["reason"]
    assert set(current(mesh).values()) == {long, "short"}


def test_a_validity_that_ends_before_it_begins_is_refused(mesh):
    early, late = "2031-01-01T00:00:00+02:00", "2031-01-01T00:00:00Z"
    answers = load(
        mesh,
        {"text": "x", "valid_from": late, "valid_to": early},
        {"text": "x", "valid_from": early, "valid_to": late},
        {"text": "y", "valid_from": late, "valid_to": late},
    )
    assert [a["outcome"] for a in answers] == ["refused", "stored", "stored"]
    assert "valid_to lies before valid_from" in answers[0]["reason"]


def test_unknown_and_missing_columns_refuse_the_frame(mesh):
    with pytest.raises(MissingColumnError, match="'text'"):
        mesh.load_records([{"device": "a"}])
    with pytest.raises(SchemaError, match="trust_me"):
        mesh.load_records([{"device": "a", "text": "x", "trust_me": "1"}])
    assert mesh.devices().is_empty()


def test_no_rows_are_no_answers(mesh):
    assert mesh.load_records([]).is_empty()


@pytest.mark.parametrize("status", ["quarantine", "revoke"])
def test_a_device_that_is_shut_out_takes_no_facts(mesh, status):
    (answer,) = load(mesh, "pump off")
    getattr(mesh.device("a"), status)()
    refused = load(mesh, "pump on", {"text": "pump on", "device": "b"})
    assert [a["outcome"] for a in refused] == ["refused", "stored"]
    assert f"device is {status}d"[:12] in refused[0]["reason"]
    for change in (
        lambda: mesh.update(answer["fact_id"], text="x"),
        lambda: mesh.supersede(answer["fact_id"], "x"),
        lambda: mesh.retract(answer["fact_id"]),
    ):
        with pytest.raises(DeviceNotActiveError):
            change()


def test_an_id_that_no_device_has_registers_nothing(mesh):
    stranger = "00000000-0000-4000-8000-000000000001"
    (answer,) = load(mesh, {"text": "x", "device": stranger})
    assert (answer["outcome"], mesh.devices().height) == ("refused", 0)
    assert "unknown device id" in answer["reason"]


@pytest.mark.parametrize("spelling", ["{}", "urn:uuid:{}", "{{{}}}"])
@pytest.mark.parametrize("change", [str.lower, str.upper])
def test_any_spelling_of_an_id_names_its_device(mesh, spelling, change):
    device_id = mesh.device("a").device_id
    (answer,) = load(mesh, {"text": "x", "device": change(spelling.format(device_id))})
    assert (answer["outcome"], answer["device_id"]) == ("stored", device_id)
    assert mesh.devices().height == 1


def test_a_label_that_two_devices_share_is_refused(mesh):
    from mnemes_lab.store.control import register_device

    ids = [register_device(mesh.store, "twin")[0] for _ in range(2)]
    answers = load(mesh, {"text": "x", "device": "twin"}, {"text": "x", "device": ids[1]})
    assert [a["outcome"] for a in answers] == ["refused", "stored"]
    assert "use its id" in answers[0]["reason"]
    with pytest.raises(ConflictError, match=r"2 devices are labelled 'twin'"):
        mesh.device("twin")


def test_refused_rows_register_no_device(mesh):
    load(mesh, {"text": "", "device": "new"}, {"text": "x", "device": "a\nb"})
    assert "a\nb" not in mesh.devices()["label"].to_list()


# --- changing --------------------------------------------------------------------------------
def test_an_update_is_a_new_version_of_the_same_fact(mesh):
    (answer,) = load(mesh, {"text": "pump off", "subject": "pump", "source": "log"})
    fact_id = answer["fact_id"]
    assert mesh.update(fact_id, text="pump on") == 2
    assert mesh.update(fact_id, valid_to="2031-01-01T00:00:00Z") == 3
    kept = mesh.facts().row(0, named=True)
    assert (kept["fact_id"], kept["text"], kept["version"]) == (fact_id, "pump on", 3)
    assert (kept["subject"], kept["source"]) == ("pump", "log")  # what is not said stays
    history = mesh.history(fact_id)
    assert history["text"].to_list() == ["pump off", "pump on", "pump on"]
    assert history["status"].to_list() == ["superseded", "superseded", "active"]
    assert history["closed_at"].to_list()[:2] == history["recorded_at"].to_list()[1:]
    assert schemas.FactHistory.is_valid(history)


def test_a_superseded_fact_gives_way_to_its_successor(mesh):
    (answer,) = load(
        mesh, {"text": "pump off", "subject": "pump", "source": "log", "namespace": "n"}
    )
    first = answer["fact_id"]
    second = mesh.supersede(first, "pump on", reason="seen", source="eyes")
    assert current(mesh) == {second: "pump on"}
    old = mesh.facts().filter(pl.col("fact_id") == first).row(0, named=True)
    assert (old["status"], old["superseded_by"]) == ("superseded", second)
    new = mesh.facts().filter(pl.col("fact_id") == second).row(0, named=True)
    assert [new[n] for n in ("namespace", "subject", "source", "version")] == [
        "n",
        "pump",
        "eyes",
        1,
    ]
    for one in (first, second):
        history = mesh.history(one)
        assert history.select("fact_id", "text", "reason").rows() == [
            (first, "pump off", "seen"),
            (second, "pump on", None),
        ]


def test_what_was_replaced_names_its_current_head(mesh):
    (answer,) = load(mesh, "one")
    first = answer["fact_id"]
    second = mesh.supersede(first, "two")
    third = mesh.supersede(second, "three")
    for change in (
        lambda f: mesh.supersede(f, "x"),
        lambda f: mesh.update(f, text="x"),
        mesh.retract,
    ):
        for old in (first, second):
            with pytest.raises(ConflictError, match=rf"superseded already.*{third}"):
                change(old)
    mesh.retract(third, reason="wrong")
    with pytest.raises(ConflictError, match="retracted already"):
        mesh.retract(first)
    assert current(mesh) == {}
    assert mesh.history(second)["status"].to_list() == ["superseded", "superseded", "retracted"]
    assert mesh.history(first)["reason"].to_list()[-1] == "wrong"


def test_what_does_not_exist_is_named(mesh):
    for use in (
        lambda: mesh.update("nope", text="x"),
        lambda: mesh.supersede("nope", "x"),
        lambda: mesh.retract("nope"),
        lambda: mesh.history("nope"),
    ):
        with pytest.raises(FactNotFoundError, match=r"Found 'nope'.*Hint"):
            use()


@pytest.mark.parametrize(
    "changes", [{"text": " "}, {"text": None}, {"kind": "rumour"}, {"namespace": ""},
                {"valid_from": "soon"}, {"text": "a\0b"}, {"valid_from": datetime(2031, 1, 1)}],
)  # fmt: skip
def test_a_refused_change_changes_nothing(mesh, changes):
    (answer,) = load(mesh, "pump off")
    before = mesh.facts()
    with pytest.raises(InputError, match="refused"):
        mesh.update(answer["fact_id"], **changes)
    with pytest.raises(InputError, match="refused"):
        mesh.supersede(answer["fact_id"], changes.pop("text", "pump on"), **changes)
    assert mesh.facts().equals(before)
    assert mesh.history(answer["fact_id"]).height == 1
    for name in ("trust", "device_id", "status"):  # a fact stays on its device
        with pytest.raises(SchemaError, match=rf"{name}.*Hint"):
            mesh.update(answer["fact_id"], **{name: "1"})


def test_a_change_into_a_fact_that_is_held_already_changes_nothing(mesh):
    one, two = load(mesh, "one", "two")
    before = mesh.facts()
    for change in (
        lambda: mesh.update(one["fact_id"], text="two"),
        lambda: mesh.supersede(one["fact_id"], "two"),
    ):
        with pytest.raises(ConflictError, match=two["fact_id"]):
            change()
    assert mesh.facts().equals(before)
    assert set(mesh.check().filter(pl.col("outcome") == "broken")["item"]) == set()
    load(mesh, "three")  # and the mesh goes on


def test_a_successor_may_bring_its_id_but_not_a_taken_one(mesh):
    one, two = load(mesh, "one", {"text": "two", "device": "b"})
    with pytest.raises(ConflictError, match="taken"):
        supersede(mesh.store, one["fact_id"], {"text": "x", "fact_id": two["fact_id"]})
    assert supersede(mesh.store, one["fact_id"], {"text": "x", "fact_id": "mine"}) == "mine"
    assert current(mesh)["mine"] == "x"


def test_a_retracted_fact_is_not_revived_by_loading_it_again(mesh):
    load(mesh, {"text": "pump off", "fact_id": "mine"})
    mesh.retract("mine")
    (again,) = load(mesh, {"text": "pump off", "fact_id": "mine"})
    assert (again["outcome"], again["fact_id"]) == ("duplicate", "mine")
    assert current(mesh) == {}
    assert mesh.facts()["status"].to_list() == ["retracted"]


def test_a_repeat_never_removes_the_original(mesh):
    for _ in range(3):
        load(mesh, "Rosa prefers night ferries")
    assert list(current(mesh).values()) == ["Rosa prefers night ferries"]
    (fact_id,) = current(mesh)
    newer = mesh.supersede(fact_id, "Rosa takes the train")
    assert current(mesh) == {newer: "Rosa takes the train"}
    load(mesh, "Rosa takes the train")
    assert current(mesh) == {newer: "Rosa takes the train"}
    assert mesh.history(newer).height == 2


# --- expiry ----------------------------------------------------------------------------------
def test_a_fact_expires_and_may_then_be_told_anew(open_mesh):
    clock = LabClock("2031-01-01T00:00:00Z", step_ms=1)
    mesh = open_mesh(clock=clock)
    agent = mesh.agent("a")
    first = agent.remember("pump off", ttl=timedelta(hours=1))
    assert mesh.facts()["status"].to_list() == ["active"]
    assert agent.remember("pump off", ttl=timedelta(hours=2)) == first
    assert agent.recall("pump").texts() == ["pump off"]
    clock.forward_to(to_us(mesh.facts()["expires_at"].item()))
    assert mesh.facts()["status"].to_list() == ["expired"]
    assert agent.recall("pump").texts() == []
    second = agent.remember("pump off")
    assert second != first
    assert agent.recall("pump").texts() == ["pump off"]
    assert dict(mesh.facts().select("fact_id", "status").iter_rows()) == {
        first: "expired",
        second: "active",
    }


def test_a_ttl_is_above_zero_and_alone(mesh):
    agent = mesh.agent("a")
    for ttl in (timedelta(0), timedelta(seconds=-1)):
        with pytest.raises(InputError, match="ttl"):
            agent.remember("x", ttl=ttl)
    with pytest.raises(InputError, match="ttl"):
        agent.remember("x", ttl=timedelta(1), expires_at="2031-01-01T00:00:00Z")


@pytest.mark.parametrize("value", [1, "1", 1.5, True, "2031", [1]])
def test_no_number_slips_in_as_an_expiry(unused, value, frame_kind):
    """One rule for every door: refused by name."""
    (answer,) = load(unused, {"text": "x", "expires_at": value})
    assert (answer["outcome"], "expires_at" in answer["reason"]) == ("refused", True)
    with pytest.raises(InputError, match="expires_at"):
        unused.agent("a").remember("x", expires_at=value)
    frame = frame_kind.make_frame({"device": ["a"], "text": ["x"], "expires_at": [value]})
    try:
        assert frame_kind.column(unused.load(frame), "outcome") == ["refused"]
    except SchemaError as error:
        assert "expires_at" in str(error)
    assert unused.facts().is_empty()


# --- two clocks ------------------------------------------------------------------------------
def test_intervals_are_half_open(mesh):
    begin, end = datetime(2031, 1, 1, tzinfo=UTC), datetime(2031, 2, 1, tzinfo=UTC)
    tick = timedelta(microseconds=1)
    load(
        mesh,
        {"text": "both", "fact_id": "both", "valid_from": begin, "valid_to": end},
        {"text": "from", "fact_id": "from", "valid_from": begin},
        {"text": "to", "fact_id": "to", "valid_to": end},
        {"text": "always", "fact_id": "always"},
        {"text": "never", "fact_id": "never", "valid_from": begin, "valid_to": begin},
    )
    for at, expected in (
        (begin - tick, {"to", "always"}),
        (begin, {"both", "from", "to", "always"}),
        (end - tick, {"both", "from", "to", "always"}),
        (end, {"from", "always"}),
    ):
        assert set(mesh.facts(as_of=AsOf(valid_at=at))["fact_id"]) == expected
        assert (
            set(
                mesh.search("both from to always never", exhaustive=True, as_of=AsOf(at)).hits[
                    "fact_id"
                ]
            )
            == expected
        )


def test_an_open_axis_is_not_looked_at(mesh):
    """Without a point in valid time validity does not count; without any `AsOf` it is now."""
    load(
        mesh,
        {"text": "pump one", "fact_id": "past", "valid_to": "1980-01-01T00:00:00Z"},
        {"text": "pump two", "fact_id": "future", "valid_from": "2090-01-01T00:00:00Z"},
        {"text": "pump six", "fact_id": "early", "valid_to": "1960-01-01T00:00:00Z"},
        {"text": "pump ten", "fact_id": "now", "valid_from": "2000-01-01T00:00:00Z"},
    )
    recorded = AsOf(recorded_at=from_us(mesh.store.now()))
    for as_of, expected in (
        (AsOf(), {"past", "future", "early", "now"}),
        (recorded, {"past", "future", "early", "now"}),
        (AsOf(valid_at="2095-01-01T00:00:00Z"), {"future", "now"}),
        (AsOf(valid_at="1970-01-01T00:00:00Z"), {"past"}),
    ):
        assert set(mesh.facts(as_of=as_of)["fact_id"]) == expected
        found = mesh.search("pump", exhaustive=True, as_of=as_of)
        assert set(found.hits["fact_id"]) == expected
    assert mesh.search("pump", exhaustive=True).hits["fact_id"].to_list() == ["now"]


def test_record_time_is_half_open_too(mesh):
    (answer,) = load(mesh, "one")
    fact_id = answer["fact_id"]
    mesh.update(fact_id, text="two")
    mesh.retract(fact_id)
    history = mesh.history(fact_id)
    tick = timedelta(microseconds=1)
    begun, changed = history["recorded_at"]
    gone = history["closed_at"][1]
    for at, texts in (
        (begun - tick, []),
        (begun, ["one"]),
        (changed - tick, ["one"]),
        (changed, ["two"]),
        (gone - tick, ["two"]),
        (gone, []),
    ):
        as_of = AsOf(recorded_at=at)
        assert mesh.facts(as_of=as_of)["text"].to_list() == texts
        assert mesh.search("one two", as_of=as_of).texts() == texts


def test_a_naive_point_is_refused_everywhere(mesh):
    naive = datetime(2031, 1, 1)
    for as_of in (AsOf(valid_at=naive), AsOf(recorded_at=naive), AsOf(valid_at="2031-01-01")):
        with pytest.raises(InputError, match="Hint"):
            mesh.facts(as_of=as_of)
        with pytest.raises(InputError, match="Hint"):
            mesh.search("x", as_of=as_of)


@settings(max_examples=4, phases=[Phase.explicit, Phase.generate])
@given(seed=st.integers(0, 2**32))
def test_a_past_answer_never_changes(seed):
    """Against a model that is nothing but a dictionary of what is current."""
    rng = random.Random(seed)
    with (
        tempfile.TemporaryDirectory() as folder,
        Mesh.open(folder, seed=seed, encoder="hash:16") as mesh,
    ):
        model: dict[str, str] = {}
        past: list[tuple[AsOf, dict[str, str]]] = []
        for step in range(10):
            action = rng.choice(["load", "update", "supersede", "retract"]) if model else "load"
            text = f"text {step}"
            if action == "load":
                rows = [{"text": f"{text} {i}", "device": rng.choice("ab")} for i in range(3)]
                model |= {
                    a["fact_id"]: r["text"] for a, r in zip(load(mesh, *rows), rows, strict=True)
                }
            else:
                fact_id = rng.choice(sorted(model))
                if action == "update":
                    mesh.update(fact_id, text=text)
                    model[fact_id] = text
                elif action == "supersede":
                    model[mesh.supersede(fact_id, text)] = text
                    del model[fact_id]
                else:
                    mesh.retract(fact_id)
                    del model[fact_id]
            past.append((AsOf(recorded_at=from_us(mesh.store.now())), dict(model)))
            assert current(mesh) == model
        for as_of, then in past:
            assert current(mesh, as_of=as_of) == then
        assert set(mesh.check()["outcome"]) <= {"ok", "pending"}


_VALUE = (
    st.none() | st.text(max_size=4) | st.integers(-10, 10) | st.sampled_from(["-", "1=", "#1;"])
)


@given(st.lists(_VALUE, min_size=6, max_size=6), st.lists(_VALUE, min_size=6, max_size=6))
def test_two_contents_have_one_key_only_when_they_are_equal(one, other):
    same = content_key(b"", one) == content_key(b"", other)
    assert same == (one == other)
