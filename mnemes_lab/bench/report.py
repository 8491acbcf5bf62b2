"""Results of a benchmark: one list of measures, shown as a table or as one JSON object."""

from __future__ import annotations

import json
import os
import platform
import sqlite3
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import polars as pl

from mnemes_lab import schemas

_TOLD = ("mnemes-lab", "numpy", "polars", "faiss-cpu", "sqlalchemy", "bm25s", "torch")


@dataclass
class BenchReport:
    """What one benchmark measured.

    Attributes:
        bench: Its name.
        rows: One mapping per measure: measure, value, unit, against, ratio, and cell columns.
    """

    bench: str
    rows: list[dict[str, Any]] = field(default_factory=list)

    def add(
        self,
        measure: str,
        value: float,
        unit: str,
        *,
        against: str | None = None,
        ratio: float | None = None,
        **cells: Any,
    ) -> None:
        """Note a measure; `ratio` compares with the peer `against` of the same run."""
        row = {"measure": measure, "value": float(value), "unit": unit, "against": against}
        self.rows.append(row | {"ratio": None if ratio is None else float(ratio)} | cells)

    def frame(self) -> pl.DataFrame:
        """The `measures` frame."""
        wanted = schemas.dtypes(schemas.Measures)
        return pl.DataFrame([{k: r[k] for k in wanted} for r in self.rows], schema=wanted)

    def to_json(self) -> str:
        """``{"bench", "results", "env"}`` as one JSON object."""
        return json.dumps({"bench": self.bench, "results": self.rows, "env": environment()})


def environment() -> dict[str, Any]:
    """What a figure depends on: versions, cores, and nothing that names a machine or a user."""
    found: dict[str, str | None] = {}
    for package in _TOLD:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    return {
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "system": platform.system(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "packages": found,
    }


def peak_rss_mb() -> float:
    """The most memory this process has held, in MB (10^6 bytes)."""
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak * (1 if sys.platform == "darwin" else 1024) / 1e6


def median(values: Sequence[float]) -> float:
    """The middle value."""
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2
