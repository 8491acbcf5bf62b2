"""What a router may know about a shard, and the statistics that all shards share.

A term summary names the distinct terms of a shard and how many facts hold each. It serves two
readers: the overlap router, and BM25, whose document frequencies count every eligible shard
whether it is searched or not. It is derived from the shard's index and carries its generation.
"""

from __future__ import annotations

import json
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import polars as pl

from mnemes_lab import schemas
from mnemes_lab.digest import compact_json, sha256_hex
from mnemes_lab.store.index import ShardIndex
from mnemes_lab.text.lexicon import ascii_tokens, idf_of, routing_tokens


@dataclass(frozen=True)
class TermSummary:
    """Terms of one shard. Words of the device's texts are in it: text leaves the device."""

    device_id: str
    generation: int
    facts: int
    length: int
    last_recorded_at: int
    df: dict[str, int]
    ascii_terms: list[str]
    namespaces: list[str]
    supplied: str | None = field(default=None, compare=False)

    @classmethod
    def of(
        cls, index: ShardIndex, supplied: str | None = None, *, recorded: int | None = None
    ) -> TermSummary:
        """Summarise a shard from its index.

        Args:
            index: The shard's index.
            supplied: Terms that stand in for its own.
            recorded: As the shard was at this instant. Rows are in order of acceptance, so what
                was on record is a prefix of them and of every posting list.
        """
        postings, columns = index.postings, index.columns
        rows, df = len(index), np.diff(postings.indptr)
        if recorded is not None and recorded < index.last_recorded_at:
            rows = int(np.searchsorted(columns.times["recorded_at"], recorded, side="right"))
            early = (postings.rows < rows).astype(np.int64)
            df = np.add.reduceat(early, postings.indptr[:-1]) if len(early) else df
        held = zip(postings.terms, df.tolist(), strict=True)
        return cls(
            str(index.stamp["device_id"]),
            index.generation,
            rows,
            int(postings.lengths[:rows].sum()),
            int(columns.times["recorded_at"][rows - 1]) if rows else 0,
            {term: count for term, count in held if count},
            ascii_tokens(" ".join(columns.text[:rows])),
            sorted(set(columns.namespace[:rows])),
            supplied,
        )

    @cached_property
    def payload(self) -> bytes:
        """The bytes that are kept and counted."""
        body = [
            self.facts,
            self.length,
            self.last_recorded_at,
            self.df,
            self.ascii_terms,
            self.namespaces,
        ]
        return zlib.compress(compact_json(body), 1)

    @classmethod
    def from_payload(
        cls, device_id: str, generation: int, payload: bytes, supplied: str | None = None
    ) -> TermSummary:
        """Read kept bytes."""
        facts, length, last, df, terms, namespaces = json.loads(zlib.decompress(payload))
        return cls(device_id, generation, facts, length, last, df, terms, namespaces, supplied)

    def unicode_terms(self) -> frozenset[str]:
        """Terms the `overlap` router compares: the shard's own or the supplied ones."""
        own = self.df if self.supplied is None else routing_tokens(self.supplied)
        return frozenset(own).union(*map(routing_tokens, self.namespaces))

    def plain_terms(self) -> frozenset[str]:
        """Terms of the source system's rule: ASCII, exact."""
        own = self.ascii_terms if self.supplied is None else ascii_tokens(self.supplied)
        return frozenset(own).union(*map(ascii_tokens, self.namespaces))


def summaries_frame(summaries: Iterable[TermSummary]) -> pl.DataFrame:
    """The `summaries` frame: what each shard reveals to each router, and how large that is.

    The bytes of `overlap` include the document frequencies that BM25 shares.
    """
    rows = []
    for s in sorted(summaries, key=lambda s: s.device_id):
        plain = sorted(s.plain_terms())
        for router, terms, kept in (
            ("overlap", sorted(s.unicode_terms()), s.payload),
            ("overlap:ascii", plain, zlib.compress(compact_json(plain), 1)),
        ):
            told = (len(kept), True, sha256_hex(kept))
            rows.append((s.device_id, router, s.generation, terms, *told))
    return pl.DataFrame(rows, schema=schemas.dtypes(schemas.Summaries), orient="row")


class Statistics:
    """Lexical statistics of a set of shards: facts, document frequencies, mean length.

    They count every accepted fact of the eligible shards, so neither a filter, a budget nor the
    partition into shards moves a score.
    """

    def __init__(self) -> None:
        """No shards yet."""
        self._parts: dict[str, TermSummary] = {}
        self._df: Counter[str] = Counter()
        self.facts = self.length = 0

    def cover(self, summaries: Sequence[TermSummary]) -> None:
        """Count exactly these shards; only the difference to before is work."""
        wanted = {s.device_id: s for s in summaries}
        for device_id, old in list(self._parts.items()):
            new = wanted.get(device_id)
            if new is None or new.generation != old.generation:
                self._df.subtract(old.df)
                self.facts, self.length = self.facts - old.facts, self.length - old.length
                del self._parts[device_id]
        for device_id, new in wanted.items():
            if device_id not in self._parts:
                self._df.update(new.df)
                self.facts, self.length = self.facts + new.facts, self.length + new.length
                self._parts[device_id] = new

    def copy(self) -> Statistics:
        """An independent copy."""
        new = Statistics()
        new._parts, new._df = dict(self._parts), self._df.copy()
        new.facts, new.length = self.facts, self.length
        return new

    def snapshot(self, terms: Iterable[str]) -> Lexicon:
        """The figures a search needs, for its terms."""
        return Lexicon(self.facts, self.length, {t: self._df.get(t, 0) for t in terms})

    @property
    def last_recorded_at(self) -> int:
        """The latest instant counted."""
        return max((p.last_recorded_at for p in self._parts.values()), default=0)


@dataclass(frozen=True)
class Lexicon:
    """Statistics frozen for one search."""

    facts: int
    length: int
    df: dict[str, int]

    def idf(self, term: str) -> float:
        """Inverse document frequency of a term."""
        return idf_of(self.facts, self.df[term])

    @property
    def average_length(self) -> float:
        """Mean number of terms in a fact."""
        return self.length / self.facts if self.facts else 0.0
