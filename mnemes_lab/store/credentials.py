"""Bearer credentials of devices: made, shown once, kept only as a fingerprint."""

from __future__ import annotations

import secrets
import string
from typing import Any

from mnemes_lab.digest import sha256_hex

_ALPHABET = string.ascii_letters + string.digits


class Credential:
    """A device's bearer token. Shows itself only through :meth:`reveal`."""

    __slots__ = ("_token", "device_id")

    def __init__(self, device_id: str, secret: str) -> None:
        """Join the id and the secret."""
        self.device_id, self._token = device_id, f"{device_id}:{secret}"

    def reveal(self) -> str:
        """The token. It is kept nowhere else, so store it now."""
        return self._token

    def __repr__(self) -> str:
        """The device, never the secret."""
        return f"Credential({self.device_id}:***)"

    __str__ = __repr__

    def __reduce__(self) -> Any:
        """Refuse to be copied into a file."""
        raise TypeError("a credential is not pickled")


def mint(device_id: str) -> tuple[Credential, str]:
    """A new credential and the fingerprint to keep."""
    credential = Credential(device_id, "".join(secrets.choice(_ALPHABET) for _ in range(64)))
    return credential, "sha256:" + sha256_hex(credential.reveal())
