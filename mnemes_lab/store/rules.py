"""What a fact must be to be stored: one set of rules for every door.

Rules are polars expressions, so a hundred thousand rows cost milliseconds; each gives a reason and
a hint, and the first that fails is the row's answer.
"""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from mnemes_lab import schemas
from mnemes_lab.ids import MAX_FACT_ID

MAX_TEXT_BYTES = 1_048_576
MAX_NAMESPACE = 1000
_INSTANT = pl.Datetime("us", "UTC")
INPUT: dict[str, pl.DataType] = {
    "device_id": pl.String(),
    "fact_id": pl.String(),
    "namespace": pl.String(),
    "text": pl.String(),
    "subject": pl.String(),
    "predicate": pl.String(),
    "object": pl.String(),
    "source": pl.String(),
    "kind": pl.String(),
    "sensitivity": pl.String(),
    "observed_at": _INSTANT,
    "valid_from": _INSTANT,
    "valid_to": _INSTANT,
    "expires_at": _INSTANT,
}
DEFAULTS = {"namespace": "general", "kind": schemas.KINDS[0], "sensitivity": "internal"}

# White space, separators, controls, invisible formatting (zero-width, byte-order mark) and the
# letters that only look like a blank (Hangul and Braille fillers).
_BLANK = r"^[\s\p{Z}\p{Cc}\p{Cf}\x{2800}\x{3164}\x{115F}\x{1160}\x{FFA0}]*$"
_CONTROL = r"[\p{Cc}]"


def with_defaults(table: pl.DataFrame) -> pl.DataFrame:
    """Fill namespace, kind and sensitivity where they are null."""
    return table.with_columns(pl.col(name).fill_null(value) for name, value in DEFAULTS.items())


def refusals(table: pl.DataFrame, refused: Mapping[int, str]) -> list[str | None]:
    """Why each row is refused, or None.

    Args:
        table: Columns of `INPUT`.
        refused: Reasons found at the door, by position; they win.
    """
    text, fact_id, namespace = pl.col("text"), pl.col("fact_id"), pl.col("namespace")
    rules = [
        (text.is_null() | text.str.contains(_BLANK), "text is blank"),
        (
            text.str.contains("\0", literal=True),
            "text holds a NUL character. Hint: remove it, it would cut the text in other tools",
        ),
        (
            text.str.len_bytes() > MAX_TEXT_BYTES,
            f"text is longer than {MAX_TEXT_BYTES} bytes. Hint: split it into several facts",
        ),
        (namespace.str.contains(_BLANK), "namespace is blank. Hint: leave it out for 'general'"),
        (namespace.str.contains(_CONTROL), "namespace holds a control character"),
        (
            namespace.str.len_chars() > MAX_NAMESPACE,
            f"namespace is over {MAX_NAMESPACE} characters",
        ),
        (fact_id.str.contains(_BLANK), "fact_id is blank. Hint: leave it out and one is made"),
        (fact_id.str.contains(_CONTROL), "fact_id holds a control character"),
        (fact_id.str.len_chars() > MAX_FACT_ID, f"fact_id is over {MAX_FACT_ID} characters"),
        (
            pl.col("kind").is_not_null() & ~pl.col("kind").is_in(schemas.KINDS),
            f"unknown kind. Hint: one of {schemas.KINDS}",
        ),
        (
            pl.col("sensitivity").is_not_null()
            & ~pl.col("sensitivity").is_in(schemas.SENSITIVITIES),
            f"unknown sensitivity. Hint: one of {schemas.SENSITIVITIES}",
        ),
        (pl.col("valid_to") < pl.col("valid_from"), "valid_to lies before valid_from"),
        (
            pl.any_horizontal(
                pl.col("subject", "predicate", "object", "source").str.contains("\0", literal=True)
            ),
            "subject, predicate, object or source holds a NUL character",
        ),
    ]
    first = pl.coalesce(pl.when(broken.fill_null(False)).then(pl.lit(why)) for broken, why in rules)
    reasons: list[str | None] = table.select(first.alias("reason"))["reason"].to_list()
    for row, why in refused.items():
        reasons[row] = why
    return reasons
