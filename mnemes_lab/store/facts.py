"""Facts: what they are, and adding them in bulk.

A fact is a chain of versions. Nothing is overwritten: an update closes the version and appends
another, supersession and retraction close it and say why. Every row keeps when it was recorded
and when it was closed, so a past answer never changes.

What counts as the same fact: with an id made by the mesh, equal namespace, text, subject,
predicate, object and validity on one device is one fact, held together by a unique key in the
database. An id brought by the caller is a fact of its own, unique in the mesh; the same id with
other content is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl
from sqlalchemy import Connection, select, update

from mnemes_lab import schemas
from mnemes_lab.errors import CorruptStoreError
from mnemes_lab.store import tables as t
from mnemes_lab.store import trail
from mnemes_lab.store.control import ran_ahead
from mnemes_lab.store.held import CONTENT, Held, content_digest, content_key, held_facts
from mnemes_lab.store.known import need_sources
from mnemes_lab.store.operations import By, evidence_ids, first_answer, owner_of
from mnemes_lab.store.rules import INPUT, refusals, with_defaults
from mnemes_lab.store.store import Store
from mnemes_lab.store.trail import chunks, owners
from mnemes_lab.store.writing import Part, ShardError, commit, put, put_evidence


# --- adding ----------------------------------------------------------------------------------
def add_facts(
    store: Store,
    table: pl.DataFrame,
    refused: Mapping[int, str],
    *,
    by: By | None = None,
    derived_from: Sequence[str] = (),
    request: str = "",
) -> pl.DataFrame:
    """Store rows, with the operation and edges they bring along; answer every one of them.

    Args:
        store: The open store.
        table: Columns of :data:`mnemes_lab.store.rules.INPUT`, `device_id` resolved (null where
            the row is already refused).
        refused: Why some rows are refused already, by position.
        by: Who asks; None is the mesh's owner. A key is for a single row.
        derived_from: Facts or other items that the new facts come from.
        request: Digest of the caller's request, by which its key recognises a retry.

    Returns:
        `answers` frame, one row per input row, in input order.

    Raises:
        StoreBusyError, ReadOnlyError, CorruptStoreError: nothing was stored.
        InvalidProvenanceError, IdempotencyConflictError: about sources and key; nothing was stored.

    Notes:
        Rows of several devices are one batch: all are stored or, after a failure or a crash, none.
    """
    table = with_defaults(table)
    by = by or owner_of(store)
    batch = _Batch(store, table, refusals(table, refused), by, request)
    with store.writing():
        if by.key is not None:
            known = first_answer(store, by, request)
            if known is not None:
                batch.answer(known["answer"])
                return batch.answers()
        batch.sources = need_sources(store, derived_from)
        batch.sort_out()
        batch.write()
    return batch.answers()


class _Batch:
    """One load on its way into the shards."""

    def __init__(
        self,
        store: Store,
        table: pl.DataFrame,
        reasons: list[str | None],
        by: By,
        request: str,
    ) -> None:
        self.store, self.reasons, self.by, self.request = store, reasons, by, request
        self.sources: list[str] = []
        self.columns = {
            name: (
                table[name].cast(pl.Int64)
                if isinstance(table.schema[name], pl.Datetime)
                else table[name]
            ).to_list()
            for name in INPUT
        }
        self.n, self.now = table.height, 0
        self.ids: list[str | None] = [None] * self.n
        self.outcome = ["refused"] * self.n
        self.digests: list[bytes] = [b""] * self.n
        self.keys: list[bytes | None] = [None] * self.n
        self.by_device: dict[str, list[int]] = {}
        self.held: dict[str, int] = {}  # facts of the devices that may write

    def sort_out(self) -> None:
        """Decide for each row: stored, duplicate or refused."""
        self.now = self.store.now()
        self._devices()
        rows = [i for i, reason in enumerate(self.reasons) if reason is None]
        texts = self.columns["text"]
        contents = list(zip(*(self.columns[c] for c in CONTENT), strict=True))
        for i in rows:
            self.digests[i] = content_digest(texts[i])
        content = {i: content_key(self.digests[i], contents[i]) for i in rows}
        brought = [i for i in rows if self.columns["fact_id"][i] is not None]
        self._brought(brought, content)
        made = [i for i in rows if self.columns["fact_id"][i] is None]
        new = self._repeats(made, content)
        for i, fact_id in zip(new, self._fresh(len(new), brought), strict=True):
            self.ids[i], self.keys[i], self.outcome[i] = fact_id, content[i], "stored"
        if len(new) < len(made):
            self._name_twins(made, content)
        owners = self.columns["device_id"]
        for i in rows:
            if self.outcome[i] == "stored":
                self.by_device.setdefault(owners[i], []).append(i)

    def answer(self, fact_id: str) -> None:
        """Answer a repeated request as the first time."""
        self.ids, self.outcome = [fact_id] * self.n, ["stored"] * self.n

    def _devices(self) -> None:
        wanted = {d for d, r in zip(self.columns["device_id"], self.reasons, strict=True) if not r}
        query = select(t.catalogue, t.devices.c.status).join(
            t.devices, t.devices.c.device_id == t.catalogue.c.device_id
        )
        state = {row["device_id"]: row for row in self.store.rows(query)}
        self.held = {
            d: row["facts"] for d, row in state.items() if d in wanted and row["status"] == "active"
        }
        for i, device_id in enumerate(self.columns["device_id"]):
            if self.reasons[i] is None and device_id not in self.held:
                known = state.get(device_id)
                self.reasons[i] = f"device is {known['status']}" if known else "unknown device"
            elif self.reasons[i] is None and device_id in self.store.stuck:
                why = self.store.stuck[device_id]
                self.reasons[i] = f"the device's shard cannot be written: {why}"

    def _brought(self, rows: list[int], content: dict[int, bytes]) -> None:
        """Rows whose id came with them: new, a repeat of the same fact, or a conflict."""
        wanted = {self.columns["fact_id"][i] for i in rows}
        held = held_facts(self.store, wanted)
        seen: dict[str, Held] = {}
        for i in rows:
            fact_id, device_id = self.columns["fact_id"][i], self.columns["device_id"][i]
            known = seen.get(fact_id) or held.get(fact_id)
            if known is None:
                self.ids[i], self.outcome[i] = fact_id, "stored"
                seen[fact_id] = Held(device_id, [content[i]])
            elif known.device_id == device_id and content[i] in known.contents:
                self.ids[i], self.outcome[i] = fact_id, "duplicate"
                since = known.since if content[i] == known.contents[-1] else " and updated since"
                self.reasons[i] = f"this fact is held already{since}"
            else:
                what = "another device" if known.device_id != device_id else "other content"
                self.reasons[i] = known.problem or (
                    f"fact id {fact_id!r} is taken by a fact with {what}. "
                    "Hint: leave the id out, or supersede the fact"
                )

    def _repeats(self, rows: list[int], content: dict[int, bytes]) -> list[int]:
        """Mark rows whose content the shard holds already; answer the others, first ones only."""
        by_device: dict[str, dict[bytes, int]] = {}
        owners = self.columns["device_id"]
        for i in rows:
            by_device.setdefault(owners[i], {}).setdefault(content[i], i)
        new: list[int] = []
        for device_id, firsts in by_device.items():
            try:
                held = self._same_content(device_id, list(firsts))
            except CorruptStoreError as error:
                for i in rows:
                    if owners[i] == device_id:
                        self._refuse(i, f"the device's shard cannot be read: {error}")
                continue
            for key, i in firsts.items():
                if key in held:
                    self.ids[i], self.outcome[i] = held[key], "duplicate"
                    self.reasons[i] = "this fact is held already"
                else:
                    new.append(i)
        return sorted(new)

    def _same_content(self, device_id: str, keys: list[bytes]) -> dict[bytes, str]:
        if not self.held[device_id]:
            return {}
        found: dict[bytes, str] = {}
        with self.store.shard(device_id).begin() as conn:
            conn.execute(  # a fact past its time no longer stands in the way of a new one
                update(t.facts)
                .where(t.facts.c.expires_at <= self.now, t.facts.c.dedupe_key.is_not(None))
                .values(dedupe_key=None)
            )
            for part in chunks(keys):
                still = t.facts.c.closed_at.is_(None)
                query = select(t.facts.c.dedupe_key, t.facts.c.fact_id)
                rows = conn.execute(query.where(t.facts.c.dedupe_key.in_(part), still))
                found.update((key, fact_id) for key, fact_id in rows)
        return found

    def _fresh(self, n: int, brought: list[int]) -> list[str]:
        """New ids. A seeded stream may meet ids that were brought from a twin mesh: skip those."""
        ids = self.store.ids.uuid4s(n)
        if self.store.seed is None or not n:
            return ids
        taken = {self.columns["fact_id"][i] for i in brought} | set(owners(self.store, ids))
        while taken & set(ids):
            kept = [i for i in ids if i not in taken]
            ids = kept + self.store.ids.uuid4s(n - len(kept))
            taken |= set(owners(self.store, ids))
        return ids

    def _name_twins(self, made: list[int], content: dict[int, bytes]) -> None:
        """Rows that repeat another row of the batch or a held fact get that fact's id."""
        owners = self.columns["device_id"]
        first = {(owners[i], content[i]): self.ids[i] for i in reversed(made) if self.ids[i]}
        for i in made:
            if self.ids[i] is None and self.reasons[i] is None:
                self.ids[i], self.outcome[i] = first[owners[i], content[i]], "duplicate"
                self.reasons[i] = "repeats another row of this load"

    def write(self) -> None:
        """Write what is to be stored; a shard that fails refuses its own rows only."""
        if self.by.key is not None and self.outcome == ["duplicate"]:
            self._note_again()
        while self.by_device:
            try:
                self._commit()
                return
            except ShardError as error:
                for i in self.by_device.pop(error.device_id):
                    self._refuse(i, f"the device's shard cannot be written: {error}")

    def _note_again(self) -> None:
        """A fact stated again under a new key: its operation is recorded, and the key with it."""
        fact_id, home = str(self.ids[0]), self.columns["device_id"][0]
        told = trail.envelope(self.by, [fact_id], self.digests, answer=fact_id)
        operation_id = evidence_ids(self.store, self.now, 1)[0]

        def write(conn: Connection, generation: int) -> None:
            row = told.row(operation_id, home, self.now, generation, self.request)
            put(conn, t.operations, [row])

        keys = [(self.by.device_id, str(self.by.key), home)]
        commit(self.store, {home: Part(write)}, self.now, keys=keys)

    def _refuse(self, i: int, reason: str) -> None:
        self.ids[i], self.outcome[i], self.reasons[i] = None, "refused", reason

    def _commit(self) -> None:
        self._explain()
        parts = {d: self._part(d, rows) for d, rows in self.by_device.items()}
        if ahead := self._ahead():
            parts[""] = Part(lambda conn, _: ran_ahead(conn, ahead))
        fact_ids = sorted((str(self.ids[i]), d) for d, rows in self.by_device.items() for i in rows)
        by = self.by
        keys = [(by.device_id, by.key, d) for d in self.by_device] if by.key else []
        commit(self.store, parts, self.now, fact_ids=fact_ids, keys=keys)

    def _ahead(self) -> dict[str, int]:
        """Devices that saw something later than now, and by how much: their clocks run ahead."""
        seen = self.columns["observed_at"]
        ahead = {}
        for device_id, rows in self.by_device.items():
            times = (seen[i] for i in rows if seen[i] is not None)
            latest = max(times, default=self.now)
            if latest > self.now:
                ahead[device_id] = latest - self.now
        return ahead

    def _explain(self) -> None:
        """The operation of this batch and, per device, the edges of its facts."""
        rows = [i for d in sorted(self.by_device) for i in self.by_device[d]]
        told = trail.told_sources(self.store, {i: self.columns["source"][i] for i in rows})
        ids = [str(self.ids[i]) for i in rows]
        more: dict[str, Any] = {}
        if len(rows) == 1:
            col, at = self.columns, rows[0]
            more = {"observed_at": col["observed_at"][at], "valid_time": col["valid_from"][at]}
            more["answer"] = ids[0]
        self.envelope = trail.envelope(self.by, ids, [self.digests[i] for i in rows], **more)
        per_fact = 1 + (self.by.actor_id is not None) + len(self.sources)
        n = len(rows) * per_fact + sum(map(len, told.values()))
        self.operation_id, *edge_ids = evidence_ids(self.store, self.now, 1 + n)
        self.edge_ids = iter(edge_ids)
        self.told = told

    def _part(self, device_id: str, rows: list[int]) -> Part:
        def write(conn: Connection, generation: int) -> None:
            self._write_shard(conn, device_id, rows, generation)

        return Part(write, facts=len(rows))

    def _write_shard(
        self, conn: Connection, device_id: str, rows: list[int], generation: int
    ) -> None:
        col = self.columns

        def take(name: str) -> list[Any]:
            values = col[name]
            return [values[i] for i in rows]

        n = len(rows)
        none, ones = [None] * n, [1] * n
        values = {
            **{name: take(name) for name in INPUT if name not in ("device_id", "fact_id")},
            "fact_id": [self.ids[i] for i in rows],
            "version": ones,
            "content_digest": [self.digests[i] for i in rows],
            "dedupe_key": [self.keys[i] for i in rows],
            "recorded_at": [self.now] * n,
            "generation": [generation] * n,
            "redacted": [0] * n,
            "remainder": [0] * n,
        }
        tuples = list(zip(*(values.get(name, none) for name in t.FACT_COLUMNS), strict=True))
        ends = [
            end
            for i in rows
            for end in trail.stated(
                self.by,
                str(self.ids[i]),
                self.operation_id,
                [*self.sources, *self.told.get(i, ())],
            )
        ]
        edges = trail.edge_rows(
            ends, self.edge_ids, self.by, self.operation_id, device_id, self.now, generation
        )
        operation = self.envelope.row(
            self.operation_id, device_id, self.now, generation, self.request
        )
        put(conn, t.facts, tuples)
        put_evidence(conn, device_id, [operation], edges)

    def answers(self) -> pl.DataFrame:
        """The `answers` frame."""
        return pl.DataFrame(
            {
                "row": range(self.n),
                "outcome": self.outcome,
                "fact_id": self.ids,
                "device_id": self.columns["device_id"],
                "reason": self.reasons,
            },
            schema=schemas.dtypes(schemas.Answers),
        )
