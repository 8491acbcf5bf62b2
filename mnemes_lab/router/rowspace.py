"""All shards that answered, as one row space in which the two lists are ranked and fused."""

from __future__ import annotations

from heapq import nsmallest
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mnemes_lab.router.merge import Fused, fuse, in_order
from mnemes_lab.router.terms import Weights
from mnemes_lab.store.index import Floats32, Ints, Mask
from mnemes_lab.text.lexicon import bm25_weight

if TYPE_CHECKING:
    from mnemes_lab.router.search import Batch

MARGIN = 2e-6  # twice the largest error of a float32 inner product of unit vectors seen here
Ranked = list[tuple[int, float]]
_BLOCK = 64
_COMMON = 16  # a term is common when one row in so many holds it


class Hit(NamedTuple):
    """A hit before it becomes a row."""

    shard: int
    row: int
    fused: Fused


class RowSpace:
    """Rows of the shards that answered, numbered through in shard order."""

    def __init__(self, batch: Batch, shards: list[int]) -> None:
        """Number the rows of `shards`."""
        self.batch, self.shards = batch, shards
        self.columns = [batch.columns(shard) for shard in shards]
        sizes = [len(columns) for columns in self.columns]
        self.starts = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
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

    def lists(self, questions: list[int]) -> dict[int, tuple[Ranked, Ranked]]:
        """The two ranked lists of each question."""
        lexical, vector = self.lexical(questions), self.vector(questions)
        return {q: (lexical.get(q, []), vector.get(q, [])) for q in questions}

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
        """Shard by place, and row in it."""
        at = int(np.searchsorted(self.starts, key, side="right")) - 1
        return at, key - int(self.starts[at])

    def ids(self, keys: npt.NDArray[np.int64]) -> list[str]:
        """Fact ids of rows."""
        at = np.searchsorted(self.starts, keys, side="right") - 1
        rows = keys - self.starts[at]
        return [self.columns[a].fact_id[r] for a, r in zip(at.tolist(), rows.tolist(), strict=True)]

    # --- words -------------------------------------------------------------------------------
    def lexical(self, questions: list[int]) -> dict[int, Ranked]:
        """Rows ranked by BM25, per question."""
        terms = sorted({t for q in questions for t in self.batch.terms[q]})
        weights = {t: w for t in terms if (w := self._remembered(t)) is not None}
        total = int(self.starts[-1])
        out = {}
        for q in questions:
            mine = [weights[t] for t in sorted(self.batch.terms[q]) if t in weights]
            if not mine:
                continue
            score = np.zeros(total)
            for rows, weight in mine:  # in order of terms: so they add
                if rows is None:
                    score += weight
                else:
                    score[rows] += weight
            score[sorted(self.excluded.get(q, ()))] = 0.0
            out[q] = self._best(score)
        return out

    def _remembered(self, term: str) -> Weights | None:
        """Weights of a term, remembered while shards and statistics stay as they are."""
        memory = self.batch.memory
        if memory is None or self.mask is not None or len(self.shards) < memory.shards:
            return self._weights(term)
        return memory.get(term, self._spread)

    def _spread(self, term: str) -> Weights | None:
        """Weights of a common term as one number per row: adding those is a plain sum."""
        found, total = self._weights(term), int(self.starts[-1])
        if found is None or found[0] is None or len(found[0]) * _COMMON < total:
            return found
        every = np.zeros(total)
        every[found[0]] = found[1]
        return None, every

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
        line = nth_best(score, limit) if len(score) > limit else 0.0
        keys = np.flatnonzero(score >= line if line > 0 else score > 0)
        return self._ordered(keys, score[keys])

    def _ordered(self, keys: Ints, scores: npt.NDArray[np.float64]) -> Ranked:
        """`in_order` cut to the pool, without sorting all of many rows that tie at its border."""
        limit = self.batch.pool
        if len(keys) > limit:
            line = nth_best(scores, limit)
            above, tied = np.flatnonzero(scores > line), keys[scores == line]
            wanted = limit - len(above)
            first = nsmallest(wanted, zip(self.ids(tied), tied.tolist(), strict=True))
            keys = np.concatenate([keys[above], np.array([key for _, key in first], np.int64)])
            scores = np.concatenate([scores[above], np.full(wanted, line)])
        return in_order(keys.tolist(), scores.tolist(), self.ids(keys), limit)

    # --- vectors -----------------------------------------------------------------------------
    def vector(self, questions: list[int]) -> dict[int, Ranked]:
        """Rows ranked by cosine, per question."""
        nominees = {q: self._nominees(q) for q in questions}
        nominees = {q: keys for q, keys in nominees.items() if len(keys)}
        scores = self._canonical(nominees)
        return {q: self._ordered(keys, scores[q]) for q, keys in nominees.items()}

    def _nominees(self, q: int) -> Ints:
        """Every row that can be among the P best: by approximate score and a safe margin."""
        if not self.shards:
            return np.zeros(0, np.int64)
        scores = np.concatenate([self._scores(q, at) for at in range(len(self.shards))])
        scores[sorted(self.excluded.get(q, ()))] = -np.inf
        line, pool = -np.inf, self.batch.pool
        if len(scores) > pool:
            line = nth_best(scores, pool) - MARGIN
        return np.flatnonzero(scores >= line if line > -np.inf else scores > -np.inf)

    def _scores(self, q: int, at: int) -> Floats32:
        found = self.batch.visits[self.shards[at]].scores.get(q)
        if found is not None:
            return found
        return np.full(len(self.columns[at]), -np.inf, np.float32)  # the question has no vector

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
        total = np.add.accumulate(products, axis=0)[-1]  # by definition one after the other
        parts = iter(total.tolist())
        return {q: np.array(list(islice(parts, len(k)))) for q, k in nominees.items()}

    # --- both --------------------------------------------------------------------------------
    def hits(self, lexical: Ranked, vector: Ranked) -> list[Hit]:
        """Both lists fused."""
        keys = list({key: None for key, _ in (*lexical, *vector)})
        ids = dict(zip(keys, self.ids(np.array(keys, np.int64)), strict=True))
        fused = fuse(lexical, vector, ids.__getitem__, self.batch.request.k)
        return [Hit(self.shards[at], row, f) for f in fused for at, row in [self.where(f.key)]]


def nth_best(scores: npt.NDArray[Any], n: int) -> float:
    """The n-th largest of more than n scores.

    At least n rows reach the n-th best of the blocks' best rows, so only rows that do are ordered:
    over a hundred thousand rows this costs a tenth of a partition of all of them.
    """
    whole = len(scores) // _BLOCK * _BLOCK
    if whole // _BLOCK >= n:
        best = scores[:whole].reshape(-1, _BLOCK).max(axis=1)
        scores = scores[scores >= np.partition(best, -n)[-n]]
    return float(np.partition(scores, -n)[-n])
