"""Search a batch of questions over chosen shards, so that the partition leaves no trace.

Each shard's index nominates; nothing is decided inside a shard. Over all of them together:

1. *Lexical.* Postings of the query's terms are gathered from every chosen shard and weighted with
   the statistics of all eligible shards; a fact's score adds its terms in sorted order, float64.
2. *Vector.* Nominees whose approximate score lies within 2e-6 of the P-th best or above it are
   scored again canonically: products summed in float64, dimension by dimension. A shard whose
   last nominee still lies above that line is asked for more.
3. Both lists are sorted by (-score, fact_id), cut to the pool, and fused once.

All arithmetic is element by element, so neither the batch, the threads nor the shards move a bit.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
import numpy.typing as npt

from mnemes_lab.errors import MnemesError
from mnemes_lab.router.merge import Fused, fuse, in_order, pool_size
from mnemes_lab.router.summary import Lexicon
from mnemes_lab.store.index import Columns, Floats32, Ints, Mask, ShardIndex
from mnemes_lab.text.lexicon import Postings, bm25_weight, routing_tokens

MARGIN = 2e-6  # twice the largest error of a float32 inner product of unit vectors seen here
_SPARE = 14


Ranked = list[tuple[int, float]]
Weights = tuple[Ints, npt.NDArray[np.float64]]


class TermMemory:
    """BM25 weights of recent terms over all eligible shards, under a byte budget.

    Good for one state of the catalogue: whoever makes it drops it when anything changes. Common
    words occur in most questions and in most facts, so they are worth weighting once.
    """

    def __init__(self, shards: int, *, budget: int = 1 << 26) -> None:
        """Remember weights over this many shards."""
        self.shards, self._budget, self._bytes = shards, budget, 0
        self._known: OrderedDict[str, Weights | None] = OrderedDict()
        self._turn = threading.Lock()

    def get(self, term: str, make: Callable[[str], Weights | None]) -> Weights | None:
        """The weights of a term, None where no fact holds it; made and kept when not known."""
        with self._turn:
            if term in self._known:
                self._known.move_to_end(term)
                return self._known[term]
        weights = make(term)
        with self._turn:
            if term in self._known:
                return weights
            self._known[term] = weights
            self._bytes += _size(weights)
            while self._bytes > self._budget and len(self._known) > 1:
                self._bytes -= _size(self._known.popitem(last=False)[1])
        return weights


def _size(weights: Weights | None) -> int:
    return 100 + (sum(part.nbytes for part in weights) if weights else 0)


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
    findable: int = 0
    nearest: dict[int, tuple[Floats32, Ints]] = field(default_factory=dict)


@dataclass(frozen=True)
class Hit:
    """A hit before it becomes a row."""

    shard: int
    row: int
    fused: Fused


class Batch:
    """Questions, their vectors and terms, and the shards they have been put to so far."""

    def __init__(
        self,
        texts: Sequence[str],
        vectors: Floats32,
        lexicon: Callable[[Sequence[str]], Lexicon],
        load: Callable[[int], ShardIndex],
        stopwatch: Callable[[], Callable[[], float]],
        request: Request,
        memory: TermMemory | None = None,
    ) -> None:
        """Tokenise the questions; shards are named by position, loaded by `load`."""
        self.request, self.load, self.stopwatch = request, load, stopwatch
        self.memory = memory
        self.terms = [routing_tokens(text) for text in texts]
        self.vectors = np.ascontiguousarray(vectors, np.float32)
        finite = np.isfinite(self.vectors).all(axis=1)
        self.usable = np.asarray(finite & self.vectors.any(axis=1), np.bool_)
        self.lexicon = lexicon(sorted({t for terms in self.terms for t in terms}))
        self.visits: dict[int, Visit] = {}
        # question -> (fact id, shard) -> content digest, of facts that shards disagree about
        self.conflicts: dict[int, dict[tuple[str, int], bytes]] = {}
        self.pool = pool_size(request.k)

    # --- visiting ----------------------------------------------------------------------------
    def visit(self, chosen: dict[int, list[int]]) -> None:
        """Put questions to shards: shard -> questions. Failures are kept, not raised."""
        items = sorted(chosen.items())
        if self.request.threads > 1 and len(items) > 1:
            with ThreadPoolExecutor(self.request.threads) as workers:
                done = list(workers.map(lambda item: self._visit(*item), items))
        else:
            done = [self._visit(*item) for item in items]
        for (shard, _), visit in zip(items, done, strict=True):
            if shard in self.visits:
                visit.nearest = {**self.visits[shard].nearest, **visit.nearest}
            self.visits[shard] = visit

    def _visit(self, shard: int, queries: list[int]) -> Visit:
        visit, elapsed, ask = Visit(), self.stopwatch(), self.request
        try:
            index = self.load(shard)
            visit.mask = index.visible(ask.valid, ask.recorded, ask.namespaces)
            visit.findable = index.findable(visit.mask)
            asked = [q for q in queries if self.usable[q]]
            if asked and visit.findable:
                depth = self.pool + _SPARE
                near = index.nearest(self.vectors[asked], depth, visit.mask, exact=ask.exact)
                visit.nearest = dict(zip(asked, near, strict=True))
            visit.columns, visit.postings = index.columns, index.postings
        except (MnemesError, OSError, ValueError) as error:
            visit.error = f"{type(error).__name__}: {error}"
        visit.latency_ms = elapsed()
        return visit

    # --- merging -----------------------------------------------------------------------------
    def merge(self, selected: dict[int, list[int]]) -> dict[int, list[Hit]]:
        """Hits of each question over its selected shards (question -> shards)."""
        shards = sorted(s for s, v in self.visits.items() if v.columns is not None)
        place = {s: i for i, s in enumerate(shards)}
        sizes = [len(self.columns(s)) for s in shards]
        starts = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
        plan = {q: [s for s in wanted if s in place] for q, wanted in selected.items()}
        view = _View(self, shards, place, starts)
        lists = view.lists(plan)
        while clashes := view.clashes(lists):
            lists |= view.lists({q: plan[q] for q in clashes})
        return {q: view.hits(*lists[q]) for q in selected}

    def columns(self, shard: int) -> Columns:
        """The columns of a shard that answered."""
        columns = self.visits[shard].columns
        assert columns is not None  # only shards that answered are merged
        return columns


class _View:
    """All shards that answered, as one row space."""

    def __init__(
        self, batch: Batch, shards: list[int], place: dict[int, int], starts: Ints
    ) -> None:
        self.batch, self.shards, self.place, self.starts = batch, shards, place, starts
        self.columns = [batch.columns(s) for s in shards]
        masks = [batch.visits[s].mask for s in shards]
        self.mask: Mask | None = None
        if any(mask is not None for mask in masks):
            self.mask = np.concatenate(
                [
                    np.ones(len(c), bool) if m is None else m
                    for c, m in zip(self.columns, masks, strict=True)
                ]
            )
        self.excluded: dict[int, set[int]] = {}  # question -> rows kept out of its answer

    def lists(self, plan: dict[int, list[int]]) -> dict[int, tuple[Ranked, Ranked]]:
        """The two ranked lists of each question."""
        lexical, vector = self.lexical(plan), self.vector(plan)
        return {q: (lexical.get(q, []), vector.get(q, [])) for q in plan}

    def clashes(self, lists: dict[int, tuple[Ranked, Ranked]]) -> list[int]:
        """Keep rows that share a fact id out of answers: one copy stays if all say the same.

        Answers the questions whose lists must be made again.
        """
        again = []
        for q, (lexical, vector) in lists.items():
            keys = sorted({key for key, _ in (*lexical, *vector)})
            copies: dict[str, list[int]] = {}
            for key, fact_id in zip(keys, self.ids(np.array(keys, np.int64)), strict=True):
                copies.setdefault(fact_id, []).append(key)
            for fact_id, same in copies.items():
                if len(same) > 1:
                    self.excluded.setdefault(q, set()).update(self._surplus(q, fact_id, same))
                    again.append(q)
        return sorted(set(again))

    def _surplus(self, q: int, fact_id: str, keys: list[int]) -> list[int]:
        """Rows to keep out among copies of a fact, in shard order; records a conflict."""
        at = [self.where(key) for key in keys]
        digests = [self.columns[a].digest[row] for a, row in at]
        if len(set(digests)) == 1:
            return keys[1:]
        for (a, _), digest in zip(at, digests, strict=True):
            self.batch.conflicts.setdefault(q, {})[fact_id, self.shards[a]] = digest
        return keys

    def where(self, key: int) -> tuple[int, int]:
        at = int(np.searchsorted(self.starts, key, side="right")) - 1
        return at, key - int(self.starts[at])

    def ids(self, keys: npt.NDArray[np.int64]) -> list[str]:
        at = np.searchsorted(self.starts, keys, side="right") - 1
        rows = keys - self.starts[at]
        return [self.columns[a].fact_id[r] for a, r in zip(at.tolist(), rows.tolist(), strict=True)]

    # --- words -------------------------------------------------------------------------------
    def lexical(self, plan: dict[int, list[int]]) -> dict[int, Ranked]:
        terms = sorted({t for q in plan for t in self.batch.terms[q]})
        weights = {t: w for t in terms if (w := self._remembered(t)) is not None}
        total = int(self.starts[-1])
        out = {}
        for q, chosen in plan.items():
            mine = [weights[t] for t in sorted(self.batch.terms[q]) if t in weights]
            if not mine or not chosen:
                continue
            rows = np.concatenate([rows for rows, _ in mine])
            parts = np.concatenate([part for _, part in mine])
            score = np.asarray(
                np.bincount(rows, parts, minlength=total), np.float64
            )  # adds in the order given: by term
            if len(chosen) < len(self.shards):
                keep = np.zeros(len(self.shards), bool)
                keep[[self.place[s] for s in chosen]] = True
                score = score * np.repeat(keep, np.diff(self.starts))
            score[sorted(self.excluded.get(q, ()))] = 0.0
            out[q] = self._best(score)
        return out

    def _remembered(self, term: str) -> Weights | None:
        """Weights of a term, remembered while shards and statistics stay as they are."""
        memory = self.batch.memory
        if memory is None or self.mask is not None or len(self.shards) < memory.shards:
            return self._weights(term)
        return memory.get(term, self._weights)

    def _weights(self, term: str) -> Weights | None:
        """Where a term occurs over all these shards, and its BM25 weight there."""
        rows, tf, lengths, starts = [], [], [], []
        for start, shard in zip(self.starts.tolist(), self.shards, strict=False):
            postings = self.batch.visits[shard].postings
            at = None if postings is None else postings.lookup.get(term)
            if postings is None or at is None:
                continue
            a, b = postings.bounds[at], postings.bounds[at + 1]
            rows.append(postings.rows[a:b])
            tf.append(postings.tf[a:b])
            lengths.append(postings.row_lengths[a:b])
            starts.append(start)
        if not rows:
            return None
        first = np.repeat(np.array(starts, np.int64), list(map(len, rows)))
        where = np.asarray(np.concatenate(rows) + first, np.int64)
        counts, sizes = np.concatenate(tf), np.concatenate(lengths)
        if self.mask is not None:
            keep = self.mask[where]
            where, counts, sizes = where[keep], counts[keep], sizes[keep]
        lexicon = self.batch.lexicon
        return where, bm25_weight(counts, sizes, lexicon.idf(term), lexicon.average_length)

    def _best(self, score: npt.NDArray[np.float64]) -> Ranked:
        limit = self.batch.pool
        line = np.partition(score, -limit)[-limit] if len(score) > limit else 0.0
        keys = np.flatnonzero(score >= line if line > 0 else score > 0)
        return in_order(keys.tolist(), score[keys].tolist(), self.ids(keys), limit)

    # --- vectors -----------------------------------------------------------------------------
    def vector(self, plan: dict[int, list[int]]) -> dict[int, Ranked]:
        nominees = {q: self._nominees(q, chosen) for q, chosen in plan.items() if chosen}
        nominees = {q: keys for q, keys in nominees.items() if len(keys)}
        scores = self._canonical(nominees)
        return {
            q: in_order(keys.tolist(), scores[q].tolist(), self.ids(keys), self.batch.pool)
            for q, keys in nominees.items()
        }

    def _nominees(self, q: int, chosen: list[int]) -> Ints:
        """Every row that can be among the P best, by approximate score and a safe margin."""
        visits = [(self.place[s], self.batch.visits[s]) for s in chosen]
        visits = [(at, v) for at, v in visits if q in v.nearest]
        while True:
            found = [(v.nearest[q], at) for at, v in visits]
            if not found:
                return np.zeros(0, np.int64)
            scores = np.concatenate([s for (s, _), _ in found])
            rows = np.concatenate([r + self.starts[at] for (_, r), at in found])
            keep = np.ones(len(rows), bool)
            if q in self.excluded:
                keep &= ~np.isin(rows, sorted(self.excluded[q]))
            scores, rows = scores[keep], rows[keep]
            line = -np.inf
            if len(rows) > self.batch.pool:
                nth = len(rows) - self.batch.pool
                line = float(np.partition(scores, nth)[nth]) - MARGIN
            short = [(at, v) for at, v in visits if _could_hold_more(v, q, line)]
            if not short:
                return rows[scores >= line]
            for at, visit in short:
                self._deepen(self.shards[at], visit, q)

    def _deepen(self, shard: int, visit: Visit, q: int) -> None:
        ask, depth = self.batch.request, 2 * len(visit.nearest[q][1])
        index, query = self.batch.load(shard), self.batch.vectors[[q]]
        visit.nearest[q] = index.nearest(query, depth, visit.mask, exact=ask.exact)[0]

    def _canonical(self, nominees: dict[int, Ints]) -> dict[int, npt.NDArray[np.float64]]:
        """Cosine of question and fact, products summed in float64 in dimension order."""
        if not nominees:
            return {}
        keys = np.concatenate(list(nominees.values()))
        which = np.repeat(list(nominees), [len(k) for k in nominees.values()])
        dim = self.batch.vectors.shape[1]
        facts = np.empty((len(keys), dim), np.float32)
        at = np.searchsorted(self.starts, keys, side="right") - 1
        for shard_at in np.unique(at).tolist():
            here = np.flatnonzero(at == shard_at)
            rows = keys[here] - self.starts[shard_at]
            facts[here] = self.batch.load(self.shards[shard_at]).vectors(rows)
        products = facts.T.astype(np.float64)
        products *= self.batch.vectors.T.astype(np.float64)[:, which]
        total = np.add.accumulate(products, axis=0)[
            -1
        ]  # one dimension after the other, by definition
        parts = iter(total.tolist())
        return {q: np.array(list(islice(parts, len(k)))) for q, k in nominees.items()}

    # --- both --------------------------------------------------------------------------------
    def hits(self, lexical: Ranked, vector: Ranked) -> list[Hit]:
        keys = list({key: None for key, _ in (*lexical, *vector)})
        ids = dict(zip(keys, self.ids(np.array(keys, np.int64)), strict=True))
        fused = fuse(lexical, vector, ids.__getitem__, self.batch.request.k)
        return [Hit(self.shards[at], row, f) for f in fused for at, row in [self.where(f.key)]]


def _could_hold_more(visit: Visit, q: int, line: float) -> bool:
    """Whether a shard may hold rows above the line that it has not shown."""
    scores, rows = visit.nearest[q]
    return bool(len(rows) < visit.findable and len(scores) and scores.min() >= line)
