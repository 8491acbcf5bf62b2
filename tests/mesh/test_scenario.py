"""The shipped scenarios keep their promises, and a damaged or unknown one is refused."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from mnemes_lab import schemas
from mnemes_lab.digest import sha256_hex
from mnemes_lab.errors import ScenarioError
from mnemes_lab.frames import kind_of
from mnemes_lab.mesh import scenario
from mnemes_lab.mesh.scenario import Scenario, data_folder, load_scenario, scenario_names

NAMES = ["health", "home", "news", "supply", "travel"]


@pytest.fixture(scope="module", params=NAMES)
def world(request: pytest.FixtureRequest) -> Scenario:
    """Each scenario, loaded once."""
    return load_scenario(request.param)


@pytest.fixture
def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the data folder that the loader reads instead of the real one."""
    target = tmp_path / "data"
    shutil.copytree(data_folder(), target)
    monkeypatch.setattr(scenario, "data_folder", lambda: target)
    return target


def _by_id(world: Scenario) -> dict[str, dict[str, Any]]:
    return {row["fact_id"]: row for row in world.facts.iter_rows(named=True)}


def _pairs(world: Scenario, label: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    fact = _by_id(world)
    rows = world.pairs.filter(pl.col("label") == label)
    return [(fact[a], fact[b]) for a, b in rows.select("existing_id", "incoming_id").iter_rows()]


def test_five_scenarios_are_known() -> None:
    assert scenario_names() == NAMES


def test_card_and_sizes(world: Scenario) -> None:
    assert world.title.strip()
    assert 2 <= len(re.findall(r"[.!?](?:\s|$)", world.story)) <= 4
    labels = world.devices["label"].to_list()
    assert 2 <= len(labels) <= 4 and len(set(labels)) == len(labels)
    counts = Counter(world.facts["device"].to_list())
    assert sorted(counts) == labels
    assert min(counts.values()) >= 40
    assert world.queries.height >= 15
    labelled = Counter(world.pairs["label"].to_list())
    assert labelled["contradiction"] >= 8 and labelled["look_alike"] >= 10


def test_facts_are_well_formed(world: Scenario) -> None:
    facts = world.facts
    assert facts["fact_id"].is_unique().all()
    assert facts["fact_id"].to_list() == sorted(facts["fact_id"].to_list())
    assert all(
        row["fact_id"].startswith(f"{world.name}-{row['device']}-")
        for row in facts.iter_rows(named=True)
    )
    texts = facts["text"].str.strip_chars().str.to_lowercase()
    assert texts.is_unique().all() and (texts.str.len_chars() > 0).all()
    for column in ("namespace", "subject", "predicate", "kind", "sensitivity"):
        assert facts[column].null_count() == 0
    assert facts.schema["valid_from"] == pl.Datetime("us", "UTC")
    assert facts.filter(pl.col("valid_from") >= pl.col("valid_to")).is_empty()
    years = pl.concat([facts[c] for c in ("observed_at", "valid_from", "valid_to")]).drop_nulls()
    assert set(years.dt.year().to_list()) == {2031}
    assert not facts["text"].str.contains(r"^[\x00-\x7f]*$").all()


def test_questions_and_gold(world: Scenario) -> None:
    schemas.Queries.validate(world.queries.drop("asker"))
    schemas.Relevance.validate(world.relevance)
    known = set(world.queries["query_id"])
    assert set(world.relevance["query_id"]) <= known
    assert len(known - set(world.relevance["query_id"])) >= 2
    assert set(world.relevance["fact_id"]) <= set(world.facts["fact_id"])
    assert set(world.relevance["gain"]) == {1.0, 0.5}
    assert set(world.queries["asker"].drop_nulls()) <= set(world.devices["label"])
    assert world.queries["device_id"].null_count() == world.queries.height
    assert world.queries["text"].is_unique().all()
    assert set(world.queries["text"]).isdisjoint(world.facts["text"])


def test_every_device_answers_some_question(world: Scenario) -> None:
    owner = {fact_id: row["device"] for fact_id, row in _by_id(world).items()}
    best = world.relevance.filter(pl.col("gain") == 1.0)["fact_id"]
    assert sorted({owner[fact_id] for fact_id in best}) == world.devices["label"].to_list()


def test_pairs_name_two_facts_once(world: Scenario) -> None:
    ids = set(world.facts["fact_id"])
    pairs = list(world.pairs.select("existing_id", "incoming_id").iter_rows())
    assert all(a in ids and b in ids and a != b for a, b in pairs)
    assert len({frozenset(pair) for pair in pairs}) == len(pairs)
    assert (world.pairs["why"].str.len_chars() > 0).all()


def test_contradictions_are_about_one_thing_with_two_values(world: Scenario) -> None:
    for a, b in _pairs(world, "contradiction"):
        assert (a["subject"], a["predicate"]) == (b["subject"], b["predicate"])
        assert a["object"] != b["object"] and a["object"] and b["object"]
        assert a["device"] != b["device"]
        starts = [x["valid_from"] for x in (a, b) if x["valid_from"]]
        ends = [x["valid_to"] for x in (a, b) if x["valid_to"]]
        assert not starts or not ends or max(starts) < min(ends)


def test_contradictions_are_of_many_kinds(world: Scenario) -> None:
    reasons = world.pairs.filter(pl.col("label") == "contradiction")["why"].to_list()
    kinds = {why.partition(":")[0] for why in reasons}
    assert {"number with unit", "time of day", "date", "negation", "exclusive class"} <= kinds
    assert "lower-case value" in kinds and kinds & {"state", "opposite"}


def test_look_alikes_are_of_many_kinds(world: Scenario) -> None:
    reasons = world.pairs.filter(pl.col("label") == "look_alike")["why"].to_list()
    kinds = {why.partition(":")[0] for why in reasons}
    assert kinds >= {
        "double negation",
        "history",
        "hypothetical",
        "list",
        "negation inside a word",
        "other period",
        "other subject",
        "refinement",
        "reminder",
        "scope",
        "similar name",
        "spelling",
        "unit",
    }


def test_no_attribute_has_two_values_outside_the_listed_pairs(world: Scenario) -> None:
    listed = {frozenset(pair) for pair in world.pairs.select("existing_id", "incoming_id").rows()}
    groups: dict[tuple[str, str], list[str]] = {}
    for row in world.facts.iter_rows(named=True):
        groups.setdefault((row["subject"], row["predicate"]), []).append(row["fact_id"])
    unlisted = [
        (a, b)
        for ids in groups.values()
        for i, a in enumerate(ids)
        for b in ids[i + 1 :]
        if frozenset((a, b)) not in listed
    ]
    assert unlisted == []


def test_manifest_matches_the_files() -> None:
    folder = data_folder()
    manifest = json.loads((folder / scenario.MANIFEST).read_text("utf-8"))
    paths = [row["path"] for row in manifest["files"]]
    assert {f"scenarios/{name}/{file}" for name in NAMES for file in scenario.FILES} <= set(paths)
    assert len(set(paths)) == len(paths) and isinstance(manifest["made"], list)
    for row in manifest["files"]:
        assert sha256_hex((folder / row["path"]).read_bytes()) == row["sha256"]
        assert row["licence"] and row["maker"] and row["about"] and row["rows"] > 0


def test_manifest_script_rebuilds_the_manifest_and_keeps_what_is_made(copied: Path) -> None:
    script = copied / "make_manifest.py"
    if not script.exists():
        pytest.skip("the script is not part of an installed package")
    spec = importlib.util.spec_from_file_location("make_manifest", script)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    target = copied / scenario.MANIFEST
    stored = json.loads(target.read_text("utf-8"))
    assert module.build(copied) == stored
    target.write_text(json.dumps({"files": [], "made": [{"name": "other"}]}), "utf-8")
    assert module.build(copied) == {"files": stored["files"], "made": [{"name": "other"}]}


@pytest.mark.parametrize("name", NAMES)
def test_loading_twice_gives_the_same_frames(name: str) -> None:
    first, second = load_scenario(name), load_scenario(name)
    for part in ("devices", "facts", "queries", "relevance", "pairs"):
        frame = getattr(first, part)
        assert kind_of(frame) == "polars"
        assert frame.equals(getattr(second, part))


def test_order_does_not_depend_on_the_order_of_lines(copied: Path) -> None:
    before = load_scenario("home")
    manifest = json.loads((copied / scenario.MANIFEST).read_text("utf-8"))
    for row in manifest["files"]:
        if row["path"].startswith("scenarios/home/") and row["path"].endswith(".jsonl"):
            file = copied / row["path"]
            lines = file.read_text("utf-8").split("\n")[:-1]
            file.write_text("\n".join(reversed(lines)) + "\n", "utf-8", newline="\n")
            row["sha256"] = sha256_hex(file.read_bytes())
    (copied / scenario.MANIFEST).write_text(json.dumps(manifest), "utf-8")
    after = load_scenario("home")
    assert after.facts.equals(before.facts) and after.relevance.equals(before.relevance)
    assert after.queries.equals(before.queries) and after.pairs.equals(before.pairs)


@pytest.mark.parametrize(("asked", "meant"), [("travle", "travel"), ("Home", "home"), ("", "")])
def test_unknown_name_lists_all_and_suggests_one(asked: str, meant: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        load_scenario(asked)
    message = str(caught.value)
    assert repr(asked) in message and all(name in message for name in NAMES)
    assert f"did you mean '{meant}" in message


def test_a_name_is_not_a_path() -> None:
    with pytest.raises(ScenarioError):
        load_scenario("../scenarios/home")


@pytest.mark.parametrize("file", scenario.FILES)
def test_changed_file_is_refused(copied: Path, file: str) -> None:
    path = copied / "scenarios" / "news" / file
    path.write_bytes(path.read_bytes().replace(b"e", b"a", 1))
    with pytest.raises(ScenarioError, match=rf"scenarios/news/{file}.*manifest.*Hint:"):
        load_scenario("news")
    assert load_scenario("home").name == "home"


def test_missing_file_is_refused(copied: Path) -> None:
    (copied / "scenarios" / "news" / "pairs.jsonl").unlink()
    with pytest.raises(ScenarioError, match=r"scenarios/news/pairs\.jsonl cannot be read"):
        load_scenario("news")


@pytest.mark.parametrize("text", ["not json", "[]", '{"files": [{"path": "x"}]}'])
def test_unreadable_manifest_is_refused(copied: Path, text: str) -> None:
    (copied / scenario.MANIFEST).write_text(text, "utf-8")
    with pytest.raises(ScenarioError, match="manifest"):
        load_scenario("news")


def test_file_that_the_manifest_does_not_list_is_refused(copied: Path) -> None:
    target = copied / scenario.MANIFEST
    manifest = json.loads(target.read_text("utf-8"))
    manifest["files"] = [r for r in manifest["files"] if r["path"] != "scenarios/news/facts.jsonl"]
    target.write_text(json.dumps(manifest), "utf-8")
    with pytest.raises(ScenarioError, match="not listed"):
        load_scenario("news")


def test_row_with_an_impossible_time_is_refused(copied: Path) -> None:
    path = copied / "scenarios" / "news" / "facts.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"2031-11-07T08:10:00+01:00"', b'"yesterday"', 1))
    target = copied / scenario.MANIFEST
    manifest = json.loads(target.read_text("utf-8"))
    for row in manifest["files"]:
        if row["path"] == "scenarios/news/facts.jsonl":
            row["sha256"] = sha256_hex(path.read_bytes())
    target.write_text(json.dumps(manifest), "utf-8")
    with pytest.raises(ScenarioError, match="observed_at"):
        load_scenario("news")


def test_packaged_data_comes_before_the_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scenario, "__file__", str(tmp_path / "package" / "mesh" / "scenario.py"))
    with pytest.raises(ScenarioError, match="missing.*Hint:"):
        data_folder()
    beside, inside = tmp_path / "data", tmp_path / "package" / "_data"
    for place in (beside, inside):
        place.mkdir(parents=True)
        (place / scenario.MANIFEST).write_text("{}", "utf-8")
        assert data_folder() == place.resolve()
