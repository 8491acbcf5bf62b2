"""Search receipts of format 2: their fields, their one text, and what makes one well formed.

* The body is JSON as RFC 8785 spells it: sorted ASCII keys; text, whole numbers, truth values,
  null and lists. A score is the 16 hex digits of its big-endian IEEE 754 double and an instant is
  its microseconds as decimal text, so nothing depends on how a number is printed.
* A receipt has exactly one text; any other spelling of it is refused.
* Shards are searched in ranked order, so the selection is the first `selected` of `ranked`.
* A receipt agrees with itself: counts add up, every hit comes from a shard that was searched and
  answered, scores do not rise, the budget was kept or the search was allowed to go on and says why.

No keys here: :mod:`mnemes_lab.store.receipts` signs and verifies.
"""

from __future__ import annotations

import re
import struct
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from math import isfinite
from typing import Any

from mnemes_lab.errors import ReceiptError
from mnemes_lab.ids import is_uuid4
from mnemes_lab.store.receipts_v1 import json_bytes, shown, strict_json

DEFAULT_BUDGET = 2  # shards searched when no budget is asked for
MAX_BYTES = 4 * 1024 * 1024  # of the text of one receipt
_EXACT = 2**53 - 1  # the largest whole number RFC 8785 can carry
_INSTANT = 2**63
_HEX16 = re.compile(r"[0-9a-f]{16}", re.ASCII)
_HEX64 = re.compile(r"[0-9a-f]{64}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchReceipt:
    """One search, format 2; rows are plain tuples.

    Attributes:
        receipt_id: Version 4 UUID, as are the ids of mesh and devices.
        k: Hits asked for.
        budget: Shards asked for; None for the default of two.
        max_shards: How far an expanding search may go; None for no limit.
        expand: Whether a search that found too few could go on past its budget.
        exhaustive: Whether every eligible shard was asked for.
        namespaces: The only namespaces searched; None for all.
        as_of_valid: Valid time asked for, in microseconds; None for no condition.
        as_of_recorded: Record time of the state that was searched, in microseconds.
        encoder: Fingerprint of the encoder.
        ranked: (device id, score) of every eligible shard, in the order of the router.
        selected: How many of them were searched, from the first.
        outcomes: (device id, generation, latency in microseconds, hits it holds, error or None)
            of every searched shard, in the order they finished.
        fallback_reason: Why the search went past its budget.
        hits: (item id, device id, SHA-256 of the content in hex, score), best first.
        complete: Whether every searched shard answered.
        conflicts: Facts kept out because shards disagree about their content.
        recorded_at: When it was written, in microseconds.
        key_id: The key that authenticates it.
        query_mac: The question, hidden under a key.
        mac: The MAC of everything else.
    """

    receipt_id: str
    mesh_id: str
    requester_device_id: str
    k: int
    router: str
    encoder: str
    as_of_recorded: int
    recorded_at: int
    ranked: tuple[tuple[str, float], ...]
    selected: int
    outcomes: tuple[tuple[str, int, int, int, str | None], ...]
    hits: tuple[tuple[str, str, str, float], ...] = ()
    conflicts: tuple[str, ...] = ()
    complete: bool = True
    fallback_reason: str | None = None
    budget: int | None = None
    max_shards: int | None = None
    expand: bool = False
    exhaustive: bool = False
    namespaces: tuple[str, ...] | None = None
    as_of_valid: int | None = None
    version: int = 2
    key_id: str = ""
    query_mac: str = ""
    mac: str = ""


_FIELDS = sorted(field.name for field in fields(SearchReceipt))


# --- text ------------------------------------------------------------------------------------
def to_json(receipt: SearchReceipt) -> str:
    """The one text of a receipt: its body with the MAC among the other keys."""
    return json_bytes(dict(sorted({**_body(receipt), "mac": receipt.mac}.items()))).decode()


def row_v2(r: SearchReceipt) -> dict[str, object]:
    """A row of the `receipts` table: the receipt's text, and what is looked up without reading it.

    The columns repeat the receipt, so they can be checked against it.
    """
    return {
        "receipt_id": r.receipt_id,
        "version": r.version,
        "key_id": r.key_id,
        "requester_device_id": r.requester_device_id,
        "exhaustive": int(r.exhaustive),
        "selected": r.selected,
        "eligible": len(r.ranked),
        "results": len(r.hits),
        "recorded_at": r.recorded_at,
        "body": to_json(r),
    }


def from_json(text: str | bytes) -> SearchReceipt:
    """Read a receipt from its text. Whether to trust it is for ``verify`` to say.

    Raises:
        ReceiptError: not the exact text of a well-formed receipt of format 2.
    """
    try:
        data = text.encode() if isinstance(text, str) else text
        check_size(len(data))
        raw = strict_json(data.decode())
    except UnicodeError:
        raise ReceiptError("The receipt is not UTF-8.", reason="format") from None
    if not isinstance(raw, dict) or list(raw) != _FIELDS:
        wrong = sorted(set(raw) ^ set(_FIELDS)) if isinstance(raw, dict) else type(raw).__name__
        what = "The receipt lacks fields, has unknown ones, or has them in another order."
        raise ReceiptError(what, reason="format", found=wrong)
    try:
        for name in ("as_of_recorded", "as_of_valid", "recorded_at"):
            raw[name] = None if raw[name] is None else int(raw[name])
        for name in ("ranked", "hits"):
            raw[name] = _with_float_score(raw[name])
        raw["outcomes"] = tuple(map(tuple, raw["outcomes"]))
        raw["conflicts"] = tuple(raw["conflicts"])
        raw["namespaces"] = None if raw["namespaces"] is None else tuple(raw["namespaces"])
    except (TypeError, ValueError, LookupError, struct.error):
        what = "The receipt holds a value of the wrong form."
        raise ReceiptError(what, reason="format") from None
    receipt = SearchReceipt(**raw)
    check(receipt)
    _need(is_digest(receipt.mac), "digest", "mac is not 64 hex digits", receipt.mac)
    if to_json(receipt).encode() != data:
        raise ReceiptError("The receipt is spelled in another way than its own.", reason="format")
    return receipt


def body_json(receipt: SearchReceipt) -> bytes:
    """The bytes of everything but the MAC, in RFC 8785 form.

    Raises:
        ReceiptError: some text holds half a character.
    """
    return json_bytes(_body(receipt))


def check_size(size: int) -> None:
    """Whether a text of so many bytes is short enough to be read back.

    Raises:
        ReceiptError: it is not.
    """
    if size > MAX_BYTES:
        raise ReceiptError(f"A receipt has at most {MAX_BYTES} bytes.", reason="size", found=size)


def _body(r: SearchReceipt) -> dict[str, Any]:
    """Everything the MAC covers, in sorted key order."""
    return {
        "as_of_recorded": str(r.as_of_recorded),
        "as_of_valid": None if r.as_of_valid is None else str(r.as_of_valid),
        "budget": r.budget,
        "complete": r.complete,
        "conflicts": r.conflicts,
        "encoder": r.encoder,
        "exhaustive": r.exhaustive,
        "expand": r.expand,
        "fallback_reason": r.fallback_reason,
        "hits": _with_hex_score(r.hits),
        "k": r.k,
        "key_id": r.key_id,
        "max_shards": r.max_shards,
        "mesh_id": r.mesh_id,
        "namespaces": r.namespaces,
        "outcomes": r.outcomes,
        "query_mac": r.query_mac,
        "ranked": _with_hex_score(r.ranked),
        "receipt_id": r.receipt_id,
        "recorded_at": str(r.recorded_at),
        "requester_device_id": r.requester_device_id,
        "router": r.router,
        "selected": r.selected,
        "version": r.version,
    }


def _with_hex_score(rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Rows with their last value, a score, as hex; packed at once because that is fast."""
    digits = struct.pack(f">{len(rows)}d", *[row[-1] for row in rows]).hex()
    return [(*row[:-1], digits[16 * i : 16 * i + 16]) for i, row in enumerate(rows)]


def _with_float_score(rows: Any) -> tuple[tuple[Any, ...], ...]:
    """The way back; raises what the wrong form raises, or reads what is then spelled otherwise."""
    digits = "".join(row[-1] for row in rows)
    scores = struct.unpack(f">{len(rows)}d", bytes.fromhex(digits))
    return tuple((*row[:-1], score) for row, score in zip(rows, scores, strict=True))


# --- rules -----------------------------------------------------------------------------------
def check(r: SearchReceipt) -> None:
    """Whether a receipt agrees with itself; the MAC is not looked at.

    Raises:
        ReceiptError: the first rule that is broken; `reason` names it.
    """
    _check_request(r)
    _check_shards(r)
    _check_hits(r)


def is_digest(value: object) -> bool:
    """Whether a value is 64 lower-case hex digits."""
    return isinstance(value, str) and _HEX64.fullmatch(value) is not None


def _check_request(r: SearchReceipt) -> None:
    """Identities, the question and how it was asked."""
    _need(type(r.version) is int and r.version == 2, "format", "version is not 2", r.version)
    for name in ("receipt_id", "mesh_id", "requester_device_id"):
        _need(_is_id(getattr(r, name)), "id", f"{name} is not a version 4 UUID", getattr(r, name))
    key = isinstance(r.key_id, str) and _HEX16.fullmatch(r.key_id)
    _need(key, "key", "key_id is not 16 hex digits", r.key_id)
    _need(is_digest(r.query_mac), "digest", "query_mac is not 64 hex digits", r.query_mac)
    for name in ("router", "encoder", "fallback_reason"):
        value = getattr(r, name)
        absent = value is None and name == "fallback_reason"
        _need(absent or _is_text(value), "request", f"{name} is not text", value)
    for name in ("expand", "exhaustive", "complete"):
        value = getattr(r, name)
        _need(isinstance(value, bool), "request", f"{name} is not true or false", value)
    for name in ("k", "budget", "max_shards"):
        value = getattr(r, name)
        absent = value is None and name != "k"
        fits = absent or (_is_count(value) and value >= 1)
        _need(fits, "request", f"{name} is not a whole number from 1", value)
    for name in ("as_of_valid", "as_of_recorded", "recorded_at"):
        value = getattr(r, name)
        absent = value is None and name == "as_of_valid"
        fits = absent or (type(value) is int and -_INSTANT <= value < _INSTANT)
        _need(fits, "request", f"{name} is not an instant in microseconds", value)
    if r.namespaces is not None:
        _distinct(r.namespaces, _is_text, "request", "namespaces")


def _check_shards(r: SearchReceipt) -> None:
    """The ranking, what was searched, and whether that was allowed."""
    ids, scores = _columns(r.ranked, 2, "ranked")
    _distinct(ids, _is_id, "shards", "ranked")
    _check_scores(scores, "ranked")
    fits = _is_count(r.selected) and r.selected <= len(ids)
    _need(fits, "count", "selected is not a number of ranked shards", r.selected)
    searched, *numbers, errors = _columns(r.outcomes, 5, "outcomes")
    plain = len(searched) == r.selected and all(isinstance(device, str) for device in searched)
    same = plain and set(searched) == set(ids[: r.selected])
    _need(same, "shards", "outcomes are not those of the first selected shards", len(searched))
    whole = all(map(_are_counts, numbers))
    _need(whole, "outcomes", "an outcome holds something other than whole numbers from 0")
    plain = all(error is None or isinstance(error, str) for error in errors)
    _need(plain, "outcomes", "an error is neither text nor null")
    pairs = zip(errors, numbers[2], strict=True)
    silent = not any(results for error, results in pairs if error is not None)
    _need(silent, "outcomes", "a shard that failed has hits")
    answered = all(error is None for error in errors)
    _need(r.complete is answered, "complete", "complete disagrees with the outcomes", r.complete)
    _check_budget(r, len(ids))


def _check_budget(r: SearchReceipt, eligible: int) -> None:
    """Whether as many shards were searched as the request allows."""
    if r.exhaustive:
        _need(r.selected == eligible, "budget", "an exhaustive search left shards out", r.selected)
        return
    budget = DEFAULT_BUDGET if r.budget is None else r.budget
    if r.selected > budget:
        _need(r.expand, "budget", "more shards were searched than the budget allows", r.selected)
        said = r.fallback_reason is not None
        _need(said, "budget", "the search went past its budget without a reason", r.selected)
        kept = r.max_shards is None or r.selected <= r.max_shards
        _need(kept, "budget", "more shards were searched than max_shards allows", r.selected)


def _check_hits(r: SearchReceipt) -> None:
    """The answer: its order, where each hit comes from, and what was kept out."""
    items, devices, digests, scores = _columns(r.hits, 4, "hits")
    _need(len(items) <= r.k, "hits", "there are more hits than were asked for", len(items))
    _distinct(items, _is_text, "hits", "hits")
    _need(all(map(is_digest, digests)), "digest", "the digest of a hit is not 64 hex digits")
    held = {device: results for device, _, _, results, _ in r.outcomes if results}
    whose = all(isinstance(device, str) for device in devices) and Counter(devices) == held
    _need(whose, "hits", "the hits are not those the outcomes count")
    _check_scores(scores, "hits")
    falling = all(a >= b for a, b in pairwise(scores))
    _need(falling, "scores", "the scores of the hits rise")
    _distinct(r.conflicts, _is_text, "conflicts", "conflicts")
    apart = not set(r.conflicts) & set(items)
    _need(apart, "conflicts", "a fact that was kept out is among the hits")


def _need(holds: object, reason: str, problem: str, *found: object) -> None:
    if not holds:
        what = f"The receipt does not hold together: {problem}."
        if found:
            raise ReceiptError(what, reason=reason, found=shown(found[0]))
        raise ReceiptError(what, reason=reason)


def _columns(rows: Any, width: int, name: str) -> list[Sequence[Any]]:
    """Rows of one width, turned into columns."""
    fits = isinstance(rows, tuple) and all(isinstance(r, tuple) and len(r) == width for r in rows)
    _need(fits, "format", f"{name} are not tuples of {width}")
    return list(zip(*rows, strict=True)) if rows else [()] * width


def _distinct(values: Any, fits: Callable[[Any], bool], reason: str, name: str) -> None:
    good = isinstance(values, tuple) and all(map(fits, values))
    _need(good, reason, f"{name} holds a name that cannot be one")
    _need(len(set(values)) == len(values), reason, f"{name} names something twice")


def _check_scores(scores: Sequence[Any], name: str) -> None:
    kinds = {*map(type, scores)}
    number = all(kind is int or issubclass(kind, float) for kind in kinds)
    # A whole number beyond the exact ones would be changed by becoming a double.
    good = number and all(-_EXACT <= s <= _EXACT if type(s) is int else isfinite(s) for s in scores)
    _need(good, "scores", f"a score of {name} is not a finite number")


def _is_id(value: Any) -> bool:
    return isinstance(value, str) and is_uuid4(value)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def _are_counts(column: Sequence[Any]) -> bool:
    """The same for a whole column, several times faster than one by one."""
    return not column or (
        {*map(type, column)} == {int} and _is_count(min(column)) and _is_count(max(column))
    )


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value <= _EXACT
