"""When a statement holds: times of day, dates, days of the week, and periods."""

from __future__ import annotations

from dataclasses import dataclass

from mnemes_lab.diff._grammar import DAYS, MONTHS, NAMED_CLOCKS, PARTS, RELATIVE, SPANS
from mnemes_lab.diff._tokens import (
    CLOCK,
    CODE,
    DATE,
    NUMBER,
    WORD,
    Token,
)
from mnemes_lab.diff._words import group

_MONTH_CUES = group(
    "in since until till by for of last next each every from during before after on the"
)
_YEAR_CUES = group("in since until till by for of from during before after born and year to fy cy")
_UNCLEAR_MONTHS = {"may", "march", "august"}
_ORDINAL = {"1.": 1, "2.": 2, "3.": 3, "4.": 4}


@dataclass(frozen=True, slots=True)
class Time:
    """One expression of time.

    Attributes:
        kind: clock, date, day, period or part.
        value: What is compared; its form depends on the kind.
        text: As written, for reasons.
        place: How many words stand before it.
    """

    kind: str
    value: tuple[object, ...]
    text: str
    place: int


def differ(one: Time, other: Time) -> bool:
    """Whether two expressions of one kind cannot mean the same time.

    Example:
        >>> differ(Time("date", (2031, 6, 18), "", 0), Time("date", (None, 6, 18), "", 0))
        False
    """
    if one.kind == "day":
        return not set(one.value) & set(other.value)
    return any(
        a is not None and b is not None and a != b
        for a, b in zip(one.value, other.value, strict=False)
    )


def read_time(tokens: list[Token], i: int, place: int) -> tuple[Time, int] | None:
    """The expression of time that begins at token `i`, and the token after it."""
    token = tokens[i]
    if token.kind == CLOCK or token.kind == NUMBER:
        return _clock(tokens, i, place) or _date(tokens, i, place)
    if token.kind == DATE:
        year, month, *day = map(int, token.text.split("-"))
        return Time("date", (year, month, day[0] if day else None), token.text, place), i + 1
    text = token.text
    if text in NAMED_CLOCKS:
        return Time("clock", (NAMED_CLOCKS[text],), text, place), i + 1
    if text in DAYS:
        return Time("day", tuple(sorted(DAYS[text])), text, place), i + 1
    if text in PARTS:
        after = _at(tokens, i + 1)
        if after is not None and after.kind == WORD:
            return None  # a night ferry runs at night, whenever that is said
        return Time("part", (PARTS[text],), text, place), i + 1
    if text in ("yesterday", "today", "tomorrow"):
        return Time("period", (text, None, None), text, place), i + 1
    if text in MONTHS or token.lemma in _ORDINAL:
        return _date(tokens, i, place) or _period(tokens, i, place)
    return _period(tokens, i, place)


def _text(tokens: list[Token], start: int, end: int) -> str:
    return " ".join(token.text for token in tokens[start:end])


def _at(tokens: list[Token], i: int) -> Token | None:
    return tokens[i] if 0 <= i < len(tokens) else None


def _clock(tokens: list[Token], i: int, place: int) -> tuple[Time, int] | None:
    token, after = tokens[i], _at(tokens, i + 1)
    half = after.text.replace(".", "") if after and after.text[0] in "ap" else ""
    minutes = token.value if token.kind == CLOCK else 60 * token.value
    end = i + 1
    if half in ("am", "pm"):
        if not 0 <= minutes < 13 * 60:
            return None
        minutes = minutes % 720 + (720 if half == "pm" else 0)
        end = i + 2
    elif after and after.text == "o'clock":
        end = i + 2
    elif token.kind == NUMBER:
        return None
    return Time("clock", (minutes,), _text(tokens, i, end), place), end


def _day_number(token: Token | None) -> int | None:
    """A day of the month: 18, 18th or eighteenth."""
    if token is None:
        return None
    number = token.text if token.kind == NUMBER else token.lemma.rstrip(".")
    if token.kind != NUMBER and not token.lemma.endswith("."):
        return None
    return int(number) if number.isdecimal() and 1 <= int(number) <= 31 else None


def _year(token: Token | None) -> int | None:
    if token is None or token.kind != NUMBER or not token.text.isdecimal() or len(token.text) != 4:
        return None
    return int(token.text) if "1500" <= token.text < "2300" else None


def _date(tokens: list[Token], i: int, place: int) -> tuple[Time, int] | None:
    """`18 June 2031`, `the 18th of June`, `14 to 20 June`, `June 18, 2031`, `June 2031`, `June`."""
    day: object = _day_number(tokens[i])
    end = i
    if day is not None:
        end = i + 1
        joint, last = _at(tokens, end), _day_number(_at(tokens, end + 1))
        if joint and joint.text in ("to", "and", "or", "until") and last:
            day, end = (day, last), end + 2
        following = _at(tokens, end)
        if following and following.text == "of":
            end += 1
    month = _at(tokens, end)
    if month is None or month.text not in MONTHS:
        return None
    end += 1
    if day is None:
        following, comma = _at(tokens, end), _at(tokens, end + 1)
        if _day_number(following) is not None:
            day, end = _day_number(following), end + 1
            if comma and comma.text == "," and _year(_at(tokens, end + 1)):
                end += 1
        elif _year(following) is None and month.text in _UNCLEAR_MONTHS:
            before = _at(tokens, i - 1)
            cue = before.text if before else ""
            if cue not in _MONTH_CUES or (month.text == "may" and cue == "the"):
                return None
    year = _year(_at(tokens, end))
    end += year is not None
    return Time("date", (year, MONTHS[month.text], day), _text(tokens, i, end), place), end


def _period(tokens: list[Token], i: int, place: int) -> tuple[Time, int] | None:
    """`H1 2030`, `Q2 FY30`, `the first half of 2030`, `FY 2030`, `last summer`."""
    token, end = tokens[i], i + 1
    part = None
    if token.kind == CODE and len(token.text) == 2 and token.text[0] in "hq":
        part = token.text
    elif token.lemma in _ORDINAL:
        unit = _at(tokens, end)
        if unit is None or unit.text not in ("half", "quarter"):
            return None
        part, end = f"{unit.text[0]}{_ORDINAL[token.lemma]}", end + 1
    elif token.text in RELATIVE:
        span = _at(tokens, end)
        if span is None or span.text not in SPANS:
            return None
        return Time("period", (token.text, None, span.text), _text(tokens, i, i + 2), place), i + 2
    else:
        end = i
    following = _at(tokens, end)
    if part and following and following.text == "of":
        following = _at(tokens, end + 1)
        end += 1
    system, year, end = _counted_year(tokens, end)
    if part is None and year is None:
        return None
    if part and year is None and tokens[end - 1].text == "of":
        end -= 1
    return Time("period", (system, year, part), _text(tokens, i, end), place), end


def _counted_year(tokens: list[Token], i: int) -> tuple[str | None, int | None, int]:
    """The year at token `i`, how it is counted (fy, cy or unsaid), and the token after it."""
    token = _at(tokens, i)
    if token is None:
        return None, None, i
    if token.text[:2] in ("fy", "cy"):
        digits = token.text[2:]
        if digits.isdecimal() and len(digits) in (2, 4):
            return (
                token.text[:2],
                int(digits) % 100 + 2000 if len(digits) == 2 else int(digits),
                i + 1,
            )
        following = _year(_at(tokens, i + 1))
        if not digits and following:
            return token.text, following, i + 2
    plain = _year(token)
    return None, plain, i + 1 if plain else i


def read_year(tokens: list[Token], i: int, place: int) -> tuple[Time, int] | None:
    """A bare year after a word such as `in`, where a number would otherwise be read."""
    year, before, after = _year(tokens[i]), _at(tokens, i - 1), _at(tokens, i + 1)
    if year is None or before is None or before.text not in _YEAR_CUES:
        return None
    if after is not None and after.kind in (WORD, NUMBER) and before.text not in ("in", "since"):
        return None
    return Time("period", (None, year, None), tokens[i].text, place), i + 1
