"""Lexical statistics: BM25, and which facts of a shard hold which term.

How text becomes terms is in :mod:`mnemes_lab.text.words`; its functions are offered here too.
"""

from __future__ import annotations

import math
import sys
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from mnemes_lab.errors import CorruptStoreError, InputError
from mnemes_lab.text.words import ascii_tokens, routing_tokens, tokens

__all__ = [
    "K1",
    "B",
    "Postings",
    "ascii_tokens",
    "bm25_weight",
    "idf",
    "routing_tokens",
    "tokens",
]

Floats = npt.NDArray[np.float64]

K1 = 0.9
"""BM25 saturation of repeated terms; 0.9 and 0.4 suit short texts (Anserini's defaults)."""
B = 0.4
"""BM25 share of the length correction."""


def idf(n_facts: int, df: npt.ArrayLike) -> Floats:
    """Inverse document frequency, ``ln(1 + (N - df + 0.5) / (df + 0.5))``, never negative.

    Lucene's form of Robertson and Spärck Jones. Each distinct df is computed once by the scalar
    logarithm, so a value does not depend on the shape of the array it sits in.

    Args:
        n_facts: Facts counted, N.
        df: How many of them hold the term; one number or an array.

    Raises:
        InputError: a df below 0 or above N.

    Example:
        >>> idf(10, [1, 10]).round(4).tolist()
        [1.9924, 0.0465]
    """
    counts = np.asarray(df, dtype=np.float64)
    distinct, where = np.unique(counts, return_inverse=True)
    if distinct.size and (distinct[0] < 0 or distinct[-1] > n_facts):
        raise InputError(
            f"A document frequency must lie between 0 and {n_facts}, the number of facts.",
            found=(float(distinct[0]), float(distinct[-1])),
        )
    values = [idf_of(n_facts, d) for d in distinct.tolist()]
    return np.array(values, dtype=np.float64)[where].reshape(counts.shape)


def idf_of(n_facts: int, df: float) -> float:
    """:func:`idf` of one term, without the checks."""
    return math.log(1.0 + (n_facts - df + 0.5) / (df + 0.5))


def bm25_weight(
    tf: npt.ArrayLike, length: npt.ArrayLike, idf: npt.ArrayLike, average_length: float
) -> Floats:
    """BM25 weight of a term in a fact, element by element in float64.

    ``idf * ((tf * (K1 + 1)) / (tf + K1 * ((1 - B) + B * (length / average_length))))``, evaluated
    as the brackets say, one rounding a step: the bits do not depend on the shape of the arrays.

    Args:
        tf: Times the term occurs in the fact.
        length: Terms of the fact.
        idf: Of the term, see :func:`idf`.
        average_length: Mean length of the facts counted. With 0 there is nothing to correct for,
            and every fact counts as one of average length.

    Example:
        >>> bm25_weight([1, 2], [8, 8], 2.0, 8.0).round(4).tolist()
        [2.0, 2.6207]
    """
    counts = np.asarray(tf, dtype=np.float64)
    lengths = np.asarray(length, dtype=np.float64)
    relative = lengths / average_length if average_length > 0 else np.ones_like(lengths)
    saturation = counts + K1 * ((1.0 - B) + B * relative)
    return np.asarray(np.asarray(idf, np.float64) * ((counts * (K1 + 1.0)) / saturation))


@dataclass(frozen=True, eq=False)
class Postings:
    """Which rows of a shard hold which term how often: a term by row matrix, compressed by term.

    Term ``terms[i]`` occupies the slice ``indptr[i]:indptr[i + 1]`` of `rows` and `tf`.

    Attributes:
        terms: Distinct terms, sorted by code point.
        indptr: int64, ``len(terms) + 1`` offsets.
        rows: int32, ascending within a term.
        tf: int32, times the term occurs in that row.
        lengths: int32, terms in each row, repeats counted.

    Example:
        >>> postings = Postings.build(["pump off", "pump pump on"])
        >>> [part.tolist() for part in postings.get("pump")]
        [[0, 1], [1, 2]]
        >>> postings.append(["valve"]).lengths.tolist(), postings.get("valve")
        ([2, 3, 1], None)
    """

    terms: list[str]
    indptr: npt.NDArray[np.int64]
    rows: npt.NDArray[np.int32]
    tf: npt.NDArray[np.int32]
    lengths: npt.NDArray[np.int32]

    @classmethod
    def build(cls, texts: Sequence[str]) -> Postings:
        """Tokenise `texts` and count; row i is ``texts[i]``."""
        per_row = [tokens(text) for text in texts]
        lengths = np.fromiter(map(len, per_row), np.int32, len(per_row))
        flat = list(chain.from_iterable(per_row))
        terms = sorted(dict.fromkeys(flat))
        codes = {term: code for code, term in enumerate(terms)}
        n_rows = max(len(per_row), 1)
        cells = np.fromiter(map(codes.__getitem__, flat), np.int64, len(flat)) * n_rows
        cells += np.repeat(np.arange(len(per_row), dtype=np.int64), lengths)
        cells, tf = np.unique(cells, return_counts=True)
        of_term, rows = np.divmod(cells, n_rows)
        indptr = _offsets(of_term, len(terms))
        return cls(terms, indptr, rows.astype(np.int32), tf.astype(np.int32), lengths)

    @cached_property
    def lookup(self) -> dict[str, int]:
        """Term to its place in `terms`; made when first needed."""
        return {term: place for place, term in enumerate(self.terms)}

    @cached_property
    def bounds(self) -> list[int]:
        """`indptr` as plain integers: searches slice by them thousands of times."""
        return list(self.indptr.tolist())

    @cached_property
    def row_lengths(self) -> npt.NDArray[np.int32]:
        """For every posting, the length of its row."""
        return self.lengths[self.rows]

    def get(self, term: str) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]] | None:
        """Rows that hold `term` and how often (views), or None when no row does."""
        place = self.lookup.get(term)
        if place is None:
            return None
        where = slice(self.bounds[place], self.bounds[place + 1])
        return self.rows[where], self.tf[where]

    def append(self, texts: Sequence[str]) -> Postings:
        """Postings of the old rows followed by `texts`; only `texts` are tokenised."""
        new = Postings.build(texts)
        places = [bisect_left(self.terms, term) for term in new.terms]
        found = zip(new.terms, places, strict=True)
        known = np.array([self.terms[p : p + 1] == [term] for term, p in found], bool)
        at, is_new = np.array(places, np.int64), ~known
        fresh = [new.terms[i] for i in np.flatnonzero(is_new)]
        # A term moves up by the number of fresh terms that sort before it.
        old_place = np.arange(len(self.terms), dtype=np.int64)
        old_place += np.searchsorted(at[is_new], old_place, side="right")
        new_place = at + np.cumsum(is_new) - is_new
        terms = sorted(self.terms + fresh)  # two sorted runs: a merge, not a sort

        of_term = np.concatenate(
            [np.repeat(old_place, np.diff(self.indptr)), np.repeat(new_place, np.diff(new.indptr))]
        )
        order = np.argsort(of_term, kind="stable")  # old rows stay before new ones
        rows = np.concatenate([self.rows, new.rows + np.int32(len(self.lengths))])
        return Postings(
            terms,
            _offsets(of_term, len(terms)),
            rows[order],
            np.concatenate([self.tf, new.tf])[order],
            np.concatenate([self.lengths, new.lengths]),
        )

    @cached_property
    def nbytes(self) -> int:
        """Memory it takes: the arrays, the strings, and about 140 bytes a term to look it up."""
        arrays = (self.indptr, self.rows, self.tf, self.tf, self.lengths)
        strings = sum(map(sys.getsizeof, self.terms)) + 140 * len(self.terms)
        return sum(array.nbytes for array in arrays) + strings

    def to_arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Plain arrays for ``numpy.savez``; the terms as one UTF-8 text, a line each."""
        return {
            "terms": np.frombuffer("\n".join(self.terms).encode(), np.uint8),
            "indptr": self.indptr,
            "rows": self.rows,
            "tf": self.tf,
            "lengths": self.lengths,
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, npt.NDArray[Any]]) -> Postings:
        """Read what :meth:`to_arrays` gave, without copying the numbers.

        Raises:
            CorruptStoreError: the arrays are missing or do not fit together.
        """
        try:
            text = np.asarray(arrays["terms"], np.uint8).tobytes().decode()
            indptr = np.asarray(arrays["indptr"], np.int64)
            rows, tf, lengths = (np.asarray(arrays[k], np.int32) for k in ("rows", "tf", "lengths"))
        except (KeyError, ValueError, TypeError) as error:
            raise CorruptStoreError(f"The postings cannot be read: {error}.") from error
        out = cls(text.split("\n") if text else [], indptr, rows, tf, lengths)
        if not out._fits():
            raise CorruptStoreError("The postings do not fit together.", hint="build them again")
        return out

    def _fits(self) -> bool:
        arrays = (self.indptr, self.rows, self.tf, self.lengths)
        return bool(
            all(array.ndim == 1 for array in arrays)
            and len(self.indptr) == len(self.terms) + 1
            and self.indptr[0] == 0
            and self.indptr[-1] == len(self.rows) == len(self.tf)
            and (np.diff(self.indptr) > 0).all()
            and (not len(self.rows) or 0 <= self.rows.min() <= self.rows.max() < len(self.lengths))
        )

    def __eq__(self, other: object) -> bool:
        """Same terms and same numbers."""
        if not isinstance(other, Postings):
            return NotImplemented
        mine, theirs = self.to_arrays(), other.to_arrays()
        return all(np.array_equal(mine[name], theirs[name]) for name in mine)

    __hash__ = None  # type: ignore[assignment]


def _offsets(of_term: npt.NDArray[np.int64], n_terms: int) -> npt.NDArray[np.int64]:
    """Where each term's slice begins, from the term of every cell."""
    counts = np.bincount(of_term, minlength=n_terms)
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)])
