"""Devices and agents as handles: thin, they act through their mesh."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from sqlalchemy import select

from mnemes_lab.clock import from_us
from mnemes_lab.errors import AuthorizationDeniedError, ConflictError, InputError
from mnemes_lab.store import control, held
from mnemes_lab.store import tables as t
from mnemes_lab.store.operations import By, checked_key, request_of

if TYPE_CHECKING:
    from mnemes_lab.mesh.changing import Submitted
    from mnemes_lab.mesh.found import Found
    from mnemes_lab.mesh.mesh import Mesh


class Device:
    """A device of a mesh.

    Attributes:
        device_id: Its version 4 UUID.
        label: What people call it.
    """

    def __init__(self, mesh: Mesh, device_id: str, label: str) -> None:
        """Use :meth:`Mesh.device`."""
        self._mesh, self.device_id, self.label = mesh, device_id, label

    @property
    def status(self) -> str:
        """Active, quarantined or revoked."""
        return str(control.find_device(self._mesh.store, self.device_id)["status"])

    def heartbeat(self, device_time: datetime | str | None = None) -> None:
        """Record a sign of life; `device_time` is what the device's own clock shows.

        A clock that runs ahead shows in `clock_ahead_ms` of the `devices` frame. It never decides
        an order: the mesh's record time does.
        """
        control.heartbeat(self._mesh.store, self.device_id, device_time)

    def quarantine(self) -> None:
        """Keep it out of searches and writes until reactivated."""
        control.set_status(self._mesh.store, self.device_id, "quarantined")

    def reactivate(self) -> None:
        """End a quarantine."""
        control.set_status(self._mesh.store, self.device_id, "active")

    def revoke(self) -> None:
        """Shut it out for good."""
        control.set_status(self._mesh.store, self.device_id, "revoked")

    def rotate(self) -> control.Credential:
        """Give it a new credential, shown once; the old one stops working."""
        return control.rotate(self._mesh.store, self.device_id)

    def supply_terms(self, terms: str | None) -> None:
        """Route to it by these terms instead of those of its facts; None goes back."""
        self._mesh.view.supply(self.device_id, terms)

    def __repr__(self) -> str:
        """Its label and id."""
        return f"Device({self.label!r}, {self.device_id})"


class Agent:
    """An actor with a namespace on its device.

    Attributes:
        name: Its name, which is its namespace.
        actor_id: Its identity as an actor.
        device: The device it acts through.
    """

    def __init__(self, mesh: Mesh, name: str, actor_id: str, device: Device) -> None:
        """Use :meth:`Mesh.agent`."""
        self._mesh, self.name, self.actor_id, self.device = mesh, name, actor_id, device

    def remember(
        self,
        text: str,
        *,
        ttl: timedelta | None = None,
        derived_from: Sequence[str] = (),
        idempotency_key: str | None = None,
        **columns: str | datetime | None,
    ) -> str:
        """Store one statement in the agent's namespace, with the trail of who said it.

        Args:
            text: The statement.
            ttl: How long it stays current.
            derived_from: Facts it was made from, by id, or other items as ``kind:id``. A `source`
                that reads ``fact:<id>`` counts too.
            idempotency_key: Lets a retry get the first answer again.
            **columns: Any other column of the `facts` frame that a caller may set.

        Returns:
            The fact's id; for a statement it holds already, the id of that fact.

        Raises:
            InputError: the statement was refused; the reason is named.
            InvalidProvenanceError: it is derived from a fact that is not there.
            IdempotencyConflictError: the key belongs to another request.
        """
        row: dict[str, Any] = {"namespace": self.name, **columns, "text": text}
        by = By(self.device.device_id, self.actor_id, checked_key(idempotency_key))
        lasting = None if ttl is None else str(ttl)
        request = request_of(by, "remember", row, lasting, _keys(derived_from))
        if ttl is not None:
            row["expires_at"] = self._end_of(ttl, given="expires_at" in row)
        answers = self._mesh._add_record(row, by, derived_from=derived_from, request=request)
        answer = answers.row(0, named=True)
        if answer["outcome"] == "refused":
            raise InputError(f"The fact was refused: {answer['reason']}.")
        return str(answer["fact_id"])

    def _end_of(self, ttl: timedelta, *, given: bool) -> datetime:
        if not isinstance(ttl, timedelta):
            raise InputError("ttl must be a timedelta.", found=ttl, hint="timedelta(hours=1)")
        if given or not ttl > timedelta(0):
            raise InputError("Give either expires_at or a ttl above zero.", found=ttl)
        try:
            return from_us(self._mesh.store.now()) + ttl
        except (OverflowError, ValueError):
            raise InputError(
                "ttl ends after the year 9999.", found=ttl, hint="leave it out: it never expires"
            ) from None

    def recall(self, query: str, *, k: int = 10, **options: Any) -> Found:
        """Search this agent's own namespace on its own device's behalf.

        Other agents' facts in a namespace of the same name are found too: a namespace is a
        group of facts, not a wall. Use `mesh.search` to ask everyone.
        """
        return self._mesh.search(query, asker=self, k=k, namespaces=[self.name], **options)

    def supersede(self, fact_id: str, /, text: str, **options: Any) -> str:
        """Replace a fact of the agent's device by a new one; answers the new id.

        Options are those of `Mesh.supersede`: reason, idempotency_key and the new fact's columns.

        Raises:
            AuthorizationDeniedError: the device is not active, or another one holds the fact.
            FactNotFoundError, ConflictError: as `Mesh.supersede` does.
        """
        with self._mesh.store.writing():
            self._need_own(fact_id)
            return self._mesh.supersede(fact_id, text, by=self, **options)

    def update(self, fact_id: str, /, **options: Any) -> int:
        """Change a fact of the agent's device under the same id, as `Mesh.update` does."""
        with self._mesh.store.writing():
            self._need_own(fact_id)
            return self._mesh.update(fact_id, by=self, **options)

    def retract(self, fact_id: str, **options: Any) -> None:
        """Withdraw a fact of the agent's device; it stays in the history.

        Options are those of `Mesh.retract`: reason and idempotency_key.

        Raises:
            AuthorizationDeniedError: the device is not active, or another one holds the fact.
            FactNotFoundError, ConflictError: as `Mesh.retract` does.
        """
        with self._mesh.store.writing():
            self._need_own(fact_id)
            self._mesh.retract(fact_id, by=self, **options)

    def redact(self, fact_id: str, **options: Any) -> bool:
        """Take the text of a fact of the agent's device out of the mesh, as `Mesh.redact` does."""
        with self._mesh.store.writing():
            self._need_own(fact_id)
            return self._mesh.redact(fact_id, by=self, **options)

    def submit(self, kind: str, target: str, **options: Any) -> Submitted:
        """Record an operation asked for by the agent, as `Mesh.submit` does."""
        return self._mesh.submit(kind, target, by=self, **options)

    def add_edge(self, edge_type: str, source: str, target: str, **options: Any) -> str:
        """Record a provenance edge under an operation of the agent, as `Mesh.add_edge` does."""
        return self._mesh.add_edge(edge_type, source, target, by=self, **options)

    def _need_own(self, fact_id: str) -> None:
        """Refuse unless the agent's device may act and holds the fact; in the writer's turn."""
        if (status := self.device.status) != "active":
            raise AuthorizationDeniedError(
                f"The agent's device is {status}.",
                found=self.device.label,
                hint="reactivate it; the mesh's owner can redact its facts also while it is not",
            )
        if held.owner(self._mesh.store, fact_id) != self.device.device_id:
            raise AuthorizationDeniedError(
                "The fact is held by another device.",
                found=fact_id,
                hint="an agent changes facts of its own device; the mesh's owner changes any",
            )

    def __repr__(self) -> str:
        """Its name and device."""
        return f"Agent({self.name!r} on {self.device.label!r})"


def _keys(named: Any) -> Any:
    """Sources as they are compared: a plain id is a fact's."""
    if isinstance(named, str) or not isinstance(named, (list, tuple)):
        return repr(named)
    return [n if not isinstance(n, str) or ":" in n else f"fact:{n}" for n in named]


def find_or_register(
    mesh: Mesh, label: str, details: Mapping[str, Any] | None = None
) -> tuple[str, str]:
    """The device with this id or label, registered when the label is new: (id, label)."""
    store = mesh.store
    try:
        found = control.find_device(store, label)
    except control.DeviceNotFoundError:
        if control.looks_like_id(label):
            raise
        with store.writing():  # looked up again: another process may have been faster
            try:
                found = control.find_device(store, label)
            except control.DeviceNotFoundError:
                device_id, _ = control.register_device(store, label, **(details or {}))
                return device_id, label
    wanted = {k: v for k, v in (details or {}).items() if v}
    for key, value in wanted.items():
        if found[key] not in ("", value):
            raise ConflictError(
                f"The device {label!r} has another {key}.", found=(found[key], value)
            )
    return found["device_id"], found["label"]


def find_or_make_actor(mesh: Mesh, on: Device, name: str, provider_model: str | None) -> str:
    """The id of the agent with this name on a device."""
    c, store = t.actors.c, mesh.store
    query = select(c.actor_id).where(c.device_id == on.device_id, c.kind == "agent", c.name == name)
    found = store.rows(query.order_by(c.actor_id))
    if not found:
        with store.writing():  # looked up again: another process may have been faster
            found = store.rows(query)
            if not found:
                return control.register_actor(
                    store, on.device_id, "agent", name=name, provider_model=provider_model
                )
    return str(found[0]["actor_id"])
