"""Routers: which words a shard is known by, how shards are ranked, and which may be asked."""

from __future__ import annotations

import random

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mnemes_lab import rank_shards
from mnemes_lab.errors import BudgetError, InputError, SchemaError
from mnemes_lab.router.rankers import initial_budget, router_named
from mnemes_lab.text.lexicon import ascii_tokens, routing_tokens

D1, D2, D3, D4, D5 = (f"00000000-0000-4000-8000-{n:012d}" for n in range(1, 6))


def summaries(**terms: list[str]) -> pl.DataFrame:
    return pl.DataFrame(
        {"device_id": list(terms), "terms": list(terms.values())},
        schema={"device_id": pl.String, "terms": pl.List(pl.String)},
    )


def ask(text: str, asker: str | None = None) -> pl.DataFrame:
    frame = {"query_id": ["q"], "text": [text], "device_id": [asker]}
    return pl.DataFrame(frame, schema=dict.fromkeys(frame, pl.String))


def test_the_source_systems_terms():
    assert ascii_tokens("Borrow checker, OWNERSHIP borrow") == ["borrow", "checker", "ownership"]
    assert ascii_tokens("café au lait") == ["au", "caf", "lait"]
    assert ascii_tokens("日本語") == ascii_tokens("  ") == []


def test_the_default_terms_know_every_script():
    assert routing_tokens("Borrow checker, OWNERSHIP borrow") == ["borrow", "checker", "ownership"]
    assert routing_tokens("café au lait") == ["au", "cafe", "lait"]
    assert routing_tokens("日本語") == ["日本", "本語"]
    assert routing_tokens("  ") == []


@pytest.mark.parametrize("router", ["overlap", "overlap:ascii"])
def test_two_for_each_shared_term_and_one_for_asking(router):
    known = summaries(local=[], strong=["borrow", "checker", "ownership", "rust"], weak=["rust"])
    ranking = rank_shards(ask("borrow checker ownership", "local"), known, router=router)
    assert ranking.select("device_id", "rank", "score").rows() == [
        ("strong", 1, 6.0),
        ("local", 2, 1.0),
        ("weak", 3, 0.0),
    ]
    assert ranking["router"].unique().to_list() == [router]


def test_a_repeated_query_term_counts_once():
    known = summaries(a=["pump"], b=["pump", "off"])
    scores = rank_shards(ask("pump pump PUMP off"), known)["score"].to_list()
    assert scores == [4.0, 2.0]


def test_equal_scores_fall_by_device_id():
    known = summaries(**{D2: ["x"], D1: ["x"], D3: []})
    assert rank_shards(ask("x", D3), known)["device_id"].to_list() == [D1, D2, D3]
    assert rank_shards(ask("y", D3), known)["device_id"].to_list() == [D3, D1, D2]


def test_a_shard_without_any_term_is_still_ranked():
    ranking = rank_shards(ask("日本語"), summaries(b=["x"], a=[]))
    assert ranking.select("device_id", "score").rows() == [("a", 0.0), ("b", 0.0)]


def test_the_default_budget_is_two_or_all_there_are():
    assert [initial_budget(None, n, exhaustive=False) for n in (0, 1, 2, 5)] == [0, 1, 2, 2]
    assert [initial_budget(4, n, exhaustive=False) for n in (0, 3, 4, 5)] == [0, 3, 4, 4]
    assert initial_budget(1, 9, exhaustive=True) == 9
    for budget in (0, -1, True, 1.0, "2"):
        with pytest.raises(BudgetError):
            initial_budget(budget, 5, exhaustive=False)


def test_a_budget_cuts_each_ranking():
    known = summaries(**{d: [] for d in (D1, D2, D3, D4, D5)})
    for budget in (1, 3, 5, 9):
        ranking = rank_shards(ask("x"), known, budget=budget)
        assert ranking["rank"].to_list() == list(range(1, min(budget, 5) + 1))
    with pytest.raises(BudgetError):
        rank_shards(ask("x"), known, budget=0)


def test_an_unknown_router_is_refused_with_the_nearest_name():
    with pytest.raises(InputError, match=r"overlap.*Hint.*overlap"):
        rank_shards(ask("x"), summaries(a=[]), router="overlapp")
    assert router_named("overlap").name == "overlap"


def test_wrong_frames_are_refused():
    with pytest.raises(SchemaError, match="Missing column"):
        rank_shards(pl.DataFrame({"query_id": ["q"]}), summaries(a=[]))
    with pytest.raises(InputError, match="terms"):
        rank_shards(ask("x"), pl.DataFrame({"device_id": ["a"]}))
    with pytest.raises(SchemaError, match="repeated"):
        rank_shards(pl.concat([ask("x"), ask("y")]), summaries(a=[]))


def test_nothing_to_rank_is_an_empty_ranking():
    assert rank_shards(ask("x"), summaries()).is_empty()
    assert rank_shards(ask("x").clear(), summaries(a=[])).is_empty()


def test_both_kinds_of_frame_are_ranked_alike(frame_kind):
    queries = frame_kind.make_frame({"query_id": ["q", "p"], "text": ["pump off", "tea"]})
    known = frame_kind.make_frame({"device_id": ["b", "a"], "terms": [["pump"], ["tea", "off"]]})
    ranking = rank_shards(queries, known)
    assert frame_kind.column(ranking, "query_id") == ["q", "q", "p", "p"]
    assert frame_kind.column(ranking, "device_id") == ["a", "b", "a", "b"]
    assert frame_kind.column(ranking, "score") == [2.0, 2.0, 2.0, 0.0]


VOCABULARY = ["pump", "valve", "düse", "kx-77", "泵站", "off"]


@given(seed=st.integers(0, 2**32), shards=st.integers(1, 8), questions=st.integers(1, 5))
def test_ranking_equals_counting_by_hand(seed, shards, questions):
    rng = random.Random(seed)
    known = {
        f"d{i}": routing_tokens(" ".join(rng.choices(VOCABULARY, k=rng.randint(0, 4))))
        for i in rng.sample(range(20), shards)
    }
    asked = [
        (f"q{i}", " ".join(rng.choices(VOCABULARY, k=3)), rng.choice([None, *known]))
        for i in range(questions)
    ]
    queries = pl.DataFrame(asked, schema=["query_id", "text", "device_id"], orient="row")
    queries = queries.cast({"device_id": pl.String})
    ranking = rank_shards(queries, summaries(**known))
    for query_id, text, asker in asked:
        score = {
            d: 2 * len(set(routing_tokens(text)) & set(terms)) + (d == asker)
            for d, terms in known.items()
        }
        order = sorted(score, key=lambda d: (-score[d], d))
        mine = ranking.filter(pl.col("query_id") == query_id)
        assert mine["device_id"].to_list() == order
        assert mine["score"].to_list() == [float(score[d]) for d in order]


# --- in a mesh -------------------------------------------------------------------------------
def facts(**texts: str) -> pl.DataFrame:
    return pl.DataFrame({"device": list(texts), "text": list(texts.values())})


def test_a_budget_of_one_opens_one_shard(open_mesh):
    open_mesh().load(facts(rust="the borrow checker", tea="green tea", wood="oak planks"))
    mesh = open_mesh(seed=None)  # a second look at the folder, with every index made
    found = mesh.search("borrow checker", budget=1, k=1)
    assert found.trace.filter("selected").select("score", "reason").rows() == [(4.0, "budget")]
    assert found.trace["selected"].sum() == 1
    assert mesh.store.handles.total_opens == 1


def test_an_exhaustive_search_of_empty_shards_answers(open_mesh):
    mesh = open_mesh()
    for label in ("a", "b", "c"):
        mesh.device(label)
    found = mesh.search("anything", exhaustive=True)
    body = found.receipt.body
    assert (len(body.ranked), body.selected, len(body.outcomes)) == (3, 3, 3)
    assert body.exhaustive
    assert body.fallback_reason is None
    assert found.hits.is_empty()
    assert found.complete
    assert set(found.trace["reason"]) == {"exhaustive"}
    assert set(found.trace["certificate"]) == {"exact"}


def test_a_mesh_without_devices_answers_nothing(open_mesh):
    mesh = open_mesh()
    for options in ({}, {"exhaustive": True}, {"expand": True}):
        found = mesh.search("anything", **options)
        assert found.hits.is_empty()
        assert found.trace.is_empty()
        assert found.receipt.verify()


def test_revoked_and_quarantined_shards_are_not_eligible(open_mesh):
    mesh = open_mesh()
    mesh.load(facts(gone="borrow checker one", held="borrow checker two", here="borrow"))
    mesh.device("gone").revoke()
    mesh.device("held").quarantine()
    here = mesh.device("here")
    for options in ({"budget": 1}, {"exhaustive": True}, {"expand": True, "budget": 1}):
        found = mesh.search("borrow checker", **options)
        assert found.trace["device_id"].to_list() == [here.device_id]
        assert found.texts() == ["borrow"]
    mesh.device("held").reactivate()
    assert mesh.search("borrow checker", exhaustive=True).trace.height == 2


def test_the_default_budget_searches_two_of_five(open_mesh):
    mesh = open_mesh()
    mesh.load(facts(**{name: f"pump {name}" for name in "abcde"}))
    assert mesh.search("pump").trace["selected"].to_list() == [True, True, False, False, False]


def test_trace_and_rank_shards_agree(open_mesh):
    mesh = open_mesh()
    mesh.load(facts(a="pump off", b="valve off", c="pump valve off", d="泵站关闭"))
    asker = mesh.device("b")
    for text in ("pump off", "关闭", "valve", ""):
        found = mesh.search(text, asker=asker, budget=1)
        ranking = rank_shards(ask(text, asker.device_id), mesh.summaries())
        same = ["device_id", "score"]
        assert found.trace.sort("step").select(same).equals(ranking.select(same))
        by_ascii = mesh.search(text, asker=asker, router="overlap:ascii").trace
        assert by_ascii["score"].max() == {"关闭": 1, "": 1}.get(text, by_ascii["score"].max())


def test_supplied_terms_replace_those_of_the_facts_for_routing_alone(open_mesh):
    mesh = open_mesh()
    mesh.load(facts(a="pump off", b="green tea"))
    before = mesh.search("pump", exhaustive=True).hits
    mesh.device("b").supply_terms("pump pier")
    mesh.device("a").supply_terms("")
    trace = mesh.search("pump", budget=1).trace
    b = mesh.device("b").device_id
    assert trace.filter("selected")["device_id"].to_list() == [b]
    assert mesh.search("pump", exhaustive=True).hits.equals(before)  # the words still count
    mesh.device("a").supply_terms(None)
    mesh.device("b").supply_terms(None)
    assert mesh.search("pump", budget=1).texts() == ["pump off"]


def test_a_namespace_is_a_routing_term(open_mesh):
    mesh = open_mesh()
    frame = facts(a="one", b="two").with_columns(pl.Series("namespace", ["rust-lang", "tea"]))
    mesh.load(frame)
    found = mesh.search("rust", budget=1)
    assert found.texts() == ["one"]
    ascii_trace = mesh.search("rust", budget=1, router="overlap:ascii").trace
    assert ascii_trace.filter("selected")["score"].to_list() == [2.0]


@pytest.mark.parametrize("router", ["overlap", "overlap:ascii"])
@pytest.mark.parametrize("text", ["Zoe", "Zoë"])
def test_a_summary_serves_the_router_it_was_made_for(open_mesh, router, text):
    """The same words reach each router in its own tokens, in a frame as in a search."""
    mesh = open_mesh()
    mesh.load(pl.DataFrame({"device": ["a", "b"], "text": ["Zoë Lunt called", "KX-77 fell"]}))
    query = pl.DataFrame({"query_id": ["q0"], "text": [text]})
    ranking = rank_shards(query, mesh.summaries(), router=router)
    trace = mesh.search(text, router=router).trace
    same = ["device_id", "score"]
    assert ranking.select(same).rows() == trace.sort("step").select(same).rows()
