"""Solutions of `03_two_clocks.ipynb`: what each exercise's `answer` may be.

A function takes what it needs of the notebook's variables by name.
"""

from __future__ import annotations

import polars as pl

import mnemes_lab as ml
from mnemes_lab import AsOf, Mesh


def exercise_1() -> str:
    """B9 is on record from the 10th at 8:00 on, gate A1 from the 13th at 8:00 on, in UTC."""
    return "2031-06-12T08:00:00+02:00"


def exercise_2(mesh: Mesh, grid: list[AsOf]) -> int:
    """One frame of all versions answers as the mesh does, and faster."""
    told = pl.concat([mesh.history("gate-b9"), mesh.history("gate-a1")])
    return sum(ml.as_of(told, point).is_empty() for point in grid)


def exercise_3() -> str:
    """The first instant of the 20th: the end does not belong to the interval."""
    return "2031-06-20T00:00:00+02:00"
