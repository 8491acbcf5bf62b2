"""Search a batch of questions over chosen shards, so that the partition leaves no trace.

Each shard's index nominates; nothing is decided inside a shard. Over all of them together:

1. *Lexical.* Postings of the query's terms are gathered from every chosen shard and weighted with
   the statistics of all eligible shards; a fact's score adds its terms in sorted order, float64.
2. *Vector.* Nominees whose approximate score lies within 2e-6 of the P-th best or above it are
   scored again canonically: products summed in float64, dimension by dimension.
3. Both lists are sorted by (-score, fact_id), cut to the pool, and fused once.

All arithmetic is element by element, so neither the batch, the threads nor the shards move a bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np

from mnemes_lab.errors import MnemesError
from mnemes_lab.router.merge import pool_size
from mnemes_lab.router.rowspace import Hit, RowSpace
from mnemes_lab.router.summary import Lexicon
from mnemes_lab.router.terms import TermMemory
from mnemes_lab.store.index import Columns, Floats32, Mask, ShardIndex
from mnemes_lab.text.lexicon import Postings, routing_tokens

_CELLS = 1 << 25  # approximate scores held at once: 128 MB


@dataclass(frozen=True)
class Request:
    """What a batch asks for, beyond its questions."""

    k: int
    valid: int | None
    recorded: int
    namespaces: tuple[str, ...] | None
    exact: bool
    threads: int = 1


@dataclass
class Visit:
    """What one shard answered. Keeps words and columns, not vectors: those may be dropped."""

    columns: Columns | None = None
    postings: Postings | None = None
    mask: Mask | None = None
    error: str | None = None
    latency_ms: float = 0.0
    asked: set[int] = field(default_factory=set)
    scores: dict[int, Floats32] = field(default_factory=dict)


class Batch:
    """Questions, their vectors and terms, and the shards they have been put to."""

    def __init__(
        self,
        texts: Sequence[str],
        vectors: Floats32,
        lexicon: Callable[[Sequence[str]], Lexicon],
        load: Callable[[int], ShardIndex],
        stopwatch: Callable[[], Callable[[], float]],
        request: Request,
        memory: TermMemory | None = None,
        settle: Callable[[list[int]], None] = lambda shards: None,
    ) -> None:
        """Tokenise the questions; shards are named by position, loaded by `load`.

        `settle` is told which shards come next, before the first of them is loaded.
        """
        self.request, self.load, self.stopwatch = request, load, stopwatch
        self.memory, self.settle = memory, settle
        self.terms = [routing_tokens(text) for text in texts]
        self.vectors = np.ascontiguousarray(vectors, np.float32)
        finite = np.isfinite(self.vectors).all(axis=1)
        self.usable = np.asarray(finite & self.vectors.any(axis=1), np.bool_)
        self.lexicon = lexicon(sorted({t for terms in self.terms for t in terms}))
        self.visits: dict[int, Visit] = {}
        # question -> (fact id, shard) -> content digest, of facts that shards disagree about
        self.conflicts: dict[int, dict[tuple[str, int], bytes]] = {}
        self.pool = pool_size(request.k)

    def ask(self, selected: dict[int, list[int]]) -> dict[int, list[Hit]]:
        """Hits of each question over its selected shards (question -> shards).

        Shards that a question was put to before are not asked again. Questions go in blocks, so
        that the scores of a large batch over many facts never lie in memory together.
        """
        questions = list(selected)
        block = max(8, _CELLS // max(1, self.lexicon.facts))
        out: dict[int, list[Hit]] = {}
        for start in range(0, len(questions), block):
            part = {q: selected[q] for q in questions[start : start + block]}
            self._visit_all(part)
            out |= self._merge(part)
            if len(questions) > block:
                for visit in self.visits.values():
                    visit.scores, visit.asked = {}, set()
        return out

    def columns(self, shard: int) -> Columns:
        """The columns of a shard that answered."""
        columns = self.visits[shard].columns
        assert columns is not None  # only shards that answered are merged
        return columns

    # --- visiting ----------------------------------------------------------------------------
    def _visit_all(self, selected: dict[int, list[int]]) -> None:
        """Put questions to shards. Failures are kept, not raised."""
        chosen: dict[int, list[int]] = {}
        for q, shards in selected.items():
            for shard in shards:
                if shard not in self.visits or q not in self.visits[shard].asked:
                    chosen.setdefault(shard, []).append(q)
        items = sorted(chosen.items())
        self.settle([shard for shard, _ in items])
        for shard, _ in items:
            self.visits.setdefault(shard, Visit())
        if self.request.threads > 1 and len(items) > 1:
            with ThreadPoolExecutor(self.request.threads) as workers:
                list(workers.map(lambda item: self._visit(*item), items))
        else:
            for item in items:
                self._visit(*item)

    def _visit(self, shard: int, questions: list[int]) -> None:
        visit, elapsed, ask = self.visits[shard], self.stopwatch(), self.request
        try:
            index = self.load(shard)
            visit.mask = index.visible(ask.valid, ask.recorded, ask.namespaces)
            visit.columns, visit.postings = index.columns, index.postings
            asked = [q for q in questions if self.usable[q]]
            if asked and index.with_vector:
                vectors = self.vectors if len(asked) == len(self.vectors) else self.vectors[asked]
                found = index.scores(vectors, visit.mask, self.pool, exact=ask.exact)
                visit.scores.update(zip(asked, found, strict=True))
            visit.asked.update(questions)
        except (MnemesError, OSError, ValueError) as error:
            told = f"{type(error).__name__}: {error}"
            visit.columns, visit.error = None, told.encode("utf-8", "replace").decode()
        visit.latency_ms = elapsed()

    # --- merging -----------------------------------------------------------------------------
    def _merge(self, selected: dict[int, list[int]]) -> dict[int, list[Hit]]:
        """Questions that were put to the same shards are merged in one row space."""
        answered = {shard for shard, visit in self.visits.items() if visit.columns is not None}
        groups: dict[tuple[int, ...], list[int]] = {}
        for q, wanted in selected.items():
            groups.setdefault(tuple(sorted(answered.intersection(wanted))), []).append(q)
        out: dict[int, list[Hit]] = {}
        for shards, questions in groups.items():
            space = RowSpace(self, list(shards))
            lists = space.lists(questions)
            while clashes := space.clashes(lists):
                lists |= space.lists(clashes)
            out |= {q: space.hits(*lists[q]) for q in questions}
        return {q: out[q] for q in selected}
