"""One routed search, from questions to durable receipts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import Dialect, bindparam, case, insert, literal_column, select, update

from mnemes_lab.mesh.eligible import Eligible, ShardView
from mnemes_lab.mesh.found import Receipts
from mnemes_lab.mesh.options import Options
from mnemes_lab.mesh.telling import (
    Answered,
    Question,
    Routed,
    conflict_rows,
    conflicts_frame,
    hits_frame,
    sign_receipts,
    trace_columns,
)
from mnemes_lab.router.rankers import Scores, initial_budget, ranked, router_named
from mnemes_lab.router.search import Batch, Request
from mnemes_lab.store import tables as t
from mnemes_lab.store.asof import points
from mnemes_lab.store.indexes import Indexes
from mnemes_lab.store.keys import KeyRing
from mnemes_lab.store.receipts import row_v2
from mnemes_lab.store.store import Store


class Searcher:
    """Searches the shards of one store."""

    def __init__(
        self, store: Store, indexes: Indexes, view: ShardView, ring: KeyRing, threads: int
    ) -> None:
        """Join the parts."""
        self.store, self.indexes, self.view = store, indexes, view
        self.ring, self.threads = ring, threads

    def search(
        self,
        asked: Sequence[tuple[str, str, str]],
        vectors: Any,
        options: Options,
        askers: Sequence[str | None],
    ) -> Answered:
        """Answer questions (query_id, text, requester) with their vectors."""
        present = self.view.now()
        now = self.store.now()
        valid, recorded = points(options.as_of, now)
        eligible = present.at(self.indexes, recorded)
        request = Request(
            options.k, valid, recorded, options.namespaces, options.exhaustive, self.threads
        )
        batch = Batch(
            [text for _, text, _ in asked],
            vectors,
            eligible.statistics.snapshot,
            lambda at: self._load(eligible, at),
            self.store.clock.stopwatch,
            request,
            eligible.memory,
            lambda shards: self.indexes.settle(eligible.device_ids[at] for at in shards),
        )
        questions = [Question(*one) for one in asked]
        scores = self._rank(questions, eligible, options, askers)
        self._first_wave(batch, questions)
        self._expand(batch, questions, options)
        done = Routed(batch, questions, scores, eligible, options, now)
        receipts = sign_receipts(done, self.store, self.indexes.encoder.fingerprint, self.ring)
        self._record(done, receipts)
        return Answered(
            hits_frame(done),
            trace_columns(done, receipts),
            conflicts_frame(conflict_rows(done)),
            receipts,
            not any(visit.error for visit in batch.visits.values()),
        )

    def _load(self, eligible: Eligible, at: int) -> Any:
        device_id = eligible.device_ids[at]
        return self.indexes.get(device_id, eligible.generations[device_id])

    # --- choosing ----------------------------------------------------------------------------
    def _rank(
        self,
        questions: list[Question],
        eligible: Eligible,
        options: Options,
        askers: Sequence[str | None],
    ) -> Scores:
        router = router_named(options.router)
        terms = [router.tokenise(q.text) for q in questions]
        scores = eligible.table(router).score(terms, askers)
        n = initial_budget(options.budget, len(eligible.device_ids), exhaustive=options.exhaustive)
        if options.max_shards is not None and not options.exhaustive:
            n = min(n, options.max_shards)  # the default budget may be above it
        for question, order in zip(questions, ranked(scores).tolist(), strict=True):
            question.order, question.first_wave, question.searched = order, n, n
        return scores

    @staticmethod
    def _first_wave(batch: Batch, questions: list[Question]) -> None:
        hits = batch.ask({q: question.shards for q, question in enumerate(questions)})
        for question, found in zip(questions, hits.values(), strict=True):
            question.hits = found

    @staticmethod
    def _expand(batch: Batch, questions: list[Question], options: Options) -> None:
        """Go on, one shard at a time in rank order, while a question has found too few."""
        if not options.expand or options.exhaustive:
            return
        limit = len(questions[0].order) if questions else 0
        limit = min(options.max_shards or limit, limit)
        while True:
            again = {}
            for q, question in enumerate(questions):
                if len(question.hits) < options.k and question.searched < limit:
                    question.searched += 1
                    again[q] = question.shards
            if not again:
                return
            for q, hits in batch.ask(again).items():
                questions[q].hits = hits

    # --- keeping -----------------------------------------------------------------------------
    def _record(self, done: Routed, receipts: Receipts) -> None:
        """Write receipts, search counts and conflicts in one transaction, before answering."""
        rows = [row_v2(receipt.body) for receipt in receipts]
        ids, visits = done.eligible.device_ids, done.batch.visits
        visited = [(v.latency_ms, v.latency_ms, ids[at]) for at, v in sorted(visits.items())]
        conflicts = conflict_rows(done)
        with self.store.pooled() as conn:
            if rows:
                conn.execute(insert(t.receipts), rows)
            if visited:
                conn.exec_driver_sql(_count_search(conn.dialect), visited)
            if conflicts:
                held = conn.execute(select(*(t.item_conflicts.c[name] for name in _PAIR)))
                known = {tuple(row) for row in held}
                fresh = [row for row in conflicts if tuple(row[c] for c in _PAIR) not in known]
                if fresh:
                    conn.execute(insert(t.item_conflicts), fresh)


_PAIR = ("fact_id", "device_id")


@lru_cache
def _count_search(dialect: Dialect) -> str:
    """SQL that counts a search of a shard and moves its average: (latency, latency, device)."""
    c = t.catalogue.c
    first: Any = bindparam("first")
    later: Any = bindparam("later")
    device: Any = bindparam("device")
    average: Any = literal_column("0.8") * c.ewma_latency_ms + literal_column("0.2") * later
    moved = case((c.searches == literal_column("0"), first), else_=average)
    change = update(t.catalogue).where(c.device_id == device)
    values = {c.ewma_latency_ms: moved, c.searches: c.searches + literal_column("1")}
    return str(change.values(values).compile(dialect=dialect))
