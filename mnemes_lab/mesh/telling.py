"""What a search tells: hits, trace, conflicts, and a signed receipt per question."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from mnemes_lab import schemas
from mnemes_lab.mesh.eligible import Eligible
from mnemes_lab.mesh.found import Receipt, Receipts
from mnemes_lab.mesh.options import Options
from mnemes_lab.router.merge import hit_row
from mnemes_lab.router.rankers import Scores
from mnemes_lab.router.rowspace import Hit
from mnemes_lab.router.search import Batch
from mnemes_lab.store.keys import KeyRing
from mnemes_lab.store.receipts import SearchReceipt, sign_v2
from mnemes_lab.store.store import Store

EXPANDED = "insufficient_results_expand"


@dataclass
class Answered:
    """All that one batch produced."""

    hits: pl.DataFrame
    trace: dict[str, list[Any]]
    conflicts: pl.DataFrame
    receipts: Receipts
    complete: bool


@dataclass
class Question:
    """One question on its way.

    Attributes:
        order: Every eligible shard by position, as the router ranks them.
        first_wave: How many of them the budget allowed.
        searched: How many were searched in the end.
    """

    query_id: str
    text: str
    requester: str
    order: list[int] = field(default_factory=list)
    first_wave: int = 0
    searched: int = 0
    hits: list[Hit] = field(default_factory=list)

    @property
    def shards(self) -> list[int]:
        """The shards that were searched."""
        return self.order[: self.searched]


@dataclass(frozen=True)
class Routed:
    """A batch that has been searched."""

    batch: Batch
    questions: list[Question]
    scores: Scores
    eligible: Eligible
    options: Options
    now: int

    def failed(self, question: Question) -> bool:
        """Whether a shard that this question was put to did not answer."""
        return any(self.batch.visits[at].error is not None for at in question.shards)

    def certificate(self, question: Question) -> str:
        """`exact` when every eligible shard was searched exactly and answered."""
        whole = question.searched == len(question.order) and not self.eligible.errors
        exact = whole and self.batch.request.exact and not self.failed(question)
        return "exact" if exact else "none"

    def latency_ms(self, at: int) -> float:
        """Time spent in a shard, 0 when it was not searched."""
        visit = self.batch.visits.get(at)
        return visit.latency_ms if visit else 0.0


def hits_frame(done: Routed) -> pl.DataFrame:
    """The `hits` frame."""
    rows = []
    for question in done.questions:
        for rank, hit in enumerate(question.hits, 1):
            columns = done.batch.columns(hit.shard)
            source = {
                "device_id": done.eligible.device_ids[hit.shard],
                "fact_id": columns.fact_id[hit.row],
                "text": columns.text[hit.row],
            }
            rows.append(hit_row(question.query_id, rank, hit.fused, source).values())
    wanted = schemas.dtypes(schemas.Hits)
    columns_of = zip(*rows, strict=True) if rows else [[]] * len(wanted)
    return pl.DataFrame(dict(zip(wanted, columns_of, strict=True)), schema=wanted)


def trace_columns(done: Routed, receipts: Receipts) -> dict[str, list[Any]]:
    """Columns of the `trace` frame: every eligible shard of every question, asked or not."""
    ids = done.eligible.device_ids
    latency = [done.latency_ms(at) for at in range(len(ids))]
    generation = [done.eligible.generations[device_id] for device_id in ids]
    columns: dict[str, list[Any]] = {name: [] for name in schemas.dtypes(schemas.Trace)}
    for row, (question, receipt) in enumerate(zip(done.questions, receipts, strict=True)):
        order, searched = question.order, question.searched
        asked, left_out = order[:searched], [None] * (len(order) - searched)
        scores, found = done.scores[row].tolist(), Counter(hit.shard for hit in question.hits)
        errors = [done.batch.visits[at].error for at in asked]
        part = {
            "query_id": [question.query_id] * len(order),
            "device_id": [ids[at] for at in order],
            "step": range(1, len(order) + 1),
            "score": [scores[at] for at in order],
            "selected": [True] * searched + [False] * len(left_out),
            "reason": _reasons(done.options, question, errors) + ["over_budget"] * len(left_out),
            "results": [found[at] for at in order],
            "latency_ms": [latency[at] for at in asked] + left_out,
            "generation": [generation[at] for at in asked] + left_out,
            "error": errors + left_out,
            "certificate": [done.certificate(question)] * len(order),
            "receipt_id": [receipt.receipt_id] * len(order),
        }
        for name, values in part.items():
            columns[name] += values
    return columns


def _reasons(options: Options, question: Question, errors: list[str | None]) -> list[str]:
    """Why each searched shard was searched, in the order of the ranking."""
    further = question.searched - question.first_wave
    why = ["budget"] * question.first_wave + ["expanded"] * further
    if options.exhaustive:
        why = ["exhaustive"] * question.searched
    return ["failed" if error else reason for reason, error in zip(why, errors, strict=True)]


def conflict_rows(done: Routed) -> list[dict[str, Any]]:
    """Every copy of a fact that shards disagree about, once for the batch."""
    found = done.batch.conflicts.values()
    met = {pair: digest for copies in found for pair, digest in copies.items()}
    return [
        {
            "fact_id": fact_id,
            "device_id": done.eligible.device_ids[at],
            "content_digest": digest.hex(),
            "recorded_at": done.now,
        }
        for (fact_id, at), digest in sorted(met.items())
    ]


def conflicts_frame(rows: list[dict[str, Any]]) -> pl.DataFrame:
    """The `item_conflicts` frame."""
    wanted = schemas.dtypes(schemas.ItemConflicts)
    if not rows:
        return schemas.empty(schemas.ItemConflicts)
    return pl.DataFrame(rows, schema={**wanted, "recorded_at": pl.Int64}).cast(pl.Schema(wanted))


def sign_receipts(done: Routed, store: Store, encoder: str, ring: KeyRing) -> Receipts:
    """One signed receipt per question, in order."""
    ids, batch, asked = done.eligible.device_ids, done.batch, done.options
    outcome = {
        at: (ids[at], done.eligible.generations[ids[at]], round(1000 * visit.latency_ms))
        for at, visit in batch.visits.items()
    }
    out = Receipts()
    fresh = store.ids.uuid4s(len(done.questions))
    for row, (question, receipt_id) in enumerate(zip(done.questions, fresh, strict=True)):
        counts = Counter(hit.shard for hit in question.hits)
        scores = done.scores[row].tolist()
        clashing = {fact_id for fact_id, _ in batch.conflicts.get(row, {})}
        body = SearchReceipt(
            receipt_id=receipt_id,
            mesh_id=store.mesh_id,
            requester_device_id=question.requester,
            k=asked.k,
            router=asked.router,
            encoder=encoder,
            as_of_recorded=batch.request.recorded,
            as_of_valid=batch.request.valid,
            recorded_at=done.now,
            ranked=tuple((ids[at], scores[at]) for at in question.order),
            selected=question.searched,
            outcomes=tuple(
                (*outcome[at], counts[at], batch.visits[at].error) for at in question.shards
            ),
            hits=tuple(_hit_line(batch, ids, hit) for hit in question.hits),
            conflicts=tuple(sorted(f"fact:{fact_id}" for fact_id in clashing)),
            complete=not done.failed(question),
            fallback_reason=EXPANDED if question.searched > question.first_wave else None,
            budget=asked.budget,
            max_shards=asked.max_shards,
            expand=asked.expand,
            exhaustive=asked.exhaustive,
            namespaces=asked.namespaces,
        )
        out.append(Receipt(sign_v2(body, ring, query=question.text), ring))
    return out


def _hit_line(batch: Batch, ids: list[str], hit: Hit) -> tuple[str, str, str, float]:
    columns = batch.columns(hit.shard)
    return (
        f"fact:{columns.fact_id[hit.row]}",
        ids[hit.shard],
        columns.digest[hit.row].hex(),
        hit.fused.score,
    )
