"""What a search must know of all shards before it opens any: catalogue, summaries, statistics."""

from __future__ import annotations

import contextlib
import threading

from sqlalchemy import delete, insert, select, update

from mnemes_lab.digest import sha256_hex
from mnemes_lab.errors import MnemesError
from mnemes_lab.router.rankers import Overlap, OverlapTable
from mnemes_lab.router.summary import Statistics, TermSummary
from mnemes_lab.router.terms import TermMemory
from mnemes_lab.store import tables as t
from mnemes_lab.store.indexes import Indexes
from mnemes_lab.store.operations import noted
from mnemes_lab.store.store import Store

DERIVED, SUPPLIED = "overlap", "supplied"


class Eligible:
    """The active shards of a mesh at one moment, in id order."""

    def __init__(
        self,
        changes: int,
        generations: dict[str, int],
        summaries: dict[str, TermSummary],
        errors: dict[str, str],
        statistics: Statistics,
        registered: dict[str, int],
    ) -> None:
        """Freeze what is known; `errors` names shards that could not be summarised."""
        self.registered = registered
        self._past: tuple[int, Eligible] | None = None
        self.changes, self.generations = changes, generations
        self.device_ids = sorted(generations)
        self.summaries, self.errors, self.statistics = summaries, errors, statistics
        self._tables: dict[str, OverlapTable] = {}
        self.memory = TermMemory(len(self.device_ids))

    def table(self, router: Overlap) -> OverlapTable:
        """The shards' terms as a router compares them, made once."""
        if router.name not in self._tables:
            terms = [
                getattr(self.summaries[d], router.terms)() if d in self.summaries else frozenset()
                for d in self.device_ids
            ]
            self._tables[router.name] = OverlapTable(self.device_ids, terms)
        return self._tables[router.name]

    def at(self, indexes: Indexes, recorded: int) -> Eligible:
        """These shards as they were at a record time: what a router and BM25 knew of them then.

        A past answer must not move when facts or devices are added later, and neither may the
        choice of whom to ask. Present statuses and supplied terms apply: neither has a history.
        """
        latest = max([self.statistics.last_recorded_at, *self.registered.values()])
        if recorded >= latest:
            return self
        if self._past is None or self._past[0] != recorded:
            self._past = recorded, self._then(indexes, recorded)
        return self._past[1]

    def _then(self, indexes: Indexes, recorded: int) -> Eligible:
        there = {d: g for d, g in self.generations.items() if self.registered[d] <= recorded}
        indexes.settle(there)
        summaries = {}
        for device_id in sorted(there):
            with contextlib.suppress(MnemesError, OSError, ValueError):  # its visit will say why
                index = indexes.get(device_id, there[device_id])
                supplied = (
                    self.summaries[device_id].supplied if device_id in self.summaries else None
                )
                summaries[device_id] = TermSummary.of(index, supplied, recorded=recorded)
        statistics = Statistics()
        statistics.cover(list(summaries.values()))
        errors = {d: why for d, why in self.errors.items() if d in there}
        when = {d: self.registered[d] for d in there}
        return Eligible(self.changes, there, summaries, errors, statistics, when)


class ShardView:
    """Keeps :class:`Eligible` current, reading only what changed since the last look."""

    def __init__(self, store: Store, indexes: Indexes) -> None:
        """Nothing is known yet."""
        self.store, self.indexes = store, indexes
        self._statistics = Statistics()
        self._known: dict[str, TermSummary] = {}
        self._last: Eligible | None = None
        self._turn = threading.Lock()

    def now(self) -> Eligible:
        """The active shards as the catalogue has them."""
        with self._turn:
            changes = self.store.changes()
            if self._last is None or self._last.changes != changes or self._last.errors:
                self._last = self._look(changes)
            return self._last

    def _look(self, changes: int) -> Eligible:
        query = (
            select(t.catalogue.c.device_id, t.catalogue.c.generation, t.devices.c.first_seen_at)
            .join(t.devices, t.devices.c.device_id == t.catalogue.c.device_id)
            .where(t.devices.c.status == "active")
        )
        rows = self.store.rows(query)
        generations = {row["device_id"]: row["generation"] for row in rows}
        registered = {row["device_id"]: row["first_seen_at"] for row in rows}
        self._read_kept(generations)
        errors: dict[str, str] = {}
        made: list[TermSummary] = []
        for device_id, generation in sorted(generations.items()):
            known = self._known.get(device_id)
            if known is not None and known.generation == generation:
                continue
            self._known.pop(device_id, None)
            try:
                made.append(self._summarise(device_id, generation))
            except (MnemesError, OSError) as error:
                errors[device_id] = f"{type(error).__name__}: {error}"
        self._keep(made)
        summaries = {d: s for d, s in self._known.items() if d in generations}
        self._statistics = statistics = _covering(self._statistics, list(summaries.values()))
        return Eligible(changes, generations, summaries, errors, statistics, registered)

    def _summarise(self, device_id: str, generation: int) -> TermSummary:
        supplied = self._supplied().get(device_id)
        index = self.indexes.get(device_id, generation)
        self._known[device_id] = TermSummary.of(index, supplied)
        return self._known[device_id]

    def _supplied(self) -> dict[str, str]:
        query = select(t.summaries.c.device_id, t.summaries.c.payload)
        found = self.store.rows(query.where(t.summaries.c.router == SUPPLIED))
        return {r["device_id"]: r["payload"].decode() for r in found}

    def _read_kept(self, generations: dict[str, int]) -> None:
        """Take kept summaries of the right generation, reading only those not known yet."""
        wanted = sorted(
            d
            for d, g in generations.items()
            if d not in self._known or self._known[d].generation != g
        )
        if not wanted:
            return
        supplied = self._supplied()
        for start in range(0, len(wanted), 500):
            query = select(t.summaries).where(
                t.summaries.c.router == DERIVED,
                t.summaries.c.device_id.in_(wanted[start : start + 500]),
            )
            for row in self.store.rows(query):
                device_id, payload = row["device_id"], row["payload"]
                whole = sha256_hex(payload) == row["sha256"]
                if whole and row["generation"] == generations[device_id]:
                    self._known[device_id] = TermSummary.from_payload(
                        device_id, row["generation"], payload, supplied.get(device_id)
                    )

    def _keep(self, made: list[TermSummary]) -> None:
        """Write new summaries and the catalogue's counts that come from them."""
        if not made or self.store.read_only:
            return
        now = self.store.now()
        with self.store.pooled() as conn:
            for s in made:
                key = (t.summaries.c.device_id == s.device_id) & (t.summaries.c.router == DERIVED)
                conn.execute(delete(t.summaries).where(key))
                conn.execute(
                    insert(t.summaries).values(
                        device_id=s.device_id,
                        router=DERIVED,
                        generation=s.generation,
                        terms=len(s.df),
                        text_leaves=1,
                        sha256=sha256_hex(s.payload),
                        payload=s.payload,
                    )
                )
                conn.execute(
                    update(t.catalogue)
                    .where(t.catalogue.c.device_id == s.device_id)
                    .values(terms=len(s.df), namespaces=len(s.namespaces), refreshed_at=now)
                )

    def supply(self, device_id: str, terms: str | None) -> None:
        """Replace a shard's derived routing terms by the caller's, or go back to derived ones."""
        with self.store.pooled() as conn:
            key = (t.summaries.c.device_id == device_id) & (t.summaries.c.router == SUPPLIED)
            conn.execute(delete(t.summaries).where(key))
            if terms is not None:
                payload = terms.encode()
                conn.execute(
                    insert(t.summaries).values(
                        device_id=device_id,
                        router=SUPPLIED,
                        generation=0,
                        terms=len(set(terms.split())),
                        text_leaves=1,
                        sha256=sha256_hex(payload),
                        payload=payload,
                    )
                )
            now = self.store.now()
            noted(conn, self.store, "assert", f"summary:{device_id}", terms or "", now)
            conn.execute(update(t.mesh).values(changes=t.mesh.c.changes + 1))
        self._known.pop(device_id, None)


def _covering(old: Statistics, summaries: list[TermSummary]) -> Statistics:
    """Statistics of these shards; a new object, as searches may still read the old one."""
    new = old.copy()
    new.cover(summaries)
    return new
