"""Vectors of questions, remembered without remembering the questions."""

from __future__ import annotations

import hmac
from collections.abc import Sequence

import numpy as np

from mnemes_lab.store.keys import KeyRing
from mnemes_lab.text.cache import VectorCache, encode_cached
from mnemes_lab.text.encode import Encoder, Vectors

_PURPOSE = "mnemes-lab/question-cache/v1"


def question_vectors(
    encoder: Encoder, cache: VectorCache, ring: KeyRing, texts: Sequence[str]
) -> Vectors:
    """One vector per question; a blank one is zero, so it matches nothing.

    Vectors are cached under a keyed digest: without the mesh's key nobody can look up a guess.
    """
    out = np.zeros((len(texts), encoder.dim), np.float32)
    asked = [i for i, text in enumerate(texts) if not is_blank(text)]
    if asked:
        secret = ring.subkey(ring.ids()[0], _PURPOSE)
        out[asked] = encode_cached(
            encoder,
            [texts[i] for i in asked],
            cache,
            key=lambda text: hmac.digest(secret, text.encode(), "sha256"),
        )
    return out


def is_blank(text: str) -> bool:
    """Whether a question shows nothing: white space, controls, invisible formatting."""
    return not any(c.isprintable() and not c.isspace() for c in text)
