"""The ring of receipt keys: one small private file per key.

A receipt is authenticated with a secret of 32 bytes that lives beside the databases and never in
them. Rules:

* The first key is ``.routing-receipt-hmac.key``; a later one carries its id in the name. The id
  is derived from the key, so a file under a wrong name is noticed.
* A key file appears whole or not at all. When two writers make the first key at once, one wins
  and both use the winner's.
* A file is believed only after its open descriptor was looked at: a regular file, not reached
  through a symbolic link, no permission for group or others, exactly 32 bytes.
* A key that receipts on record need is never replaced silently: opening fails and names its id.
* Which key is current is recorded elsewhere. Rotate first and record the new id afterwards: a
  crash in between leaves one spare key and the old one current.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
import uuid
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from mnemes_lab.digest import preimage
from mnemes_lab.errors import ReadOnlyError, ReceiptKeyError

KEY_BYTES = 32
FIRST_KEY = ".routing-receipt-hmac.key"
_NAME = re.compile(r"\.routing-receipt-hmac(?:\.([0-9a-f]{16}))?\.key", re.ASCII)
_ID_TAG = b"mnemes-lab/receipt-key-id/v1\0"
_SEED_DOMAIN = "mnemes-lab/seeded-key/v1"
# What a file system without hard links answers; EPERM is Linux's answer for FAT.
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}
# Systems without POSIX modes lack some flags, and have no permission bits to look at.
_POSIX = os.name == "posix"
_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
# Non-blocking, or opening a named pipe would wait for ever for somebody to write.
_READ = os.O_RDONLY | _NO_FOLLOW | getattr(os, "O_NONBLOCK", 0)
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_FOLLOW

MakeKey = Callable[[int], bytes]


class Secret(bytes):
    """Bytes that no repr, text, format, copy or pickle shows.

    Example:
        >>> Secret(b"hidden"), f"{Secret(b'hidden')}"
        (Secret(***), 'Secret(***)')
    """

    __slots__ = ()

    def __repr__(self) -> str:
        """A placeholder."""
        return "Secret(***)"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        """The placeholder, whatever the format."""
        return repr(self)

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        """Refuse to be pickled or copied."""
        raise TypeError("A secret is never pickled.")


def key_id_of(key: bytes) -> str:
    """Name a key without revealing it: 16 hex digits of a tagged SHA-256.

    Example:
        >>> key_id_of(bytes(32))
        'a78eb495eca03eab'
    """
    return hashlib.sha256(_ID_TAG + key).hexdigest()[:16]


def derive_key(seed: int, label: str, n: int) -> bytes:
    """The `n`-th key of a seeded mesh: HKDF-SHA256 of the seed.

    **Insecure on purpose**: whoever knows or guesses the seed knows the key. It exists so that an
    experiment can be repeated to the bit, and must never protect anything.

    Example:
        >>> derive_key(7, "receipts", 0) == derive_key(7, "receipts", 0)
        True
        >>> derive_key(7, "receipts", 0) == derive_key(7, "receipts", 1)
        False
    """
    info = preimage(_SEED_DOMAIN, label, str(n))
    return Secret(HKDF(SHA256(), KEY_BYTES, None, info).derive(str(seed).encode()))


class KeyRing:
    """The receipt keys of one mesh; one of them is current and signs.

    Args:
        keys: The secrets. A ring made this way lives in memory only.
        current: Id of the key that signs; not needed when there is just one.

    Example:
        >>> ring = KeyRing([bytes(range(32))])
        >>> ring
        KeyRing(1 key, current ba19799fb3612564)
        >>> old = ring.current_id
        >>> new = ring.rotate()
        >>> ring.current_id == new, old in ring.ids()
        (True, True)
    """

    __slots__ = ("_current", "_folder", "_keys", "_make", "_read_only", "_subkeys")

    def __init__(self, keys: Iterable[bytes], *, current: str | None = None) -> None:
        """Check the keys and which of them is current.

        Raises:
            ReceiptKeyError: a key is not 32 bytes, or `current` is none of them.
        """
        self._keys = {key_id_of(key): _checked(key) for key in keys}
        self._subkeys: dict[tuple[str, str], Secret] = {}
        self._folder: Path | None = None
        self._make: MakeKey | None = None
        self._read_only = False
        if current is None and len(self._keys) == 1:
            current = next(iter(self._keys))
        if current is not None and current not in self._keys:
            raise _missing([current])
        self._current = current

    @classmethod
    def open(
        cls,
        folder: str | os.PathLike[str],
        *,
        current: str | None = None,
        required: Collection[str] = (),
        make: MakeKey | None = None,
        read_only: bool = False,
    ) -> KeyRing:
        """Read every key of a mesh folder; make the first one in a new mesh.

        Args:
            folder: Where the key files are.
            current: Id of the key that signs, as recorded at the last rotation; None means the
                first key (or the only one).
            required: Ids of the keys that receipts on record need.
            make: Where new keys come from, given their number; None for the system's randomness.
            read_only: Make nothing; a ring without keys is then possible.

        Raises:
            ReceiptKeyError: a key file is damaged or not private, or a needed key is missing.
        """
        folder = Path(folder)
        needed = set(required) | ({current} if current else set())
        found = _load(folder)
        if not found and not needed and not read_only:
            _publish(
                folder, FIRST_KEY, _checked(os.urandom(KEY_BYTES) if make is None else make(0))
            )
            found = _load(folder)
        if absent := sorted(needed - {key_id_of(key) for key in found.values()}):
            raise _missing(absent)
        if current is None and FIRST_KEY in found:
            current = key_id_of(found[FIRST_KEY])
        ring = cls(found.values(), current=current)
        ring._folder, ring._make, ring._read_only = folder, make, read_only
        return ring

    @property
    def current(self) -> tuple[str, bytes]:
        """Id and secret of the key that signs.

        Raises:
            ReceiptKeyError: there is no key, or several and none was named current.
        """
        if self._current is None:
            raise ReceiptKeyError(
                "No receipt key is current.",
                found=self.ids(),
                hint="name the current key's id when opening, or rotate to make a new one",
            )
        return self._current, self._keys[self._current]

    @property
    def current_id(self) -> str:
        """Id of the key that signs."""
        return self.current[0]

    def ids(self) -> list[str]:
        """Ids of all keys, sorted."""
        return sorted(self._keys)

    def get(self, key_id: str) -> bytes:
        """The secret with this id; looks at the folder again when the ring does not know it.

        Another process may have rotated since this ring was opened.

        Raises:
            ReceiptKeyError: there is no such key.
        """
        if key_id not in self._keys and self._folder is not None:
            self._keys.update({key_id_of(k): k for k in _load(self._folder).values()})
        if key_id not in self._keys:
            raise _missing([key_id])
        return self._keys[key_id]

    def subkey(self, key_id: str, purpose: str) -> bytes:
        """A key for one purpose, derived by HKDF-SHA256 from the key with this id.

        Keys of different purposes are independent, so a digest made for one never serves another.

        Raises:
            ReceiptKeyError: there is no such key.
        """
        cached = self._subkeys.get((key_id, purpose))
        if cached is None:
            derive = HKDF(SHA256(), KEY_BYTES, None, purpose.encode()).derive
            cached = self._subkeys[key_id, purpose] = Secret(derive(self.get(key_id)))
        return cached

    def rotate(self, make: MakeKey | None = None) -> str:
        """Make a new key, keep it on disk, and sign with it from now on.

        Args:
            make: Where the key comes from, given its number; None for the source the ring was
                opened with.

        Returns:
            The new key's id. Record it: the next :meth:`open` needs it as `current`.

        Raises:
            ReadOnlyError: the ring was opened for reading only.
            ReceiptKeyError: the new key is already in the ring, or cannot be written.
        """
        if self._read_only:
            raise ReadOnlyError("The receipt keys were opened for reading only.")
        make = make or self._make
        key = _checked(os.urandom(KEY_BYTES) if make is None else make(len(self._keys)))
        key_id = key_id_of(key)
        if key_id in self._keys:
            raise ReceiptKeyError("The new receipt key is one the ring already has.", found=key_id)
        if self._folder is not None:
            name = f".routing-receipt-hmac.{key_id}.key"
            _publish(self._folder, name, key)
            key = _read(self._folder, name)
        self._keys[key_id], self._current = key, key_id
        return key_id

    def __repr__(self) -> str:
        """How many keys and which is current; no secret."""
        plural = "" if len(self._keys) == 1 else "s"
        return f"KeyRing({len(self._keys)} key{plural}, current {self._current})"

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        """Refuse to be pickled or copied."""
        raise TypeError("A key ring is never pickled.")


def _missing(ids: list[str]) -> ReceiptKeyError:
    return ReceiptKeyError(
        "A receipt key that is needed is missing.",
        found=ids,
        hint="put its file back into the mesh folder from a backup; no other key can replace it",
    )


def _checked(key: bytes) -> Secret:
    """Refuse a key of another type or length, without showing it."""
    if not isinstance(key, bytes) or len(key) != KEY_BYTES:
        length = len(key) if isinstance(key, bytes) else type(key).__name__
        raise ReceiptKeyError(f"A receipt key is {KEY_BYTES} bytes.", found=length)
    return Secret(key)


def _load(folder: Path) -> dict[str, Secret]:
    """Every key file of a folder by name, the first key before the others."""
    try:
        names = sorted(n for n in os.listdir(folder) if _NAME.fullmatch(n))
    except OSError as error:
        raise _failed("The folder of the receipt keys cannot be read.", error) from None
    return {name: _read(folder, name) for name in sorted(names, key=lambda n: n != FIRST_KEY)}


def _read(folder: Path, name: str) -> Secret:
    """One key file, judged by what its open descriptor says."""
    try:
        handle = os.open(folder / name, _READ)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EMLINK):
            raise ReceiptKeyError(
                f"{name} is a symbolic link.", hint="put the key file itself in its place"
            ) from None
        raise _failed(f"{name} cannot be read.", error) from None
    try:
        info = os.fstat(handle)
        if not stat.S_ISREG(info.st_mode):
            raise ReceiptKeyError(f"{name} is not a regular file.")
        if _POSIX and info.st_mode & 0o077:
            raise ReceiptKeyError(
                f"{name} is open to group or others.",
                found=oct(stat.S_IMODE(info.st_mode)),
                hint="chmod 600 it, and rotate if somebody may have read it",
            )
        key = os.read(handle, KEY_BYTES + 1)
    except OSError as error:
        raise _failed(f"{name} cannot be read.", error) from None
    finally:
        os.close(handle)
    if len(key) != KEY_BYTES or info.st_size != KEY_BYTES:
        raise ReceiptKeyError(
            f"{name} is too {'short' if len(key) < KEY_BYTES else 'long'}"
            f" for a key of {KEY_BYTES} bytes.",
            found=info.st_size,
            hint="put the file back from a backup",
        )
    named = _NAME.fullmatch(name)
    if named and named[1] not in (None, key_id_of(key)):
        raise ReceiptKeyError(f"{name} holds another key than its name says.")
    return Secret(key)


def _publish(folder: Path, name: str, key: bytes) -> None:
    """Let a key file appear whole under its name; if it is there already, leave it.

    A hard link, unlike a rename, never replaces what another writer has just put there.
    """
    temporary = folder / f"{FIRST_KEY}.tmp-{uuid.uuid4()}"
    try:
        try:
            _write_new(temporary, key)
            os.link(temporary, folder / name)
        except FileExistsError:
            pass
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            with suppress(FileExistsError):
                _write_new(folder / name, key)
        finally:
            temporary.unlink(missing_ok=True)
        _flush_folder(folder)
    except OSError as error:
        raise _failed(f"{name} cannot be written.", error) from None


def _write_new(path: Path, key: bytes) -> None:
    """Write and flush a private file that must not exist yet; leave nothing half-written."""
    handle = os.open(path, _CREATE, 0o600)
    try:
        with open(handle, "wb") as file:
            file.write(key)
            file.flush()
            os.fsync(handle)
    except OSError:
        path.unlink(missing_ok=True)
        raise


def _flush_folder(folder: Path) -> None:
    """Make a new name durable; only POSIX lets a folder be opened for this."""
    if _POSIX:
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _failed(what: str, error: OSError) -> ReceiptKeyError:
    return ReceiptKeyError(what, found=error.strerror, hint="check the folder and its permissions")
