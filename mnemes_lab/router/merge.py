"""Merging: two lists per question, fused once, over all shards together.

The lexical and the vector list are each ranked over the *merged* candidates, cut to the same pool
and joined by reciprocal rank: ``1 / (60 + lexical rank) + 1 / (60 + vector rank)`` (Cormack,
Clarke and Büttcher 2009). Fusing inside each shard and then sorting by the fused score would give
every shard's first hit the same score: round-robin in disguise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import polars as pl

from mnemes_lab import schemas
from mnemes_lab.errors import BudgetError
from mnemes_lab.frames import give_back, kind_of, read, whole_number

RRF = 60
MAX_K = 1000


class Fused(NamedTuple):
    """A candidate with its places in the two lists."""

    key: int
    score: float
    lexical: tuple[int, float] | None
    vector: tuple[int, float] | None


def pool_size(k: int) -> int:
    """How deep each list is ranked before fusion."""
    return max(50, 5 * k)


def checked_k(k: int) -> int:
    """A usable k: at least 1, capped at 1,000.

    Raises:
        BudgetError: below 1 or not a whole number.
    """
    number = whole_number(k, "k", BudgetError, hint="an int of at least 1")
    if number < 1:
        raise BudgetError("k must be at least 1.", found=number, hint=f"1 to {MAX_K}")
    return min(number, MAX_K)


def in_order(
    keys: Sequence[int], scores: Sequence[float], ids: Sequence[str], limit: int
) -> list[tuple[int, float]]:
    """Keys by falling score, ties by fact id, cut to `limit`."""
    rows = sorted(zip([-s for s in scores], ids, keys, strict=True))
    return [(key, -minus) for minus, _, key in rows[:limit]]


def fuse(
    lexical: Sequence[tuple[int, float]],
    vector: Sequence[tuple[int, float]],
    id_of: Any,
    k: int,
) -> list[Fused]:
    """Join two ranked lists of (key, score) by reciprocal rank; ties by `id_of(key)`."""
    lex = {key: (rank, score) for rank, (key, score) in enumerate(lexical, 1)}
    vec = {key: (rank, score) for rank, (key, score) in enumerate(vector, 1)}
    fused = []
    for key in {**lex, **vec}:
        a, b = lex.get(key), vec.get(key)
        score = (1.0 / (RRF + a[0]) if a else 0.0) + (1.0 / (RRF + b[0]) if b else 0.0)
        fused.append((-score, id_of(key), Fused(key, score, a, b)))
    fused.sort(key=lambda row: row[:2])
    return [row[2] for row in fused[:k]]


def merge_hits(candidates: Any, *, k: int = 10) -> Any:
    """Merge scored candidates of any number of shards into one ranking per question.

    Scores must be comparable over shards: BM25 with shared statistics, cosine with one encoder.

    Args:
        candidates: `candidates` frame. Reads query_id, device_id, fact_id, lexical_score,
            vector_score (null where a candidate is not in that list), text.
        k: Hits per question, at least 1 and capped at 1,000.

    Returns:
        `hits` frame by query_id and rank; the same kind of frame as `candidates`. A fact that two
        devices hold with the same text appears once, with the lower device id; with different
        text it is left out (see :func:`item_conflicts`).

    Raises:
        SchemaError: a wrong frame.
        BudgetError: k below 1.

    Example:
        >>> frame = pl.DataFrame({
        ...     "query_id": ["q", "q"], "device_id": ["a", "b"], "fact_id": ["f1", "f2"],
        ...     "lexical_score": [2.5, None], "vector_score": [0.1, 0.9], "text": ["x", "y"]})
        >>> merge_hits(frame)["fact_id"].to_list()
        ['f1', 'f2']
    """
    k, kind = checked_k(k), kind_of(candidates)
    table = read(candidates, schemas.Candidates, optional=("lexical_score", "vector_score"))
    bad = item_conflicts(table)["fact_id"].unique().to_list()
    table = table.filter(~pl.col("fact_id").is_in(bad)).sort("query_id", "fact_id", "device_id")
    table = table.unique(["query_id", "fact_id"], keep="first", maintain_order=True)
    rows: list[dict[str, Any]] = []
    for (query_id,), part in table.group_by("query_id", maintain_order=True):
        ids = part["fact_id"].to_list()

        def listed(column: str, above: float, part: Any = part, ids: Any = ids) -> Any:
            scores = part[column].to_list()
            kept = [i for i, s in enumerate(scores) if s is not None and s > above]
            return in_order(kept, [scores[i] for i in kept], [ids[i] for i in kept], pool_size(k))

        fused = fuse(
            listed("lexical_score", 0.0), listed("vector_score", float("-inf")), ids.__getitem__, k
        )
        for rank, hit in enumerate(fused, 1):
            source = part.row(hit.key, named=True)
            rows.append(hit_row(query_id, rank, hit, source))
    return give_back(pl.DataFrame(rows, schema=schemas.dtypes(schemas.Hits), orient="row"), kind)


def hit_row(query_id: object, rank: int, hit: Fused, source: Any) -> dict[str, Any]:
    """One row of the `hits` frame."""
    return {
        "query_id": query_id,
        "rank": rank,
        "device_id": source["device_id"],
        "fact_id": source["fact_id"],
        "score": hit.score,
        "lexical_score": hit.lexical[1] if hit.lexical else None,
        "vector_score": hit.vector[1] if hit.vector else None,
        "lexical_rank": hit.lexical[0] if hit.lexical else None,
        "vector_rank": hit.vector[0] if hit.vector else None,
        "text": source["text"],
    }


def item_conflicts(candidates: pl.DataFrame) -> pl.DataFrame:
    """Facts that appear under one id with different text: fact_id and device_id of each copy."""
    return (
        candidates.select("fact_id", "device_id", "text")
        .unique()
        .filter(pl.col("text").n_unique().over("fact_id") > 1)
        .select("fact_id", "device_id")
        .unique()
        .sort("fact_id", "device_id")
    )
