"""Distribution transparency: how facts are spread over devices leaves no trace in an answer.

The whole search is written down once more below, as plain loops over plain facts: no index, no
shards, no arrays. What the mesh answers must be equal to it: the same facts, in the same order,
with the same scores to the last bit.
"""

from __future__ import annotations

import json
import math
import random
import sqlite3
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from mnemes_lab import AsOf, Mesh
from mnemes_lab.clock import from_us
from mnemes_lab.router.search import Batch, Request
from mnemes_lab.router.summary import Statistics, TermSummary
from mnemes_lab.store.changes import supersede
from mnemes_lab.store.index import ShardIndex
from mnemes_lab.text.cache import content_key
from mnemes_lab.text.encode import HashEncoder, checked
from mnemes_lab.text.lexicon import tokens

PUBLIC_DATA = Path(__file__).resolve().parents[2].parent / "shared" / "data"
FOREVER = 2**62


# --- the search, once more -------------------------------------------------------------------
@dataclass(frozen=True)
class Fact:
    """One version of a fact, as it lies in a shard."""

    fact_id: str
    device: str
    text: str
    namespace: str = "general"
    recorded_at: int = 0
    closed_at: int | None = None
    valid_from: int | None = None
    valid_to: int | None = None
    expires_at: int | None = None
    remainder: int = 0


def statistics_at(shards: Any, recorded: int) -> Statistics:
    """Lexical statistics of some shards as they were at a record time."""
    statistics = Statistics()
    statistics.cover([TermSummary.of(shard, recorded=recorded) for shard in shards])
    return statistics


def seen(fact: Fact, recorded: int, valid: int | None, namespaces: Iterable[str] | None) -> bool:
    """Whether a question may find a fact."""

    def before(point: int, end: int | None) -> bool:
        return end is None or point < end

    return (
        fact.recorded_at <= recorded
        and before(recorded, fact.closed_at)
        and (valid is not None or not fact.remainder)
        and before(recorded, fact.expires_at)
        and (valid is None or before(valid, fact.valid_to))
        and (valid is None or fact.valid_from is None or fact.valid_from <= valid)
        and (namespaces is None or fact.namespace in namespaces)
    )


Row = tuple[str, float, float | None, float | None, int | None, int | None]


def reference(
    facts: Sequence[Fact],
    question: str,
    vector: Sequence[float],
    vector_of: Callable[[str], Sequence[float]],
    *,
    k: int,
    recorded: int,
    valid: int | None = None,
    namespaces: Iterable[str] | None = None,
    chosen: Iterable[str] | None = None,
) -> list[Row]:
    """Rows of (fact id, score, lexical score, vector score, lexical rank, vector rank)."""
    counted = [fact for fact in facts if fact.recorded_at <= recorded]
    words = {id(fact): tokens(fact.text) for fact in counted}
    average = sum(map(len, words.values())) / len(counted) if counted else 0.0
    candidates = [
        fact
        for fact in counted
        if seen(fact, recorded, valid, namespaces) and (chosen is None or fact.device in chosen)
    ]
    pool = max(50, 5 * k)

    weights = {}
    for term in sorted(set(tokens(question))):
        df = sum(term in words[id(fact)] for fact in counted)
        weights[term] = math.log(1.0 + (len(counted) - df + 0.5) / (df + 0.5))
    lexical = []
    for fact in candidates:
        score, mine = 0.0, words[id(fact)]
        for term, weight in weights.items():
            tf = mine.count(term)
            if tf:
                length = 0.9 * ((1.0 - 0.4) + 0.4 * (len(mine) / average))
                score += weight * ((tf * (0.9 + 1.0)) / (tf + length))
        if score > 0:
            lexical.append((-score, fact.fact_id))
    lexical = sorted(lexical)[:pool]

    near = []
    if usable(vector):
        for fact in candidates:
            other = vector_of(fact.text)
            if usable(other):
                cosine = 0.0
                for a, b in zip(vector, other, strict=True):
                    cosine += a * b
                near.append((-cosine, fact.fact_id))
    near = sorted(near)[:pool]

    lex = {fact_id: (rank, -minus) for rank, (minus, fact_id) in enumerate(lexical, 1)}
    vec = {fact_id: (rank, -minus) for rank, (minus, fact_id) in enumerate(near, 1)}
    fused = []
    for fact_id in sorted({*lex, *vec}):
        score = 0.0
        score += 1.0 / (60 + lex[fact_id][0]) if fact_id in lex else 0.0
        score += 1.0 / (60 + vec[fact_id][0]) if fact_id in vec else 0.0
        fused.append((-score, fact_id))
    out: list[Row] = []
    for minus, fact_id in sorted(fused)[:k]:
        lex_rank, lex_score = lex.get(fact_id, (None, None))
        vec_rank, vec_score = vec.get(fact_id, (None, None))
        out.append((fact_id, -minus, lex_score, vec_score, lex_rank, vec_rank))
    return out


def usable(vector: Sequence[float]) -> bool:
    """Whether there is anything to compare."""
    return any(vector) and all(map(math.isfinite, vector))


# --- the routing core without a store --------------------------------------------------------
def shard_of(device: str, facts: Sequence[Fact], vectors: Any) -> ShardIndex:
    """An index over one device's facts."""
    rows = [
        {
            "row_key": key,
            "content_digest": content_key(fact.text),
            **{n: getattr(fact, n) for n in ("fact_id", "text", "namespace", "recorded_at")},
            **{n: getattr(fact, n) for n in ("closed_at", "valid_from", "valid_to", "expires_at")},
            "remainder": fact.remainder,
        }
        for key, fact in enumerate(facts, 1)
    ]
    stamp = {"mesh_id": "m", "device_id": device, "encoder": "e", "generation": 2}
    return ShardIndex.build(stamp, rows, vectors)


def core(
    facts: Sequence[Fact],
    questions: Sequence[str],
    question_vectors: Any,
    vector_of: Callable[[str], Any],
    *,
    k: int,
    recorded: int = FOREVER,
    valid: int | None = None,
    namespaces: tuple[str, ...] | None = None,
    threads: int = 1,
    dim: int,
) -> list[list[Row]]:
    """What the routing core answers when every shard is asked."""
    shards = []
    for device in sorted({fact.device for fact in facts}):
        held = [fact for fact in facts if fact.device == device]
        held.sort(key=lambda fact: fact.recorded_at)
        vectors = np.array([vector_of(f.text) for f in held], np.float32).reshape(len(held), dim)
        shards.append(shard_of(device, held, vectors))
    batch = Batch(
        questions,
        question_vectors,
        statistics_at(shards, recorded).snapshot,
        shards.__getitem__,
        lambda: lambda: 0.0,
        Request(k, valid, recorded, namespaces, True, threads),
    )
    everyone = list(range(len(shards)))
    merged = batch.ask(dict.fromkeys(range(len(questions)), everyone))
    return [
        [
            (
                shards[hit.shard].columns.fact_id[hit.row],
                hit.fused.score,
                hit.fused.lexical[1] if hit.fused.lexical else None,
                hit.fused.vector[1] if hit.fused.vector else None,
                hit.fused.lexical[0] if hit.fused.lexical else None,
                hit.fused.vector[0] if hit.fused.vector else None,
            )
            for hit in merged[q]
        ]
        for q in range(len(questions))
    ]


WORDS = ["pump", "valve", "off", "on", "KX-77", "pier", "Düse", "泵站", "the", "!!!", "42"]


def invent(seed: int, n: int, devices: int) -> list[Fact]:
    """Facts of few words, so that texts occur many times and scores tie."""
    rng = random.Random(seed)

    def maybe(value: int) -> int | None:
        return value if rng.random() < 0.3 else None

    out = []
    for i in range(n):
        recorded = rng.randrange(100)
        valid_from = maybe(rng.randrange(100))
        out.append(
            Fact(
                f"f{rng.randrange(10**6):06d}-{i}",
                f"device-{rng.randrange(devices)}",
                " ".join(rng.choices(WORDS, k=rng.randint(1, 4))),
                rng.choice(["general", "team:blue/2031"]),
                recorded,
                maybe(recorded + rng.randrange(50)),
                valid_from,
                maybe((valid_from or 0) + rng.randrange(100)),
                maybe(recorded + rng.randrange(100)),
            )
        )
    return out


QUESTIONS = ["pump off", "the KX-77 valve", "düse", "泵站 42", "!!!", "", "pump pump pump pier on"]
HASH = HashEncoder(16)


def hashed(texts: Sequence[str]) -> dict[str, list[float]]:
    """Vectors of texts, as plain numbers."""
    distinct = sorted(set(texts))
    return dict(zip(distinct, checked(HASH, distinct).tolist(), strict=True))


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**32),
    n=st.integers(1, 90),
    devices=st.integers(1, 6),
    k=st.sampled_from([1, 3, 10, 12, 40]),
    recorded=st.sampled_from([0, 30, 60, 99, 200]),
    valid=st.sampled_from([None, 0, 40, 99]),
    namespaces=st.sampled_from([None, (), ("general",), ("general", "team:blue/2031")]),
    threads=st.sampled_from([1, 4]),
)
@example(
    seed=1, n=90, devices=6, k=3, recorded=200, valid=None, namespaces=None, threads=4
)  # more candidates than the pool holds
def test_core_equals_the_plain_loops_for_any_partition(
    seed, n, devices, k, recorded, valid, namespaces, threads
):
    facts = invent(seed, n, devices)
    vectors = hashed([fact.text for fact in facts])
    asked = checked(HASH, QUESTIONS)
    ask = {"k": k, "recorded": recorded, "valid": valid, "namespaces": namespaces}
    found = core(facts, QUESTIONS, asked, vectors.__getitem__, dim=16, threads=threads, **ask)
    for question, vector, rows in zip(QUESTIONS, asked.tolist(), found, strict=True):
        assert rows == reference(facts, question, vector, vectors.__getitem__, **ask)
    together = [replace(fact, device="one") for fact in facts]
    assert core(together, QUESTIONS, asked, vectors.__getitem__, dim=16, **ask) == found


@settings(max_examples=40)
@given(
    seed=st.integers(0, 2**32),
    n=st.integers(60, 200),
    devices=st.integers(1, 6),
    distinct=st.integers(1, 60),
    dim=st.sampled_from([3, 8, 64]),
    scale=st.sampled_from([0.0, 6e-8, 1e-7, 1e-6]),
    k=st.sampled_from([1, 10, 12]),
)
def test_core_keeps_the_order_of_vectors_that_hardly_differ(
    seed, n, devices, distinct, dim, scale, k
):
    """Ties and near-ties straddle the pool's border; an index in float32 cannot tell them apart.

    Each question names some facts by a word, which brings them to the top of the answer wherever
    they stand among the vectors: who is within the pool, and at which place, shows.
    """
    rng = np.random.default_rng(seed)
    centre = rng.normal(size=dim)
    centre /= np.linalg.norm(centre)
    near = (centre + scale * rng.integers(-3, 4, size=(distinct, dim))).astype(np.float32)
    vectors = {f"text {i}": row for i, row in enumerate(near.tolist())}
    facts = [
        Fact(f"f{rng.integers(10**6)}-{i}", f"d{rng.integers(devices)}", f"text {at}")
        for i, at in enumerate(rng.integers(distinct, size=n).tolist())
    ]
    questions = ["text", "nothing", *map(str, rng.permutation(distinct)[:10])]
    directions = np.stack([centre, -centre, rng.normal(size=dim)]).astype(np.float32)
    asked = directions[np.arange(len(questions)) % 3]
    found = core(facts, questions, asked, vectors.__getitem__, k=k, dim=dim)
    for question, vector, rows in zip(questions, asked.tolist(), found, strict=True):
        expected = reference(facts, question, vector, vectors.__getitem__, k=k, recorded=FOREVER)
        assert rows == expected


@pytest.mark.parametrize("bad", [[0.0] * 4, [math.nan, 0.0, 0.0, 1.0], [math.inf, 0.0, 0.0, 0.0]])
def test_vectors_that_say_nothing_leave_the_words(bad):
    """Zero and non-finite vectors, of questions and of facts: finite scores, stable order."""
    vectors = {"pump off": bad, "pump on": [1.0, 0, 0, 0], "valve on": [0.5, 0.5, 0, 0]}
    facts = [Fact(f"f{i}", f"d{i % 2}", text) for i, text in enumerate([*vectors, "pump off"])]
    asked = np.array([bad, [1.0, 0, 0, 0]], np.float32)
    found = core(facts, ["pump", "pump"], asked, vectors.__getitem__, k=10, dim=4)
    for rows, vector in zip(found, asked.tolist(), strict=True):
        assert rows == reference(facts, "pump", vector, vectors.__getitem__, k=10, recorded=1)
        assert all(math.isfinite(x) for row in rows for x in row[1:] if x is not None)
    assert [row[0] for row in found[0]] == ["f0", "f1", "f3"]  # by words alone
    assert {row[0] for row in found[1] if row[3] is not None} == {"f1", "f2"}


@pytest.mark.parametrize("texts", [["!!!"], ["pump", "!!!"], ["!!!", "???", "pump", "pump"]])
def test_facts_without_words_do_not_keep_a_search_from_ending(open_mesh, texts):
    """They have no vector, so an index can nominate fewer facts than may be found."""
    mesh = open_mesh()
    frame = pl.DataFrame(
        {"device": "a", "text": texts, "fact_id": [f"f{i}" for i in range(len(texts))]}
    )
    mesh.load(frame)
    found = mesh.search("pump", exhaustive=True)
    assert sorted(found.hits["fact_id"]) == [f"f{i}" for i, t in enumerate(texts) if t == "pump"]


# --- the mesh --------------------------------------------------------------------------------
def rows_of(mesh: Mesh) -> list[Fact]:
    """Every version of every fact of the active devices, straight from the files."""
    out = []
    active = mesh.devices().filter(pl.col("status") == "active")["device_id"]
    for device in sorted(active):
        path = mesh.store.folder / "shards" / device / "memory.db"
        if path.exists():
            conn = sqlite3.connect(path)
            query = (
                "SELECT fact_id, text, namespace, recorded_at, closed_at, valid_from, valid_to, "
                "expires_at FROM facts ORDER BY row_key"
            )
            out += [Fact(fact_id, device, *rest) for fact_id, *rest in conn.execute(query)]
            conn.close()
    return out


def stored_vectors(mesh: Mesh, texts: Sequence[str]) -> Callable[[str], list[float]]:
    """The float32 vectors that the mesh keeps, as plain numbers."""
    keys = [content_key(text) for text in texts]
    vectors, found = mesh.cache.get(mesh.encoder.fingerprint, keys, mesh.encoder.dim)
    assert found.all()
    return dict(zip(texts, vectors.tolist(), strict=True)).__getitem__


def as_rows(hits: pl.DataFrame) -> dict[str, list[Row]]:
    """Hits by question, in the reference's form."""
    columns = ("score", "lexical_score", "vector_score", "lexical_rank", "vector_rank")
    out: dict[str, list[Row]] = {}
    for row in hits.iter_rows(named=True):
        mine = out.setdefault(row["query_id"], [])
        mine.append((row["fact_id"], *(row[name] for name in columns)))
        assert row["rank"] == len(mine)
    return out


def check_against_reference(mesh: Mesh, questions: dict[str, str], **options: Any) -> pl.DataFrame:
    """Search, and compare every answer with the plain loops over what lies in the files."""
    frame = pl.DataFrame({"query_id": list(questions), "text": list(questions.values())})
    found = mesh.search(frame, **options)
    facts = rows_of(mesh)
    vector_of = stored_vectors(mesh, sorted({fact.text for fact in facts}))
    hits = as_rows(found.hits)
    vectors = dict(zip(questions, checked(mesh.encoder, list(questions.values())), strict=True))
    for receipt, (query_id, text) in zip(found.receipts, questions.items(), strict=True):
        body = receipt.body
        picked = found.trace.filter(pl.col("query_id") == query_id, pl.col("selected"))
        expected = reference(
            facts,
            text,
            vectors[query_id].tolist(),
            vector_of,
            k=body.k,
            recorded=body.as_of_recorded,
            valid=body.as_of_valid,
            namespaces=body.namespaces,
            chosen=set(picked["device_id"]),
        )
        assert hits.get(query_id, []) == expected
    return found.hits.drop("device_id")


def spread(seed: int, n: int, devices: int) -> pl.DataFrame:
    """Facts to load, most of them current."""
    rng = random.Random(seed)
    year = [None, None, "2020-01-01T00:00:00Z", "2040-01-01T00:00:00Z"]
    rows = [
        {
            "device": f"device-{rng.randrange(devices)}",
            "fact_id": f"f{rng.randrange(10**6):06d}-{i}",
            "text": " ".join(rng.choices(WORDS, k=rng.randint(1, 4))),
            "namespace": rng.choice(["general", "team:blue/2031"]),
            "valid_from": rng.choice(year[:3]),
            "valid_to": rng.choice(year[1:]) if rng.random() < 0.5 else None,
            "expires_at": rng.choice(year) if rng.random() < 0.2 else None,
        }
        for i in range(n)
    ]
    rows = [r for r in rows if not (r["valid_from"] and r["valid_to"] == r["valid_from"])]
    names = ["device", "fact_id", "text", "namespace", "valid_from", "valid_to", "expires_at"]
    return pl.DataFrame(rows, schema=dict.fromkeys(names, pl.String))


def disturb(mesh: Mesh, seed: int, times: int) -> None:
    """Replace, change and withdraw some facts: the same ones in every mesh that holds them."""
    rng = random.Random(seed)
    current = mesh.facts().filter(pl.col("status") == "active")["fact_id"].sort().to_list()
    rng.shuffle(current)
    for i, fact_id in enumerate(current[:times]):
        text = " ".join(rng.choices(WORDS, k=2)) + " x"
        if i % 3 == 0:
            supersede(mesh.store, fact_id, {"text": text, "fact_id": f"s{seed}-{i}"})
        elif i % 3 == 1:
            mesh.update(fact_id, text=text)
        else:
            mesh.retract(fact_id)


ASKED = {f"q{i}": text for i, text in enumerate(QUESTIONS)}


# Each example makes two meshes, so a failing one is shown as found, not made smaller.
@settings(max_examples=4, phases=[Phase.explicit, Phase.generate])
@given(seed=st.integers(0, 2**32), n=st.integers(1, 60), devices=st.integers(1, 6))
def test_mesh_equals_one_device_through_writes_and_time(seed, n, devices):
    table = spread(seed, n, devices)
    ways = [
        {"k": 3},
        {"namespaces": ["team:blue/2031"]},
        {"as_of": AsOf()},
        {"as_of": AsOf(valid_at="2035-01-01T00:00:00Z")},
    ]
    with tempfile.TemporaryDirectory() as folder:
        options = {"seed": 5, "encoder": "hash:16"}
        with (
            Mesh.open(Path(folder, "many"), **options) as many,
            Mesh.open(Path(folder, "one"), **options) as one,
        ):
            past: list[tuple[list[AsOf], pl.DataFrame]] = []
            for phase in range(2):
                for mesh in (many, one):
                    if phase == 0:
                        alone = pl.lit("alone").alias("device")
                        mesh.load(table if mesh is many else table.with_columns(alone))
                    else:
                        disturb(mesh, seed, 4)
                answers = [
                    [check_against_reference(mesh, ASKED, exhaustive=True, **way) for way in ways]
                    for mesh in (many, one)
                ]
                for spread_out, together in zip(*answers, strict=True):
                    assert spread_out.equals(together)
                points = [AsOf(recorded_at=from_us(mesh.store.now())) for mesh in (many, one)]
                before = check_against_reference(many, ASKED, exhaustive=True, as_of=points[0])
                past.append((points, before))
            for points, before in past:  # later writes have moved none of it
                for mesh, point in zip((many, one), points, strict=True):
                    again = check_against_reference(mesh, ASKED, exhaustive=True, as_of=point)
                    assert again.equals(before)


def test_remembered_terms_are_forgotten_with_every_write(open_mesh):
    """Weights of terms are kept between searches while nothing changes; no answer may show it."""
    rng = random.Random(9)
    mesh = open_mesh(encoder="hash:16")
    for part in range(3):
        n = 40 if part == 0 else 3
        texts = [" ".join(rng.choices(WORDS, k=3)) for _ in range(n)]
        frame = {
            "device": [f"d{rng.randrange(4)}" for _ in texts],
            "text": texts,
            "fact_id": [f"f{part}-{i}" for i in range(n)],
        }
        mesh.load(pl.DataFrame(frame))
        for options in ({"exhaustive": True}, {"budget": 2}, {"exhaustive": True, "k": 60}):
            check_against_reference(mesh, ASKED, **options)
    mesh.retract("f0-0")
    check_against_reference(mesh, ASKED, exhaustive=True)
    mesh.device("d1").quarantine()
    check_against_reference(mesh, ASKED, exhaustive=True)


class NearlyEqual:
    """An encoder whose vectors differ by about 1e-7, drawn from the text's digest."""

    name, dim, fingerprint = "nearly-equal", 48, "nearly-equal:48"

    def encode(self, texts: Sequence[str]) -> Any:
        out = []
        for text in texts:
            rng = np.random.default_rng(int.from_bytes(content_key(text)[:4], "big"))
            out.append(1.0 + 1e-7 * rng.integers(-2, 3, size=self.dim))
        return np.array(out, np.float32)


def test_mesh_with_nearly_equal_vectors_equals_one_device(open_mesh):
    rng = random.Random(3)
    texts = [f"word{rng.randrange(9)}" for _ in range(150)]
    table = pl.DataFrame(
        {
            "device": [f"d{rng.randrange(6)}" for _ in texts],
            "text": texts,
            "fact_id": [f"f{rng.randrange(10**6)}-{i}" for i in range(len(texts))],
        }
    )
    answers = []
    for name, frame in (
        ("many", table),
        ("one", table.with_columns(pl.lit("alone").alias("device"))),
    ):
        mesh = open_mesh(name, encoder=NearlyEqual())
        mesh.load(frame)
        answers.append(
            check_against_reference(
                mesh, {"a": "word1 word2", "b": "none of these"}, exhaustive=True
            )
        )
    assert answers[0].equals(answers[1])
    assert answers[0]["vector_rank"].is_not_null().any()


@pytest.fixture(scope="module")
def spread_mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mesh]:
    """A mesh of 60 facts on five devices, only ever searched."""
    folder = tmp_path_factory.mktemp("spread") / "mesh"
    with Mesh.open(folder, seed=7, encoder="hash:64") as mesh:
        mesh.load(spread(11, 60, 5))
        yield mesh


def test_a_batch_answers_each_question_as_if_alone(spread_mesh):
    for options in ({"exhaustive": True}, {"budget": 2}, {"expand": True, "budget": 1, "k": 20}):
        frame = pl.DataFrame({"query_id": list(ASKED), "text": list(ASKED.values())})
        together = spread_mesh.search(frame, **options)
        for query_id, text in ASKED.items():
            alone = spread_mesh.search(text, **options)
            mine = pl.col("query_id") == query_id
            for name, drop in (("hits", ["query_id"]), ("trace", ["query_id", "receipt_id"])):
                batch, single = getattr(together, name).filter(mine), getattr(alone, name)
                assert batch.drop(drop).equals(single.drop(drop)), (query_id, options, name)


def test_the_number_of_threads_changes_nothing(open_mesh):
    answers = []
    for threads in (1, 4):
        mesh = open_mesh(f"threads-{threads}", threads=threads)
        mesh.load(spread(11, 60, 5))
        frame = pl.DataFrame({"query_id": list(ASKED), "text": list(ASKED.values())})
        found = [
            mesh.search(frame, exhaustive=True),
            mesh.search(frame, budget=3, expand=True, k=30),
        ]
        answers.append(
            [
                (f.hits.to_dicts(), f.trace.to_dicts(), [r.to_json() for r in f.receipts])
                for f in found
            ]
        )
    assert answers[0] == answers[1]


# --- budgets ---------------------------------------------------------------------------------
@pytest.mark.parametrize("budget", [None, 1, 2, 3, 5, 9])
def test_fewer_shards_only_lose_results(spread_mesh, budget):
    """The same loops over the facts of the selected shards, with everybody's statistics."""
    check_against_reference(spread_mesh, ASKED, budget=budget)
    for text in QUESTIONS:
        found = spread_mesh.search(text, budget=budget)
        assert found.trace.height == 5
        assert found.trace["selected"].sum() == min(2 if budget is None else budget, 5)
        skipped = found.trace.filter(~pl.col("selected"))
        assert set(skipped["reason"]) <= {"over_budget"}
        assert skipped["results"].sum() == 0
        assert found.complete


@pytest.mark.parametrize("k", [1, 5, 20, 60])
@pytest.mark.parametrize("max_shards", [None, 1, 2, 4, 99])
def test_expansion_stops_as_soon_as_it_may(spread_mesh, k, max_shards):
    """It goes on in rank order while too few are found, and never past max_shards."""
    limit = min(max_shards or 5, 5)
    for text in QUESTIONS[:3]:
        found = spread_mesh.search(text, k=k, budget=1, expand=True, max_shards=max_shards)
        trace = found.trace.sort("step")
        searched = int(trace["selected"].sum())
        assert trace["selected"].to_list() == [True] * searched + [False] * (5 - searched)
        assert searched <= limit
        assert found.hits.height >= k or searched == limit
        if searched > 1:  # without the last shard there were too few
            fewer = spread_mesh.search(text, k=k, budget=searched - 1)
            assert fewer.hits.height < k
        same = spread_mesh.search(text, k=k, budget=searched)
        assert same.hits.equals(found.hits)
        reasons = ["budget", *["expanded"] * (searched - 1), *["over_budget"] * (5 - searched)]
        assert trace["reason"].to_list() == reasons
        expanded = "insufficient_results_expand" if searched > 1 else None
        assert found.receipt.body.fallback_reason == expanded


@pytest.mark.parametrize("expand", [False, True])
def test_max_shards_also_bounds_the_default_budget(spread_mesh, expand):
    found = spread_mesh.search("pump", max_shards=1, expand=expand, k=60)
    assert found.trace["selected"].sum() == 1
    assert found.receipt.verify()


def test_statistics_do_not_depend_on_the_budget(spread_mesh):
    whole = spread_mesh.search("pump off", exhaustive=True, k=100).hits
    scores = dict(whole.select("fact_id", "lexical_score").iter_rows())
    for budget in (1, 2, 3):
        for row in spread_mesh.search("pump off", budget=budget, k=100).hits.iter_rows(named=True):
            assert row["lexical_score"] == scores[row["fact_id"]]


# --- public data, where it lies beside the repository ----------------------------------------
def lines(path: Path) -> list[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        return [json.loads(line) for line in file]


@pytest.mark.parametrize("name", ["locomo", "locomo_obs", "ramdocs"])
def test_public_sets_answer_alike_from_many_devices_and_from_one(open_mesh, name):
    if not (PUBLIC_DATA / name / "queries.jsonl").exists():
        pytest.skip(f"{name} is not beside the repository")
    facts = lines(PUBLIC_DATA / name / "facts.jsonl")
    asked = list(islice(lines(PUBLIC_DATA / name / "queries.jsonl"), 0, None, 4))[:60]
    assert len(asked) >= 50
    table = pl.DataFrame(
        {
            n: [fact[key] for fact in facts]
            for n, key in (("device", "device"), ("fact_id", "id"), ("text", "text"))
        }
    )
    queries = pl.DataFrame(
        {"query_id": [q["id"] for q in asked], "text": [q["text"] for q in asked]}
    )
    hits = []
    for way in ("many", "one"):
        mesh = open_mesh(way)
        frame = table if way == "many" else table.with_columns(pl.lit("alone").alias("device"))
        refused = mesh.load(frame).filter(pl.col("outcome") != "stored")
        assert refused["reason"].str.contains("NUL").all()  # torn pages, and nothing else
        assert refused.height < 20
        hits.append(mesh.search(queries, exhaustive=True, k=20).hits.drop("device_id"))
    assert hits[0].height == 20 * len(asked)
    assert hits[0].equals(hits[1])


# --- law 5 with a budget: whom to ask does not move either ----------------------------------------
@pytest.mark.parametrize("router", ["overlap", "overlap:ascii"])
@pytest.mark.parametrize(
    "how", [{"budget": 1}, {"budget": 1, "expand": True}, {"exhaustive": True}]
)
def test_a_past_answer_and_its_route_stay_as_they_were(open_mesh, router, how):
    mesh = open_mesh()
    mesh.agent("a").remember("pumps at pier")
    old = mesh.agent("b").remember("flour is blue at the jar")
    then = AsOf(recorded_at=from_us(mesh.store.now()))
    question = "which pumps at pier four"
    before = mesh.search(question, as_of=then, router=router, **how)
    for i in range(5):
        mesh.agent("b").remember(f"the pumps at pier four number {i}")
    mesh.agent("c").remember("which pumps at pier four are new")
    mesh.retract(old)
    after = mesh.search(question, as_of=then, router=router, **how)
    assert after.hits.equals(before.hits)
    same = ["device_id", "step", "score", "selected", "reason", "results"]
    assert after.trace.select(same).equals(before.trace.select(same))
    assert before.trace["device_id"].n_unique() == 2
