"""Routing receipts of format 1: the source system's, byte for byte.

They name the question by a plain SHA-256 and bind neither the request nor the scores, so the lab
reads and checks them but writes format 2 (:mod:`mnemes_lab.store.receipts`). Everything here is a
pure function of a receipt and a key.

Example:
    >>> from mnemes_lab.digest import sha256_hex
    >>> receipt = RoutingReceipt(
    ...     receipt_id="11111111-1111-4111-8111-111111111111",
    ...     requester_device_id="d1",
    ...     query_sha256=sha256_hex("alpha"),
    ...     shard_budget=1,
    ...     actual_selected_shard_count=1,
    ...     exhaustive=False,
    ...     eligible_shards=("d1", "d2"),
    ...     ranked_shards=(RankedShard("d1", 3), RankedShard("d2", 2)),
    ...     selected_shards=("d1",),
    ...     skipped_shards=("d2",),
    ...     outcomes=(Outcome("d1", 2, 5, 1, None, None),),
    ...     fallback_reason=None,
    ...     final_result_ids=("fact:f1",),
    ...     merge_digest=merge_digest([("fact:f1", "d1", "alpha first")]),
    ...     receipt_digest="",
    ...     recorded_at="2026-07-19T12:00:00+00:00",
    ... )
    >>> signed = sign_v1(receipt, bytes(32))
    >>> from_row_v1(to_row_v1(signed)) == signed
    True
    >>> validate_v1(signed, bytes(32))
    >>> is_authentic_v1(signed, bytes(31) + b"!")
    False
"""

from __future__ import annotations

import hmac
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, NoReturn

from mnemes_lab.digest import compact_json, sha256_hex
from mnemes_lab.errors import ReceiptError

DOMAIN_V1 = "pooled-routing-receipt-hmac-v1"
_HEX64 = re.compile(r"[0-9a-fA-F]{64}", re.ASCII)
_LISTS = ("eligible_shards", "selected_shards", "skipped_shards", "final_result_ids")
_TEXTS = (
    "receipt_id",
    "requester_device_id",
    "query_sha256",
    "merge_digest",
    "receipt_digest",
    "recorded_at",
)
_COUNTS = ("shard_budget", "actual_selected_shard_count")
_NULLABLE = ("child_search_receipt_id", "error")


class RankedShard(NamedTuple):
    """A shard and the score the router gave it."""

    device_id: str
    score: int


class Outcome(NamedTuple):
    """What searching one shard came to; latency in whole milliseconds."""

    device_id: str
    shard_generation: int
    latency_ms: int
    result_count: int
    child_search_receipt_id: str | None
    error: str | None


@dataclass(frozen=True, slots=True)
class RoutingReceipt:
    """One routed search, in the declaration order of format 1.

    The instant is RFC 3339 text as :func:`mnemes_lab.clock.rfc3339` spells it.
    """

    version: ClassVar[int] = 1

    receipt_id: str
    requester_device_id: str
    query_sha256: str
    shard_budget: int
    actual_selected_shard_count: int
    exhaustive: bool
    eligible_shards: tuple[str, ...]
    ranked_shards: tuple[RankedShard, ...]
    selected_shards: tuple[str, ...]
    skipped_shards: tuple[str, ...]
    outcomes: tuple[Outcome, ...]
    fallback_reason: str | None
    final_result_ids: tuple[str, ...]
    merge_digest: str
    receipt_digest: str
    recorded_at: str


def merge_digest(items: Iterable[tuple[str, str, str]]) -> str:
    """Digest of a merged answer from (item id, device id, content), in its order.

    Example:
        >>> merge_digest([])[:16]
        'e3b0c44298fc1c14'
    """
    return merge_digest_of_hashes((item, device, sha256_hex(text)) for item, device, text in items)


def merge_digest_of_hashes(items: Iterable[tuple[str, str, str]]) -> str:
    """The same from (item id, device id, lower-case hex SHA-256 of the content).

    Example:
        >>> from mnemes_lab.digest import sha256_hex
        >>> merge_digest_of_hashes([("f", "d", sha256_hex("x"))]) == merge_digest([("f", "d", "x")])
        True
    """
    return sha256_hex("\n".join(f"{item}:{device}:{content}" for item, device, content in items))


def preimage_v1(receipt: RoutingReceipt) -> bytes:
    """The bytes the digest of a receipt authenticates: a compact JSON array of 16 elements."""
    r = receipt
    return json_bytes(
        [
            DOMAIN_V1,
            r.receipt_id,
            r.requester_device_id,
            r.query_sha256,
            r.shard_budget,
            r.actual_selected_shard_count,
            r.exhaustive,
            r.eligible_shards,
            [shard._asdict() for shard in r.ranked_shards],
            r.selected_shards,
            r.skipped_shards,
            [outcome._asdict() for outcome in r.outcomes],
            r.fallback_reason,
            r.final_result_ids,
            r.merge_digest,
            r.recorded_at,
        ]
    )


def sign_v1(receipt: RoutingReceipt, key: bytes) -> RoutingReceipt:
    """The receipt with its `receipt_digest` filled in."""
    return replace(receipt, receipt_digest=_digest(receipt, key))


def validate_v1(receipt: RoutingReceipt, key: bytes) -> None:
    """Check a receipt's structure, then its digest in constant time.

    Raises:
        ReceiptError: the first check that fails.
    """
    if not is_authentic_v1(receipt, key):
        raise ReceiptError("routing receipt authentication mismatch.", reason="authentication")


def is_authentic_v1(receipt: RoutingReceipt, key: bytes) -> bool:
    """Whether this key made the digest of a well-formed receipt.

    Raises:
        ReceiptError: the receipt is not well formed, whatever the key.
    """
    _check(receipt)
    return hmac.compare_digest(_digest(receipt, key).encode(), receipt.receipt_digest.encode())


def _digest(receipt: RoutingReceipt, key: bytes) -> str:
    return hmac.digest(key, preimage_v1(receipt), "sha256").hex()


def _check(r: RoutingReceipt) -> None:
    """The structure a receipt of format 1 must have before its digest means anything."""
    if not all(map(_HEX64.fullmatch, (r.query_sha256, r.merge_digest, r.receipt_digest))):
        raise ReceiptError("routing receipt contains an invalid digest.", reason="digest")
    if r.actual_selected_shard_count != len(r.selected_shards):
        raise ReceiptError(
            "actual selected shard count is inconsistent.",
            reason="count",
            found=r.actual_selected_shard_count,
        )
    ranked = [shard.device_id for shard in r.ranked_shards]
    searched = [outcome.device_id for outcome in r.outcomes]
    lists = (r.eligible_shards, ranked, r.selected_shards, r.skipped_shards, searched)
    eligible, selected, skipped = map(set, (r.eligible_shards, r.selected_shards, r.skipped_shards))
    if (
        any(len(set(ids)) != len(ids) for ids in lists)
        or set(ranked) != eligible
        or set(searched) != selected
        or selected & skipped
        or selected | skipped != eligible
    ):
        raise ReceiptError("routing receipt shard sets are inconsistent.", reason="shards")
    if len(set(r.final_result_ids)) != len(r.final_result_ids):
        raise ReceiptError("routing receipt contains duplicate final result IDs.", reason="hits")


# --- rows ------------------------------------------------------------------------------------
def to_row_v1(receipt: RoutingReceipt) -> dict[str, Any]:
    """The receipt as the columns of its table; lists become JSON text under ``…_json``."""
    r = receipt
    lists: dict[str, Sequence[Any]] = {name: getattr(r, name) for name in _LISTS}
    lists["ranked_shards"] = [shard._asdict() for shard in r.ranked_shards]
    lists["outcomes"] = [outcome._asdict() for outcome in r.outcomes]
    return {
        **{name: getattr(r, name) for name in (*_TEXTS, *_COUNTS, "fallback_reason")},
        "exhaustive": int(r.exhaustive),
        **{f"{name}_json": json_bytes(value).decode() for name, value in lists.items()},
    }


def from_row_v1(row: Mapping[str, Any]) -> RoutingReceipt:
    """Read a receipt from the columns of its table; this says nothing about its digest.

    Raises:
        ReceiptError: a column is missing, unknown, of another type or not strict JSON.
    """
    row = dict(row)
    try:
        fields: dict[str, Any] = {name: _typed(row.pop(name), str, name) for name in _TEXTS}
        fields |= {name: _typed(row.pop(name), int, name) for name in _COUNTS}
        reason = fields["fallback_reason"] = row.pop("fallback_reason")
        exhaustive = row.pop("exhaustive")
        lists = {n: _list(row.pop(f"{n}_json"), n) for n in (*_LISTS, "ranked_shards", "outcomes")}
    except KeyError as error:
        what = "A column of the receipt is missing."
        raise ReceiptError(what, reason="format", found=error.args[0]) from None
    if row:
        what = "The receipt has columns it should not have."
        raise ReceiptError(what, reason="format", found=sorted(row))
    if reason is not None:
        _typed(reason, str, "fallback_reason")
    if type(exhaustive) not in (int, bool) or exhaustive not in (0, 1):
        raise ReceiptError(
            "exhaustive is neither 0 nor 1.", reason="format", found=shown(exhaustive)
        )
    for name in _LISTS:
        fields[name] = tuple(_typed(value, str, name) for value in lists[name])
    ranked = (_record(value, RankedShard, "ranked_shards") for value in lists["ranked_shards"])
    outcomes = (_record(value, Outcome, "outcomes") for value in lists["outcomes"])
    return RoutingReceipt(
        **fields,
        exhaustive=bool(exhaustive),
        ranked_shards=tuple(ranked),
        outcomes=tuple(outcomes),
    )


def json_bytes(value: Any) -> bytes:
    """Compact JSON of a receipt.

    Raises:
        ReceiptError: some text holds half a character, so it has no bytes.
    """
    try:
        return compact_json(value)
    except UnicodeEncodeError:
        what = "The receipt holds half a character."
        raise ReceiptError(what, reason="format") from None


def shown(value: Any) -> Any:
    """What an error may show of a foreign value: lists can nest deeper than a repr can follow."""
    return value if isinstance(value, str | int | float | None) else type(value).__name__


def strict_json(text: str | bytes) -> Any:
    """Read JSON without floats, NaN or duplicate keys.

    Raises:
        ReceiptError: anything else, also nesting without end.
    """
    try:
        return json.loads(
            text,
            parse_float=_no_float,
            parse_constant=_no_float,
            object_pairs_hook=_no_duplicates,
        )
    except (ValueError, RecursionError) as error:
        what = "The receipt is not JSON that can be read."
        raise ReceiptError(what, reason="format", found=str(error)) from None


def _no_float(text: str) -> NoReturn:
    raise ReceiptError("The receipt holds a number with a point.", reason="format", found=text)


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(out := dict(pairs)) != len(pairs):
        counts = Counter(name for name, _ in pairs)
        twice = sorted(name for name, count in counts.items() if count > 1)
        raise ReceiptError("The receipt says something twice.", reason="format", found=twice)
    return out


def _typed(value: Any, kind: type, name: str) -> Any:
    """The value, if it has exactly this type; truth values are no numbers."""
    if type(value) is not kind or (isinstance(value, int) and value < 0):
        what = f"{name} of the receipt is not {'text' if kind is str else 'a whole number from 0'}."
        raise ReceiptError(what, reason="format", found=shown(value))
    return value


def _list(text: Any, name: str) -> list[Any]:
    values = strict_json(_typed(text, str, name))
    if not isinstance(values, list):
        raise ReceiptError(f"{name} of the receipt is not a list.", reason="format")
    return values


def _record(value: Any, kind: Any, name: str) -> Any:
    """A ranked shard or an outcome from its JSON object."""
    if not isinstance(value, dict) or set(value) != set(kind._fields):
        what = f"An entry of {name} has other fields than {', '.join(kind._fields)}."
        raise ReceiptError(what, reason="format", found=shown(value))
    for field in kind._fields:
        if field not in _NULLABLE or value[field] is not None:
            _typed(value[field], str if field in ("device_id", *_NULLABLE) else int, field)
    return kind(**value)
