"""Taking numbers, times and codes out of a row of tokens, so that words are left."""

from __future__ import annotations

from typing import Any, NamedTuple

from mnemes_lab.diff._amounts import Amount, read_amount
from mnemes_lab.diff._grammar import PRONOUNS
from mnemes_lab.diff._lexicon import CHANGES, PHRASE_STARTS, PHRASES
from mnemes_lab.diff._times import Time, read_time, read_year
from mnemes_lab.diff._tokens import (
    AUX,
    BOUND,
    CODE,
    FORMER,
    NEG,
    NUMBER,
    PREP,
    SIGN,
    STOP,
    VALUE,
    WORD,
    Token,
    looks_finite,
)
from mnemes_lab.diff._units import UNITS

_TAKEN = Token("#", VALUE)  # stands where a value was


class Values(NamedTuple):
    """The tokens that are left, and what was taken out of them."""

    tokens: list[Token]
    amounts: tuple[Amount, ...]
    times: tuple[Time, ...]
    flags: int


def take_values(tokens: list[Token]) -> Values:
    """Read every number, time and code of a statement.

    Example:
        >>> from mnemes_lab.diff._tokens import tokens
        >>> values = take_values(tokens("Pump 3 of the living room draws 1.5 kW at 5 PM"))
        >>> [token.lemma for token in values.tokens if token.kind in (WORD, CODE)]
        ['pump', '3', 'living_room', 'draw']
        >>> [amount.text for amount in values.amounts], [time.text for time in values.times]
        (['1.5 kw'], ['5 pm'])
    """
    left: list[Token] = []
    amounts: list[Amount] = []
    times: list[Time] = []
    flags, i = 0, 0
    while i < len(tokens):
        token = tokens[i]
        if not token.rich:
            if token.kind != BOUND or left:
                left.append(token)
            i += 1
            continue
        if token.text in ("until", "till") and not left:
            flags |= FORMER  # what held until then need not hold now
        found = read_time(tokens, i, len(left))
        if found is None and token.kind == NUMBER:
            found = read_year(tokens, i, len(left))
        if found is not None:
            time, i = found
            _add(times, time, left)
            continue
        if token.kind == NUMBER and _names(tokens, i):
            left.append(Token(token.text, CODE, token.text))
            i += 1
            continue
        counted = read_amount(tokens, i, len(left)) if token.kind in (NUMBER, SIGN) else None
        if counted is not None:
            amount, i = counted
            _add(amounts, amount, left)
            continue
        phrase, size = _phrase(tokens, i)
        left.append(Token(phrase, WORD, phrase) if phrase else token)
        i += size
    return Values(left, tuple(amounts), tuple(times), flags)


def _phrase(tokens: list[Token], i: int) -> tuple[str, int]:
    """Words that are one: what they are known as and how many they are."""
    if tokens[i].text in PHRASE_STARTS:
        for size in (3, 2):
            words = tuple(token.text for token in tokens[i : i + size])
            phrase = PHRASES.get(words) or PHRASES.get((*words[:-1], words[-1].removesuffix("s")))
            if phrase:
                return phrase, size
    return "", 1


def _add(values: list[Any], value: Amount | Time, left: list[Token]) -> None:
    """Keep a value; the earlier one it replaces is dropped: moved from 5 PM to 8 PM."""
    replaces = [token.text for token in left[-3:]] == ["from", _TAKEN.text, "to"]
    if replaces and values and any(token.lemma in CHANGES for token in left[-7:-3]):
        values.pop()
    values.append(value)
    left.append(_TAKEN)


def _names(tokens: list[Token], i: int) -> bool:
    """Whether a whole number is a name, as in pump 3 or bus 7, and not an amount."""
    token = tokens[i]
    if i == 0 or not token.text.isdecimal() or len(token.text) > 6:
        return False
    before = tokens[i - 1]
    if before.kind == CODE:
        return True
    if before.kind != WORD or before.text.endswith("ing") or looks_finite(before.text):
        return False
    if i > 1 and tokens[i - 2].text in PRONOUNS:
        return False
    if i + 1 == len(tokens):
        return True
    after = tokens[i + 1]
    return after.kind in (BOUND, AUX, PREP, CODE, STOP, WORD, NEG) and after.text not in UNITS
