"""Routers that order shards for a question. Pure functions: none of them touches a database."""

from __future__ import annotations

import difflib
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from mnemes_lab import schemas
from mnemes_lab.errors import BudgetError, InputError
from mnemes_lab.frames import give_back, kind_of, read, whole_number
from mnemes_lab.text.lexicon import ascii_tokens, routing_tokens

Scores = npt.NDArray[np.int64]
MAX_BUDGET = 1_000_000  # no mesh has more shards; a larger number is a mistake


class Overlap(NamedTuple):
    """Shared terms: twice the number of query terms the shard knows, and one if it asks.

    The source system's rule. `tokenise` decides what a term is: Unicode (`overlap`) or the
    source's own ASCII rule (`overlap:ascii`).
    """

    name: str
    tokenise: Callable[[str], list[str]]
    terms: str  # the method of TermSummary that gives a shard's terms


ROUTERS = {
    "overlap": Overlap("overlap", routing_tokens, "unicode_terms"),
    "overlap:ascii": Overlap("overlap:ascii", ascii_tokens, "plain_terms"),
}


def router_named(name: str) -> Overlap:
    """The router with this name.

    Raises:
        InputError: none; the nearest names are given.
    """
    if not isinstance(name, str) or name not in ROUTERS:
        near = difflib.get_close_matches(str(name), ROUTERS, n=2) or sorted(ROUTERS)
        raise InputError("No such router.", found=name, hint=f"one of {near}")
    return ROUTERS[name]


class OverlapTable:
    """Terms of some shards, turned around: which shards know a term."""

    def __init__(self, device_ids: Sequence[str], terms: Sequence[frozenset[str]]) -> None:
        """Index the shards in the order given."""
        self.position = {d: i for i, d in enumerate(device_ids)}
        self._holders: dict[str, list[int]] = defaultdict(list)
        for i, known in enumerate(terms):
            for term in known:
                self._holders[term].append(i)

    def score(self, queries: Sequence[Sequence[str]], askers: Sequence[str | None]) -> Scores:
        """Scores, one row per query (given as distinct terms) and one column per shard."""
        out = np.zeros((len(queries), len(self.position)), np.int64)
        for row, (terms, asker) in enumerate(zip(queries, askers, strict=True)):
            for term in terms:
                at = self._holders.get(term)
                if at is not None:
                    out[row, at] += 2
            if asker in self.position:
                out[row, self.position[asker]] += 1
        return out


def ranked(scores: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Columns of each row by falling score; columns are in id order, so ties fall by id."""
    return np.argsort(-scores, axis=1, kind="stable")


def initial_budget(budget: int | None, eligible: int, *, exhaustive: bool) -> int:
    """How many shards the first wave searches: all, the budget, or min(2, eligible).

    Raises:
        BudgetError: a budget that is not a whole number from 1 to 1,000,000.
    """
    budget = checked_shards(budget, "budget", "None means min(2, eligible shards)")
    return eligible if exhaustive else min(2 if budget is None else budget, eligible)


def checked_shards(number: int | None, what: str, hint: str) -> int | None:
    """A usable number of shards, or None.

    Raises:
        BudgetError: not a whole number from 1 to 1,000,000.
    """
    if number is None:
        return None
    number = whole_number(number, what, BudgetError)
    if number < 1:
        raise BudgetError(f"{what} must be at least 1.", found=number, hint=hint)
    if number > MAX_BUDGET:
        raise BudgetError(
            f"{what} must be at most {MAX_BUDGET}.",
            found=number,
            hint="exhaustive=True asks every shard",
        )
    return number


def rank_shards(
    queries: Any, summaries: Any, *, router: str = "overlap", budget: int | None = None
) -> Any:
    """Rank the shards to search for each query.

    Args:
        queries: `queries` frame. Reads query_id, text, device_id (who asks).
        summaries: `summaries` frame. Reads device_id, terms and, where it has several routers'
            rows, router.
        router: `overlap` or `overlap:ascii` (which tokenises the query by the source's rule).
        budget: Most shards per query, a hard cap; None ranks all.

    Returns:
        `ranking` frame, rank from 1; the same kind of frame as `queries`.

    Raises:
        SchemaError: a frame lacks a column, has a wrong dtype or a repeated key.
        BudgetError: budget is below 1.
        InputError: no such router.

    Notes:
        Score = 2 x |query terms in the shard's terms| + 1 if the shard asks; ties by device_id.
        Cost O(query terms x shards that know them).

    Example:
        >>> queries = pl.DataFrame({"query_id": ["q"], "text": ["borrow checker"]})
        >>> summaries = pl.DataFrame({"device_id": ["b", "a"], "terms": [["borrow"], ["tea"]]})
        >>> rank_shards(queries, summaries)["device_id"].to_list()
        ['b', 'a']
    """
    chosen = router_named(router)
    kind = kind_of(queries)
    asked = read(queries, schemas.Queries, optional=("device_id",))
    kind_of(summaries)
    known = _terms_of(summaries, router)
    device_ids = sorted(known)
    table = OverlapTable(device_ids, [frozenset(known[d]) for d in device_ids])
    scores = table.score(
        [chosen.tokenise(text) for text in asked["text"]], asked["device_id"].to_list()
    )
    order = ranked(scores)
    if budget is not None:
        order = order[:, : initial_budget(budget, len(device_ids), exhaustive=False)]
    n, s = order.shape
    ids = np.array(device_ids, dtype=object)
    out = pl.DataFrame(
        {
            "router": [router] * (n * s),
            "query_id": asked["query_id"].repeat_by(s).list.explode() if n * s else [],
            "device_id": ids[order].ravel().tolist(),
            "rank": np.tile(np.arange(1, s + 1), n),
            "score": np.take_along_axis(scores, order, 1).ravel().astype(np.float64),
        },
        schema=schemas.dtypes(schemas.Ranking),
    )
    return give_back(out, kind)


def _terms_of(summaries: Any, router: str) -> dict[str, list[str]]:
    """Terms per device, of this router's rows where the frame has rows for several."""
    columns = {c: list(summaries[c]) for c in _READ if c in summaries.columns}
    missing = sorted({"device_id", "terms"} - set(columns))
    if missing:
        raise InputError(f"The summaries frame lacks {missing}.", hint="mesh.summaries() makes one")
    routers = columns.get("router", [router] * len(columns["device_id"]))
    rows = zip(columns["device_id"], columns["terms"], routers, strict=True)
    return {device_id: list(terms) for device_id, terms, whose in rows if whose == router}


_READ = ("device_id", "terms", "router")
