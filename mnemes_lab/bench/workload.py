"""Made workloads: facts on devices, questions, and which facts answer which question.

A workload is made from a name and a seed and is the same on every machine; the digest of the
reference workload stands in ``data/MANIFEST.json``.

``campus`` is a university whose devices know different things. Each device has one or two main
topics and a tail taken over from its neighbours on a ring; within a topic it knows some things,
people and qualities and not others. Most statements are told on one device. Some are told again
elsewhere, mostly in other words, so that the answer to about a third of the questions lies on two
or more devices. Half of the questions name the thing (a code, a person), half only describe it.
"""

from __future__ import annotations

import difflib
import hashlib
from dataclasses import dataclass

import polars as pl

from mnemes_lab import schemas
from mnemes_lab.bench import _campus
from mnemes_lab.digest import compact_json, preimage
from mnemes_lab.errors import InputError, ScenarioError

FACT_COLUMNS: dict[str, pl.DataType] = {
    **dict.fromkeys(("fact_id", "device", "namespace", "text"), pl.String()),
    **dict.fromkeys(("subject", "predicate", "object"), pl.String()),
}
_SIZES = {"campus": {"devices": 50, "facts_per_device": 1000, "questions": 300}}
_MAX_DEVICES, _MIN_FACTS, _MAX_TOTAL = 1000, 10, 500_000


@dataclass(frozen=True, eq=False)
class Workload:
    """Facts, questions and gold.

    Attributes:
        name: Which workload it is.
        seed: What it was made from.
        facts: fact_id, device (its label), namespace, text, subject, predicate, object;
            sorted by fact_id. Dates are in the texts only, so every fact is current at any time.
        queries: `schemas.Queries`, sorted by query_id; nobody in particular asks.
        relevance: `schemas.Relevance`: every fact that states the asked value, gain 1.
    """

    name: str
    seed: int
    facts: pl.DataFrame
    queries: pl.DataFrame
    relevance: pl.DataFrame

    def digest(self) -> str:
        """Hex SHA-256 of all rows in order.

        Rows are written as compact JSON arrays, one per line, after a line of column names, so the
        digest does not depend on how frames are held in memory.
        """
        total = hashlib.sha256(preimage(_campus.DOMAIN, self.name, str(self.seed)))
        for frame in (self.facts, self.queries, self.relevance):
            total.update(compact_json(frame.columns) + b"\n")
            for row in frame.iter_rows():
                total.update(compact_json(row) + b"\n")
        return total.hexdigest()


def make_workload(name: str, *, seed: int = 0, **sizes: int) -> Workload:
    """Make a workload by name.

    Args:
        name: ``campus``, the only one so far.
        seed: Any whole number from 0.
        **sizes: For ``campus``: ``devices`` (50), ``facts_per_device`` (1000), ``questions``
            (300, at most a quarter of all facts).

    Raises:
        ScenarioError: no such workload.
        InputError: an unknown size, or a seed or size out of range.

    Cost: about three seconds for the 50,000 facts of ``campus``.

    Example:
        >>> small = make_workload("campus", devices=4, facts_per_device=50, questions=8)
        >>> small.facts.height, small.queries.height
        (200, 8)
        >>> small.facts["fact_id"][0]
        'campus-d00-0000'
        >>> small.digest() == make_workload(
        ...     "campus", devices=4, facts_per_device=50, questions=8
        ... ).digest()
        True
    """
    if name not in _SIZES:
        near = difflib.get_close_matches(str(name), _SIZES, n=3, cutoff=0.4) or sorted(_SIZES)
        raise ScenarioError(
            "No workload has this name.", found=name, hint=f"nearest: {', '.join(near)}"
        )
    for unknown in sorted(sizes.keys() - _SIZES[name].keys()):
        raise InputError(
            f"{name} has no such size.", found=unknown, hint=f"sizes: {', '.join(_SIZES[name])}"
        )
    _whole("seed", seed, 0, 2**64 - 1)
    size = _SIZES[name] | sizes
    _whole("devices", size["devices"], 1, _MAX_DEVICES)
    _whole("facts_per_device", size["facts_per_device"], _MIN_FACTS, _MAX_TOTAL // size["devices"])
    _whole("questions", size["questions"], 1, size["devices"] * size["facts_per_device"] // 4)
    facts, queries, relevance = _campus.make(seed, **size)
    return Workload(
        name,
        seed,
        pl.DataFrame(facts, schema=FACT_COLUMNS, orient="row"),
        pl.DataFrame(queries, schema=schemas.dtypes(schemas.Queries), orient="row"),
        pl.DataFrame(relevance, schema=schemas.dtypes(schemas.Relevance), orient="row"),
    )


def _whole(what: str, value: object, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InputError(
            f"{what} is out of range.", found=value, hint=f"give a whole number {low} to {high}"
        )
