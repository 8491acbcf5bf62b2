"""Vectors of questions, remembered without remembering the questions."""

from __future__ import annotations

import hmac
import threading
from collections import OrderedDict
from collections.abc import Sequence

import numpy as np

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
        self._turn = threading.Lock()

    def of(self, texts: Sequence[str]) -> Vectors:
        """Vectors in the order of `texts`; a blank one is zero, so it matches nothing."""
        out = np.zeros((len(texts), self.encoder.dim), np.float32)
        asked = {i: text for i, text in enumerate(texts) if not is_blank(text)}
        if not asked:
            return out
        secret = self.ring.subkey(self.ring.ids()[0], _PURPOSE)
        keys = {i: hmac.digest(secret, text.encode(), "sha256") for i, text in asked.items()}
        with self._turn:
            self._learn({keys[i]: text for i, text in asked.items()})
            for i, key in keys.items():
                out[i] = self._held[key]
            while len(self._held) > _HELD:
                self._held.popitem(last=False)
        return out

    def _learn(self, wanted: dict[bytes, str]) -> None:
        """Hold the vectors of these questions: from the file, or by encoding them."""
        new = [key for key in wanted if key not in self._held]
        if not new:
            return
        vectors, found = self.cache.get(self.encoder.fingerprint, new, self.encoder.dim)
        missing = np.flatnonzero(~found).tolist()
        if missing:
            vectors[missing] = checked(self.encoder, [wanted[new[i]] for i in missing])
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
    """Whether a question shows nothing: white space, controls, invisible formatting."""
    return not any(c.isprintable() and not c.isspace() for c in text)
