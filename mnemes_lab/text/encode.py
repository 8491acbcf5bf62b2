"""Encoders: texts in, unit vectors out.

Two are built in. :class:`HashEncoder` needs nothing beyond the core, compares words and spelling,
and gives the same bits everywhere. :class:`SentenceEncoder` compares meaning with a neural model.
Any object with the attributes of :class:`Encoder` is a third. :func:`checked` is how all of them
are called: it takes no reply on trust.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from mnemes_lab.errors import (
    EncoderError,
    InputError,
    MissingExtraError,
    MnemesError,
    NotFiniteError,
)
from mnemes_lab.text.lexicon import Postings
from mnemes_lab.text.sentence import MINILM_PACKAGE, SentenceEncoder, Vectors, installed

__all__ = [
    "Encoder",
    "HashEncoder",
    "SentenceEncoder",
    "Vectors",
    "checked",
    "default_encoder",
    "encoder_from",
]


class Encoder(Protocol):
    """What turns texts into vectors.

    Two encoders with equal fingerprints give interchangeable vectors; cached vectors and indexes
    are kept by it.
    """

    @property
    def name(self) -> str:
        """What people call it."""

    @property
    def dim(self) -> int:
        """Columns of its vectors."""

    @property
    def fingerprint(self) -> str:
        """Names everything that decides the vectors: method, weights, sizes."""

    def encode(self, texts: Sequence[str]) -> Vectors:
        """One float32 row per text, of unit length, or zero where there is nothing to encode."""


def checked(encoder: Encoder, texts: Sequence[str]) -> Vectors:
    """Encode texts and verify the reply, whoever wrote the encoder.

    Returns:
        float32, ``(len(texts), encoder.dim)``: rows brought to unit length, zero rows kept.

    Raises:
        NotFiniteError: it replied with numbers that are not finite for some texts.
        EncoderError: it failed, or replied with another shape or with something that is not
            numbers.

    Example:
        >>> vectors = checked(HashEncoder(64), ["pump off", "!"])
        >>> vectors.shape, (vectors**2).sum(axis=1).round(4).tolist()
        ((2, 64), [1.0, 0.0])
    """
    asked = list(texts)
    if not asked:
        return np.zeros((0, encoder.dim), np.float32)
    try:
        reply = np.asarray(encoder.encode(asked))
        if reply.dtype.kind not in "fiu":
            raise TypeError(f"replied with {reply.dtype} instead of numbers")
        vectors = reply.astype(np.float64)
    except MnemesError:
        raise
    except Exception as error:  # a third party's encoder may raise anything
        raise EncoderError(f"The encoder {encoder.name!r} failed: {error}.") from error
    if vectors.shape != (len(asked), encoder.dim):
        raise EncoderError(
            f"The encoder {encoder.name!r} was asked for {len(asked)} vectors of {encoder.dim} "
            "numbers.",
            found=vectors.shape,
        )
    broken = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
    if broken.size:
        refusal = NotFiniteError(
            f"The encoder {encoder.name!r} gave numbers that are not finite for {broken.size} of "
            f"{len(asked)} texts.",
            found=asked[int(broken[0])],
        )
        vectors[broken] = 0.0
        refusal.rows, refusal.vectors = broken.tolist(), _unit(vectors)
        raise refusal
    return _unit(vectors)


def _unit(vectors: npt.NDArray[np.float64]) -> Vectors:
    """Rows of length one, computed in float64.

    Zero rows stay zero, and rows that have unit length as far as float32 can tell keep their bits.
    """
    # Dividing by the largest entry first keeps the squares of tiny and huge rows in range.
    largest = np.abs(vectors).max(axis=1, keepdims=True, initial=0.0)
    scaled = vectors / np.where(largest > 0, largest, 1.0)
    norms = np.sqrt((scaled * scaled).sum(axis=1, keepdims=True))
    unit = scaled / np.where(norms > 0, norms, 1.0)
    with np.errstate(over="ignore"):  # an infinite length is not one either
        already = np.abs(norms * largest - 1.0) < 1e-6
    return np.where(already, vectors, unit).astype(np.float32)


# --- hashed words ----------------------------------------------------------------------------
class HashEncoder:
    """Hashed words and letter trigrams: no model, no download, the same bits everywhere.

    Every search term counts 1, a short ASCII one less (most are little words), and each trigram of
    a term between word boundaries half as much, so that ``valves`` is near ``valve``. Features are
    hashed with a sign (Weinberger et al. 2009) by scikit-learn's FeatureHasher and summed. The sums
    are multiples of 1/8, hence exact in any order and independent of the texts encoded along.

    Example:
        >>> encoder = HashEncoder(256)
        >>> encoder.fingerprint, encoder.encode(["pump off"]).shape
        ('hash-v1:256', (1, 256))
    """

    def __init__(self, dim: int = 384) -> None:
        """Choose the size.

        Raises:
            InputError: `dim` is not a whole number from 8 to 65,536.
        """
        if not isinstance(dim, int) or isinstance(dim, bool) or not 8 <= dim <= 65536:
            raise InputError("dim must be a whole number from 8 to 65536.", found=dim)
        self.dim = dim
        self.name = "hash"
        self.fingerprint = f"hash-v1:{dim}"  # raise the version when the words or weights change

    def encode(self, texts: Sequence[str]) -> Vectors:
        """One row per text; texts without words are zero."""
        out = np.zeros((len(texts), self.dim), np.float32)
        for start in range(0, len(texts), 4096):  # bounds the float64 working space
            out[start : start + 4096] = self._encode(texts[start : start + 4096])
        return out

    def _encode(self, texts: Sequence[str]) -> Vectors:
        from scipy.sparse import csr_matrix
        from sklearn.feature_extraction import FeatureHasher

        postings = Postings.build(texts)
        if not postings.terms:
            return np.zeros((len(texts), self.dim), np.float32)
        hasher = FeatureHasher(self.dim, input_type="pair")
        by_term = hasher.transform(map(_features, postings.terms))
        shape = (len(postings.terms), len(texts))
        counts = csr_matrix((postings.tf, postings.rows, postings.indptr), shape=shape)
        return _unit((counts.T @ by_term).toarray())

    def __repr__(self) -> str:
        """How to make it again."""
        return f"HashEncoder({self.dim})"


def _features(term: str) -> list[tuple[str, float]]:
    """A term and its trigrams. No term holds a blank, so the two never coincide."""
    weight = 1.0
    if term.isascii() and len(term) < 5:
        weight = 0.5 if len(term) == 4 else 0.25
    marked = f"<{term}>"
    trigrams = [(f" {marked[i : i + 3]}", weight / 2) for i in range(len(marked) - 2)]
    return [(term, weight), *trigrams]


class AbsentEncoder:
    """Stands in for an encoder that is on record and not at hand: knows all but how to encode.

    Whatever needs no new vector works; encoding says what is missing.
    """

    def __init__(self, name: str, dim: int, fingerprint: str, problem: Exception | None) -> None:
        """Keep what is on record, and why the encoder could not be had."""
        self.name, self.dim, self.fingerprint = name, dim, fingerprint
        self._problem = problem

    def encode(self, texts: Sequence[str]) -> Vectors:
        """Refuse.

        Raises:
            EncoderError: always; MissingExtraError where an extra would bring the encoder.
        """
        if isinstance(self._problem, MissingExtraError):
            raise self._problem
        raise EncoderError(
            f"The encoder {self.name!r} ({self.fingerprint}) is not at hand.",
            hint="pass it: Mesh.open(..., encoder=...), or change it: mesh.reencode('hash')",
        ) from self._problem


# --- choosing --------------------------------------------------------------------------------
def default_encoder() -> tuple[Encoder, str | None]:
    """The packaged sentence model where it is installed, else hashed words and a notice saying so.

    Nothing is imported or read yet.
    """
    if installed("sentence_transformers") and installed(MINILM_PACKAGE):
        return SentenceEncoder(), None
    return HashEncoder(), (
        "Texts are compared by their words and spelling, because the sentence encoder is not "
        "installed; pip install 'mnemes-lab[embed]' brings it."
    )


def encoder_from(value: str | os.PathLike[str] | Encoder | None) -> Encoder:
    """The encoder a user means.

    Args:
        value: None for the default, ``"hash"`` or ``"hash:256"``, ``"minilm"``, the folder or name
            of a sentence-transformers model, or an encoder, which is given back as it is.

    Raises:
        InputError: it is none of these.
        MissingExtraError: the sentence encoder is asked for and not installed.

    Example:
        >>> encoder_from("hash:256")
        HashEncoder(256)
    """
    if value is None:
        return default_encoder()[0]
    if isinstance(value, (str, os.PathLike)):
        return _named(os.fspath(value))
    # The names alone are looked at: asking for the values could read a model.
    if {"name", "dim", "fingerprint", "encode"} <= set(dir(value)):
        return value
    raise InputError(
        "An encoder has name, dim, fingerprint and encode(texts).",
        found=value,
        hint="'hash', 'minilm' or the folder of a model are understood too",
    )


def _named(name: str) -> Encoder:
    kind, _, size = name.partition(":")
    if kind == "hash" and (size.isdecimal() or name == "hash"):
        return HashEncoder(int(size)) if size else HashEncoder()
    if kind == "hash" or not name.strip():
        raise InputError("No such encoder.", found=name, hint="'hash', 'hash:256', 'minilm'")
    return SentenceEncoder(None if name == "minilm" else name)
