"""What is on record under a fact id: who holds it, its contents, its versions."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from sqlalchemy import RowMapping, select

from mnemes_lab.errors import CorruptStoreError, FactNotFoundError, InputError, SchemaError
from mnemes_lab.frames import whole_text
from mnemes_lab.store import tables as t
from mnemes_lab.store.store import Store
from mnemes_lab.store.trail import chunks, owners

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


class Held(NamedTuple):
    """What is on record under a fact id: contents of all versions, oldest first."""

    device_id: str
    contents: list[bytes]
    since: str = ""
    problem: str | None = None


def held_facts(store: Store, fact_ids: Iterable[str]) -> dict[str, Held]:
    """What is on record under each of these ids."""
    by_device: dict[str, list[str]] = {}
    for fact_id, device_id in owners(store, sorted(fact_ids)).items():
        by_device.setdefault(device_id, []).append(fact_id)
    held: dict[str, Held] = {}
    for device_id, ids in sorted(by_device.items()):
        try:
            handle = store.shard(device_id)
            for part in chunks(ids):
                query = select(t.facts).where(t.facts.c.fact_id.in_(part), t.facts.c.remainder == 0)
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
    try:
        found = owners(store, [whole_text(fact_id)])
    except SchemaError as error:
        raise InputError(f"The fact id {error}") from None
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
