"""The ring of receipt keys: private files, one winner, and nothing replaced silently."""

from __future__ import annotations

import copy
import errno
import hashlib
import os
import pickle
import stat
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import mnemes_lab
from mnemes_lab.errors import ReadOnlyError, ReceiptError, ReceiptKeyError
from mnemes_lab.store.keys import FIRST_KEY, KeyRing, Secret, derive_key, key_id_of

KEY = bytes(range(32))
CANARY = b"canary-secret-of-a-receipt-key!!"


def put(folder: Path, key: bytes, name: str = FIRST_KEY, mode: int = 0o600) -> Path:
    path = folder / name
    path.write_bytes(key)
    path.chmod(mode)
    return path


def later(key: bytes) -> str:
    return f".routing-receipt-hmac.{key_id_of(key)}.key"


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# --- the first key ---------------------------------------------------------------------------
def test_a_new_folder_gets_one_private_key(tmp_path: Path) -> None:
    ring = KeyRing.open(tmp_path)
    assert files(tmp_path) == [FIRST_KEY]
    info = (tmp_path / FIRST_KEY).stat()
    assert stat.S_IMODE(info.st_mode) == 0o600
    assert info.st_nlink == 1
    key_id, key = ring.current
    assert (tmp_path / FIRST_KEY).read_bytes() == key
    assert len(key) == 32
    assert ring.ids() == [key_id] == [ring.current_id]
    assert key_id == hashlib.sha256(b"mnemes-lab/receipt-key-id/v1\0" + key).hexdigest()[:16]


def test_a_wide_umask_changes_nothing(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        KeyRing.open(tmp_path)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / FIRST_KEY).stat().st_mode) == 0o600


def test_two_folders_get_different_keys_and_reopening_keeps_one(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first = KeyRing.open(tmp_path / "a").current
    assert KeyRing.open(tmp_path / "a").current == first
    assert KeyRing.open(tmp_path / "b").current != first


def test_a_seeded_ring_repeats_itself(tmp_path: Path) -> None:
    rings = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        ring = KeyRing.open(tmp_path / name, make=lambda n: derive_key(7, "receipts", n))
        ring.rotate()
        rings.append(ring)
    assert rings[0].ids() == rings[1].ids()
    assert rings[0].current == rings[1].current
    assert rings[0].get(key_id_of(derive_key(7, "receipts", 0))) == derive_key(7, "receipts", 0)


def test_derived_keys_differ_by_seed_label_and_number() -> None:
    made = [derive_key(s, label, n) for s in (7, -7, 77) for label in ("a", "b") for n in (0, 1)]
    assert len(set(made)) == len(made)
    assert {len(key) for key in made} == {32}
    # computed by hand: extract with a zero salt, then one block of expand
    vector = "b7e512de8e5175ff729d545f0b1a830b732fd1c7a428511b1de836abe7783836"
    assert derive_key(7, "receipts", 0).hex() == vector


# --- order of the steps and what happens when one fails --------------------------------------
def test_the_key_is_on_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    fsync, link = os.fsync, os.link

    def seen_fsync(handle: int) -> None:
        kind = "folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file"
        steps.append(f"fsync {kind}, key named: {(tmp_path / FIRST_KEY).exists()}")
        fsync(handle)

    def seen_link(source: Path, target: Path) -> None:
        assert stat.S_IMODE(os.stat(source).st_mode) == 0o600
        assert Path(source).parent == Path(target).parent
        assert len(Path(source).read_bytes()) == 32
        steps.append("link")
        link(source, target)

    monkeypatch.setattr(os, "fsync", seen_fsync)
    monkeypatch.setattr(os, "link", seen_link)
    KeyRing.open(tmp_path)
    assert steps == [
        "fsync file, key named: False",
        "link",
        "fsync folder, key named: True",
    ]


@pytest.mark.parametrize("step", ["fsync", "link"])
def test_a_full_disk_leaves_no_file_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, step, full)
    with pytest.raises(ReceiptKeyError, match=r"cannot be written.*No space left"):
        KeyRing.open(tmp_path)
    assert files(tmp_path) == []
    put(tmp_path, KEY)
    ring = KeyRing.open(tmp_path)
    with pytest.raises(ReceiptKeyError, match="cannot be written"):
        ring.rotate()
    assert files(tmp_path) == [FIRST_KEY]
    assert ring.current == (key_id_of(KEY), KEY)


def test_without_hard_links_the_key_is_created_exclusively(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*_: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", none)
    ring = KeyRing.open(tmp_path)
    new = ring.rotate()
    assert files(tmp_path) == sorted([FIRST_KEY, f".routing-receipt-hmac.{new}.key"])
    assert KeyRing.open(tmp_path, current=new).current == ring.current


def test_without_hard_links_a_full_disk_leaves_no_half_a_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*_: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    def full(handle: int) -> None:
        if (tmp_path / FIRST_KEY).exists():  # the temporary file still went well
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "link", none)
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ReceiptKeyError, match="No space left"):
        KeyRing.open(tmp_path)
    assert files(tmp_path) == []


@pytest.mark.parametrize("links", [True, False])
def test_the_other_writer_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    link = os.link

    def other_first(source: Path, target: Path) -> None:
        put(tmp_path, KEY)
        if not links:
            raise OSError(errno.ENOTSUP, "Operation not supported")
        link(source, target)

    monkeypatch.setattr(os, "link", other_first)
    assert KeyRing.open(tmp_path).current == (key_id_of(KEY), KEY)
    assert files(tmp_path) == [FIRST_KEY]


def test_a_temporary_file_of_a_crash_is_no_key(tmp_path: Path) -> None:
    put(tmp_path, KEY[:5], f"{FIRST_KEY}.tmp-00000000-0000-4000-8000-000000000001")
    put(tmp_path, KEY)
    assert KeyRing.open(tmp_path).ids() == [key_id_of(KEY)]


def test_threads_that_open_at_once_share_one_key(tmp_path: Path) -> None:
    barrier = threading.Barrier(8)

    def opened(_: int) -> tuple[str, bytes]:
        barrier.wait()
        return KeyRing.open(tmp_path).current

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(opened, range(8)))) == 1
    assert files(tmp_path) == [FIRST_KEY]


def test_processes_that_open_at_once_share_one_key(tmp_path: Path) -> None:
    code = (
        "import sys; from mnemes_lab.store.keys import KeyRing\n"
        "print('ready', flush=True); sys.stdin.readline()\n"
        "print(KeyRing.open(sys.argv[1]).current_id)"
    )
    root = str(Path(mnemes_lab.__file__).parents[1])
    started = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": root},
        )
        for _ in range(3)
    ]
    for process in started:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    answers = []
    for process in started:  # all wait at the line: let them go, then collect
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in started:
        answers.append(process.communicate(timeout=60)[0].strip())
        assert process.returncode == 0
    assert len(set(answers)) == 1
    assert answers[0] == KeyRing.open(tmp_path).current_id
    assert files(tmp_path) == [FIRST_KEY]


# --- what a key file must be -----------------------------------------------------------------
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o610, 0o601, 0o666])
def test_a_key_that_others_may_touch_is_refused(tmp_path: Path, mode: int) -> None:
    put(tmp_path, KEY, mode=mode)
    with pytest.raises(ReceiptKeyError, match="open to group or others") as caught:
        KeyRing.open(tmp_path)
    assert oct(mode) in str(caught.value)


@pytest.mark.parametrize(
    ("size", "word"), [(0, "short"), (31, "short"), (33, "long"), (64, "long")]
)
def test_a_key_of_another_length_is_refused(tmp_path: Path, size: int, word: str) -> None:
    put(tmp_path, bytes(size))
    with pytest.raises(ReceiptKeyError, match=f"too {word} .*Found {size}"):
        KeyRing.open(tmp_path)


def test_links_folders_and_pipes_are_refused(tmp_path: Path) -> None:
    path = tmp_path / FIRST_KEY
    target = put(tmp_path, KEY, "elsewhere")
    path.symlink_to(target)
    with pytest.raises(ReceiptKeyError, match="is a symbolic link"):
        KeyRing.open(tmp_path)
    target.unlink()  # a link to nowhere must not be mistaken for "no key yet"
    with pytest.raises(ReceiptKeyError, match="is a symbolic link"):
        KeyRing.open(tmp_path)
    path.unlink()
    path.mkdir()
    with pytest.raises(ReceiptKeyError, match="not a regular file"):
        KeyRing.open(tmp_path)
    path.rmdir()
    os.mkfifo(path, 0o600)
    with pytest.raises(ReceiptKeyError, match="not a regular file"):
        KeyRing.open(tmp_path)


def test_the_open_file_is_judged_and_not_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, KEY)
    real = os.open

    def swapped(path: Path, flags: int, *mode: int) -> int:
        handle = real(path, flags, *mode)
        if Path(path).name == FIRST_KEY:  # somebody puts another file there right after
            os.replace(put(tmp_path, bytes(40), "other", 0o644), path)
        return handle

    monkeypatch.setattr(os, "open", swapped)
    assert KeyRing.open(tmp_path).current[1] == KEY


def test_a_later_key_must_be_the_one_its_name_says(tmp_path: Path) -> None:
    put(tmp_path, KEY)
    put(tmp_path, bytes(32), later(KEY))
    with pytest.raises(ReceiptKeyError, match="another key than its name says"):
        KeyRing.open(tmp_path)


def test_an_unreadable_folder_or_file_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ReceiptKeyError, match="folder of the receipt keys cannot be read"):
        KeyRing.open(tmp_path / "absent")
    put(tmp_path, KEY)

    def denied(*_: object) -> int:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "open", denied)
    with pytest.raises(ReceiptKeyError, match=r"hmac\.key cannot be read.*Permission denied"):
        KeyRing.open(tmp_path)


# --- needed keys, rotation -------------------------------------------------------------------
def test_receipts_on_record_forbid_a_new_first_key(tmp_path: Path) -> None:
    needed = key_id_of(KEY)
    with pytest.raises(ReceiptKeyError, match=f"missing.*{needed}.*backup"):
        KeyRing.open(tmp_path, required=[needed])
    with pytest.raises(ReceiptKeyError, match=needed):
        KeyRing.open(tmp_path, current=needed)
    assert files(tmp_path) == []
    put(tmp_path, bytes(32))
    with pytest.raises(ReceiptKeyError, match=needed):
        KeyRing.open(tmp_path, required=[key_id_of(bytes(32)), needed])
    put(tmp_path, KEY, later(KEY))
    ring = KeyRing.open(tmp_path, required=[key_id_of(bytes(32)), needed])
    assert ring.current_id == key_id_of(bytes(32))


def test_a_deleted_key_is_made_anew_only_when_nothing_needs_it(tmp_path: Path) -> None:
    first = KeyRing.open(tmp_path).current_id
    (tmp_path / FIRST_KEY).unlink()
    assert KeyRing.open(tmp_path).current_id != first


def test_rotation_keeps_the_old_keys(tmp_path: Path) -> None:
    ring = KeyRing.open(tmp_path)
    first = ring.current
    second = ring.rotate()
    third = ring.rotate()
    assert ring.current_id == third
    assert len({first[0], second, third}) == 3
    assert ring.ids() == sorted([first[0], second, third])
    assert ring.get(first[0]) == first[1]
    assert {stat.S_IMODE(p.stat().st_mode) for p in tmp_path.iterdir()} == {0o600}
    again = KeyRing.open(tmp_path, current=third, required=[first[0], second])
    assert again.current == ring.current
    assert again.ids() == ring.ids()


def test_a_rotation_that_was_never_recorded_leaves_the_first_key_current(tmp_path: Path) -> None:
    ring = KeyRing.open(tmp_path)
    first = ring.current_id
    ring.rotate()
    assert KeyRing.open(tmp_path).current_id == first


def test_several_keys_without_a_current_one_sign_nothing(tmp_path: Path) -> None:
    for key in (KEY, bytes(32)):
        put(tmp_path, key, later(key))
    ring = KeyRing.open(tmp_path)
    assert len(ring.ids()) == 2
    with pytest.raises(ReceiptKeyError, match="No receipt key is current"):
        _ = ring.current
    assert FIRST_KEY not in files(tmp_path)


def test_a_ring_finds_the_key_another_process_made(tmp_path: Path) -> None:
    ours, theirs = KeyRing.open(tmp_path), KeyRing.open(tmp_path)
    new = theirs.rotate()
    assert ours.get(new) == theirs.get(new)
    assert ours.current_id != new
    with pytest.raises(ReceiptKeyError, match="0123456789abcdef"):
        ours.get("0123456789abcdef")


@pytest.mark.parametrize("name", ["../../etc/passwd", "", "*", "\0"])
def test_a_key_id_is_never_a_path(tmp_path: Path, name: str) -> None:
    with pytest.raises(ReceiptKeyError, match="missing"):
        KeyRing.open(tmp_path).get(name)


def test_reading_only_makes_nothing(tmp_path: Path) -> None:
    ring = KeyRing.open(tmp_path, read_only=True)
    assert files(tmp_path) == []
    assert ring.ids() == []
    with pytest.raises(ReceiptKeyError):
        _ = ring.current_id
    with pytest.raises(ReadOnlyError):
        ring.rotate()
    KeyRing.open(tmp_path)
    assert len(KeyRing.open(tmp_path, read_only=True).ids()) == 1


@pytest.mark.parametrize("made", [b"", bytes(31), bytes(33), "x" * 32, None])
def test_a_maker_must_answer_32_bytes(tmp_path: Path, made: object) -> None:
    with pytest.raises(ReceiptKeyError, match="32 bytes"):
        KeyRing.open(tmp_path, make=lambda n: made)  # type: ignore[arg-type, return-value]
    assert files(tmp_path) == []


def test_rotation_to_a_known_key_is_refused(tmp_path: Path) -> None:
    ring = KeyRing.open(tmp_path, make=lambda n: KEY)
    with pytest.raises(ReceiptKeyError, match="already has"):
        ring.rotate()
    assert ring.rotate(make=lambda n: bytes(31) + bytes([n])) == key_id_of(bytes(31) + b"\1")


def test_a_ring_in_memory_names_its_current_key() -> None:
    with pytest.raises(ReceiptKeyError, match="No receipt key is current"):
        _ = KeyRing([KEY, bytes(32)]).current
    assert KeyRing([KEY, bytes(32)], current=key_id_of(KEY)).current == (key_id_of(KEY), KEY)
    with pytest.raises(ReceiptKeyError, match="missing"):
        KeyRing([KEY], current=key_id_of(bytes(32)))
    ring = KeyRing([KEY])
    assert ring.rotate(make=lambda n: bytes([n]) * 32) == key_id_of(b"\1" * 32) == ring.current_id
    with pytest.raises(ReceiptKeyError, match="missing"):
        ring.get(key_id_of(bytes(32)))


def test_subkeys_differ_by_purpose_and_key() -> None:
    ring = KeyRing([KEY, bytes(32)], current=key_id_of(KEY))
    made = {ring.subkey(key_id, purpose) for key_id in ring.ids() for purpose in ("a", "b")}
    assert len(made) == 4
    assert made.isdisjoint({KEY, bytes(32)})
    assert ring.subkey(key_id_of(KEY), "a") == ring.subkey(key_id_of(KEY), "a")


# --- secrets stay secret ---------------------------------------------------------------------
def test_no_text_shows_a_secret(tmp_path: Path) -> None:
    put(tmp_path, CANARY)
    ring = KeyRing.open(tmp_path)
    subkey = ring.subkey(ring.current_id, "mac")
    secret: Any = ring.current[1]  # not typed as bytes, whose format the type checker forbids
    shown = [f"{secret:>40}"]
    things: list[Any] = [ring, ring.current, subkey, ring.get(ring.current_id)]
    for thing in things:
        shown += [repr(thing), str(thing), f"{thing}", "%s %r" % (thing, thing)]  # noqa: UP031
    for damage in (CANARY[:-1], CANARY + b"!"):
        put(tmp_path, damage)
        with pytest.raises(ReceiptError) as caught:
            KeyRing.open(tmp_path)
        shown.append(f"{caught.value} {caught.value!r} {caught.value.__context__!r}")
    with pytest.raises(ReceiptKeyError) as caught:
        KeyRing([CANARY[:-1]])
    shown.append(str(caught.value))
    text = "\n".join(shown)
    assert "canary" not in text
    assert CANARY.hex()[:12] not in text
    assert subkey.hex()[:12] not in text
    assert f"KeyRing(1 key, current {key_id_of(CANARY)})" in text


@pytest.mark.parametrize("thing", [KeyRing([CANARY]), Secret(CANARY), [Secret(CANARY)]])
def test_secrets_are_neither_pickled_nor_copied(thing: object) -> None:
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        with pytest.raises(TypeError, match="never pickled"):
            pickle.dumps(thing, protocol)
    with pytest.raises(TypeError, match="never pickled"):
        copy.deepcopy(thing)


def test_a_ring_has_no_dictionary_to_print() -> None:
    with pytest.raises(TypeError):
        vars(KeyRing([CANARY]))
