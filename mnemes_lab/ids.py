"""Identities: UUIDv4, random or from a seed, ids of facts, and item references ``kind:id``.

The rules are those of the source system, with one tightening: a kind never holds a colon, so
every key parses back to the reference it came from.
"""

from __future__ import annotations

import hashlib
import os
import re
import unicodedata
from collections.abc import Iterable
from typing import NamedTuple, Protocol

from mnemes_lab.errors import IdError

MAX_FACT_ID = 200
_UUID4 = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", re.ASCII
)
FILLERS = "\u115f\u1160\u2800\u3164\uffa0"  # letters that look like a blank
_PLAIN = re.compile(r"[0-9a-f]{32}", re.ASCII)


def parse_uuid4(text: str, *, what: str = "id") -> str:
    """The canonical lower-case form of a version 4 UUID in any usual spelling.

    Accepts hyphenated, 32 plain digits, ``urn:uuid:`` and braces, in any letter case.

    Raises:
        IdError: anything else, the nil UUID and other versions included.

    Example:
        >>> parse_uuid4("{00000000-0000-4000-8000-0000000000AB}")
        '00000000-0000-4000-8000-0000000000ab'
    """
    low = text.lower() if isinstance(text, str) else ""
    if low.startswith("urn:uuid:"):
        low = low[9:]
    elif low.startswith("{") and low.endswith("}"):
        low = low[1:-1]
    if _PLAIN.fullmatch(low):
        low = f"{low[:8]}-{low[8:12]}-{low[12:16]}-{low[16:20]}-{low[20:]}"
    if not _UUID4.fullmatch(low):
        raise IdError(
            f"{what} is not a version 4 UUID.",
            found=text,
            hint="leave it out and one is made, or use uuid.uuid4()",
        )
    return low


def is_uuid4(text: str) -> bool:
    """Whether text is a canonical version 4 UUID."""
    return _UUID4.fullmatch(text) is not None


def check_name(text: str, *, what: str, limit: int = MAX_FACT_ID) -> str:
    """Text a caller may use as an id, a label or a namespace: not blank, bounded, printable.

    Raises:
        IdError: blank (spaces and marks nobody can see included), longer than `limit`, or holding
            a control character or a lone surrogate.
    """
    if not isinstance(text, str):
        raise IdError(f"{what} is not text.", found=text)
    if len(text) > limit:
        raise IdError(f"{what} is longer than {limit} characters.", found=len(text))
    categories = [unicodedata.category(c) for c in text]
    if "Cc" in categories or "Cs" in categories:
        raise IdError(f"{what} holds a control character or half a character.", found=text)
    if all(k[0] in "ZC" or c in FILLERS for c, k in zip(text, categories, strict=True)):
        raise IdError(f"{what} is blank.", found=text)
    return text


class IdSource(Protocol):
    """Where new identities come from."""

    def uuid4s(self, n: int) -> list[str]:
        """The next `n` identities, all different."""
        ...


def _render(raw: bytes) -> list[str]:
    """Turn 16-byte blocks into canonical version 4 UUIDs."""
    block = bytearray(raw)
    for i in range(0, len(block), 16):
        block[i + 6] = (block[i + 6] & 0x0F) | 0x40
        block[i + 8] = (block[i + 8] & 0x3F) | 0x80
    h = block.hex()
    blocks = (h[i : i + 32] for i in range(0, len(h), 32))
    return [f"{b[:8]}-{b[8:12]}-{b[12:16]}-{b[16:20]}-{b[20:]}" for b in blocks]


class RandomIds:
    """Identities from the operating system's random source."""

    def uuid4s(self, n: int) -> list[str]:
        """The next `n` identities."""
        return _render(os.urandom(16 * n))


class SeededIds:
    """Identities that a seed fixes: the i-th is the same however many are drawn at once.

    Example:
        >>> a, b = SeededIds(7), SeededIds(7)
        >>> a.uuid4s(3) == b.uuid4s(1) + b.uuid4s(2)
        True
    """

    def __init__(self, seed: int, *, position: int = 0, stream: str = "") -> None:
        """Continue the stream of `seed` with this name after `position` identities."""
        name = f"mnemes-lab/ids/v1\0{seed}" + (f"\0{stream}" if stream else "")
        self._key = hashlib.sha256(name.encode()).digest()
        self.position = position

    def uuid4s(self, n: int) -> list[str]:
        """The next `n` identities of the stream."""
        first, self.position = self.position, self.position + n
        return _render(
            b"".join(
                hashlib.sha256(self._key + i.to_bytes(8, "big")).digest()[:16]
                for i in range(first, first + n)
            )
        )


class ItemRef(NamedTuple):
    """A reference to anything the lab keeps: a kind and an id.

    Example:
        >>> ItemRef.parse("fact:a:b")
        ItemRef(kind='fact', id='a:b')
        >>> ItemRef("fact", "f-1").key
        'fact:f-1'
    """

    kind: str
    id: str

    @classmethod
    def of(cls, kind: str, id: str) -> ItemRef:
        """Check both parts.

        Raises:
            IdError: a blank part, or a colon in the kind.
        """
        if not kind.strip() or not id.strip():
            raise IdError("An item reference needs a kind and an id.", found=f"{kind}:{id}")
        if ":" in kind:
            raise IdError("A kind may not hold a colon.", found=kind)
        return cls(kind, id)

    @classmethod
    def parse(cls, key: str) -> ItemRef:
        """Split ``kind:id`` at the first colon.

        Raises:
            IdError: no colon or a blank part.
        """
        kind, colon, rest = key.partition(":")
        if not colon:
            raise IdError("An item key has the form kind:id.", found=key)
        return cls.of(kind, rest)

    @property
    def key(self) -> str:
        """The reference as ``kind:id``."""
        return f"{self.kind}:{self.id}"


def unique(values: Iterable[str]) -> list[str]:
    """Distinct values in order of first appearance."""
    return list(dict.fromkeys(values))
