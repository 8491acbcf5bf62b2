"""Digests: fixed vectors, and encodings in which different content has different bytes."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mnemes_lab.digest import canonical_json, compact_json, preimage, sha256_hex
from mnemes_lab.errors import InputError


@pytest.mark.parametrize(
    ("data", "digest"),
    [
        ("", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
        (b"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
        ("abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
        ("alpha", "8ed3f6ad685b959ead7022518e1af76cd816f8e8ec7ccdda1ed4018e8f2223f8"),
    ],
)
def test_sha256_vectors(data, digest):
    assert sha256_hex(data) == digest


def test_text_is_hashed_as_utf8_and_never_normalised():
    assert sha256_hex("dépôt") == sha256_hex("dépôt".encode())
    assert sha256_hex("de\u0301po\u0302t") != sha256_hex("d\u00e9p\u00f4t")


def test_half_a_character_has_no_digest():
    with pytest.raises(ValueError, match="surrogates"):
        sha256_hex("Bad \ud83d tail")


def test_canonical_json_is_rfc8785():
    # The sample of the standard, section 3.2.2.
    value = {
        "numbers": [333333333.33333329, 1e30, 4.50, 2e-3, 0.000000000000000000000000001],
        "string": "\u20ac$\u000f\u000aA'\u0042\u0022\u005c\\\"/",
        "literals": [None, True, False],
    }
    assert canonical_json(value).decode() == (
        '{"literals":[null,true,false],'
        '"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],'
        '"string":"€$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}'
    )


def test_canonical_keys_sort_by_utf16_units():
    keys = ["\u20ac", "\r", "\ufb33", "1", "\U0001f600", "\u0080", "\u00f6"]
    text = canonical_json(dict.fromkeys(keys, 0)).decode()
    assert list(json.loads(text)) == [
        "\r",
        "1",
        "\u0080",
        "\u00f6",
        "\u20ac",
        "\U0001f600",
        "\ufb33",
    ]


@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        float("inf"),
        -float("inf"),
        2**53,
        -(2**53),
        {1, 2},
        pytest.param(object(), id="object"),
        "\ud83d",
        {1: 2},
    ],
    ids=repr,
)
def test_what_json_readers_disagree_on_has_no_canonical_form(value):
    with pytest.raises(InputError, match="no canonical JSON"):
        canonical_json(value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(JSON)
def test_canonical_json_reads_back_and_ignores_key_order(value):
    data = canonical_json(value)
    assert json.loads(data) == value
    if isinstance(value, dict):
        assert canonical_json(dict(reversed(value.items()))) == data


ASCII_KEYS = st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1)
NO_FLOATS = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(ASCII_KEYS, inner, max_size=4).map(lambda d: dict(sorted(d.items())))
    ),
    max_leaves=12,
)


@given(NO_FLOATS)
def test_compact_json_is_canonical_where_it_says_so(value):
    assert compact_json(value) == canonical_json(value)


def test_compact_json_keeps_order_and_raw_text():
    assert compact_json({"b": [1, "ñ"], "a": None}).decode() == '{"b":[1,"ñ"],"a":null}'


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "\ud83d"], ids=repr)
def test_compact_json_never_writes_what_is_not_json(value):
    with pytest.raises(ValueError, match="JSON compliant|surrogates"):
        compact_json(value)


def test_preimage_layout():
    assert preimage("d", "ab", b"\x00") == b"d\x00\x00\x00\x00\x02ab\x00\x00\x00\x01\x00"
    assert preimage("d") == b"d\x00"
    assert preimage("d", "ñ") == preimage("d", "ñ".encode())


FIELDS = st.lists(st.binary(max_size=6), max_size=5)


@given(FIELDS, FIELDS)
def test_different_fields_have_different_preimages(a, b):
    assert (preimage("d", *a) == preimage("d", *b)) == (a == b)


@given(FIELDS)
def test_domains_are_kept_apart(fields):
    assert preimage("d1", *fields) != preimage("d2", *fields)
