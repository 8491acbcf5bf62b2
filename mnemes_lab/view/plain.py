"""Frames as plain values, and stored text made safe to show.

Stored text is data: on its way to a terminal or a page nothing in it may act. Control characters
(the start of every terminal escape), marks that turn the direction of writing, line separators and
half characters are shown as escapes; everything else stays as it is.
"""

from __future__ import annotations

import json
import re
from datetime import datetime
from typing import Any

import polars as pl

from mnemes_lab.clock import rfc3339, to_us

_ACTING = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def visible(text: str, *, limit: int | None = None) -> str:
    r"""Text in which nothing acts, cut after `limit` characters.

    Example:
        >>> print(visible("a\x1b[31mred\nline"), visible("rather long", limit=6))
        a\x1b[31mred\nline rather…
    """
    if limit is not None and len(text) > limit:
        text = text[:limit] + "…"
    return _ACTING.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    char = match[0]
    code = ord(char)
    return _SHORT.get(char) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")


def cell(value: Any, *, limit: int | None = None) -> str:
    """A value as people read it in a table: safe text, short numbers, nothing for null.

    Example:
        >>> cell(0.123456789), cell(None), cell(True), cell(["a", "b"])
        ('0.1235', '', 'yes', 'a, b')
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, datetime):
        return rfc3339(to_us(value))
    if isinstance(value, list):
        return ", ".join(cell(one, limit=limit) for one in value)
    return visible(str(value), limit=limit)


def with_text_instants(frame: pl.DataFrame) -> pl.DataFrame:
    """The frame with every instant as RFC 3339 text.

    Example:
        >>> from datetime import UTC, datetime
        >>> frame = pl.DataFrame({"seen_at": [datetime(2031, 6, 11, tzinfo=UTC), None]})
        >>> with_text_instants(frame)["seen_at"].to_list()
        ['2031-06-11T00:00:00+00:00', None]
    """
    instants = [name for name, dtype in frame.schema.items() if isinstance(dtype, pl.Datetime)]
    return frame.with_columns(
        pl.Series(
            name,
            [None if us is None else rfc3339(us) for us in frame[name].cast(pl.Int64).to_list()],
            dtype=pl.String,
        )
        for name in instants
    )


def records(frame: pl.DataFrame) -> list[dict[str, Any]]:
    """The rows as mappings of plain values, instants as RFC 3339 text.

    Example:
        >>> records(pl.DataFrame({"rank": [1], "text": ["pump off"]}))
        [{'rank': 1, 'text': 'pump off'}]
    """
    return with_text_instants(frame).to_dicts()


def json_text(value: Any, *, indent: int | None = None) -> str:
    r"""JSON that reads the same and holds nothing a terminal acts on.

    Example:
        >>> print(json_text({"text": "naïve\x9b"}))
        {"text": "naïve\u009b"}
    """
    text = json.dumps(value, ensure_ascii=False, indent=indent, allow_nan=False)
    # Line ends outside texts are ours; inside texts json has escaped everything below U+0020.
    return _ACTING.sub(
        lambda match: match[0] if match[0] == "\n" else f"\\u{ord(match[0]):04x}", text
    )
