"""Solutions of `01_what_a_store_remembers.ipynb`: what each exercise's `answer` may be.

A function takes what it needs of the notebook's variables by name.
"""

from __future__ import annotations

from mnemes_lab import Mesh


def exercise_1(mesh: Mesh) -> int:
    """Versions count from 1 and only grow, so the latest number of each fact is its count."""
    return int(mesh.facts()["version"].sum())


def exercise_2() -> str:
    """The service was moved on 11 April at 9:00 and again on the 13th at 9:00, in UTC."""
    return "2031-04-12T09:30:00+02:00"
