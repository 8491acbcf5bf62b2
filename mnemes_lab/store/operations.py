"""Operations: who asked for which change of state, recorded with the change itself.

Rules:

1. What concerns a fact of one device lies in that device's shard, in the transaction of its
   effect; everything else lies in pooled.db. One load over several devices is one operation, with
   a row in every shard it touched.
2. A key belongs to the device that asks (the mesh's own id stands for its owner). A request is
   recognised by the digest of all of it: repeated, it is answered as the first time; another
   request with the same key is a named conflict. Two primary keys hold this, in pooled.db across
   files and in the file of the operation.
3. Keys are reserved when a write is announced and fall with it when it is undone, so a crash
   leaves the key with its effect or neither.
4. The mesh stamps where and when an operation was recorded; nobody brings these. Signs of life,
   search counts, latencies, summaries and indexes are observations of the mesh itself and derived
   data: they are no operations.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import Connection, RowMapping, Select, select

from mnemes_lab.clock import spelled, to_us
from mnemes_lab.digest import canonical_json
from mnemes_lab.errors import (
    ConflictError,
    CorruptStoreError,
    IdempotencyConflictError,
    IdError,
    InvalidProvenanceError,
)
from mnemes_lab.ids import ItemRef, RandomIds, SeededIds, check_name, parse_uuid4
from mnemes_lab.schemas import OPERATION_KINDS
from mnemes_lab.store import tables as t
from mnemes_lab.store.evidence import catch_up
from mnemes_lab.store.store import Store
from mnemes_lab.store.writing import Part, commit, put_evidence

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}", re.ASCII)
_CHANGING = {"supersede": "mesh.supersede", "revoke": "mesh.retract", "redact": "mesh.redact"}


class By(NamedTuple):
    """Who asks for a change, and the key by which a repeated request is recognised."""

    device_id: str
    actor_id: str | None = None
    key: str | None = None


class Envelope(NamedTuple):
    """One operation before it is recorded."""

    by: By
    kind: str
    target: str
    content_digest: str
    observed_at: int | None = None
    valid_time: int | None = None
    answer: str | None = None

    @property
    def request_digest(self) -> str:
        """Digest of everything that makes two requests the same; not of what they are answered."""
        times = [None if us is None else str(us) for us in (self.observed_at, self.valid_time)]
        told = [self.by.device_id, self.by.actor_id, *self[1:4], *times]
        return hashlib.sha256(canonical_json(told)).hexdigest()

    def row(
        self, operation_id: str, home: str, now: int, generation: int, request: str = ""
    ) -> tuple[Any, ...]:
        """The row of `OPERATION_COLUMNS`; `home` is the recording device, or empty."""
        target = ItemRef.parse(self.target)
        return (
            operation_id,
            self.by.key,
            request or self.request_digest,
            self.by.device_id,
            self.by.actor_id,
            home or (self.by.device_id if self.by.actor_id else None),
            self.kind,
            target.kind,
            target.id,
            self.content_digest,
            self.observed_at,
            self.valid_time,
            now,
            self.answer,
            generation,
        )


def owner_of(store: Store, key: str | None = None) -> By:
    """The mesh's owner, who acts through no device."""
    return By(store.mesh_id, None, checked_key(key))


def checked_key(key: str | None) -> str | None:
    """An idempotency key: None, or text that is not blank and at most 200 characters."""
    return None if key is None else check_name(key, what="idempotency key")


def digest_of(content: Any) -> str:
    """`sha256:` and the digest of text, bytes, or the canonical JSON of anything else."""
    if isinstance(content, str):
        content = content.encode()
    raw = content if isinstance(content, bytes) else canonical_json(content)
    return "sha256:" + hashlib.sha256(raw).hexdigest()


def request_of(by: By, *told: Any) -> str:
    """Digest of a request, by which its key recognises a retry; empty without a key."""
    return digest_of([by.device_id, by.actor_id, *map(_spelled, told)]) if by.key else ""


def _spelled(value: Any) -> Any:
    """A value as JSON can hold it, equal instants alike."""
    if isinstance(value, Mapping):
        return {name: spelled(one) for name, one in value.items()}
    return value


def checked_digest(given: str | None, content: Any = None) -> str:
    """The digest of an operation's content, in form, and right where the content is there.

    Raises:
        InvalidProvenanceError
    """
    if given is None and content is None:
        raise InvalidProvenanceError(
            "An operation needs its content or the content's digest.",
            hint='content="...", or content_digest="sha256:<64 hex digits>"',
        )
    if given is not None and not (isinstance(given, str) and _DIGEST.fullmatch(given)):
        raise InvalidProvenanceError(
            "content_digest has not the form sha256:<64 hex digits>.",
            found=given,
            hint="give the content itself and the digest is made",
        )
    if content is None:
        return str(given)
    try:
        right = digest_of(content)
    except (ValueError, TypeError) as error:
        raise InvalidProvenanceError(f"The content has no digest: {error}.") from None
    if given is not None and given != right:
        raise InvalidProvenanceError(
            "content_digest is not the digest of the content.", found=given, hint=f"it is {right}"
        )
    return right


def evidence_ids(store: Store, now: int, n: int) -> list[str]:
    """Identities for what is recorded at an instant.

    In a seeded mesh they follow from the seed and the instant, which no two writes share, so the
    stream of fact ids is what it would be without them.
    """
    if store.seed is None:
        return RandomIds().uuid4s(n)
    return SeededIds(store.seed, stream=f"evidence {now}").uuid4s(n)


def first_answer(store: Store, by: By, request: str) -> RowMapping | None:
    """The operation that a repeated request was first recorded as; in the writer's turn.

    Args:
        store: The open store.
        by: Who asks, with the key; without one nothing is a repeat.
        request: Digest of the request.

    Raises:
        IdempotencyConflictError: the key belongs to another request.
    """
    if by.key is None:
        return None
    k = t.operation_keys.c
    mine = (k.requesting_device_id == by.device_id) & (k.idempotency_key == by.key)
    found = store.rows(select(k.home).where(mine))
    if not found:
        return None
    home = found[0]["home"]
    table = t.operations if home else t.pooled_operations
    c = table.c
    rule = (c.requesting_device_id == by.device_id) & (c.idempotency_key == by.key)
    rows = _look(store, select(table).where(rule), home)
    if not rows:
        raise CorruptStoreError(f"The operation of key {by.key!r} is gone.", hint="mesh.check()")
    if rows[0]["request_digest"] != request:
        raise _other_request(by.key)
    return rows[0]


def _other_request(key: str) -> IdempotencyConflictError:
    return IdempotencyConflictError(
        "The idempotency key belongs to another request.",
        found=key,
        hint="a retry repeats the request as it was; a new request needs a new key",
    )


def noted(conn: Connection, store: Store, kind: str, target: str, content: Any, now: int) -> None:
    """Record a change of the control plane, asked for by the mesh's owner, with its effect."""
    envelope = Envelope(owner_of(store), kind, target, digest_of(content))
    put_evidence(conn, "", [envelope.row(evidence_ids(store, now, 1)[0], "", now, 0)], [])


def read_envelope(
    by: By,
    kind: str,
    target: str | ItemRef,
    *,
    content: Any = None,
    content_digest: str | None = None,
    observed_at: datetime | str | None = None,
    valid_time: datetime | str | None = None,
) -> Envelope:
    """Check what a caller asks to be recorded.

    Raises:
        InvalidProvenanceError: an unknown kind, a target that is no item, a wrong digest.
        InstantError: a time that names no instant.
    """
    if kind not in OPERATION_KINDS:
        raise InvalidProvenanceError(
            "No such kind of operation.", found=kind, hint=f"one of {OPERATION_KINDS}"
        )
    return Envelope(
        by,
        kind,
        item(target, "target"),
        checked_digest(content_digest, content),
        None if observed_at is None else to_us(observed_at, what="observed_at"),
        None if valid_time is None else to_us(valid_time, what="valid_time"),
    )


def item(text: str | ItemRef | Sequence[str], what: str) -> str:
    """The key ``kind:id`` of an item given as such, as an ItemRef, or as a pair.

    Raises:
        InvalidProvenanceError: it is none of these.
    """
    try:
        if isinstance(text, str):
            kind, id = ItemRef.parse(text)
        elif isinstance(text, (tuple, list)) and len(text) == 2:
            kind, id = ItemRef.of(*text)
        else:
            raise IdError(f"found {type(text).__name__}, wanted text.")
        key = check_name(f"{kind}:{id}", what=what, limit=_MAX_ITEM)
        check_name(id, what="its id", limit=_MAX_ITEM)
        if check_name(kind, what="its kind") != kind.strip():
            raise IdError("its kind begins or ends with a blank.")
    except (IdError, ValueError, TypeError, AttributeError) as error:
        told = str(error).partition(" Hint:")[0]
        raise InvalidProvenanceError(
            f"The {what} is not an item: {told}", hint='write "fact:<id>", or another kind:id'
        ) from None
    return key


_MAX_ITEM = 400


def submit(
    store: Store, envelope: Envelope, home: str = "", operation_id: str | None = None
) -> RowMapping:
    """Record an operation that changes nothing else; answers it as recorded.

    Args:
        store: The open store.
        envelope: What to record.
        home: The device in whose shard it belongs, or empty for pooled.db.
        operation_id: Its identity, where the caller brings one.

    Raises:
        InvalidProvenanceError: a kind that changes facts; the verb that does it is named.
        IdempotencyConflictError, ConflictError: the key or the id belongs to another operation.
    """
    target = ItemRef.parse(envelope.target)
    if target.kind == "fact" and envelope.kind in _CHANGING:
        raise InvalidProvenanceError(
            f"An operation that says {envelope.kind} of a fact must do it.",
            found=envelope.target,
            hint=f"{_CHANGING[envelope.kind]} does it and records it",
        )
    chosen = parse_uuid4(operation_id, what="operation id") if operation_id is not None else None
    by, table = envelope.by, t.operations if home else t.pooled_operations
    with store.writing():
        known = first_answer(store, by, envelope.request_digest)
        if known is not None:
            if chosen not in (None, known["operation_id"]):
                raise _other_request(str(by.key))
            return known
        if chosen is not None:
            catch_up(store)  # whichever file the other one lies in
            c = t.pooled_operations.c
            if store.rows(select(c.operation_id).where(c.operation_id == chosen)):
                raise ConflictError("An operation has this id already.", found=chosen)
        now = store.now()
        chosen = chosen or evidence_ids(store, now, 1)[0]
        mine = select(table).where(table.c.operation_id == chosen)

        def write(conn: Connection, generation: int) -> None:
            put_evidence(conn, home, [envelope.row(chosen, home, now, generation)], [])

        keys = [(by.device_id, by.key, home)] if by.key else []
        commit(store, {home: Part(write)}, now, keys=keys)
        return _look(store, mine, home)[0]


def _look(store: Store, query: Select[Any], home: str) -> Sequence[RowMapping]:
    return store.shard(home).rows(query) if home else store.rows(query)
