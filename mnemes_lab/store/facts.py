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

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import polars as pl
from sqlalchemy import Connection, Dialect, RowMapping, insert, select, update

from mnemes_lab import schemas
from mnemes_lab.errors import CorruptStoreError, FactNotFoundError
from mnemes_lab.store import tables as t
from mnemes_lab.store.rules import INPUT, refusals, with_defaults
from mnemes_lab.store.store import Store

_CHUNK = 500
CONTENT = ("namespace", "subject", "predicate", "object", "valid_from", "valid_to")


def content_digest(text: str) -> bytes:
    """SHA-256 of the text's UTF-8 bytes."""
    return hashlib.sha256(text.encode()).digest()


def content_key(digest: bytes, rest: Sequence[Any]) -> bytes:
    """Digest of everything that makes two facts the same: the text's digest and `CONTENT`.

    Each value tells its kind and where it ends, so no two lists of values read the same.
    """
    told = ["-" if v is None else f"{len(v)}={v}" if isinstance(v, str) else f"#{v};" for v in rest]
    return hashlib.sha256(digest + "".join(told).encode()).digest()


# --- adding ----------------------------------------------------------------------------------
def add_facts(store: Store, table: pl.DataFrame, refused: Mapping[int, str]) -> pl.DataFrame:
    """Store rows; answer every one of them.

    Args:
        store: The open store.
        table: Columns of :data:`mnemes_lab.store.rules.INPUT`, `device_id` resolved (null where
            the row is already refused).
        refused: Why some rows are refused already, by position.

    Returns:
        `answers` frame, one row per input row, in input order.

    Raises:
        StoreBusyError, ReadOnlyError, CorruptStoreError: nothing was stored.

    Notes:
        Rows of several devices are one batch: all are stored or, after a failure or a crash, none.
    """
    table = with_defaults(table)
    batch = _Batch(store, table, refusals(table, refused))
    with store.writing():
        batch.sort_out()
        batch.write()
    return batch.answers()


class _Batch:
    """One load on its way into the shards."""

    def __init__(self, store: Store, table: pl.DataFrame, reasons: list[str | None]) -> None:
        self.store, self.reasons = store, reasons
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
        self.base: dict[str, tuple[int, int]] = {}

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

    def _devices(self) -> None:
        wanted = {d for d, r in zip(self.columns["device_id"], self.reasons, strict=True) if not r}
        query = select(t.catalogue, t.devices.c.status).join(
            t.devices, t.devices.c.device_id == t.catalogue.c.device_id
        )
        state = {row["device_id"]: row for row in self.store.rows(query)}
        self.base = {
            d: (row["generation"], row["facts"])
            for d, row in state.items()
            if d in wanted and row["status"] == "active"
        }
        for i, device_id in enumerate(self.columns["device_id"]):
            if self.reasons[i] is None and device_id not in self.base:
                known = state.get(device_id)
                self.reasons[i] = f"device is {known['status']}" if known else "unknown device"
            elif self.reasons[i] is None and device_id in self.store.stuck:
                why = self.store.stuck[device_id]
                self.reasons[i] = f"the device's shard cannot be written: {why}"

    def _brought(self, rows: list[int], content: dict[int, bytes]) -> None:
        """Rows whose id came with them: new, a repeat of the same fact, or a conflict."""
        wanted = {self.columns["fact_id"][i] for i in rows}
        held = _held(self.store, wanted)
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
        if not self.base[device_id][1]:
            return {}
        found: dict[bytes, str] = {}
        with self.store.shard(device_id).begin() as conn:
            conn.execute(  # a fact past its time no longer stands in the way of a new one
                update(t.facts)
                .where(t.facts.c.expires_at <= self.now, t.facts.c.dedupe_key.is_not(None))
                .values(dedupe_key=None)
            )
            for part in _chunks(keys):
                query = select(t.facts.c.dedupe_key, t.facts.c.fact_id)
                rows = conn.execute(query.where(t.facts.c.dedupe_key.in_(part)))
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
        while self.by_device:
            failed = self._try()
            if failed is None:
                return
            device_id, error = failed
            for i in self.by_device.pop(device_id):
                self._refuse(i, f"the device's shard cannot be written: {error}")

    def _refuse(self, i: int, reason: str) -> None:
        self.ids[i], self.outcome[i], self.reasons[i] = None, "refused", reason

    def _try(self) -> tuple[str, Exception] | None:
        """Announce, write each shard in one transaction, publish; or undo and name what failed."""
        devices = sorted(self.by_device)
        reserved = [
            (self.ids[i], d, self.base[d][0] + 1) for d in devices for i in self.by_device[d]
        ]
        reserved.sort()
        self.store.announce(
            {d: self.base[d][0] for d in devices},
            reserved,  # type: ignore[arg-type]
            "undo" if len(devices) > 1 else "keep",
        )
        written = {}
        for device_id in devices:
            try:
                written[device_id] = self._write_shard(device_id)
            except CorruptStoreError as error:
                self.store.abandon(untouched=device_id)
                return device_id, error
            except BaseException:
                self.store.abandon()
                raise
        self.store.publish(written)
        return None

    def _write_shard(self, device_id: str) -> tuple[int, int]:
        rows = self.by_device[device_id]
        generation, count = self.base[device_id][0] + 1, self.base[device_id][1] + len(rows)
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
        }
        tuples = list(zip(*(values.get(name, none) for name in t.FACT_COLUMNS), strict=True))
        with self.store.shard(device_id).begin() as conn:
            conn.exec_driver_sql(_insert_sql(conn.dialect), tuples)
            advance(self.store, conn, generation, count, self.now)
        return generation, count

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


@lru_cache
def _insert_sql(dialect: Dialect) -> str:
    """The insert statement once per dialect: rows go to the driver as plain tuples."""
    return str(insert(t.facts).values(dict.fromkeys(t.FACT_COLUMNS)).compile(dialect=dialect))


def advance(store: Store, conn: Connection, generation: int, facts: int, now: int) -> None:
    """Bring the shard's own state up with its rows, in the same transaction."""
    conn.execute(
        update(t.shard_state).values(
            generation=generation, facts=facts, last_recorded_at=now, encoder=store.encoder
        )
    )


def _chunks(values: Iterable[Any]) -> Iterable[list[Any]]:
    listed = list(values)
    return (listed[i : i + _CHUNK] for i in range(0, len(listed), _CHUNK))


def owners(store: Store, fact_ids: Iterable[str]) -> dict[str, str]:
    """Which device holds each of these facts."""
    owners: dict[str, str] = {}
    for part in _chunks(fact_ids):
        for row in store.rows(select(t.fact_index).where(t.fact_index.c.fact_id.in_(part))):
            owners[row["fact_id"]] = row["device_id"]
    return owners


class Held(NamedTuple):
    """What is on record under a fact id: contents of all versions, oldest first."""

    device_id: str
    contents: list[bytes]
    since: str = ""
    problem: str | None = None


def _held(store: Store, fact_ids: Iterable[str]) -> dict[str, Held]:
    """What is on record under each of these ids."""
    by_device: dict[str, list[str]] = {}
    for fact_id, device_id in owners(store, sorted(fact_ids)).items():
        by_device.setdefault(device_id, []).append(fact_id)
    held: dict[str, Held] = {}
    for device_id, ids in sorted(by_device.items()):
        try:
            handle = store.shard(device_id)
            for part in _chunks(ids):
                query = select(t.facts).where(t.facts.c.fact_id.in_(part))
                for row in handle.rows(query.order_by(t.facts.c.version)):
                    key = content_key(row["content_digest"], tuple(row[c] for c in CONTENT))
                    known = held.get(row["fact_id"])
                    since = f" and {row['closed_as']} since" if row["closed_as"] else ""
                    contents = [*known.contents, key] if known else [key]
                    held[row["fact_id"]] = Held(device_id, contents, since)
        except CorruptStoreError as error:
            problem = f"the fact with this id cannot be compared: {error}"
            held |= {fact_id: Held(device_id, [], problem=problem) for fact_id in ids}
    return held


# --- reading one fact ------------------------------------------------------------------------
def owner(store: Store, fact_id: str) -> str:
    """The device that holds a fact.

    Raises:
        FactNotFoundError
    """
    found = owners(store, [fact_id])
    if not found:
        raise _no_such(fact_id)
    return found[fact_id]


def _no_such(fact_id: str) -> FactNotFoundError:
    return FactNotFoundError(
        "No such fact.", found=fact_id, hint="mesh.facts() lists the facts and their ids"
    )


def history_rows(store: Store, fact_id: str) -> Sequence[RowMapping]:
    """All published versions of one fact, oldest first.

    Raises:
        FactNotFoundError
    """
    device_id = owner(store, fact_id)
    query = select(t.catalogue.c.generation).where(t.catalogue.c.device_id == device_id)
    held = t.facts_at(store.rows(query)[0]["generation"])
    found = store.shard(device_id).rows(
        select(held).where(held.c.fact_id == fact_id).order_by(held.c.version)
    )
    if not found:  # its id is reserved by a write that is not published yet
        raise _no_such(fact_id)
    return found
