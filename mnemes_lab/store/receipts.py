"""Search receipts: what was asked, which shards answered, what came back, under one key.

Format 2, the one the lab writes, binds the whole request and the scores; its fields and rules are
those of :mod:`mnemes_lab.store.receipts_v2`.

* The MAC covers a domain, the key's id and the body of the receipt. Its key, and the one that
  hides the question, are derived from the ring's key for that one purpose.
* The question is kept only as a MAC that also covers the receipt's id: short questions cannot be
  guessed, and equal questions cannot be seen to be equal.
* MACs are compared in constant time, after everything else about the receipt was found in order.

Format 1, of the source system, is read and checked through the same :func:`verify`. Everything
here is a pure function of a receipt and a key ring.

Example:
    >>> from mnemes_lab.store.keys import KeyRing
    >>> device = "00000000-0000-4000-8000-000000000001"
    >>> ring = KeyRing([bytes(range(32))])
    >>> receipt = SearchReceipt(
    ...     receipt_id="11111111-1111-4111-8111-111111111111",
    ...     mesh_id="22222222-2222-4222-8222-222222222222",
    ...     requester_device_id=device,
    ...     k=5,
    ...     router="overlap",
    ...     encoder="hash-256",
    ...     as_of_recorded=1_784_455_200_000_000,
    ...     recorded_at=1_784_455_200_000_000,
    ...     ranked=((device, 3.0),),
    ...     selected=1,
    ...     outcomes=((device, 2, 5_000, 0, None),),
    ... )
    >>> signed = sign_v2(receipt, ring, query="when does it leave?")
    >>> verify(from_json(to_json(signed)), ring)
    >>> check_query(signed, ring, "when does it leave?"), check_query(signed, ring, "where?")
    (True, False)
"""

from __future__ import annotations

import hmac
from dataclasses import replace

from mnemes_lab.digest import preimage, sha256_hex
from mnemes_lab.errors import ReceiptError, ReceiptKeyError
from mnemes_lab.store.keys import KeyRing
from mnemes_lab.store.receipts_v1 import (
    Outcome,
    RankedShard,
    RoutingReceipt,
    from_row_v1,
    is_authentic_v1,
    merge_digest,
    merge_digest_of_hashes,
    preimage_v1,
    sign_v1,
    to_row_v1,
    validate_v1,
)
from mnemes_lab.store.receipts_v2 import (
    DEFAULT_BUDGET,
    SearchReceipt,
    body_json,
    check,
    check_size,
    from_json,
    is_digest,
    row_v2,
    to_json,
)

__all__ = [
    "DEFAULT_BUDGET",
    "Outcome",
    "RankedShard",
    "RoutingReceipt",
    "SearchReceipt",
    "check_query",
    "from_json",
    "from_row_v1",
    "merge_digest",
    "merge_digest_of_hashes",
    "preimage_v1",
    "preimage_v2",
    "row_v2",
    "sign_v1",
    "sign_v2",
    "to_json",
    "to_row_v1",
    "validate_v1",
    "validate_v2",
    "verify",
]

DOMAIN = "mnemes-lab/search-receipt/v2"
QUERY_DOMAIN = "mnemes-lab/search-query/v2"
_MAC_KEY = "mnemes-lab/search-receipt/mac/v2"
_QUERY_KEY = "mnemes-lab/search-receipt/query/v2"
_MAC_TEXT = len(',"mac":""') + 64  # what the MAC adds to the body in the text of a receipt


def sign_v2(receipt: SearchReceipt, ring: KeyRing, *, query: str | None = None) -> SearchReceipt:
    """Fill in the key's id, the hidden question and the MAC.

    Args:
        receipt: Everything else, already final.
        ring: Its current key signs, unless the receipt names another.
        query: The question; None keeps the receipt's `query_mac`.

    Raises:
        ReceiptError: the receipt contradicts itself, so it is not worth a signature.
        ReceiptKeyError: the key is missing.

    Cost: about 0.3 ms for a hundred searched shards.
    """
    key_id = receipt.key_id or ring.current_id
    hidden = receipt.query_mac
    if query is not None:
        hidden = _query_mac(ring, key_id, receipt.receipt_id, query)
    receipt = replace(receipt, key_id=key_id, query_mac=hidden, mac="")
    check(receipt)
    return replace(receipt, mac=_mac(receipt, ring))


def validate_v2(receipt: SearchReceipt, ring: KeyRing) -> None:
    """Check that a receipt does not contradict itself, then its MAC in constant time.

    Raises:
        ReceiptError: the first check that fails.
        ReceiptKeyError: the ring does not hold its key.
    """
    check(receipt)
    if not is_digest(receipt.mac):
        what = "The MAC of the receipt is not 64 hex digits."
        raise ReceiptError(what, reason="digest", found=receipt.mac)
    if not hmac.compare_digest(_mac(receipt, ring).encode(), receipt.mac.encode()):
        raise ReceiptError("The receipt was changed or is not ours.", reason="authentication")


def verify(receipt: SearchReceipt | RoutingReceipt, ring: KeyRing) -> None:
    """Check a receipt of either format. Says nothing when it can be trusted.

    Format 1 names no key, so each key of the ring may have made it.

    Raises:
        ReceiptError: it cannot be trusted; `reason` is the failing check.
        ReceiptKeyError: the key it needs is missing.
    """
    if isinstance(receipt, SearchReceipt):
        validate_v2(receipt, ring)
    elif isinstance(receipt, RoutingReceipt):
        if not (ids := ring.ids()):
            raise ReceiptKeyError("There is no receipt key to check with.")
        if not any([is_authentic_v1(receipt, ring.get(key_id)) for key_id in ids]):
            raise ReceiptError("routing receipt authentication mismatch.", reason="authentication")
    else:
        raise ReceiptError("Not a receipt.", reason="format", found=type(receipt).__name__)


def check_query(receipt: SearchReceipt | RoutingReceipt, ring: KeyRing, text: str) -> bool:
    """Verify a receipt and answer whether it was made for this question.

    Raises:
        ReceiptError: the receipt cannot be trusted, so it answers nothing.
    """
    verify(receipt, ring)
    if isinstance(receipt, RoutingReceipt):
        asked, given = receipt.query_sha256.lower(), sha256_hex(_text_bytes(text))
    else:
        asked = receipt.query_mac
        given = _query_mac(ring, receipt.key_id, receipt.receipt_id, text)
    return hmac.compare_digest(asked.encode(), given.encode())


def preimage_v2(receipt: SearchReceipt) -> bytes:
    """The bytes the MAC authenticates: the domain, the key's id and the body.

    Raises:
        ReceiptError: the receipt is too large or holds half a character.
    """
    body = body_json(receipt)
    check_size(len(body) + _MAC_TEXT)
    return preimage(DOMAIN, receipt.key_id, body)


def _mac(receipt: SearchReceipt, ring: KeyRing) -> str:
    key = ring.subkey(receipt.key_id, _MAC_KEY)
    return hmac.digest(key, preimage_v2(receipt), "sha256").hex()


def _query_mac(ring: KeyRing, key_id: str, receipt_id: str, text: str) -> str:
    message = preimage(QUERY_DOMAIN, receipt_id, _text_bytes(text))
    return hmac.digest(ring.subkey(key_id, _QUERY_KEY), message, "sha256").hex()


def _text_bytes(text: str) -> bytes:
    """UTF-8 of any text a caller may ask, halves of characters included."""
    return text.encode("utf-8", "surrogatepass")
