"""What a language model wrote, read strictly: one JSON object or a named reason why not.

* The answer is the one JSON object that has the wanted names. Fences and prose around it are
  ignored, and so is a thinking block, with every object in it; a tag inside a JSON text is text.
* Two such objects, an object that is not strict JSON (comments, a comma too many, a name twice),
  a list, thinking that never ends, more than 64 levels: refused by name. Braces without a quoted
  name inside are prose.
* The cost is linear in the length, and the length is capped first.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

from mnemes_lab.errors import LLMError

MAX_CHARS = 1_000_000
MAX_DEPTH = 64
_TAG = r"(?:thinking|think|thought|reasoning)"
_START = re.compile(rf"\{{|\[\s*\{{|<(?P<open>{_TAG})>|(?P<close></{_TAG}>)", re.IGNORECASE)
_PIECE = re.compile(r'"(?:[^"\\]+|\\.)*+(?:"|\\?\Z)|[{}\[\]]', re.DOTALL)
_NO_NAMES = re.compile(r"\{\s*\}")
_ODD = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]+")


def parse_json_object(
    text: object,
    *,
    keys: Sequence[str] = (),
    or_keys: Sequence[str] = (),
    non_finite: bool = False,
    max_chars: int = MAX_CHARS,
) -> dict[str, Any]:
    """The one JSON object a model meant.

    Args:
        text: What the model wrote.
        keys: Names the object must have.
        or_keys: Other names that do as well, all of them.
        non_finite: Read NaN and Infinity as such, for a caller that judges each number by itself;
            otherwise they are refused.
        max_chars: Longer text is not looked at.

    Raises:
        LLMError: with the reason empty, too_large, truncated, too_deep, bad_json, no_json,
            wrong_type, missing_keys or several_objects.

    Example:
        >>> parse_json_object('<think>{"a": 0}?</think> Sure: ```json {"a": 1}``` Bye!', keys=["a"])
        {'a': 1}
    """
    if text is not None and not isinstance(text, str):
        raise LLMError(f"The answer is {kind(text)}, not text.", reason="wrong_type")
    if not text or not text.strip("\ufeff \t\r\n"):
        raise LLMError("The answer is empty.", reason="empty")
    if len(text) > max_chars:
        raise LLMError(
            f"The answer has {len(text)} characters, more than {max_chars}.", reason="too_large"
        )
    objects = [_strict(span, non_finite) for span in _spans(text)]
    if any(isinstance(thing, list) for thing in objects):
        raise LLMError("The answer is a list, not an object.", reason="wrong_type")
    if not objects:
        raise _nothing_found(text)
    wanted = [
        thing
        for thing in objects
        if all(key in thing for key in keys) or (or_keys and all(key in thing for key in or_keys))
    ]
    if not wanted:
        names = " or ".join(", ".join(map(repr, some)) for some in (keys, or_keys) if some)
        raise LLMError(f"No object in the answer has {names}.", reason="missing_keys")
    if len(wanted) > 1:
        raise LLMError(
            f"The answer holds {len(wanted)} objects where one was asked for.",
            reason="several_objects",
        )
    return dict(wanted[0])


def strict_json(text: str, *, non_finite: bool = False) -> Any:
    """Strict JSON as Python values: no name twice, no NaN unless asked for, at most 64 levels.

    Raises:
        LLMError: bad_json or too_deep.

    Example:
        >>> strict_json('{"a": 1, "a": 2}')
        Traceback (most recent call last):
        ...
        mnemes_lab.errors.LLMError: The answer is not strict JSON: the name 'a' appears twice.
    """
    _depth(text)
    return _strict(text, non_finite)


def _spans(text: str) -> Iterator[str]:
    """Every outermost object or list of objects, without those that belong to thoughts."""
    found: list[str] = []
    at = 0
    while match := _START.search(text, at):
        if match["open"]:
            end = re.compile(rf"</{match['open']}>", re.IGNORECASE).search(text, match.end())
            if end is None:
                raise LLMError("The answer ends in the middle of a thought.", reason="truncated")
            at = end.end()
        elif match["close"]:  # some servers leave out the tag that opens: all before was thought
            found, at = [], match.end()
        else:
            at = _end(text, match.start())
            span = text[match.start() : at]
            if '"' in span or _NO_NAMES.fullmatch(span):
                found.append(span)
    yield from found


def _end(text: str, start: int) -> int:
    """Where the bracket at `start` is closed; the end of the text when it never is."""
    depth = 0
    for piece in _PIECE.finditer(text, start):
        if piece[0] in "{[":
            depth += 1
            if depth > MAX_DEPTH:
                raise _too_deep()
        elif piece[0] in "}]":
            depth -= 1
            if depth == 0:
                return piece.end()
    return len(text)


def _depth(text: str) -> None:
    """Refuse nesting that would exhaust the interpreter's stack."""
    depth = 0
    for piece in _PIECE.finditer(text):
        depth += (piece[0] in "{[") - (piece[0] in "}]")
        if depth > MAX_DEPTH:
            raise _too_deep()


def _too_deep() -> LLMError:
    return LLMError(f"The answer has more than {MAX_DEPTH} levels.", reason="too_deep")


def _strict(text: str, non_finite: bool) -> Any:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        out = dict(pairs)
        if len(out) < len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            raise ValueError(f"the name {shown(twice)} appears twice")
        return out

    def number(written: str) -> float:
        value = float(written)
        if not non_finite and not math.isfinite(value):
            raise ValueError(f"{shown(written)} is no finite number")
        return value

    try:
        return json.loads(text, object_pairs_hook=unique, parse_float=number, parse_constant=number)
    except ValueError as error:  # also a whole number too long to convert
        why = str(error)
    raise LLMError(f"The answer is not strict JSON: {why}.", reason="bad_json")


def _nothing_found(text: str) -> LLMError:
    """Why there is no object: another kind of JSON, or none."""
    try:
        value = strict_json(text.strip("\ufeff \t\r\n"), non_finite=True)
    except LLMError:
        return LLMError("The answer holds no JSON object.", reason="no_json")
    return LLMError(f"The answer is {kind(value)}, not an object.", reason="wrong_type")


def kind(value: object) -> str:
    """What JSON calls a value.

    Example:
        >>> kind(None), kind([])
        ('null', 'a list')
    """
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    names = {str: "text", int: "a number", float: "a number", list: "a list", dict: "an object"}
    return names.get(type(value), f"a {type(value).__name__}")


def shown(value: object) -> str:
    """A value of a reply as a message may show it: one line, short.

    Example:
        >>> shown("x" * 1000)
        "'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx..."
    """
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 10**30:
        return "a very long number"  # spelling it out may be refused
    said = repr(value[:60]) if isinstance(value, (str, list)) else repr(value)
    return said if len(said) <= 40 else said[:38] + "..."


def tidy(text: object, limit: int = 500) -> str:
    r"""Text of a model or server as people may read it: no controls, no half characters, short.

    Example:
        >>> tidy("two\nlines")
        'two lines'
    """
    if not isinstance(text, str):
        return ""
    clean = _ODD.sub(" ", text[: 2 * limit]).strip()
    return clean if len(clean) <= limit else clean[: limit - 3] + "..."
