"""Solutions of `04_where_did_this_come_from.ipynb`: what each exercise's `answer` may be.

A function takes what it needs of the notebook's variables by name.
"""

from __future__ import annotations


def exercise_1() -> str:
    """The permit is the narrow place; the depth of the weir is a source that goes around it."""
    return "depth"
