"""Devices, actors and credentials: who is there, who may act, and how they prove it.

A device's life::

    active ──► quarantined ──► active
      │             │
      └──► revoked ◄┘            revoked is final

Only `heartbeat` moves ``last_seen_at``: an operator's change stamps ``status_changed_at`` and never
fakes a sign of life. A credential is ``<device id>:<secret>``; it is shown once, only its
SHA-256 is kept (the secret has 381 bits of entropy, so it needs no salt), and it is compared in
constant time, with a dummy comparison when the device is unknown.
"""

from __future__ import annotations

import contextlib
import hmac
from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import Connection, RowMapping, func, insert, select, update

from mnemes_lab import schemas
from mnemes_lab.clock import to_us
from mnemes_lab.digest import sha256_hex
from mnemes_lab.errors import (
    ActorNotFoundError,
    AuthorizationDeniedError,
    BootstrapRejectedError,
    ConflictError,
    DeviceNotActiveError,
    DeviceNotFoundError,
    IdError,
    InputError,
    InvalidCredentialError,
    TransitionError,
)
from mnemes_lab.frames import whole_text
from mnemes_lab.ids import check_name, is_uuid4, parse_uuid4
from mnemes_lab.store import tables as t
from mnemes_lab.store.credentials import Credential, mint
from mnemes_lab.store.operations import noted
from mnemes_lab.store.store import Store

TRANSITIONS = {
    "active": ("quarantined", "revoked"),
    "quarantined": ("active", "revoked"),
    "revoked": (),
}
_DUMMY = "sha256:" + "0" * 64


class Bootstrap(NamedTuple):
    """What `bootstrap` made."""

    device_id: str
    actor_id: str
    credential: Credential
    created_at: int


# --- devices ---------------------------------------------------------------------------------
def register_device(
    store: Store,
    label: str,
    *,
    platform: str = "",
    hostname: str = "",
    device_id: str | None = None,
    with_credential: bool = False,
) -> tuple[str, Credential | None]:
    """Add a device and its catalogue row in one transaction; its shard is made when first written.

    Raises:
        IdError: a blank or unprintable label, or an id that is not a version 4 UUID.
        ConflictError: the id is taken.
    """
    return register_devices(
        store, [(label, platform, hostname, device_id)], with_credential=with_credential
    )[0]


def register_devices(
    store: Store,
    wanted: list[tuple[str, str, str, str | None]],
    *,
    with_credential: bool = False,
) -> list[tuple[str, Credential | None]]:
    """Add several devices (label, platform, hostname, id or None) in one transaction."""
    for label, _, _, _ in wanted:
        check_name(label, what="device label")
    chosen = [parse_uuid4(d, what="device id") if d else None for *_, d in wanted]
    with store.writing():
        fresh = iter(store.ids.uuid4s(sum(d is None for d in chosen)))
        ids = [d or next(fresh) for d in chosen]
        minted = [mint(d) if with_credential else (None, None) for d in ids]
        now = store.now()
        rows = [
            (device_id, label, platform, hostname, print_)
            for device_id, (label, platform, hostname, _), (_, print_) in zip(
                ids, wanted, minted, strict=True
            )
        ]
        with store.pooled() as conn:
            taken = [d for d in ids if _device(conn, d) is not None]
            if taken or len(set(ids)) < len(ids):
                raise ConflictError("A device has this id already.", found=taken or ids)
            _insert_devices(conn, rows, now)
            what = f"device:{ids[0]}" if len(ids) == 1 else f"mesh:{store.mesh_id}"
            if ids:
                noted(conn, store, "assert", what, [row[:4] for row in rows], now)
    return [(d, credential) for d, (credential, _) in zip(ids, minted, strict=True)]


def _insert_devices(
    conn: Connection, rows: list[tuple[str, str, str, str, str | None]], now: int
) -> None:
    conn.execute(
        insert(t.devices),
        [
            {
                "device_id": device_id,
                "label": label,
                "platform": platform,
                "hostname": hostname,
                "credential_fingerprint": print_,
                "credential_generation": int(print_ is not None),
                "status": "active",
                "first_seen_at": now,
                "last_seen_at": now,
                "status_changed_at": now,
            }
            for device_id, label, platform, hostname, print_ in rows
        ],
    )
    conn.execute(
        insert(t.catalogue),
        [
            {
                "device_id": row[0],
                "generation": 1,
                "facts": 0,
                "terms": 0,
                "namespaces": 0,
                "searches": 0,
                "ewma_latency_ms": 0.0,
            }
            for row in rows
        ],
    )
    conn.execute(update(t.mesh).values(changes=t.mesh.c.changes + 1))


def _device(conn: Connection, device_id: str) -> RowMapping | None:
    query = select(t.devices).where(t.devices.c.device_id == device_id)
    return conn.execute(query).mappings().first()


def find_device(store: Store, device: str) -> RowMapping:
    """The device with this id, or else the only one with this label.

    Raises:
        DeviceNotFoundError: none.
        ConflictError: several devices share the label; their ids are named.
    """
    key = whole_text(device)
    with contextlib.suppress(IdError):
        key = parse_uuid4(device)
    c = t.devices.c
    query = select(t.devices).where((c.device_id == key) | (c.label == device))
    found = store.rows(query.order_by(c.device_id))
    exact = [row for row in found if row["device_id"] == key] or list(found)
    if not exact:
        raise DeviceNotFoundError(
            "No such device.", found=device, hint="mesh.devices() lists ids and labels"
        )
    if len(exact) > 1:
        ids = [row["device_id"] for row in exact]
        raise ConflictError(
            f"{len(exact)} devices are labelled {device!r}: {ids}.", hint="name one by its id"
        )
    return exact[0]


def active_device(store: Store, device: str) -> str:
    """The id of a device that may act.

    Raises:
        DeviceNotFoundError, DeviceNotActiveError
    """
    found = find_device(store, device)
    if found["status"] != "active":
        raise DeviceNotActiveError(
            f"The device is {found['status']}.",
            found=device,
            hint="reactivate it" if found["status"] == "quarantined" else "use another device",
        )
    return str(found["device_id"])


def set_status(store: Store, device: str, status: str) -> None:
    """Quarantine, revoke or reactivate a device.

    Raises:
        TransitionError: the device's life has no such step.
    """
    if status not in TRANSITIONS:
        raise InputError("No such status.", found=status, hint=f"one of {sorted(TRANSITIONS)}")
    with store.writing():
        found = find_device(store, device)
        allowed = TRANSITIONS[found["status"]]
        if status not in allowed:
            raise TransitionError(
                f"A device that is {found['status']} cannot become {status}.",
                found=device,
                hint=f"allowed from here: {list(allowed) or 'nothing, revoked is final'}",
            )
        now = store.now()
        with store.pooled() as conn:
            device_id = found["device_id"]
            changed = update(t.devices).where(t.devices.c.device_id == device_id)
            conn.execute(changed.values(status=status, status_changed_at=now))
            kind = "revoke" if status == "revoked" else "adjudicate"
            noted(conn, store, kind, f"device:{device_id}", {"status": status}, now)
            if status == "revoked":  # what a router knew of it leaves with it
                conn.execute(t.summaries.delete().where(t.summaries.c.device_id == device_id))
            conn.execute(update(t.mesh).values(changes=t.mesh.c.changes + 1))


def heartbeat(store: Store, device: str, device_time: datetime | str | None = None) -> None:
    """Record a sign of life of an active device, and how far its own clock runs ahead."""
    device_id = active_device(store, device)
    told = None if device_time is None else to_us(device_time, what="device_time")
    with store.pooled() as conn:
        now = store.now()
        conn.execute(
            update(t.devices).where(t.devices.c.device_id == device_id).values(last_seen_at=now)
        )
        if told is not None:
            ran_ahead(conn, {device_id: told - now})


def ran_ahead(conn: Connection, ahead: Mapping[str, int]) -> None:
    """Remember the most that times given by devices lay ahead of the mesh's, in microseconds."""
    d = t.devices.c
    for device_id, us in sorted(ahead.items()):
        conn.execute(
            update(t.devices)
            .where(d.device_id == device_id, d.clock_ahead_us < us)
            .values(clock_ahead_us=us)
        )


def rotate(store: Store, device: str) -> Credential:
    """Replace a device's credential; the old one stops working at once."""
    device_id = active_device(store, device)
    credential, print_ = mint(device_id)
    with store.writing(), store.pooled() as conn:
        noted(conn, store, "supersede", f"credential:{device_id}", print_, store.now())
        conn.execute(
            update(t.devices)
            .where(t.devices.c.device_id == device_id)
            .values(
                credential_fingerprint=print_,
                credential_generation=t.devices.c.credential_generation + 1,
            )
        )
    return credential


# --- actors ----------------------------------------------------------------------------------
def register_actor(
    store: Store,
    device: str,
    kind: str,
    *,
    name: str | None = None,
    tool_profile: str = "agent",
    provider_model: str | None = None,
    granted_by: str | None = None,
) -> str:
    """Add an actor to an active device; any kind is kept verbatim.

    Raises:
        AuthorizationDeniedError: the operator profile without an operator who grants it.
    """
    check_name(kind, what="actor kind")
    if name is not None:
        check_name(name, what="actor name")
    if tool_profile not in schemas.TOOL_PROFILES:
        raise InputError(
            "No such tool profile.", found=tool_profile, hint=f"one of {schemas.TOOL_PROFILES}"
        )
    device_id = active_device(store, device)
    if tool_profile == "operator":
        granter = find_actor(store, granted_by) if granted_by else None
        if granter is None or granter["tool_profile"] != "operator":
            raise AuthorizationDeniedError(
                "Only an operator may grant the operator profile.",
                hint="give granted_by=<operator's actor id>, or bootstrap an empty registry",
            )
    with store.writing(), store.pooled() as conn:
        actor_id = store.ids.uuid4s(1)[0]
        row = (actor_id, device_id, name, kind, tool_profile, provider_model, granted_by)
        now = store.now()
        _insert_actor(conn, row, now)
        noted(conn, store, "assert", f"actor:{actor_id}", row, now)
    return actor_id


def _insert_actor(conn: Connection, row: tuple[Any, ...], now: int) -> None:
    names = (
        "actor_id",
        "device_id",
        "name",
        "kind",
        "tool_profile",
        "provider_model",
        "granted_by",
    )
    values = dict(zip(names, row, strict=True)) | {"recorded_at": now}
    conn.execute(insert(t.actors).values(values))


def find_actor(store: Store, actor_id: str) -> RowMapping:
    """The actor with this id.

    Raises:
        ActorNotFoundError
    """
    found = store.rows(select(t.actors).where(t.actors.c.actor_id == actor_id))
    if not found:
        raise ActorNotFoundError("No such actor.", found=actor_id, hint="mesh.actors() lists them")
    return found[0]


def bootstrap(
    store: Store, label: str, *, platform: str = "", hostname: str = "", kind: str = "human"
) -> Bootstrap:
    """Make the first device and its operator, in one transaction, on an empty registry only.

    Raises:
        BootstrapRejectedError: there is a device already.
    """
    check_name(label, what="device label")
    check_name(kind, what="actor kind")
    with store.writing(), store.pooled() as conn:
        if conn.execute(select(func.count()).select_from(t.devices)).scalar_one():
            raise BootstrapRejectedError(
                "Bootstrap needs an empty device registry.", hint="an operator can register devices"
            )
        device_id, actor_id = store.ids.uuid4s(2)
        credential, print_ = mint(device_id)
        now = store.now()
        _insert_devices(conn, [(device_id, label, platform, hostname, print_)], now)
        row = (actor_id, device_id, None, kind, "operator", None, "bootstrap")
        _insert_actor(conn, row, now)
        noted(conn, store, "assert", f"device:{device_id}", [print_, row], now)
    return Bootstrap(device_id, actor_id, credential, now)


def authenticate(store: Store, token: str, actor_id: str | None = None) -> str:
    """The device a credential belongs to, after checking it and, if given, the actor.

    The secret is checked before the status, and an unknown device gets the answer of a wrong
    secret, so nobody learns which devices exist.

    Raises:
        InvalidCredentialError, DeviceNotActiveError, ActorNotFoundError, AuthorizationDeniedError
    """
    if not isinstance(token, str):
        raise InvalidCredentialError("The credential is not valid.")
    device, colon, secret = token.strip().partition(":")
    try:
        device_id = parse_uuid4(device)
    except IdError:
        device_id = ""
    found = store.rows(select(t.devices).where(t.devices.c.device_id == device_id))
    kept = (found[0]["credential_fingerprint"] if found else None) or _DUMMY
    shown = "sha256:" + sha256_hex(f"{device_id}:{secret}".encode(errors="surrogatepass"))
    right = hmac.compare_digest(shown.encode(), kept.encode())
    if not (right and found and colon and secret):
        raise InvalidCredentialError("The credential is not valid.")
    if found[0]["status"] != "active":
        raise DeviceNotActiveError(f"The device is {found[0]['status']}.", found=device_id)
    if actor_id is not None and find_actor(store, actor_id)["device_id"] != device_id:
        raise AuthorizationDeniedError("The actor does not belong to the device.")
    return device_id


def looks_like_id(device: str) -> bool:
    """Whether text names a device by id, so that a typing error never registers a new one."""
    try:
        return is_uuid4(parse_uuid4(device))
    except IdError:
        return False
