"""Receipts of both formats: exact bytes, every field bound, every lie found."""

from __future__ import annotations

import hashlib
import hmac
import json
import math
import struct
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mnemes_lab.clock import rfc3339, to_us
from mnemes_lab.digest import canonical_json, compact_json, preimage, sha256_hex
from mnemes_lab.errors import ReceiptError, ReceiptKeyError
from mnemes_lab.ids import SeededIds
from mnemes_lab.store import receipts, receipts_v2
from mnemes_lab.store.keys import KeyRing, key_id_of
from mnemes_lab.store.receipts import (
    Outcome,
    RankedShard,
    RoutingReceipt,
    SearchReceipt,
    check_query,
    from_json,
    from_row_v1,
    merge_digest,
    merge_digest_of_hashes,
    preimage_v1,
    preimage_v2,
    sign_v1,
    sign_v2,
    to_json,
    to_row_v1,
    validate_v1,
    validate_v2,
    verify,
)

KEY = bytes(range(32))
OTHER_KEY = bytes(range(1, 33))
D1, D2, D3, D4 = (f"00000000-0000-4000-8000-{n:012d}" for n in (1, 2, 3, 4))


def short(value: object) -> str:
    """A test's name that fits a line, whatever the value."""
    return ascii(value)[:40]


# --- format 1 --------------------------------------------------------------------------------
MERGED = [("fact:f1", D1, "alpha first"), ("fact:f2", D2, "alpha second")]
V1 = RoutingReceipt(
    receipt_id="11111111-1111-4111-8111-111111111111",
    requester_device_id=D1,
    query_sha256=sha256_hex("alpha"),
    shard_budget=1,
    actual_selected_shard_count=2,
    exhaustive=False,
    eligible_shards=(D1, D2),
    ranked_shards=(RankedShard(D1, 3), RankedShard(D2, 2)),
    selected_shards=(D1, D2),
    skipped_shards=(),
    outcomes=(Outcome(D1, 2, 5, 1, "c1", None), Outcome(D2, 2, 7, 1, "c2", None)),
    fallback_reason="insufficient_results_expand",
    final_result_ids=("fact:f1", "fact:f2"),
    merge_digest=merge_digest(MERGED),
    receipt_digest="",
    recorded_at=rfc3339(to_us("2026-07-19T12:00:00Z")),
)
V1_BYTES = (
    '["pooled-routing-receipt-hmac-v1","11111111-1111-4111-8111-111111111111",'
    '"00000000-0000-4000-8000-000000000001",'
    '"8ed3f6ad685b959ead7022518e1af76cd816f8e8ec7ccdda1ed4018e8f2223f8",1,2,false,'
    '["00000000-0000-4000-8000-000000000001","00000000-0000-4000-8000-000000000002"],'
    '[{"device_id":"00000000-0000-4000-8000-000000000001","score":3},'
    '{"device_id":"00000000-0000-4000-8000-000000000002","score":2}],'
    '["00000000-0000-4000-8000-000000000001","00000000-0000-4000-8000-000000000002"],[],'
    '[{"device_id":"00000000-0000-4000-8000-000000000001","shard_generation":2,"latency_ms":5,'
    '"result_count":1,"child_search_receipt_id":"c1","error":null},'
    '{"device_id":"00000000-0000-4000-8000-000000000002","shard_generation":2,"latency_ms":7,'
    '"result_count":1,"child_search_receipt_id":"c2","error":null}],'
    '"insufficient_results_expand",["fact:f1","fact:f2"],'
    '"ac26ffc43fecef9b900546d381247755c63f19d93cee2d84e44a4250e1fb75f6",'
    '"2026-07-19T12:00:00+00:00"]'
)
SIGNED_V1 = sign_v1(V1, KEY)


def test_merge_digest_vectors() -> None:
    assert merge_digest([]) == ("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")
    first = "d6ec0feec272befd849beb0d137b30ab1b756b1042b971a3899de884889a6696"
    second = "3d8994be4e190ad4c019dee7dbfb641ae531c299c1dddf26143b4c905e529186"
    merged = "ac26ffc43fecef9b900546d381247755c63f19d93cee2d84e44a4250e1fb75f6"
    assert merge_digest(MERGED) == merged
    assert merge_digest_of_hashes([("fact:f1", D1, first), ("fact:f2", D2, second)]) == merged
    assert merge_digest(MERGED[::-1]) != merged


def test_query_vector_is_a_plain_digest_and_the_query_is_in_no_column() -> None:
    query = "private raw query 9f5f31"
    receipt = sign_v1(replace(V1, query_sha256=sha256_hex(query)), KEY)
    assert receipt.query_sha256 == (
        "201d90e3517de19e78096a5265cd7350324eb2f2a3ec593a6ea42a790d8bf587"
    )
    assert all(query not in str(value) for value in to_row_v1(receipt).values())
    ring = KeyRing([KEY])
    assert check_query(receipt, ring, query)
    assert not check_query(receipt, ring, query + " ")


def test_preimage_and_digest_vectors() -> None:
    assert len(preimage_v1(V1)) == 929
    assert preimage_v1(V1).decode() == V1_BYTES
    assert SIGNED_V1.receipt_digest == (
        "4d6a9366e87f6f369fe0a6378c2b8b437c71c986a407fb67685884f9b04a79af"
    )
    validate_v1(SIGNED_V1, KEY)


CHANGES_V1: dict[str, Any] = {
    "receipt_id": "11111111-1111-4111-8111-111111111112",
    "requester_device_id": D2,
    "query_sha256": sha256_hex("beta"),
    "shard_budget": 2,
    "actual_selected_shard_count": 1,
    "exhaustive": True,
    "eligible_shards": (D2, D1),
    "ranked_shards": (RankedShard(D1, 4), RankedShard(D2, 2)),
    "selected_shards": (D2, D1),
    "skipped_shards": (D3,),
    "outcomes": (V1.outcomes[0]._replace(latency_ms=6), V1.outcomes[1]),
    "fallback_reason": None,
    "final_result_ids": ("fact:f2", "fact:f1"),
    "merge_digest": "f" * 64,
    "receipt_digest": "f" * 64,
    "recorded_at": "2026-07-19T12:00:00Z",
}


@pytest.mark.parametrize("name", [field.name for field in fields(RoutingReceipt)])
def test_v1_every_field_is_bound(name: str) -> None:
    changed = replace(SIGNED_V1, **{name: CHANGES_V1[name]})
    with pytest.raises(ReceiptError):
        validate_v1(changed, KEY)
    with pytest.raises(ReceiptError):
        verify(changed, KeyRing([KEY]))


def test_v1_is_not_fooled_by_an_unkeyed_digest_of_an_older_tag() -> None:
    row = to_row_v1(replace(SIGNED_V1, merge_digest="f" * 64))
    array = json.loads(preimage_v1(from_row_v1(row)))
    array[0] = "pooled-routing-receipt-v1"
    row["receipt_digest"] = sha256_hex(compact_json(array))
    with pytest.raises(ReceiptError, match="authentication mismatch") as caught:
        validate_v1(from_row_v1(row), KEY)
    assert caught.value.reason == "authentication"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"query_sha256": "g" * 64}, "routing receipt contains an invalid digest"),
        ({"merge_digest": "f" * 63}, "routing receipt contains an invalid digest"),
        ({"query_sha256": "\u0661" * 64}, "routing receipt contains an invalid digest"),
        ({"actual_selected_shard_count": 1}, "actual selected shard count is inconsistent"),
        ({"eligible_shards": (D1, D1)}, "routing receipt shard sets are inconsistent"),
        ({"eligible_shards": (D1, D2, D3)}, "routing receipt shard sets are inconsistent"),
        ({"ranked_shards": V1.ranked_shards[:1]}, "routing receipt shard sets are inconsistent"),
        ({"ranked_shards": V1.ranked_shards * 2}, "routing receipt shard sets are inconsistent"),
        ({"selected_shards": (D1, D1)}, "routing receipt shard sets are inconsistent"),
        ({"selected_shards": (D1, D3)}, "routing receipt shard sets are inconsistent"),
        ({"skipped_shards": (D1,)}, "routing receipt shard sets are inconsistent"),
        ({"skipped_shards": (D3, D3)}, "routing receipt shard sets are inconsistent"),
        ({"outcomes": V1.outcomes[:1]}, "routing receipt shard sets are inconsistent"),
        ({"outcomes": V1.outcomes * 2}, "routing receipt shard sets are inconsistent"),
        ({"final_result_ids": ("a", "a")}, "routing receipt contains duplicate final result IDs"),
    ],
)
def test_v1_names_the_failing_check_before_it_looks_at_the_digest(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ReceiptError, match=message):
        validate_v1(sign_v1(replace(V1, **changes), KEY), KEY)


def test_v1_digests_in_capitals_are_read_but_only_the_lower_case_mac_matches() -> None:
    capitals = sign_v1(replace(V1, query_sha256=V1.query_sha256.upper()), KEY)
    validate_v1(capitals, KEY)
    assert check_query(capitals, KeyRing([KEY]), "alpha")
    with pytest.raises(ReceiptError, match="authentication mismatch"):
        validate_v1(replace(SIGNED_V1, receipt_digest=SIGNED_V1.receipt_digest.upper()), KEY)


def test_v1_row_has_the_columns_of_its_table_and_comes_back() -> None:
    row = to_row_v1(SIGNED_V1)
    assert set(row) == {
        "receipt_id",
        "requester_device_id",
        "query_sha256",
        "merge_digest",
        "receipt_digest",
        "shard_budget",
        "actual_selected_shard_count",
        "exhaustive",
        "eligible_shards_json",
        "ranked_shards_json",
        "selected_shards_json",
        "skipped_shards_json",
        "outcomes_json",
        "final_result_ids_json",
        "fallback_reason",
        "recorded_at",
    }
    assert row["exhaustive"] == 0
    assert row["ranked_shards_json"] == (
        f'[{{"device_id":"{D1}","score":3}},{{"device_id":"{D2}","score":2}}]'
    )
    assert from_row_v1(row) == SIGNED_V1
    other = replace(SIGNED_V1, exhaustive=True, fallback_reason=None, outcomes=(), ranked_shards=())
    assert from_row_v1(to_row_v1(other)) == other


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("exhaustive", 2, "neither 0 nor 1"),
        ("exhaustive", "0", "neither 0 nor 1"),
        ("shard_budget", True, "shard_budget"),
        ("shard_budget", -1, "shard_budget"),
        ("shard_budget", "1", "shard_budget"),
        ("receipt_id", None, "receipt_id"),
        ("fallback_reason", 3, "fallback_reason"),
        ("eligible_shards_json", "{}", "not a list"),
        ("eligible_shards_json", "[1]", "eligible_shards"),
        ("eligible_shards_json", "[", "not JSON"),
        ("eligible_shards_json", None, "not text"),
        ("ranked_shards_json", '[{"device_id":"d","score":1.0}]', "with a point"),
        ("ranked_shards_json", '[{"device_id":"d","score":NaN}]', "with a point"),
        ("ranked_shards_json", '[{"device_id":"d","score":-1}]', "score"),
        ("ranked_shards_json", '[{"device_id":"d","score":null}]', "score"),
        ("ranked_shards_json", '[{"device_id":"d"}]', "other fields"),
        ("ranked_shards_json", '[{"device_id":"d","score":1,"x":1}]', "other fields"),
        ("ranked_shards_json", '[{"device_id":"d","score":1,"score":1}]', "twice"),
        ("ranked_shards_json", "[" * 100_000, "not JSON"),
        ("ranked_shards_json", "[" * 500 + "]" * 500, "other fields"),
        ("extra", 1, "should not have"),
    ],
    ids=short,
)
def test_v1_rows_are_read_strictly(column: str, value: object, message: str) -> None:
    with pytest.raises(ReceiptError, match=message) as caught:
        from_row_v1({**to_row_v1(SIGNED_V1), column: value})
    assert caught.value.reason == "format"


@pytest.mark.parametrize("column", sorted(to_row_v1(SIGNED_V1)))
def test_v1_rows_need_every_column(column: str) -> None:
    row = to_row_v1(SIGNED_V1)
    del row[column]
    with pytest.raises(ReceiptError, match=f"missing.*{column}"):
        from_row_v1(row)


def test_v1_receipts_verify_under_any_key_of_the_ring_and_fail_without() -> None:
    verify(SIGNED_V1, KeyRing([OTHER_KEY, KEY]))
    with pytest.raises(ReceiptError, match="authentication mismatch"):
        verify(SIGNED_V1, KeyRing([OTHER_KEY]))
    with pytest.raises(ReceiptKeyError):
        verify(SIGNED_V1, KeyRing([]))


# --- format 2 --------------------------------------------------------------------------------
RING = KeyRing([KEY, OTHER_KEY], current=key_id_of(KEY))
NOW = to_us("2026-07-19T12:00:00.000250Z")
PLAIN = SearchReceipt(
    receipt_id="11111111-1111-4111-8111-111111111111",
    mesh_id="22222222-2222-4222-8222-222222222222",
    requester_device_id=D1,
    k=5,
    budget=1,
    max_shards=3,
    expand=True,
    exhaustive=False,
    router="overlap",
    namespaces=("general", "größe"),
    as_of_valid=to_us("9999-12-31T23:59:59Z"),
    as_of_recorded=NOW - 7,
    encoder="hash-256:0011",
    ranked=((D1, 3.0), (D2, 0.1), (D3, -0.0)),
    selected=2,
    outcomes=((D2, 4, 1_500, 1, None), (D1, 2, 900, 1, None)),
    fallback_reason="insufficient_results_expand",
    hits=(("f1", D1, sha256_hex("x"), 0.03), ("f2", D2, sha256_hex("y"), 0.01)),
    complete=True,
    conflicts=("f9",),
    recorded_at=NOW,
)
SIGNED = sign_v2(PLAIN, RING, query="when?")


def hkdf(key: bytes, info: bytes) -> bytes:
    """HKDF-SHA256 of one block with the default salt, written out."""
    return hmac.digest(hmac.digest(bytes(32), key, "sha256"), info + b"\1", "sha256")


def test_v2_bytes_are_those_of_a_separate_encoder() -> None:
    body = canonical_json(
        {
            "receipt_id": "11111111-1111-4111-8111-111111111111",
            "version": 2,
            "key_id": "ba19799fb3612564",
            "mesh_id": "22222222-2222-4222-8222-222222222222",
            "requester_device_id": D1,
            "query_mac": SIGNED.query_mac,
            "k": 5,
            "budget": 1,
            "max_shards": 3,
            "expand": True,
            "exhaustive": False,
            "router": "overlap",
            "namespaces": ["general", "größe"],
            "as_of_valid": "253402300799000000",
            "as_of_recorded": "1784462400000243",
            "encoder": "hash-256:0011",
            "ranked": [
                [D1, "4008000000000000"],
                [D2, "3fb999999999999a"],
                [D3, "8000000000000000"],
            ],
            "selected": 2,
            "outcomes": [[D2, 4, 1500, 1, None], [D1, 2, 900, 1, None]],
            "fallback_reason": "insufficient_results_expand",
            "hits": [
                ["f1", D1, sha256_hex("x"), struct.pack(">d", 0.03).hex()],
                ["f2", D2, sha256_hex("y"), struct.pack(">d", 0.01).hex()],
            ],
            "complete": True,
            "conflicts": ["f9"],
            "recorded_at": "1784462400000250",
        }
    )
    key_id = b"ba19799fb3612564"
    message = b"mnemes-lab/search-receipt/v2\0"
    for part in (key_id, body):
        message += len(part).to_bytes(4, "big") + part
    assert preimage_v2(SIGNED) == message
    mac = hmac.digest(hkdf(KEY, b"mnemes-lab/search-receipt/mac/v2"), message, "sha256")
    assert SIGNED.mac == mac.hex()
    question = b"mnemes-lab/search-query/v2\0"
    for part in (PLAIN.receipt_id.encode(), b"when?"):
        question += len(part).to_bytes(4, "big") + part
    hidden = hmac.digest(hkdf(KEY, b"mnemes-lab/search-receipt/query/v2"), question, "sha256")
    assert SIGNED.query_mac == hidden.hex()
    assert json.loads(to_json(SIGNED)) == {**json.loads(body), "mac": SIGNED.mac}


def test_v2_format_has_not_drifted() -> None:
    assert SIGNED.mac == "932f3ee123628c3697a8cb4672344e8e3e59c7c5d451a857ceb2ff1370069bda"


def test_v2_round_trip_keeps_every_value() -> None:
    again = from_json(to_json(SIGNED))
    assert again == SIGNED
    assert hash(again) == hash(SIGNED)
    assert math.copysign(1, again.ranked[2][1]) == -1
    assert from_json(to_json(SIGNED).encode()) == SIGNED
    verify(again, RING)


# What each field becomes, and which check notices. Fields that another one repeats cannot change
# alone and still reach the MAC; they are changed together with it in the test after this.
CHANGES_V2: dict[str, tuple[Any, str]] = {
    "receipt_id": ("11111111-1111-4111-8111-111111111112", "authentication"),
    "mesh_id": (D1, "authentication"),
    "requester_device_id": (D2, "authentication"),
    "k": (6, "authentication"),
    "budget": (2, "authentication"),
    "max_shards": (None, "authentication"),
    "expand": (False, "budget"),
    "exhaustive": (True, "budget"),
    "router": ("centroid", "authentication"),
    "namespaces": (None, "authentication"),
    "as_of_valid": (None, "authentication"),
    "as_of_recorded": (NOW, "authentication"),
    "encoder": ("hash-256:0012", "authentication"),
    "ranked": (((D1, 3.0), (D2, math.nextafter(0.1, 1)), (D3, -0.0)), "authentication"),
    "selected": (3, "shards"),
    "outcomes": ((PLAIN.outcomes[0], (D1, 2, 901, 1, None)), "authentication"),
    "fallback_reason": ("other", "authentication"),
    "hits": ((("f1", D1, sha256_hex("x"), 0.02), PLAIN.hits[1]), "authentication"),
    "complete": (False, "complete"),
    "conflicts": ((), "authentication"),
    "recorded_at": (NOW + 1, "authentication"),
    "version": (3, "format"),
    "key_id": (key_id_of(OTHER_KEY), "authentication"),
    "query_mac": ("0" * 64, "authentication"),
    "mac": ("0" * 64, "authentication"),
}


@pytest.mark.parametrize("name", [field.name for field in fields(SearchReceipt)])
def test_v2_every_field_is_bound(name: str) -> None:
    value, reason = CHANGES_V2[name]
    changed = replace(SIGNED, **{name: value})
    with pytest.raises(ReceiptError) as caught:
        verify(changed, RING)
    assert caught.value.reason == reason


@pytest.mark.parametrize(
    "changes",
    [
        {"budget": 2, "expand": False},
        {"selected": 3, "exhaustive": True, "outcomes": (*PLAIN.outcomes, (D3, 1, 1, 0, None))},
        {"selected": 3, "outcomes": (*PLAIN.outcomes, (D3, 1, 1, 0, None))},
        {
            "complete": False,
            "hits": PLAIN.hits[:1],
            "outcomes": ((D2, 4, 1_500, 0, "timeout"), PLAIN.outcomes[1]),
        },
        {"ranked": (*PLAIN.ranked, (D4, -9.0))},
        {"ranked": (PLAIN.ranked[1], PLAIN.ranked[0], PLAIN.ranked[2])},
        {"ranked": ((D1, 3.0), (D2, 0.1), (D3, 0.0))},
        {"outcomes": PLAIN.outcomes[::-1]},
        {"outcomes": ((D2, 5, 1_500, 1, None), PLAIN.outcomes[1])},
        {"hits": (("f1", D1, sha256_hex("z"), 0.03), PLAIN.hits[1])},
        {"hits": (("f3", D1, sha256_hex("x"), 0.03), PLAIN.hits[1])},
        {"hits": (("f1", D2, sha256_hex("x"), 0.03), ("f2", D1, sha256_hex("y"), 0.01))},
        {"namespaces": ("general", "größe", "x")},
        {"namespaces": ("größe", "general")},
        {"namespaces": ("general,größe",)},
    ],
)
def test_v2_consistent_lies_are_found_by_the_mac(changes: dict[str, Any]) -> None:
    with pytest.raises(ReceiptError) as caught:
        verify(replace(SIGNED, **changes), RING)
    assert caught.value.reason == "authentication"
    honest = sign_v2(replace(PLAIN, **changes), RING, query="when?")
    verify(honest, RING)  # the same content, signed, is a fine receipt


def test_v2_every_flipped_bit_of_the_text_is_found() -> None:
    data = to_json(SIGNED).encode()
    survivors = []
    for place in range(len(data) * 8):
        flipped = bytearray(data)
        flipped[place // 8] ^= 1 << place % 8
        try:
            verify(from_json(bytes(flipped)), RING)
        except ReceiptError:
            continue
        survivors.append(bytes(flipped))
    assert survivors == []


@given(st.data())
def test_v2_every_edit_of_the_text_is_found(data: st.DataObject) -> None:
    text = to_json(SIGNED)
    start = data.draw(st.integers(0, len(text)))
    stop = data.draw(st.integers(start, min(len(text), start + 40)))
    # pieces of the text itself make the edits that are hardest to see
    origin = data.draw(st.integers(0, len(text)))
    piece = data.draw(st.text(max_size=6) | st.just(text[origin : origin + stop - start]))
    edited = text[:start] + piece + text[stop:]
    if edited == text:
        assert from_json(edited) == SIGNED
    else:
        with pytest.raises(ReceiptError):
            verify(from_json(edited), RING)


def search_receipts() -> st.SearchStrategy[SearchReceipt]:
    """Well-formed receipts of any shape."""
    name = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
    number = st.integers(0, 2**53 - 1)
    score = st.floats(allow_nan=False, allow_infinity=False)
    instant = st.integers(-(2**63), 2**63 - 1)

    @st.composite
    def build(draw: st.DrawFn) -> SearchReceipt:
        eligible = draw(st.integers(0, 5))
        devices = SeededIds(draw(st.integers(0, 99))).uuid4s(eligible + 3)
        receipt_id, mesh_id, requester, *shards = devices
        selected = draw(st.integers(0, eligible))
        errors = [draw(st.none() | st.text(max_size=4)) for _ in range(selected)]
        errors = [e if e is None else e.encode("utf-8", "replace").decode() for e in errors]
        held = [draw(st.integers(0, 2)) if e is None else 0 for e in errors]
        owners = [shards[i] for i, n in enumerate(held) for _ in range(n)]
        names = draw(st.lists(name, min_size=len(owners), max_size=len(owners) + 2, unique=True))
        scores = sorted((draw(score) for _ in owners), reverse=True)
        rows = zip(names, owners, scores, strict=False)
        return SearchReceipt(
            receipt_id=receipt_id,
            mesh_id=mesh_id,
            requester_device_id=requester,
            k=draw(st.integers(max(1, len(owners)), 99)),
            router=draw(name),
            encoder=draw(name),
            as_of_valid=draw(st.none() | instant),
            as_of_recorded=draw(instant),
            recorded_at=draw(instant),
            ranked=tuple((shard, draw(score)) for shard in shards),
            selected=selected,
            outcomes=tuple(
                (shards[i], draw(number), draw(number), held[i], errors[i]) for i in range(selected)
            ),
            hits=tuple((n, owner, sha256_hex(n), s) for n, owner, s in rows),
            conflicts=tuple(names[len(owners) :]),
            complete=errors == [None] * selected,
            fallback_reason=draw(name),
            budget=draw(st.none() | st.integers(1, 9)),
            expand=True,
            namespaces=draw(st.none() | st.lists(name, unique=True, max_size=3).map(tuple)),
        )

    return build()


@given(search_receipts(), st.text())
def test_v2_any_receipt_signs_verifies_and_comes_back(receipt: SearchReceipt, query: str) -> None:
    signed = sign_v2(receipt, RING, query=query)
    verify(signed, RING)
    text = to_json(signed)
    assert from_json(text) == signed
    assert to_json(from_json(text)) == text
    assert check_query(signed, RING, query)
    assert not check_query(signed, RING, query + "x")


@given(search_receipts())
def test_v2_text_and_body_are_rfc_8785(receipt: SearchReceipt) -> None:
    signed = sign_v2(receipt, RING, query="")
    text = to_json(signed).encode()
    assert text == canonical_json(json.loads(text))
    raw = json.loads(text)
    del raw["mac"]
    assert preimage_v2(signed) == preimage(receipts.DOMAIN, signed.key_id, canonical_json(raw))


# --- what format 2 refuses -------------------------------------------------------------------
def outcome(index: int, **changes: object) -> tuple[Any, ...]:
    names = ("device_id", "generation", "latency", "results", "error")
    row = dict(zip(names, PLAIN.outcomes[index], strict=True)) | changes
    rows: list[tuple[Any, ...]] = list(PLAIN.outcomes)
    rows[index] = tuple(row.values())
    return tuple(rows)


BROKEN: list[tuple[str, dict[str, Any]]] = [
    ("format", {"version": 1}),
    ("format", {"version": True}),
    ("id", {"receipt_id": "11111111-1111-1111-8111-111111111111"}),
    ("id", {"receipt_id": PLAIN.mesh_id.replace("2", "A")}),
    ("id", {"mesh_id": ""}),
    ("id", {"requester_device_id": None}),
    ("key", {"key_id": "BA19799FB3612564"}),
    ("key", {"key_id": "../x"}),
    ("request", {"k": 0}),
    ("request", {"k": True}),
    ("request", {"k": None}),
    ("request", {"k": 2**53}),
    ("request", {"budget": 0}),
    ("request", {"max_shards": 0}),
    ("request", {"budget": 1.0}),
    ("request", {"router": ""}),
    ("request", {"encoder": None}),
    ("request", {"fallback_reason": ""}),
    ("request", {"expand": 1}),
    ("request", {"exhaustive": None}),
    ("request", {"complete": 1}),
    ("request", {"as_of_recorded": None}),
    ("request", {"as_of_recorded": 1.0}),
    ("request", {"as_of_valid": True}),
    ("request", {"recorded_at": 2**63}),
    ("request", {"recorded_at": "1"}),
    ("request", {"namespaces": ["general"]}),
    ("request", {"namespaces": ("a", "a")}),
    ("request", {"namespaces": ("",)}),
    ("format", {"ranked": ((D1,), (D2, 0.1))}),
    ("format", {"ranked": [(D1, 3.0), (D2, 0.1)]}),
    ("format", {"ranked": "ab"}),
    ("format", {"outcomes": None}),
    ("format", {"hits": ((),)}),
    ("shards", {"ranked": ((D1, 3.0), (D1, 0.1))}),
    ("shards", {"ranked": (("d1", 3.0), (D2, 0.1))}),
    ("shards", {"ranked": (*PLAIN.ranked, (D3, 0.0))}),  # twice among those not searched
    ("shards", {"ranked": (*PLAIN.ranked, ("d4", 0.0))}),
    ("scores", {"ranked": ((D1, 3.0), (D2, math.nan))}),
    ("scores", {"ranked": ((D1, math.inf), (D2, 0.1))}),
    ("scores", {"ranked": ((D1, True), (D2, 0.1))}),
    ("scores", {"ranked": ((D1, "3"), (D2, 0.1))}),
    ("scores", {"ranked": ((D1, 2**53 + 1), (D2, 0.1))}),
    ("scores", {"ranked": ((D1, 10**400), (D2, 0.1))}),
    ("count", {"selected": 4}),
    ("count", {"selected": -1}),
    ("count", {"selected": True}),
    ("shards", {"selected": 1}),
    ("shards", {"outcomes": PLAIN.outcomes[:1]}),
    ("shards", {"outcomes": PLAIN.outcomes[:1] * 2}),
    ("shards", {"outcomes": (*PLAIN.outcomes, PLAIN.outcomes[0])}),
    ("shards", {"outcomes": outcome(0, device_id=D3)}),  # not a prefix of the ranking
    ("shards", {"outcomes": outcome(0, device_id=[])}),
    ("outcomes", {"outcomes": outcome(0, generation=-1)}),
    ("outcomes", {"outcomes": outcome(0, latency=1.5)}),
    ("outcomes", {"outcomes": outcome(0, results=True)}),
    ("outcomes", {"outcomes": outcome(0, latency=2**53)}),
    ("outcomes", {"outcomes": outcome(0, error=7, results=0), "complete": False}),
    ("outcomes", {"outcomes": outcome(0, error="failed")}),  # and yet one hit
    ("complete", {"outcomes": outcome(0, error="failed", results=0), "hits": PLAIN.hits[:1]}),
    ("complete", {"complete": False}),
    ("budget", {"expand": False}),
    ("budget", {"fallback_reason": None}),
    ("budget", {"max_shards": 1}),
    ("budget", {"exhaustive": True}),
    ("hits", {"k": 1}),
    ("hits", {"hits": PLAIN.hits[:1]}),
    ("hits", {"outcomes": outcome(0, results=2)}),
    ("hits", {"hits": (PLAIN.hits[0], ("f2", D3, sha256_hex("y"), 0.01))}),
    ("hits", {"hits": (PLAIN.hits[0], ("f1", D2, sha256_hex("y"), 0.01))}),
    ("hits", {"hits": (PLAIN.hits[0], ("", D2, sha256_hex("y"), 0.01))}),
    ("hits", {"hits": (PLAIN.hits[0], ("f2", [], sha256_hex("y"), 0.01))}),
    ("digest", {"hits": (PLAIN.hits[0], ("f2", D2, sha256_hex("y").upper(), 0.01))}),
    ("digest", {"hits": (PLAIN.hits[0], ("f2", D2, None, 0.01))}),
    ("scores", {"hits": (PLAIN.hits[0], ("f2", D2, sha256_hex("y"), 0.04))}),
    ("scores", {"hits": (PLAIN.hits[0], ("f2", D2, sha256_hex("y"), -math.inf))}),
    ("conflicts", {"conflicts": ("f1",)}),
    ("conflicts", {"conflicts": ("f9", "f9")}),
    ("conflicts", {"conflicts": (9,)}),
    ("format", {"conflicts": ("\ud800",)}),
]


@pytest.mark.parametrize(("reason", "changes"), BROKEN)
def test_v2_a_receipt_that_contradicts_itself_is_neither_signed_nor_believed(
    reason: str, changes: dict[str, Any]
) -> None:
    with pytest.raises(ReceiptError) as caught:
        sign_v2(replace(PLAIN, **changes), RING, query="when?")
    assert caught.value.reason == reason
    with pytest.raises(ReceiptError) as caught:
        validate_v2(replace(SIGNED, **changes), RING)
    assert caught.value.reason == reason


def test_v2_without_a_budget_two_shards_are_the_cap() -> None:
    two = replace(PLAIN, budget=None, expand=False, max_shards=None, fallback_reason=None)
    verify(sign_v2(two, RING, query="q"), RING)
    three = replace(two, selected=3, outcomes=(*two.outcomes, (D3, 1, 1, 0, None)))
    with pytest.raises(ReceiptError, match="budget allows"):
        sign_v2(three, RING, query="q")
    verify(sign_v2(replace(three, exhaustive=True), RING, query="q"), RING)


def test_v2_an_empty_search_has_a_receipt() -> None:
    empty = replace(PLAIN, ranked=(), selected=0, outcomes=(), hits=(), conflicts=())
    signed = sign_v2(empty, RING, query="")
    assert from_json(to_json(signed)) == signed
    verify(signed, RING)


def test_v2_whole_scores_are_the_same_as_their_doubles() -> None:
    whole = sign_v2(replace(PLAIN, ranked=((D1, 3), (D2, 2), (D3, 0))), RING, query="q")
    again = from_json(to_json(whole))
    assert again == whole
    assert [type(score) for _, score in again.ranked] == [float] * 3


def test_v2_errors_show_what_was_found() -> None:
    with pytest.raises(ReceiptError, match=r"selected is not a number of ranked shards. Found 4\."):
        sign_v2(replace(PLAIN, selected=4), RING, query="q")


def test_v2_needs_a_question() -> None:
    with pytest.raises(ReceiptError, match="query_mac"):
        sign_v2(PLAIN, RING)


@pytest.mark.parametrize("mac", ["", "0" * 63, SIGNED.mac.upper(), "é" * 64, None])
def test_v2_a_mac_of_another_form_is_refused(mac: Any) -> None:
    with pytest.raises(ReceiptError) as caught:
        verify(replace(SIGNED, mac=mac), RING)
    assert caught.value.reason == "digest"


def respelled(change: Callable[[dict[str, Any]], object]) -> str:
    raw = json.loads(to_json(SIGNED))
    change(raw)
    return compact_json(raw).decode()


TEXT = to_json(SIGNED)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not JSON"),
        ("null", "lacks fields"),
        ("[]", "lacks fields"),
        ("{}", "lacks fields.*as_of_recorded"),
        (respelled(lambda r: r.pop("hits")), "lacks fields.*hits"),
        (respelled(lambda r: r.update(zzz=1)), "unknown.*zzz"),
        (respelled(lambda r: r.update(version=r.pop("version"), k=r.pop("k"))), "another order"),
        (TEXT.replace('"k":5', '"k":5,"k":5'), "twice.*k"),
        (TEXT.replace('"k":5', '"k":NaN'), "NaN"),
        (TEXT.replace('"k":5', '"k":Infinity'), "Infinity"),
        (TEXT.replace('"k":5', '"k":5.0'), "5.0"),
        (TEXT.replace('"k":5', '"k":1e999'), "1e999"),
        (TEXT.replace('"k":5', '"k":' + "9" * 5000), "not JSON"),
        (TEXT.replace('"k":5', '"k":' + "[" * 500 + "]" * 500), "k is not a whole number"),
        (TEXT.replace('"k":5', '"k": 5'), "spelled in another way"),
        (TEXT.replace("größe", "gr\\u00f6\\u00dfe"), "spelled in another way"),
        (TEXT + "\n", "spelled in another way"),
        (TEXT.replace("4008000000000000", "400800000000000A"), "spelled in another way"),
        (TEXT.replace('"1784462400000250"', "1784462400000250"), "spelled in another way"),
        (TEXT.replace('"1784462400000250"', '"+1784462400000250"'), "spelled in another way"),
        (TEXT.replace('"1784462400000250"', "true"), "spelled in another way"),
        (TEXT.replace('"1784462400000250"', "null"), "recorded_at is not an instant"),
        (TEXT.replace('"1784462400000250"', '"x"'), "wrong form"),
        (TEXT.replace("4008000000000000", "40080000000000"), "wrong form"),
        (TEXT.replace("4008000000000000", "40080000000000 00"), "spelled in another way"),
        (TEXT.replace("4008000000000000", "4008 00000 00000"), "wrong form"),
        (TEXT.replace("4008000000000000", "7ff8000000000000"), "finite"),
        (TEXT.replace('"4008000000000000"', "3"), "wrong form"),
        (respelled(lambda r: r.update(ranked={"a": 1})), "wrong form"),
        (respelled(lambda r: r.update(ranked=[{}])), "wrong form"),
        (respelled(lambda r: r.update(ranked=[[]])), "wrong form"),
        (respelled(lambda r: r.update(outcomes=[1])), "wrong form"),
        (respelled(lambda r: r.update(outcomes=[None])), "wrong form"),
        (respelled(lambda r: r.update(conflicts="ab")), "spelled in another way"),
        (respelled(lambda r: r.update(conflicts=[[]])), "cannot be one"),
        (respelled(lambda r: r.update(namespaces=3)), "wrong form"),
        (respelled(lambda r: r.update(router=None)), "router is not text"),
        (respelled(lambda r: r.update(mac=None)), "mac is not 64"),
        (respelled(lambda r: r.update(key_id="../x")), "key_id is not 16"),
        ("[" * 100_000, "not JSON"),
        ("\ufeff" + TEXT, "not JSON"),
        ("\ud800", "not UTF-8"),
        (b"\xff", "not UTF-8"),
        (TEXT.encode("utf-16"), "not UTF-8"),
    ],
    ids=short,
)
def test_v2_text_is_read_strictly(text: str | bytes, message: str) -> None:
    with pytest.raises(ReceiptError, match=message):
        from_json(text)


def test_v2_too_large_a_receipt_is_neither_made_nor_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receipts_v2, "MAX_BYTES", len(TEXT.encode()))
    assert from_json(TEXT) == SIGNED
    assert sign_v2(PLAIN, RING, query="when?") == SIGNED
    monkeypatch.setattr(receipts_v2, "MAX_BYTES", len(TEXT.encode()) - 1)
    for action in (lambda: from_json(TEXT), lambda: sign_v2(PLAIN, RING, query="when?")):
        with pytest.raises(ReceiptError) as caught:
            action()
        assert caught.value.reason == "size"


# --- keys, domains, questions ----------------------------------------------------------------
def test_old_receipts_verify_after_a_rotation_and_new_ones_name_the_new_key(
    tmp_path: Path,
) -> None:
    ring = KeyRing.open(tmp_path)
    old = sign_v2(PLAIN, ring, query="when?")
    old_v1 = sign_v1(V1, ring.current[1])
    ring.rotate()
    new = sign_v2(PLAIN, ring, query="when?")
    assert (old.key_id, new.key_id) == tuple(sorted(ring.ids(), key=lambda i: i != old.key_id))
    reopened = KeyRing.open(tmp_path, current=new.key_id, required=[old.key_id])
    for receipt in (old, new, old_v1):
        verify(receipt, reopened)
    assert check_query(old, reopened, "when?")
    with pytest.raises(ReceiptError) as caught:
        verify(replace(old, key_id=new.key_id), reopened)
    assert caught.value.reason == "authentication"


def test_a_receipt_may_be_signed_with_the_older_key_it_names() -> None:
    named = replace(PLAIN, key_id=key_id_of(OTHER_KEY))
    signed = sign_v2(named, RING, query="when?")
    assert signed.key_id == key_id_of(OTHER_KEY)
    verify(signed, KeyRing([OTHER_KEY]))


def test_without_its_key_a_receipt_fails_closed(tmp_path: Path) -> None:
    ring = KeyRing.open(tmp_path)
    signed, signed_v1 = sign_v2(PLAIN, ring, query="q"), sign_v1(V1, ring.current[1])
    for path in tmp_path.iterdir():
        path.unlink()
    with pytest.raises(ReceiptKeyError, match=signed.key_id):
        KeyRing.open(tmp_path, required=[signed.key_id])
    fresh = KeyRing.open(tmp_path)  # nobody said that receipts need the lost key
    with pytest.raises(ReceiptKeyError, match=signed.key_id) as caught:
        verify(signed, fresh)
    assert caught.value.reason == "key"
    with pytest.raises(ReceiptKeyError):
        check_query(signed, fresh, "q")
    with pytest.raises(ReceiptError, match="authentication mismatch"):
        verify(signed_v1, fresh)


def test_no_mac_of_another_purpose_passes() -> None:
    body = canonical_json({k: v for k, v in json.loads(TEXT).items() if k != "mac"})
    mac_key = RING.subkey(SIGNED.key_id, "mnemes-lab/search-receipt/mac/v2")
    query_key = RING.subkey(SIGNED.key_id, "mnemes-lab/search-receipt/query/v2")
    message = preimage_v2(SIGNED)
    assert hmac.digest(mac_key, message, "sha256").hex() == SIGNED.mac
    other_domain = preimage("mnemes-lab/search-receipt/v1", SIGNED.key_id, body)
    forged = [
        SIGNED_V1.receipt_digest,  # the same secret, format 1
        hmac.digest(KEY, message, "sha256").hex(),  # the secret itself
        hmac.digest(query_key, message, "sha256").hex(),  # the key of questions
        hmac.digest(mac_key, body, "sha256").hex(),  # no domain
        hmac.digest(mac_key, other_domain, "sha256").hex(),
        hashlib.sha256(message).hexdigest(),  # no key at all
    ]
    for mac in forged:
        with pytest.raises(ReceiptError) as caught:
            verify(replace(SIGNED, mac=mac), RING)
        assert caught.value.reason == "authentication"
    with pytest.raises(ReceiptError, match="authentication mismatch"):
        verify(replace(SIGNED_V1, receipt_digest=SIGNED.mac), RING)


def test_macs_are_compared_by_the_constant_time_function(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hmac, "compare_digest", lambda a, b: False)
    for receipt in (SIGNED, SIGNED_V1):
        with pytest.raises(ReceiptError) as caught:
            verify(receipt, RING)
        assert caught.value.reason == "authentication"


def test_the_question_can_be_checked_but_neither_read_nor_linked() -> None:
    query = "PIN 1234 \ud800"
    one = sign_v2(PLAIN, RING, query=query)
    two = sign_v2(replace(PLAIN, receipt_id=D4), RING, query=query)
    assert one.query_mac != two.query_mac
    for receipt in (one, two):
        assert check_query(receipt, RING, query)
        assert not check_query(receipt, RING, "PIN 1235 \ud800")
        text = to_json(receipt) + repr(receipt)
        assert "PIN" not in text
        assert sha256_hex(query.encode("utf-8", "surrogatepass")) not in text
    with pytest.raises(ReceiptError):
        check_query(replace(one, query_mac=two.query_mac), RING, query)


def test_only_receipts_are_verified() -> None:
    with pytest.raises(ReceiptError, match=r"Not a receipt.*str"):
        verify(TEXT, RING)  # type: ignore[arg-type]


def test_receipts_and_their_errors_hold_no_secret() -> None:
    canary = b"canary-secret-of-a-receipt-key!!"
    ring = KeyRing([canary])
    signed, signed_v1 = sign_v2(PLAIN, ring, query="q"), sign_v1(V1, canary)
    shown = [to_json(signed), repr(signed), repr(signed_v1), repr(to_row_v1(signed_v1))]
    for receipt in (replace(signed, k=9), replace(signed_v1, recorded_at=""), SIGNED):
        with pytest.raises(ReceiptError) as caught:
            verify(receipt, ring)
        shown.append(f"{caught.value} {caught.value!r} {caught.value.__context__!r}")
    secrets = [canary, *(ring.subkey(signed.key_id, p) for p in (receipts._MAC_KEY, "x"))]
    text = "\n".join(shown)
    assert "canary" not in text
    assert not [secret for secret in secrets if secret.hex()[:12] in text]
