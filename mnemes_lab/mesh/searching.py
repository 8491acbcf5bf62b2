"""One routed search, from questions to durable receipts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import polars as pl
from sqlalchemy import Dialect, bindparam, case, insert, literal_column, select, update

from mnemes_lab import schemas
from mnemes_lab.errors import BudgetError, InputError
from mnemes_lab.mesh.eligible import Eligible, ShardView
from mnemes_lab.mesh.found import Receipt, Receipts
from mnemes_lab.router.merge import checked_k, hit_row
from mnemes_lab.router.rankers import Scores, initial_budget, ranked, router_named
from mnemes_lab.router.search import Batch, Hit, Request
from mnemes_lab.store import tables as t
from mnemes_lab.store.asof import AsOf, points
from mnemes_lab.store.indexes import Indexes
from mnemes_lab.store.keys import KeyRing
from mnemes_lab.store.receipts import SearchReceipt, sign_v2, to_json
from mnemes_lab.store.store import Store

EXPANDED = "insufficient_results_expand"


@dataclass(frozen=True)
class Options:
    """How to search; checked when made."""

    k: int = 10
    budget: int | None = None
    max_shards: int | None = None
    expand: bool = False
    exhaustive: bool = False
    router: str = "overlap"
    as_of: AsOf | None = None
    namespaces: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be met.

        Raises:
            BudgetError: k, budget or max_shards below 1, or max_shards below the budget.
            InputError: an unknown router, or namespaces that are not a list of texts.
        """
        object.__setattr__(self, "k", checked_k(self.k))
        router_named(self.router)
        initial_budget(self.budget, 1, exhaustive=False)
        initial_budget(self.max_shards, 1, exhaustive=False)
        if self.max_shards is not None and self.max_shards < (self.budget or 1):
            raise BudgetError(
                "max_shards is below the budget.",
                found=(self.max_shards, self.budget),
                hint="it bounds how far expand=True may go past the budget",
            )
        if self.namespaces is not None:
            plain = not isinstance(self.namespaces, str)
            if not plain or not all(isinstance(n, str) for n in self.namespaces):
                raise InputError(
                    "namespaces must be a list of texts.",
                    found=self.namespaces,
                    hint="an empty list finds nothing; None searches all",
                )
            object.__setattr__(self, "namespaces", tuple(sorted(set(self.namespaces))))


@dataclass
class Answered:
    """All that one batch produced, before it becomes frames."""

    hits: pl.DataFrame
    trace: pl.DataFrame
    conflicts: pl.DataFrame
    receipts: Receipts
    complete: bool


@dataclass
class _Question:
    """One question on its way."""

    query_id: str
    text: str
    requester: str
    order: list[int] = field(default_factory=list)
    first_wave: int = 0
    searched: int = 0
    hits: list[Hit] = field(default_factory=list)

    @property
    def shards(self) -> list[int]:
        return self.order[: self.searched]


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
        eligible = self.view.now()
        now = self.store.now()
        valid, recorded = points(options.as_of, now)
        request = Request(
            options.k, valid, recorded, options.namespaces, options.exhaustive, self.threads
        )
        batch = Batch(
            [text for _, text, _ in asked],
            vectors,
            lambda terms: eligible.lexicon(self.indexes, terms, recorded),
            lambda at: self._load(eligible, at),
            self.store.clock.stopwatch,
            request,
            eligible.memory if recorded >= eligible.statistics.last_recorded_at else None,
        )
        questions = [_Question(*one) for one in asked]
        scores = self._rank(questions, eligible, options, askers)
        self._first_wave(batch, questions)
        self._expand(batch, questions, options)
        conflicts = _conflicts(batch, eligible, now)
        receipts = self._receipts(batch, questions, scores, eligible, options, request, now)
        self._record(receipts, batch, eligible, conflicts)
        complete = not any(v.error for v in batch.visits.values())
        return Answered(
            self._hits_frame(batch, questions, eligible),
            self._trace_frame(batch, questions, scores, eligible, options, receipts),
            conflicts_frame(conflicts),
            receipts,
            complete,
        )

    def _load(self, eligible: Eligible, at: int) -> Any:
        device_id = eligible.device_ids[at]
        return self.indexes.get(device_id, eligible.generations[device_id])

    # --- choosing ----------------------------------------------------------------------------
    def _rank(
        self,
        questions: list[_Question],
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
    def _first_wave(batch: Batch, questions: list[_Question]) -> None:
        chosen: dict[int, list[int]] = {}
        for q, question in enumerate(questions):
            for shard in question.shards:
                chosen.setdefault(shard, []).append(q)
        batch.visit(chosen)
        merged = batch.merge({q: question.shards for q, question in enumerate(questions)})
        for q, hits in merged.items():
            questions[q].hits = hits

    @staticmethod
    def _expand(batch: Batch, questions: list[_Question], options: Options) -> None:
        """Go on, one shard at a time in rank order, while a question has found too few."""
        if not options.expand or options.exhaustive:
            return
        while True:
            chosen: dict[int, list[int]] = {}
            for q, question in enumerate(questions):
                limit = min(options.max_shards or len(question.order), len(question.order))
                if len(question.hits) < options.k and question.searched < limit:
                    chosen.setdefault(question.order[question.searched], []).append(q)
                    question.searched += 1
            if not chosen:
                return
            batch.visit(chosen)
            again = sorted({q for qs in chosen.values() for q in qs})
            for q, hits in batch.merge({q: questions[q].shards for q in again}).items():
                questions[q].hits = hits

    # --- telling -----------------------------------------------------------------------------
    def _hits_frame(
        self, batch: Batch, questions: list[_Question], eligible: Eligible
    ) -> pl.DataFrame:
        rows = []
        for question in questions:
            for rank, hit in enumerate(question.hits, 1):
                columns = batch.columns(hit.shard)
                source = {
                    "device_id": eligible.device_ids[hit.shard],
                    "fact_id": columns.fact_id[hit.row],
                    "text": columns.text[hit.row],
                }
                rows.append(tuple(hit_row(question.query_id, rank, hit.fused, source).values()))
        return pl.DataFrame(rows, schema=schemas.dtypes(schemas.Hits), orient="row")

    def _trace_frame(
        self,
        batch: Batch,
        questions: list[_Question],
        scores: Scores,
        eligible: Eligible,
        options: Options,
        receipts: Receipts,
    ) -> pl.DataFrame:
        n, s = scores.shape
        order = np.array([q.order for q in questions], np.int64).reshape(n, s)
        step = np.tile(np.arange(1, s + 1), n)
        searched = np.repeat([q.searched for q in questions], s)
        first = np.repeat([q.first_wave for q in questions], s)
        flat = order.ravel()
        errors = {at: v.error for at, v in batch.visits.items() if v.error}
        failed = np.isin(flat, sorted(errors)) & (step <= searched)
        reason = np.where(step <= first, "budget", "expanded").astype(object)
        if options.exhaustive:
            reason[:] = "exhaustive"
        reason[step > searched] = "over_budget"
        reason[failed] = "failed"
        selected = step <= searched
        results = np.zeros((n, s), np.int64)
        for row, question in enumerate(questions):
            for hit in question.hits:
                results[row, hit.shard] += 1
        latency = [_latency(batch, at) for at in range(s)]
        generation = [eligible.generations[d] for d in eligible.device_ids]
        at_step = list(zip(flat.tolist(), selected.tolist(), failed.tolist(), strict=True))
        certificate = np.where(_exact(batch, questions, eligible), "exact", "none").tolist()
        return pl.DataFrame(
            {
                "query_id": [q.query_id for q in questions for _ in range(s)],
                "device_id": [eligible.device_ids[at] for at in flat.tolist()],
                "step": step,
                "score": np.take_along_axis(scores, order, 1).ravel().astype(np.float64),
                "selected": selected,
                "reason": reason.tolist(),
                "results": np.take_along_axis(results, order, 1).ravel(),
                "latency_ms": [latency[at] if asked else None for at, asked, _ in at_step],
                "generation": [generation[at] if asked else None for at, asked, _ in at_step],
                "error": [errors[at] if bad else None for at, _, bad in at_step],
                "certificate": [word for word in certificate for _ in range(s)],
                "receipt_id": [r.receipt_id for r in receipts for _ in range(s)],
            },
            schema=schemas.dtypes(schemas.Trace),
        )

    # --- proving -----------------------------------------------------------------------------
    def _receipts(
        self,
        batch: Batch,
        questions: list[_Question],
        scores: Scores,
        eligible: Eligible,
        options: Options,
        request: Request,
        now: int,
    ) -> Receipts:
        ids, out = eligible.device_ids, Receipts()
        outcome = {
            at: (ids[at], eligible.generations[ids[at]], round(1000 * _latency(batch, at)))
            for at in batch.visits
        }
        fresh = self.store.ids.uuid4s(len(questions))
        for row, (question, receipt_id) in enumerate(zip(questions, fresh, strict=True)):
            counts: dict[int, int] = {}
            for hit in question.hits:
                counts[hit.shard] = counts.get(hit.shard, 0) + 1
            mine = scores[row].tolist()
            body = SearchReceipt(
                receipt_id=receipt_id,
                mesh_id=self.store.mesh_id,
                requester_device_id=question.requester,
                k=options.k,
                router=options.router,
                encoder=self.indexes.encoder.fingerprint,
                as_of_recorded=request.recorded,
                as_of_valid=request.valid,
                recorded_at=now,
                ranked=tuple((ids[at], mine[at]) for at in question.order),
                selected=question.searched,
                outcomes=tuple(
                    (*outcome[at], counts.get(at, 0), batch.visits[at].error)
                    for at in question.shards
                ),
                hits=tuple(_hit_line(batch, ids, hit) for hit in question.hits),
                conflicts=tuple(sorted({f"fact:{f}" for f, _ in batch.conflicts.get(row, {})})),
                complete=not any(batch.visits[at].error for at in question.shards),
                fallback_reason=EXPANDED if question.searched > question.first_wave else None,
                budget=options.budget,
                max_shards=options.max_shards,
                expand=options.expand,
                exhaustive=options.exhaustive,
                namespaces=options.namespaces,
            )
            out.append(Receipt(sign_v2(body, self.ring, query=question.text), self.ring))
        return out

    def _record(
        self,
        receipts: Receipts,
        batch: Batch,
        eligible: Eligible,
        conflicts: list[dict[str, Any]],
    ) -> None:
        """Write receipts, search counts and conflicts in one transaction, before answering."""
        rows = []
        for receipt in receipts:
            b = receipt.body
            rows.append(
                {
                    "receipt_id": b.receipt_id,
                    "version": b.version,
                    "key_id": b.key_id,
                    "requester_device_id": b.requester_device_id,
                    "exhaustive": int(b.exhaustive),
                    "selected": b.selected,
                    "eligible": len(b.ranked),
                    "results": len(b.hits),
                    "recorded_at": b.recorded_at,
                    "body": to_json(b),
                }
            )
        visited = [(v.latency_ms, v.latency_ms, eligible.device_ids[at]) for at, v in batch.visits.items()]
        with self.store.pooled() as conn:
            if rows:
                conn.execute(insert(t.receipts), rows)
            if visited:
                conn.exec_driver_sql(_count_search(conn.dialect), visited)
            if conflicts:
                known = set(conn.execute(select(t.item_conflicts.c[*_PAIR])).tuples())
                fresh = [
                    row for row in conflicts if (row["fact_id"], row["device_id"]) not in known
                ]
                if fresh:
                    conn.execute(insert(t.item_conflicts), fresh)


def _conflicts(batch: Batch, eligible: Eligible, now: int) -> list[dict[str, Any]]:
    met = {pair: digest for found in batch.conflicts.values() for pair, digest in found.items()}
    return [
        {
            "fact_id": fact_id,
            "device_id": eligible.device_ids[at],
            "content_digest": digest.hex(),
            "recorded_at": now,
        }
        for (fact_id, at), digest in sorted(met.items())
    ]


def conflicts_frame(rows: list[dict[str, Any]]) -> pl.DataFrame:
    """The `item_conflicts` frame."""
    wanted = schemas.dtypes(schemas.ItemConflicts)
    if not rows:
        return schemas.empty(schemas.ItemConflicts)
    return pl.DataFrame(rows, schema={**wanted, "recorded_at": pl.Int64}).cast(dict(wanted))


_PAIR = ("fact_id", "device_id")
@lru_cache
def _count_search(dialect: Dialect) -> str:
    """SQL that counts a search of a shard and moves its average; rows (latency, latency, device)."""
    c = t.catalogue.c
    first, later, device = bindparam("first"), bindparam("later"), bindparam("device")
    average = literal_column("0.8") * c.ewma_latency_ms + literal_column("0.2") * later
    moved = case((c.searches == literal_column("0"), first), else_=average)
    change = update(t.catalogue).where(c.device_id == device)
    values = {c.ewma_latency_ms: moved, c.searches: c.searches + literal_column("1")}
    return str(change.values(values).compile(dialect=dialect))


def _latency(batch: Batch, at: int) -> float:
    visit = batch.visits.get(at)
    return visit.latency_ms if visit else 0.0


def _exact(batch: Batch, questions: list[_Question], eligible: Eligible) -> Any:
    """Which questions have searched every eligible shard without a failure."""
    whole = not eligible.errors
    return np.array(
        [
            whole
            and batch.request.exact
            and q.searched == len(q.order)
            and not any(batch.visits[at].error for at in q.shards)
            for q in questions
        ],
        bool,
    )


def _hit_line(batch: Batch, ids: list[str], hit: Hit) -> tuple[str, str, str, float]:
    columns = batch.columns(hit.shard)
    return (
        f"fact:{columns.fact_id[hit.row]}",
        ids[hit.shard],
        columns.digest[hit.row].hex(),
        hit.fused.score,
    )
