"""Solutions of `00_start_here.ipynb`: what each exercise's `answer` may be.

A function takes what it needs of the notebook's variables by name.
"""

from __future__ import annotations

from mnemes_lab import Mesh


def exercise_1() -> str:
    """Words that only the van's facts hold."""
    return "is the spare tyre white?"


def exercise_2(mesh: Mesh, question: str) -> int:
    """Raise the budget until both statements about the flight are found."""
    for budget in range(1, mesh.devices().height + 1):
        found = mesh.search(question, asker="planner", k=2, budget=budget)
        if all("AA1234" in text for text in found.texts()) and len(found.hits) == 2:
            return budget
    raise AssertionError("no budget finds both")
