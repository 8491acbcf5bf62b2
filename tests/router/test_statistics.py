"""Statistics that all shards share: counted once, whatever is searched, and true of the past."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mnemes_lab import schemas
from mnemes_lab.digest import sha256_hex
from mnemes_lab.router.summary import Lexicon, Statistics, TermSummary, summaries_frame
from mnemes_lab.store.index import ShardIndex
from mnemes_lab.text.lexicon import ascii_tokens, idf, routing_tokens, tokens

WORDS = ["pump", "valve", "off", "on", "KX-77", "Düse", "泵站", "!!!"]


TIMES = ("closed_at", "valid_from", "valid_to", "expires_at", "remainder")


def lexicon_at(indexes: Iterable[ShardIndex], terms: Iterable[str], recorded: int) -> Lexicon:
    """Statistics of some shards as they were at a record time."""
    statistics = Statistics()
    statistics.cover([TermSummary.of(index, recorded=recorded) for index in indexes])
    return statistics.snapshot(terms)


def shard(device: str, texts: list[str], *, generation: int = 2, start: int = 0) -> ShardIndex:
    """An index over texts accepted one instant after the other."""
    rows: list[dict[str, Any]] = [
        {
            "row_key": i + 1,
            "fact_id": f"{device}-{i}",
            "text": text,
            "namespace": "general",
            "content_digest": bytes(32),
            "recorded_at": start + i,
            **dict.fromkeys(TIMES),
        }
        for i, text in enumerate(texts)
    ]
    stamp = {"mesh_id": "m", "device_id": device, "encoder": "e", "generation": generation}
    return ShardIndex.build(stamp, rows, np.ones((len(rows), 4), np.float32))


def invent(seed: int, n: int) -> list[str]:
    rng = random.Random(seed)
    return [" ".join(rng.choices(WORDS, k=rng.randint(1, 4))) for _ in range(n)]


def counted(texts: list[str]) -> tuple[int, int, Counter[str]]:
    """Facts, terms and document frequencies, by hand."""
    df = Counter(term for text in texts for term in set(tokens(text)))
    return len(texts), sum(len(tokens(text)) for text in texts), df


TERMS = sorted({term for word in WORDS for term in tokens(word)} | {"absent"})


def figures(statistics: Statistics) -> tuple[int, int, dict[str, int]]:
    lexicon = statistics.snapshot(TERMS)
    return lexicon.facts, lexicon.length, lexicon.df


@given(seed=st.integers(0, 2**32), sizes=st.lists(st.integers(0, 12), min_size=1, max_size=5))
def test_a_sum_over_shards_equals_counting_all_texts(seed, sizes):
    parts = [invent(seed + i, n) for i, n in enumerate(sizes)]
    indexes = [shard(f"d{i}", texts) for i, texts in enumerate(parts)]
    statistics = Statistics()
    statistics.cover([TermSummary.of(index) for index in indexes])
    facts, length, df = counted([text for texts in parts for text in texts])
    assert figures(statistics) == (facts, length, {t: df[t] for t in TERMS})
    lexicon = statistics.snapshot(TERMS)
    assert lexicon.average_length == (length / facts if facts else 0.0)
    for term in TERMS:
        assert lexicon.idf(term) == float(idf(facts, df[term]))
    now = lexicon_at(indexes, TERMS, 10**6)
    assert (now.facts, now.length, now.df) == figures(statistics)


@given(seed=st.integers(0, 2**32), n=st.integers(0, 20), recorded=st.integers(-1, 25))
def test_the_past_is_counted_as_it_was(seed, n, recorded):
    texts = invent(seed, n)
    indexes = [shard("a", texts[: n // 2]), shard("b", texts[n // 2 :], start=n // 2)]
    then = lexicon_at(indexes, TERMS, recorded)
    facts, length, df = counted(texts[: max(0, recorded + 1)])
    assert (then.facts, then.length, then.df) == (facts, length, {t: df[t] for t in TERMS})


@given(seed=st.integers(0, 2**32), steps=st.integers(1, 8))
def test_bringing_up_to_date_equals_starting_over(seed, steps):
    """Shards come, grow and go; only the difference is work, and nothing is left behind."""
    rng = random.Random(seed)
    held: dict[str, tuple[int, list[str]]] = {}
    statistics = Statistics()
    for step in range(steps):
        device = f"d{rng.randrange(4)}"
        if device in held and rng.random() < 0.4:
            del held[device]
        else:
            generation, texts = held.get(device, (1, []))
            held[device] = generation + 1, texts + invent(seed + step, 3)
        summaries = [
            TermSummary.of(shard(d, texts, generation=g)) for d, (g, texts) in held.items()
        ]
        before = figures(statistics)
        earlier, statistics = statistics, statistics.copy()
        statistics.cover(summaries)
        fresh = Statistics()
        fresh.cover(summaries)
        assert figures(statistics) == figures(fresh)
        assert statistics.last_recorded_at == fresh.last_recorded_at
        assert figures(earlier) == before  # searches may still read it


def test_a_summary_survives_being_kept():
    summary = TermSummary.of(shard("a", ["pump off", "Düse 泵站"]))
    again = TermSummary.from_payload("a", summary.generation, summary.payload)
    assert again == summary
    assert again.unicode_terms() == frozenset(routing_tokens("pump off Düse 泵站 general"))
    assert again.plain_terms() == frozenset(ascii_tokens("pump off Düse 泵站 general"))
    told = replace(again, supplied="Pump pier")
    assert told.unicode_terms() == {"pump", "pier", "general"}
    assert told.df == summary.df


def test_the_summaries_frame_tells_size_and_digest():
    made = [TermSummary.of(shard(d, ["pump off"])) for d in ("b", "a")]
    both = summaries_frame(made)
    schemas.Summaries.validate(both)
    frame = both.filter(pl.col("router") == "overlap")
    assert frame["device_id"].to_list() == ["a", "b"]
    assert both["terms"].to_list() == [["general", "off", "pump"]] * 4
    for row, summary in zip(frame.iter_rows(named=True), reversed(made), strict=True):
        assert row["bytes"] == len(summary.payload) > 0
        assert row["sha256"] == sha256_hex(summary.payload)
        assert row["text_leaves"]


# --- in a mesh -------------------------------------------------------------------------------
@pytest.fixture
def mesh(open_mesh):
    mesh = open_mesh()
    mesh.load(
        pl.DataFrame(
            {
                "device": ["a", "a", "b"],
                "text": ["pump off", "valve off", "pump on"],
                "fact_id": ["f1", "f2", "f3"],
                "namespace": ["x", "y", "x"],
            }
        )
    )
    return mesh


def lexical(mesh, text="pump", **options):
    hits = mesh.search(text, exhaustive=True, **options).hits
    return dict(
        hits.filter(pl.col("lexical_score").is_not_null())["fact_id", "lexical_score"].rows()
    )


def test_a_filter_moves_no_score(mesh):
    scores = lexical(mesh)
    assert lexical(mesh, namespaces=["x"]) == scores
    assert lexical(mesh, "valve", namespaces=["x"]) == {}


def test_a_replaced_fact_still_counts_and_a_new_one_counts_from_now_on(mesh):
    statistics = mesh.view.now().statistics
    assert (statistics.facts, statistics.length) == (3, 6)
    mesh.supersede("f1", "pump is off again")
    statistics = mesh.view.now().statistics
    assert (statistics.facts, statistics.length) == (4, 10)
    assert statistics.snapshot(["pump"]).df == {"pump": 3}
    mesh.retract("f3")
    assert mesh.view.now().statistics.facts == 4


def test_revocation_takes_a_shards_words_with_it(mesh):
    mesh.device("b").revoke()
    statistics = mesh.view.now().statistics
    assert (statistics.facts, statistics.snapshot(["pump"]).df) == (2, {"pump": 1})
    b = mesh.device("b").device_id
    assert b not in set(mesh.summaries()["device_id"])
    kept = mesh.store.rows(pl_select_summaries())
    assert b not in {row["device_id"] for row in kept}


def pl_select_summaries():
    from sqlalchemy import select

    from mnemes_lab.store.tables import summaries

    return select(summaries.c.device_id)


def test_the_catalogue_follows_every_write(mesh):
    """Counts and terms are those of the facts, with no call to bring them up to date."""
    b = mesh.device("b").device_id
    before = mesh.catalogue().filter(pl.col("device_id") == b).row(0, named=True)
    assert (before["facts"], before["terms"], before["namespaces"]) == (1, 2, 1)
    mesh.load(pl.DataFrame({"device": ["b"], "text": ["tea is ready"], "namespace": ["z"]}))
    after = mesh.catalogue().filter(pl.col("device_id") == b).row(0, named=True)
    assert (after["facts"], after["terms"], after["namespaces"]) == (2, 5, 2)
    assert after["generation"] == before["generation"] + 1


def test_a_kept_summary_that_was_changed_is_made_again(open_mesh, mesh):
    import sqlite3

    scores = lexical(mesh)
    mesh.close()
    conn = sqlite3.connect(mesh.store.path)
    with conn:
        conn.execute("UPDATE summaries SET payload = zeroblob(8)")
    conn.close()
    again = open_mesh(seed=None, encoder=None)
    assert lexical(again) == scores
