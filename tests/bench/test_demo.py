"""The demo: whole, honest about what it finds, and the same every time."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from mnemes_lab.bench.demo import Demo, changed_byte, run_demo
from mnemes_lab.mesh.scenario import load_scenario, scenario_names


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    return run_demo(tmp_path_factory.mktemp("demo") / "mesh", "travel", "hash")


def frames(demo: Demo) -> dict[str, pl.DataFrame]:
    return {name: value for name, value in vars(demo).items() if isinstance(value, pl.DataFrame)}


def test_it_tells_of_every_device_and_question(demo):
    world = load_scenario("travel")
    assert demo.devices["label"].to_list() == world.devices["label"].to_list()
    assert demo.devices["facts"].sum() == world.facts.height
    assert demo.questions["question"].to_list() == world.queries["text"].to_list()
    assert demo.questions["asked"].str.count_matches(", ").unique().to_list() == [1]


def test_right_is_told_only_where_an_answer_is_known(demo):
    known = set(load_scenario("travel").relevance["query_id"])
    unknown = demo.questions.filter(pl.col("right").is_null())["query_id"]
    assert set(unknown) == set(demo.questions["query_id"]) - known
    assert demo.questions["right"].sum() > 0


def test_recall_is_that_of_the_definition(demo):
    assert demo.recall["budget"].to_list() == [1, 2, 3]
    shares = demo.recall["recall_at_10"].to_list()
    assert shares == sorted(shares)
    assert 0.0 < shares[0] < shares[-1] <= 1.0


def test_the_example_has_a_trace_of_every_device(demo):
    assert sorted(demo.trace["device"]) == sorted(demo.devices["label"])
    assert demo.trace["selected"].to_list() == [True, True, False]
    assert demo.hits["rank"].to_list() == list(range(1, demo.hits.height + 1))
    assert demo.example in demo.questions["question"].to_list()


def test_a_receipt_with_a_changed_byte_is_refused(demo):
    verdicts = dict(demo.receipt.iter_rows())
    assert verdicts.pop("with one byte changed").startswith("refused: ")
    assert list(verdicts.values()) == ["yes", "yes", "no"]


@pytest.mark.parametrize(
    "text", ['{"hits":[["fact:a","d","00ff","3f"]]}', '{"hits":[],"mac":"ff"}']
)
def test_exactly_one_byte_is_changed(text):
    changed = changed_byte(text)
    assert len(changed) == len(text)
    assert sum(a != b for a, b in zip(text, changed, strict=True)) == 1


def test_every_run_gives_the_same(demo, tmp_path):
    again = run_demo(tmp_path / "other", "travel", "hash")
    assert again.receipt_id == demo.receipt_id
    for name, frame in frames(demo).items():
        assert frames(again)[name].equals(frame), name


@pytest.mark.parametrize("scenario", [n for n in scenario_names() if n != "travel"])
def test_every_scenario_runs(tmp_path: Path, scenario: str):
    demo = run_demo(tmp_path / "mesh", scenario, "hash")
    assert demo.recall["eligible"].unique().to_list() == [demo.devices.height]
    assert demo.receipt["outcome"][3].startswith("refused")
