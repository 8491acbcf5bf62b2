"""What a search gives back: hits, trace, and receipts that can be checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import polars as pl

from mnemes_lab import schemas
from mnemes_lab.errors import InputError
from mnemes_lab.frames import Kind, give_back
from mnemes_lab.store.keys import KeyRing
from mnemes_lab.store.receipts import SearchReceipt, check_query, to_json, verify


class Receipt:
    """A receipt together with the keys that can check it."""

    def __init__(self, body: SearchReceipt, ring: KeyRing) -> None:
        """Join a receipt and the mesh's key ring."""
        self.body, self._ring = body, ring

    @property
    def receipt_id(self) -> str:
        """Its identity; `mesh.receipt(receipt_id)` reads it back."""
        return self.body.receipt_id

    def verify(self) -> bool:
        """True when it is whole, consistent and ours.

        Raises:
            ReceiptError: it is not; `reason` names the failing check.
        """
        verify(self.body, self._ring)
        return True

    def is_for(self, text: str) -> bool:
        """Whether it was made for this question, which it does not hold.

        Raises:
            InputError: the question is not text.
            ReceiptError: the receipt cannot be trusted, so it answers nothing.
        """
        if not isinstance(text, str):
            raise InputError("A question is text.", found=text, hint="give the text asked")
        return check_query(self.body, self._ring, text)

    def to_json(self) -> str:
        """Its one text, as kept."""
        return to_json(self.body)

    def __repr__(self) -> str:
        """What it says, in a line."""
        b = self.body
        return (
            f"Receipt({len(b.hits)} hits, {b.selected} of {len(b.ranked)} shards searched, "
            f"{'complete' if b.complete else 'incomplete'})"
        )


class Receipts(list[Receipt]):
    """The receipts of a batch, one per question, in its order."""

    def verify(self) -> bool:
        """True when every one is whole, consistent and ours.

        Raises:
            ReceiptError: the first that is not.
        """
        return all(receipt.verify() for receipt in self)


@dataclass(frozen=True)
class Found:
    """An answered search.

    Attributes:
        hits: `hits` frame, best first within each question.
        conflicts: `item_conflicts` frame: facts kept out because shards disagree about them.
        receipts: One per question, in the order of the questions.
        complete: Whether every shard that was asked did answer.
        notice: What could not be done, in words; None when nothing is amiss.
    """

    hits: Any
    conflicts: Any
    receipts: Receipts
    complete: bool
    notice: str | None = None
    _columns: dict[str, list[Any]] = field(default_factory=dict, repr=False, compare=False)
    _kind: Kind = field(default="polars", repr=False, compare=False)

    @cached_property
    def trace(self) -> Any:
        """`trace` frame: every eligible shard of every question, asked or not, and why.

        Made when first looked at: most callers only want the hits.
        """
        frame = pl.DataFrame(self._columns, schema=schemas.dtypes(schemas.Trace))
        return give_back(frame, self._kind)

    @property
    def receipt(self) -> Receipt:
        """The receipt of the only question.

        Raises:
            InputError: several questions were asked.
        """
        if len(self.receipts) != 1:
            raise InputError(
                "There is one receipt per question.",
                found=f"{len(self.receipts)} questions",
                hint="use found.receipts",
            )
        return self.receipts[0]

    def texts(self) -> Sequence[str]:
        """Just the statements found, best first."""
        return [str(text) for text in self.hits["text"]]

    def __repr__(self) -> str:
        """How much was found, in a line."""
        state = "complete" if self.complete else "incomplete"
        return f"Found({len(self.hits)} hits for {len(self.receipts)} question(s), {state})"
