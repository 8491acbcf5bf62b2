"""What a mesh does to facts and records with them: changes, operations, edges."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from mnemes_lab import frames
from mnemes_lab.clock import from_us, to_us
from mnemes_lab.digest import canonical_json
from mnemes_lab.errors import (
    AuthorizationDeniedError,
    InputError,
    InstantError,
    InvalidAsOfError,
    InvalidProvenanceError,
    MnemesError,
    SchemaError,
)
from mnemes_lab.mesh.agent import Agent, Device
from mnemes_lab.store import changes, control, provenance, redaction
from mnemes_lab.store.indexes import Indexes
from mnemes_lab.store.operations import (
    By,
    checked_key,
    item,
    owner_of,
    read_envelope,
    request_of,
    submit,
)
from mnemes_lab.store.store import Store
from mnemes_lab.store.trail import owners
from mnemes_lab.text.cache import VectorCache

Who = Agent | Device | str | None


class Submitted(NamedTuple):
    """An operation on record. A retry is answered with the first one."""

    operation_id: str
    receipt_id: str
    recorded_at: datetime


class MeshChanges:
    """The part of :class:`mnemes_lab.mesh.mesh.Mesh` that changes facts and records why."""

    store: Store
    indexes: Indexes
    cache: VectorCache

    def supersede(
        self,
        fact_id: str,
        /,
        text: str,
        *,
        reason: str | None = None,
        by: Agent | None = None,
        idempotency_key: str | None = None,
        **columns: Any,
    ) -> str:
        """Replace a current fact by a new one on its device; answers the new id.

        Args:
            fact_id: The fact to replace. Where the new one has a `valid_from` or `valid_to`, the
                old one still holds before and after.
            text: The new statement.
            reason: Why.
            by: The agent who says so; None is the mesh's owner.
            idempotency_key: Lets a retry get the first answer again.
            **columns: Any of the new fact's own columns, its `fact_id` included.

        Raises:
            FactNotFoundError: no such fact.
            ConflictError: it was replaced or withdrawn already; the current one is named.
            IdempotencyConflictError: the key belongs to another request.
        """
        row = {**columns, "text": text}
        who, reason = self._by(by, idempotency_key), _words(reason)
        request = request_of(who, "supersede", fact_id, row, reason)
        return changes.supersede(self.store, fact_id, row, reason=reason, by=who, request=request)

    def update(
        self,
        fact_id: str,
        /,
        *,
        by: Agent | None = None,
        idempotency_key: str | None = None,
        **columns: Any,
    ) -> int:
        """Change a current fact under the same id; answers the new version's number.

        The new version takes the place of the old one whole, its validity included; to say that
        something else holds from some time on, supersede it.
        """
        if "fact_id" in columns:
            raise InputError("A fact keeps its id.", found=columns["fact_id"])
        who = self._by(by, idempotency_key)
        request = request_of(who, "update", fact_id, columns)
        return changes.update_fact(self.store, fact_id, columns, by=who, request=request)

    def retract(
        self,
        fact_id: str,
        *,
        reason: str | None = None,
        by: Agent | None = None,
        idempotency_key: str | None = None,
    ) -> None:
        """Withdraw a current fact; it stays in the history.

        What it superseded does not come back: what is known now is said by a new fact.
        """
        who, reason = self._by(by, idempotency_key), _words(reason)
        request = request_of(who, "retract", fact_id, reason)
        changes.retract(self.store, fact_id, reason=reason, by=who, request=request)

    def redact(
        self,
        fact_id: str,
        *,
        reason: str | None = None,
        by: Agent | None = None,
        idempotency_key: str | None = None,
    ) -> bool:
        """Take a fact's text out of the mesh: store, index, summaries and caches.

        Its identity, times and digest stay. Unlike any other write this changes past answers. What
        others wrote about it stays: metadata of edges, and facts that repeat its words.

        Returns:
            Whether its files hold no trace any more. False while another process reads them: then
            `check` says so and :meth:`scrub` tries again.

        Raises:
            FactNotFoundError
            ConflictError: it was redacted already.
        """
        who, reason = self._by(by, idempotency_key), _words(reason)
        request = request_of(who, "redact", fact_id, reason)
        redaction.redact(self.store, fact_id, reason=reason, by=who, request=request)
        return not self.scrub()

    def scrub(self) -> list[str]:
        """Finish redactions: answers the devices whose files still hold traces."""
        return redaction.scrub(self.store, self.indexes, self.cache)

    def submit(
        self,
        kind: str,
        target: str,
        *,
        by: Who = None,
        actor_id: str | None = None,
        content: Any = None,
        content_digest: str | None = None,
        observed_at: datetime | str | None = None,
        valid_time: datetime | str | None = None,
        idempotency_key: str | None = None,
        operation_id: str | None = None,
    ) -> Submitted:
        """Record an operation that itself changes no fact.

        Args:
            kind: observe, assert, supersede, revoke, redact or adjudicate. What replaces,
                withdraws or redacts a fact of this mesh is recorded by the verb that does it.
            target: What it is about, ``kind:id``.
            by: The agent or device that asks; None is the mesh's owner.
            actor_id: An actor of the device.
            content: What the digest is made of, or checked against: text or JSON.
            content_digest: ``sha256:<64 hex digits>``, where the content stays elsewhere.
            observed_at: When somebody saw it.
            valid_time: When it holds in the world.
            idempotency_key: Of the device that asks. The same request again is answered as the
                first time; another request with the key is refused.
            operation_id: A version 4 UUID of one's own.

        Raises:
            InvalidProvenanceError: kind, target, content or digest.
            AuthorizationDeniedError: an actor of another device, a device that is not active.
            IdempotencyConflictError, ConflictError: the key or id belongs to another operation.
        """
        who = self._requester(by, actor_id, idempotency_key)
        envelope = read_envelope(
            who,
            kind,
            target,
            content=content,
            content_digest=content_digest,
            observed_at=observed_at,
            valid_time=valid_time,
        )
        what, _, id = envelope.target.partition(":")
        home = owners(self.store, [id]).get(id, "") if what == "fact" else ""
        if who.device_id not in (self.store.mesh_id, home):
            home = ""  # a device writes in its own shard only
        row = submit(self.store, envelope, home, operation_id)
        told = f"op-receipt:{row['operation_id']}"
        return Submitted(row["operation_id"], told, from_us(row["recorded_at"]))

    def add_edge(
        self,
        edge_type: str,
        source: str,
        target: str,
        *,
        by: Agent | None = None,
        idempotency_key: str | None = None,
        **columns: Any,
    ) -> str:
        """Record one provenance edge, ``source <edge_type> target``; answers its id.

        `columns` are operation_id (None records a new operation), valid_from, valid_to,
        observed_at, content_digest, metadata (a mapping or JSON text) and supersedes_edge_id. The
        same edge again under the same operation is answered with the first one's id.

        Raises:
            InvalidProvenanceError: an unknown type, an edge from an item to itself, to nothing
                where the mesh keeps such items itself, or under the wrong operation.
            InvalidAsOfError: valid_to before valid_from, or a time that names no instant.
            IdempotencyConflictError: the operation has this edge with other columns.
        """
        row = {"edge_type": edge_type, "source": source, "target": target, **columns}
        row = {k: _ends(v) if k in ("source", "target") else v for k, v in row.items()}
        for column in ("valid_from", "valid_to", "observed_at"):
            _need_instant(row.get(column), column)
        table, bad = frames.read_records([_json(row)], provenance.EDGE_INPUT, required=[])
        who = self._by(by, idempotency_key)
        answers, errors = provenance.add_edges(self.store, table, bad, who)
        if errors[0] is not None:
            raise errors[0]
        return str(answers["edge_id"][0])

    def add_edges(
        self, frame: Any, *, by: Agent | None = None, idempotency_key: str | None = None
    ) -> Any:
        """Record a frame of edges: edge_type, source, target, and the columns of `add_edge`.

        Returns:
            `edge_answers` frame, one row per input row in order, of the kind of `frame`.
        """
        kind = frames.kind_of(frame)
        required = ["edge_type", "source", "target"]
        table, bad = frames.read_rows(frame, provenance.EDGE_INPUT, required=required)
        who = self._by(by, idempotency_key)
        return frames.give_back(provenance.add_edges(self.store, table, bad, who)[0], kind)

    def _by(self, agent: Agent | None, key: str | None) -> By:
        if agent is None:
            return owner_of(self.store, key)
        if not isinstance(agent, Agent):
            raise InputError("by must be an agent of the mesh.", found=agent, hint="mesh.agent()")
        return self._requester(agent, None, key)

    def _requester(self, who: Who, actor_id: str | None, key: str | None) -> By:
        if isinstance(who, (Agent, Device)) and who._mesh is not self:
            raise InputError("by must be an agent of the mesh.", found=who, hint="mesh.agent()")
        if isinstance(who, Agent):
            device: str | None = who.device.device_id
            actor_id = actor_id or who.actor_id
        else:
            device = who.device_id if isinstance(who, Device) else who
        if actor_id is not None:
            actor = control.find_actor(self.store, actor_id)
            device = device or actor["device_id"]
        if device is None:
            return owner_of(self.store, key)
        found = control.find_device(self.store, device)
        if actor_id is not None and actor["device_id"] != found["device_id"]:
            raise AuthorizationDeniedError(
                "The actor belongs to another device.",
                found=actor_id,
                hint="leave the device out, or name an actor of it",
            )
        control.active_device(self.store, found["device_id"])
        return By(str(found["device_id"]), actor_id, checked_key(key))


def _need_instant(value: Any, column: str) -> None:
    try:
        _ = None if value is None else to_us(value, what=column)
    except InstantError as error:
        raise InvalidAsOfError(*error.args) from None


def _words(reason: str | None) -> str | None:
    try:
        return None if reason is None else frames.whole_text(reason)
    except SchemaError as error:
        raise InputError(f"reason: {error}") from None


def _ends(value: Any) -> Any:
    return value if isinstance(value, str) else item(value, "end of an edge")


def _json(row: Mapping[str, Any]) -> dict[str, Any]:
    """Metadata given as a mapping or list, as JSON text."""
    given = row.get("metadata")
    if given is None or isinstance(given, str):
        return dict(row)
    try:
        return {**row, "metadata": canonical_json(given).decode()}
    except (MnemesError, TypeError, ValueError, RecursionError) as error:
        raise InvalidProvenanceError(f"The metadata is not JSON: {error}") from None
