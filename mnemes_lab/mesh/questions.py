"""Vectors of questions, remembered without remembering the questions."""

from __future__ import annotations

import hmac
import threading
from collections import OrderedDict
from collections.abc import Sequence

import numpy as np

from mnemes_lab.errors import NotFiniteError
from mnemes_lab.ids import FILLERS
from mnemes_lab.store.keys import KeyRing
from mnemes_lab.text.cache import VectorCache
from mnemes_lab.text.encode import Encoder, Vectors, checked

_PURPOSE = "mnemes-lab/question-cache/v1"
_HELD, _UNFILED = 4096, 256


class QuestionVectors:
    """One vector per question, made once.

    Vectors are filed under a keyed digest: without the mesh's key nobody can look up a guess. New
    ones wait in memory and are filed together, so that asking does not wait for a second file.
    """

    def __init__(self, encoder: Encoder, cache: VectorCache, ring: KeyRing) -> None:
        """Join the encoder, the cache of a mesh and its keys."""
        self.encoder, self.cache, self.ring = encoder, cache, ring
        self._held: OrderedDict[bytes, Vectors] = OrderedDict()
        self._unfiled: dict[bytes, Vectors] = {}
        self._unusable: set[bytes] = set()
        self._turn = threading.Lock()

    def of(self, texts: Sequence[str]) -> tuple[Vectors, str | None]:
        """Vectors in the order of `texts`, and what could not be done, in words.

        A blank question is zero, so it matches nothing; one that the encoder answers with numbers
        that are not finite is zero too, so it is compared by its words.
        """
        out = np.zeros((len(texts), self.encoder.dim), np.float32)
        asked = {i: text for i, text in enumerate(texts) if not is_blank(text)}
        if not asked:
            return out, None
        secret = self.ring.subkey(self.ring.ids()[0], _PURPOSE)
        keys = {i: hmac.digest(secret, text.encode(), "sha256") for i, text in asked.items()}
        with self._turn:
            self._learn({keys[i]: text for i, text in asked.items()})
            for i, key in keys.items():
                out[i] = self._held[key]
            unusable = sum(key in self._unusable for key in keys.values())
            while len(self._held) > _HELD:
                self._unusable.discard(self._held.popitem(last=False)[0])
        if not unusable:
            return out, None
        return out, f"{unusable} of {len(texts)} questions were compared by their words only, " + (
            f"because the encoder {self.encoder.name!r} gave numbers that are not finite"
        )

    def _learn(self, wanted: dict[bytes, str]) -> None:
        """Hold the vectors of these questions: from the file, or by encoding them."""
        new = [key for key in wanted if key not in self._held]
        if not new:
            return
        vectors, found = self.cache.get(self.encoder.fingerprint, new, self.encoder.dim)
        missing = np.flatnonzero(~found).tolist()
        if missing:
            try:
                vectors[missing] = checked(self.encoder, [wanted[new[i]] for i in missing])
            except NotFiniteError as error:
                vectors[missing] = error.vectors
                self._unusable.update(new[missing[at]] for at in error.rows)
                missing = [i for i in missing if new[i] not in self._unusable]
        self._held.update(zip(new, vectors, strict=True))
        self._unfiled.update((new[i], vectors[i]) for i in missing)
        if len(self._unfiled) >= _UNFILED:
            self.file()

    def file(self) -> None:
        """Write what is new to the cache's file."""
        unfiled, self._unfiled = self._unfiled, {}
        if unfiled:
            self.cache.put(self.encoder.fingerprint, list(unfiled), np.array([*unfiled.values()]))


def is_blank(text: str) -> bool:
    """Whether a question shows nothing: white space, invisible formatting, fillers."""
    return not any(c.isprintable() and not c.isspace() and c not in FILLERS for c in text)
