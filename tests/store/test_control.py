"""Devices, actors and credentials: the life of a device, and secrets that never show."""

from __future__ import annotations

import copy
import hmac
import json
import pickle
import re
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

import polars as pl
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

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
    StoreError,
    TransitionError,
)
from mnemes_lab.ids import is_uuid4
from mnemes_lab.store import control, reading
from mnemes_lab.store.store import Store

D1, D2, D3 = (f"00000000-0000-4000-8000-{n:012d}" for n in (1, 2, 3))


@pytest.fixture
def store(open_store):
    return open_store(seed=1)


def devices(store: Store) -> dict[str, dict]:
    return {row["device_id"]: row for row in reading.devices_frame(store).to_dicts()}


def actors(store: Store) -> dict[str, dict]:
    return {row["actor_id"]: row for row in reading.actors_frame(store).to_dicts()}


# --- devices ---------------------------------------------------------------------------------
def test_a_registered_device_comes_back(store):
    device, credential = control.register_device(
        store, "laptop", platform="linux", hostname="nobara-pc"
    )
    assert credential is None
    assert is_uuid4(device)
    kept = devices(store)[device]
    assert [kept[n] for n in ("label", "platform", "hostname", "status")] == [
        "laptop",
        "linux",
        "nobara-pc",
        "active",
    ]
    assert kept["first_seen_at"] == kept["last_seen_at"] == kept["status_changed_at"]
    row = reading.catalogue_frame(store).row(0, named=True)
    assert (row["device_id"], row["state"], row["generation"], row["facts"]) == (
        device,
        "active",
        1,
        0,
    )


def test_devices_are_listed_by_id(store):
    made = [control.register_device(store, f"d{i}")[0] for i in range(5)]
    assert list(devices(store)) == sorted(made)


@pytest.mark.parametrize("label", ["", "  ", "\u200b", "a\nb", "a\0b", "x" * 201, None, 7])
def test_a_label_is_printable_text(store, label):
    with pytest.raises(IdError, match="device label"):
        control.register_device(store, label)
    assert devices(store) == {}


def test_a_device_may_bring_its_id_once(store):
    assert control.register_device(store, "a", device_id=D1.upper())[0] == D1
    with pytest.raises(ConflictError, match=D1):
        control.register_device(store, "b", device_id=D1)
    with pytest.raises(IdError):
        control.register_device(store, "c", device_id="00000000-0000-1000-8000-000000000000")
    with pytest.raises(ConflictError):
        control.register_devices(store, [("c", "", "", D2), ("d", "", "", D2)])
    assert list(devices(store)) == [D1]


def test_a_device_is_found_by_id_or_by_its_label(store):
    control.register_device(store, "laptop", device_id=D1)
    for name in (D1, D1.upper(), f"urn:uuid:{D1}", "laptop"):
        assert control.find_device(store, name)["device_id"] == D1
    for name in ("Laptop", D2, "lap", ""):
        with pytest.raises(DeviceNotFoundError, match="Hint"):
            control.find_device(store, name)


def test_an_id_goes_before_a_label_that_looks_like_it(store):
    control.register_device(store, "x", device_id=D1)
    control.register_device(store, D1, device_id=D2)
    assert control.find_device(store, D1)["device_id"] == D1


def test_a_revoked_device_gives_no_sign_of_life(store):
    device, _ = control.register_device(store, "a")
    control.set_status(store, device, "revoked")
    before = devices(store)[device]
    with pytest.raises(DeviceNotActiveError, match="revoked"):
        control.heartbeat(store, device)
    assert devices(store)[device] == before


@pytest.mark.parametrize("status", ["", "Active", "deleted", None])
def test_an_unknown_status_is_refused(store, status):
    device, _ = control.register_device(store, "a")
    with pytest.raises(InputError, match="status"):
        control.set_status(store, device, status)


# --- credentials -----------------------------------------------------------------------------
def test_a_secret_is_long_and_plain(store):
    secrets = set()
    for i in range(5):
        device, credential = control.register_device(store, f"d{i}", with_credential=True)
        shown, _, secret = credential.reveal().partition(":")
        assert shown == device
        assert re.fullmatch("[A-Za-z0-9]{64}", secret)
        secrets.add(secret)
    assert len(secrets) == 5


def test_a_credential_never_shows_itself(store, tmp_path):
    _, credential = control.register_device(store, "a", with_credential=True)
    secret = credential.reveal().partition(":")[2]
    shown = [
        repr(credential),
        str(credential),
        f"{credential}",
        f"{credential!r:>9}",
        "{0!s:>9}".format(credential),  # noqa: UP030, UP032 (an old spelling is the point)
    ]
    made = control.Bootstrap(D1, D2, credential, 0)
    shown += [repr(made), str(made), str([credential]), repr({"c": credential})]
    shown += [repr(vars(type(credential))), str(getattr(credential, "__dict__", ""))]
    assert not [text for text in shown if secret in text]
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        with pytest.raises(TypeError, match="not pickled"):
            pickle.dumps(credential, protocol)
    with pytest.raises(TypeError):
        json.dumps(credential)
    for make in (copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="not pickled"):
            make(credential)


def test_only_a_digest_of_it_is_kept(store, tmp_path):
    device, credential = control.register_device(store, "a", with_credential=True)
    rotated = control.rotate(store, device)
    store.close()
    secrets = [c.reveal().partition(":")[2].encode() for c in (credential, rotated)]
    for path in (p for p in (tmp_path / "mesh").rglob("*") if p.is_file()):
        assert not [s for s in secrets if s in path.read_bytes()]
    conn = sqlite3.connect(tmp_path / "mesh" / "pooled.db")
    kept = conn.execute("SELECT credential_fingerprint, credential_generation FROM devices")
    fingerprint, generation = kept.fetchone()
    conn.close()
    assert re.fullmatch("sha256:[0-9a-f]{64}", fingerprint)
    assert generation == 2


def test_frames_hold_no_fingerprint(open_mesh):
    mesh = open_mesh()
    mesh.bootstrap("hub")
    for frame in (mesh.devices(), mesh.actors(), mesh.catalogue()):
        assert not [c for c in frame.columns if "credential" in c or "fingerprint" in c]


def test_a_credential_opens_its_device(store):
    device, credential = control.register_device(store, "a", with_credential=True)
    token = credential.reveal()
    assert control.authenticate(store, token) == device
    assert control.authenticate(store, f"  {token}\n") == device
    assert control.authenticate(store, token.replace(device, device.upper())) == device
    bare, _ = control.register_device(store, "b")
    for wrong in (
        "",
        ":",
        token[:-1],
        token + "x",
        token.swapcase(),
        token.partition(":")[2],
        f"{device}:",
        f"{device}:{device}",
        f"{bare}:{token.partition(':')[2]}",
        f"{bare}:",
        f"{D3}:{token.partition(':')[2]}",
        "not-a-uuid:abc",
        f"{device}:\ud800",
        token.replace(":", "::"),
    ):
        with pytest.raises(InvalidCredentialError, match=r"^The credential is not valid\.$"):
            control.authenticate(store, wrong)


def test_a_rotated_credential_stops_at_once(store):
    device, old = control.register_device(store, "a", with_credential=True)
    new = control.rotate(store, device)
    assert control.authenticate(store, new.reveal()) == device
    with pytest.raises(InvalidCredentialError):
        control.authenticate(store, old.reveal())


@pytest.mark.parametrize("status", ["quarantined", "revoked"])
def test_the_secret_is_checked_before_the_status(store, status):
    """So that nobody without the secret learns whether a device exists or how it stands."""
    device, credential = control.register_device(store, "a", with_credential=True)
    control.set_status(store, device, status)
    with pytest.raises(DeviceNotActiveError, match=status):
        control.authenticate(store, credential.reveal())
    told = set()
    for token in (f"{device}:wrong", f"{D3}:x", "junk"):
        with pytest.raises(InvalidCredentialError) as caught:
            control.authenticate(store, token)
        told.add(str(caught.value))
    assert len(told) == 1
    with pytest.raises(DeviceNotActiveError):
        control.rotate(store, device)


def test_strangers_are_compared_like_everybody(store, monkeypatch):
    """One comparison of equal length whatever is shown, so that time tells nothing."""
    real, compared = hmac.compare_digest, []

    def spy(a, b):
        compared.append((len(a), len(b)))
        return real(a, b)

    device, _ = control.register_device(store, "a", with_credential=True)
    monkeypatch.setattr(hmac, "compare_digest", spy)
    for token in (f"{device}:wrong", f"{D3}:x", "junk"):
        with pytest.raises(InvalidCredentialError):
            control.authenticate(store, token)
    assert compared == [(71, 71)] * 3


# --- actors ----------------------------------------------------------------------------------
def test_an_actor_comes_back(store):
    device, _ = control.register_device(store, "a")
    actor = control.register_actor(store, device, "hermes", name="h", provider_model="m-1")
    kept = actors(store)[actor]
    assert [kept[n] for n in ("device_id", "kind", "tool_profile", "name", "provider_model")] == [
        device,
        "hermes",
        "agent",
        "h",
        "m-1",
    ]


@pytest.mark.parametrize("kind", ["future-agent", "Human", "人", "x" * 200])
def test_any_kind_is_kept_verbatim(store, kind):
    device, _ = control.register_device(store, "a")
    actor = control.register_actor(store, device, kind)
    assert actors(store)[actor]["kind"] == kind


def test_unusable_actors_are_refused(store):
    device, _ = control.register_device(store, "a")
    with pytest.raises(IdError, match="actor kind"):
        control.register_actor(store, device, " ")
    with pytest.raises(IdError, match="actor name"):
        control.register_actor(store, device, "agent", name="")
    with pytest.raises(InputError, match="tool profile"):
        control.register_actor(store, device, "agent", tool_profile="human")
    with pytest.raises(DeviceNotFoundError):
        control.register_actor(store, D3, "agent")
    control.set_status(store, device, "quarantined")
    with pytest.raises(DeviceNotActiveError):
        control.register_actor(store, device, "agent")
    assert actors(store) == {}


def test_only_an_operator_makes_an_operator(store):
    made = control.bootstrap(store, "hub")
    plain = control.register_actor(store, made.device_id, "agent")
    for granted_by in (None, plain):
        with pytest.raises(AuthorizationDeniedError, match="Hint"):
            control.register_actor(
                store, made.device_id, "human", tool_profile="operator", granted_by=granted_by
            )
    with pytest.raises(ActorNotFoundError):
        control.register_actor(
            store, made.device_id, "human", tool_profile="operator", granted_by=D3
        )
    second = control.register_actor(
        store, made.device_id, "human", tool_profile="operator", granted_by=made.actor_id
    )
    assert actors(store)[second]["granted_by"] == made.actor_id


# --- bootstrap -------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", ["human", "service"])
def test_bootstrap_makes_a_device_and_its_operator(store, kind):
    made = control.bootstrap(store, "hub", platform="linux", kind=kind)
    actor = actors(store)[made.actor_id]
    assert (actor["device_id"], actor["kind"], actor["tool_profile"]) == (
        made.device_id,
        kind,
        "operator",
    )
    assert control.authenticate(store, made.credential.reveal(), made.actor_id) == made.device_id
    device = devices(store)[made.device_id]
    assert device["first_seen_at"] == device["last_seen_at"] == actor["recorded_at"]
    other, credential = control.register_device(store, "other", with_credential=True)
    with pytest.raises(AuthorizationDeniedError, match="does not belong"):
        control.authenticate(store, credential.reveal(), made.actor_id)
    with pytest.raises(ActorNotFoundError):
        control.authenticate(store, credential.reveal(), D3)
    assert other in devices(store)


def test_bootstrap_is_for_an_empty_registry(store):
    control.bootstrap(store, "hub")
    with pytest.raises(BootstrapRejectedError, match="empty device registry"):
        control.bootstrap(store, "second")
    assert (len(devices(store)), len(actors(store))) == (1, 1)


def test_a_rejected_bootstrap_leaves_no_folder(store, tmp_path):
    control.register_device(store, "a")
    with pytest.raises(BootstrapRejectedError):
        control.bootstrap(store, "hub")
    for wrong in ({"label": ""}, {"label": "x", "kind": ""}):
        with pytest.raises(IdError):
            control.bootstrap(store, **wrong)
    assert list((tmp_path / "mesh" / "shards").iterdir()) == []


def test_a_failing_actor_leaves_no_device(store, tmp_path):
    with closing(sqlite3.connect(tmp_path / "mesh" / "pooled.db")) as conn:
        conn.execute(
            "CREATE TRIGGER no BEFORE INSERT ON actors BEGIN SELECT RAISE(ABORT, 'no'); END"
        )
    with pytest.raises(StoreError):
        control.bootstrap(store, "hub")
    assert devices(store) == {}
    assert reading.catalogue_frame(store).is_empty()


# --- the life of a device --------------------------------------------------------------------
ALLOWED = {
    "active": {"quarantined", "revoked"},
    "quarantined": {"active", "revoked"},
    "revoked": set(),
}


class DeviceLife(RuleBasedStateMachine):
    """Devices come, act, are shut out and come back, against a model of a few dictionaries."""

    known = Bundle("known")
    tokens = Bundle("tokens")

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.store = Store.open(Path(self.folder.name, "mesh"), seed=1)
        self.status: dict[str, str] = {}
        self.token: dict[str, str] = {}
        self.seen: dict[str, tuple] = {}
        self.opened = 0

    def teardown(self) -> None:
        self.store.close()
        self.folder.cleanup()

    def times(self, device: str) -> tuple:
        row = devices(self.store)[device]
        return row["first_seen_at"], row["last_seen_at"], row["status_changed_at"]

    @rule(target=known)
    def register(self):
        device, credential = control.register_device(self.store, "d", with_credential=True)
        assert device not in self.status
        self.status[device], self.token[device] = "active", credential.reveal()
        self.seen[device] = self.times(device)
        return device

    @rule(device=known, status=st.sampled_from(sorted(ALLOWED)))
    def change(self, device, status):
        before = self.seen[device]
        if status in ALLOWED[self.status[device]]:
            control.set_status(self.store, device, status)
            self.status[device] = status
            first, last, changed = self.seen[device] = self.times(device)
            assert (first, last) == before[:2]  # an operator fakes no sign of life
            assert changed > before[2]
        else:
            with pytest.raises(TransitionError, match="allowed from here"):
                control.set_status(self.store, device, status)

    @rule(device=known)
    def heartbeat(self, device):
        if self.status[device] == "active":
            control.heartbeat(self.store, device)
            before, self.seen[device] = self.seen[device], self.times(device)
            assert self.seen[device][1] > before[1]
            assert self.seen[device][::2] == before[::2]
        else:
            with pytest.raises(DeviceNotActiveError, match=self.status[device]):
                control.heartbeat(self.store, device)

    @rule(target=tokens, device=known)
    def rotate(self, device):
        old = self.token[device]
        if self.status[device] == "active":
            self.token[device] = control.rotate(self.store, device).reveal()
            assert self.token[device] != old
        else:
            with pytest.raises(DeviceNotActiveError):
                control.rotate(self.store, device)
        return old

    @rule(device=known)
    def right_credential(self, device):
        if self.status[device] == "active":
            assert control.authenticate(self.store, self.token[device]) == device
        else:
            with pytest.raises(DeviceNotActiveError):
                control.authenticate(self.store, self.token[device])

    @rule(token=consumes(tokens))
    def old_credential(self, token):
        if token not in self.token.values():
            with pytest.raises(InvalidCredentialError):
                control.authenticate(self.store, token)

    @rule(device=known)
    def act(self, device):
        if self.status[device] == "active":
            actor = control.register_actor(self.store, device, "agent")
            assert actors(self.store)[actor]["device_id"] == device
        else:
            with pytest.raises(DeviceNotActiveError):
                control.register_actor(self.store, device, "agent")

    @rule()
    def reopen(self):
        if self.opened < 2:
            self.opened += 1
            self.store.close()
            self.store = Store.open(Path(self.folder.name, "mesh"))

    @invariant()
    def told_as_it_is(self):
        assert {d: row["status"] for d, row in devices(self.store).items()} == self.status
        assert {d: self.times(d) for d in self.status} == self.seen
        frame = reading.catalogue_frame(self.store)
        assert dict(frame.select("device_id", "state").iter_rows()) == self.status


DeviceLife.TestCase.settings = settings(
    max_examples=8, stateful_step_count=15, deadline=None, derandomize=True
)
TestDeviceLife = DeviceLife.TestCase


# --- through the mesh ------------------------------------------------------------------------
def test_devices_and_agents_are_found_again(open_mesh):
    mesh = open_mesh()
    device = mesh.device("laptop", platform="linux")
    assert mesh.device("laptop").device_id == device.device_id
    assert mesh.device(device.device_id).label == "laptop"
    with pytest.raises(ConflictError, match="another platform"):
        mesh.device("laptop", platform="mac")
    with pytest.raises(DeviceNotFoundError):
        mesh.device(D3)
    agent = mesh.agent("planner")
    assert mesh.agent("planner").actor_id == agent.actor_id
    assert agent.device.label == "planner"
    assert mesh.agent("planner", device=device).actor_id != agent.actor_id
    assert mesh.devices()["label"].sort().to_list() == ["laptop", "planner"]
    assert mesh.actors().height == 2


def test_a_handle_shows_the_life_of_its_device(open_mesh):
    mesh = open_mesh()
    device = mesh.device("laptop")
    seen = []
    for step in ("quarantine", "reactivate", "quarantine", "revoke"):
        getattr(device, step)()
        seen.append(device.status)
    assert seen == ["quarantined", "active", "quarantined", "revoked"]
    with pytest.raises(TransitionError, match="revoked is final"):
        device.reactivate()
    assert mesh.catalogue()["state"].to_list() == ["revoked"]
    assert mesh.devices().filter(pl.col("status") == "active").is_empty()


def test_authentication_answers_the_device(open_mesh):
    mesh = open_mesh()
    made = mesh.bootstrap("hub")
    assert mesh.authenticate(made.credential.reveal()).label == "hub"
    token = mesh.device("hub").rotate().reveal()
    assert mesh.authenticate(token, made.actor_id).device_id == made.device_id
