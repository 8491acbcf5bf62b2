"""BM25 weights of recent terms, remembered while nothing changes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Weights = tuple[npt.NDArray[np.int64] | None, npt.NDArray[np.float64]]
"""Rows that hold a term and its weight in each; no rows: a weight for every row."""


class TermMemory:
    """BM25 weights of recent terms over all eligible shards, under a byte budget.

    Good for one state of the catalogue: whoever makes it drops it when anything changes. Common
    words occur in most questions and in most facts, so they are worth weighting once.
    """

    def __init__(self, shards: int, *, budget: int = 1 << 26) -> None:
        """Remember weights over this many shards."""
        self.shards, self._budget, self._bytes = shards, budget, 0
        self._known: OrderedDict[str, Weights | None] = OrderedDict()
        self._turn = threading.Lock()

    def get(self, term: str, make: Callable[[str], Weights | None]) -> Weights | None:
        """The weights of a term, None where no fact holds it; made and kept when not known."""
        with self._turn:
            if term in self._known:
                self._known.move_to_end(term)
                return self._known[term]
        weights = make(term)
        with self._turn:
            if term in self._known:
                return weights
            self._known[term] = weights
            self._bytes += _size(weights)
            while self._bytes > self._budget and len(self._known) > 1:
                self._bytes -= _size(self._known.popitem(last=False)[1])
        return weights


def _size(weights: Weights | None) -> int:
    return 100 + (sum(part.nbytes for part in weights if part is not None) if weights else 0)
