"""Made workloads: the same everywhere, honest gold, topical devices that overlap."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mnemes_lab
from mnemes_lab import schemas
from mnemes_lab.bench._campus_words import topics
from mnemes_lab.bench.workload import FACT_COLUMNS, Workload, make_workload
from mnemes_lab.errors import InputError, ScenarioError

SMALL = {"devices": 5, "facts_per_device": 60, "questions": 12}
MANIFEST = Path(__file__).parents[2] / "data" / "MANIFEST.json"


@pytest.fixture(scope="module")
def campus() -> Workload:
    return make_workload("campus", seed=0)


@pytest.fixture(scope="module")
def gold(campus: Workload) -> pl.DataFrame:
    """One row per question and gold fact."""
    named = campus.queries.select("query_id", question="text")
    return campus.relevance.join(campus.facts, on="fact_id").join(named, on="query_id")


def test_the_reference_workload_is_the_one_on_record(campus: Workload) -> None:
    made = json.loads(MANIFEST.read_text(encoding="utf-8"))["made"]
    [entry] = [e for e in made if e["name"] == "campus"]
    assert campus.digest() == entry["digest"]
    assert (campus.facts.height, campus.queries.height) == (entry["facts"], entry["queries"])
    assert campus.facts["device"].n_unique() == entry["devices"]
    assert campus.seed == entry["seed"]


def test_another_process_hash_seed_and_zone_make_the_same() -> None:
    code = (
        "from mnemes_lab.bench.workload import make_workload as m;"
        f"print(m('campus', seed=3, **{SMALL}).digest())"
    )
    root = str(Path(mnemes_lab.__file__).parents[1])
    there = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONPATH": root, "PYTHONHASHSEED": seed, "TZ": zone},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed, zone in (("1", "Asia/Tokyo"), ("2", "America/Lima"))
    ]
    here = make_workload("campus", seed=3, **SMALL).digest()
    assert there == [here, here]


def test_digest_follows_seed_and_every_cell() -> None:
    one = make_workload("campus", seed=1, **SMALL)
    others = [make_workload("campus", seed=2, **SMALL)]
    for part in ("facts", "queries", "relevance"):
        frame = getattr(one, part)
        for name, dtype in frame.schema.items():
            cell = {pl.String: "x", pl.Float64: 0.5}.get(type(dtype), 7)
            first = pl.int_range(pl.len()) == 0
            new = pl.when(first).then(pl.lit(cell).cast(dtype)).otherwise(pl.col(name))
            others.append(dataclasses.replace(one, **{part: frame.with_columns(new.alias(name))}))
    assert len({w.digest() for w in [one, *others]}) == 1 + len(others)


def test_shape(campus: Workload) -> None:
    assert campus.facts.schema == pl.Schema(FACT_COLUMNS)
    assert campus.facts["fact_id"].is_sorted() and campus.facts["fact_id"].n_unique() == 50_000
    assert campus.facts["fact_id"].str.contains(r"^campus-d\d\d-\d{4}$").all()
    assert campus.facts.group_by("device").len()["len"].to_list() == [1000] * 50
    schemas.Queries.validate(campus.queries)
    schemas.Relevance.validate(campus.relevance)
    assert campus.queries["text"].n_unique() == campus.queries.height == 300
    assert campus.queries["device_id"].null_count() == 300
    assert campus.facts.null_count().row(0) == (0,) * len(FACT_COLUMNS)


def test_texts_are_sentences_mostly_distinct(campus: Workload) -> None:
    text = campus.facts["text"]
    assert text.str.contains(r"^[\p{Lu}\d].*[^.]\.$").all()
    assert not text.str.contains(r"[{}|@]|  ").any()
    assert 60 <= text.str.len_chars().mean() <= 110
    repeated = 1 - text.n_unique() / len(text)
    assert 0.01 <= repeated <= 0.03
    copies = campus.facts.group_by("text").agg(pl.n_unique("device", "subject"), pl.len())
    assert (copies["device"] == copies["len"]).all(), "a device never says a thing twice"
    assert (copies["subject"] == 1).all(), "one sentence never speaks of two things"


def test_gold_is_every_fact_that_states_the_value_and_nothing_else(
    campus: Workload, gold: pl.DataFrame
) -> None:
    assert gold.height == campus.relevance.height, "every gold id exists"
    assert gold["query_id"].n_unique() == 300
    asked = gold.select("query_id", "subject", "predicate", "object").unique()
    assert asked.height == 300, "one thing, one attribute, one value per question"
    stating = asked.join(campus.facts, on=["subject", "predicate"])
    assert set(stating.select("query_id", "fact_id").rows()) == set(
        campus.relevance.select("query_id", "fact_id").rows()
    )
    assert gold.select(pl.col("text").str.contains(pl.col("object"), literal=True).all()).item()
    leaks = gold.select(pl.col("question").str.contains(pl.col("object"), literal=True).any())
    assert not leaks.item()


def test_each_question_points_at_one_thing_as_some_gold_fact_does(
    campus: Workload, gold: pl.DataFrame
) -> None:
    nouns = {noun: topic for topic in topics() for noun, _ in topic.nouns}
    by_name = 0
    for rows in gold.partition_by("query_id"):
        question, subject = rows["question"][0], rows["subject"][0]
        noun = max((n for n in nouns if subject.startswith(n + " ")), key=len)
        name = subject.removeprefix(noun + " ")
        if name in question:
            by_name += 1
            assert rows["text"].str.contains(name, literal=True).any()
            continue
        topic = nouns[noun]
        [described] = [
            f"{adjective} {noun} {tail}"
            for adjective in topic.adjectives
            for tail in topic.tails
            if f"the {adjective} " in question and f" {tail}" in question
        ]
        assert rows["text"].str.contains(described, literal=True).any()
        alike = campus.facts.filter(pl.col("text").str.contains(described, literal=True))
        assert alike["subject"].unique().to_list() == [subject]
    assert 0.4 <= by_name / 300 <= 0.6


def test_a_third_of_the_answers_lie_on_several_devices(gold: pl.DataFrame) -> None:
    spread = gold.group_by("query_id").agg(pl.n_unique("device"))["device"]
    assert 0.2 <= (spread > 1).mean() <= 0.5


def test_devices_are_topical_and_overlap() -> None:
    from sklearn.feature_extraction.text import TfidfVectorizer

    made = make_workload("campus", seed=5, devices=20, facts_per_device=100, questions=20)
    vectors = TfidfVectorizer().fit_transform(made.facts["text"].to_list())
    near = (vectors @ vectors.T).toarray()
    near[range(len(near)), range(len(near))] = -1.0
    device = made.facts["device"].to_numpy()
    same = (device[near.argmax(axis=1)] == device).mean()
    assert same > 5 / 20, "five times what chance gives"
    assert same < 0.9, "neighbours share facts"


def test_vocabulary_is_unambiguous() -> None:
    things = [noun for topic in topics() for pair in topic.nouns for noun in dict.fromkeys(pair)]
    assert len(things) == len(set(things)), "two topics never share a word for a thing"
    for topic in topics():
        for attribute in topic.attributes:
            assert len(attribute.statements) > 1 and len(attribute.questions) > 1
            assert all("{s}" in s and "{o}" in s for s in attribute.statements)
            starts = [s for s in attribute.statements if s.startswith("{o}")]
            assert not starts or all(v[0] == "@" or v[0].isupper() for v in attribute.values), (
                "a value that starts a sentence keeps its spelling"
            )
            assert all("{s}" in q and q.endswith("?") for q in attribute.questions)
            assert attribute.validity in ("", "term", "since")


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**64 - 1), st.integers(1, 6), st.integers(10, 40), st.data())
def test_any_size_is_met_exactly(seed: int, devices: int, facts: int, data: st.DataObject) -> None:
    questions = data.draw(st.integers(1, devices * facts // 4))
    made = make_workload(
        "campus", seed=seed, devices=devices, facts_per_device=facts, questions=questions
    )
    assert made.facts.group_by("device").len()["len"].to_list() == [facts] * devices
    assert made.queries["text"].n_unique() == questions
    assert set(made.relevance["query_id"]) == set(made.queries["query_id"])
    assert set(made.relevance["fact_id"]) <= set(made.facts["fact_id"])


@pytest.mark.parametrize(
    ("sizes", "found"),
    [
        ({"devices": 0}, "0"),
        ({"devices": 1001}, "1001"),
        ({"devices": True}, "True"),
        ({"facts_per_device": 9}, "9"),
        ({"facts_per_device": 10_001}, "10001"),
        ({"facts_per_device": 50.0}, "50.0"),
        ({"questions": 0}, "0"),
        ({"devices": 2, "facts_per_device": 10, "questions": 6}, "6"),
        ({"seed": -1}, "-1"),
        ({"seed": "0"}, "'0'"),
    ],
)
def test_sizes_out_of_range_are_refused(sizes: dict[str, int], found: str) -> None:
    with pytest.raises(InputError, match=rf"Found {found}\. Hint: give a whole number"):
        make_workload("campus", **sizes)


def test_unknown_names_are_refused_with_what_exists() -> None:
    with pytest.raises(InputError, match=r"'shards'.*devices, facts_per_device, questions"):
        make_workload("campus", shards=3)
    with pytest.raises(ScenarioError, match=r"'campsu'.*nearest: campus"):
        make_workload("campsu")
    with pytest.raises(ScenarioError, match="nearest: campus"):
        make_workload("zzz")
