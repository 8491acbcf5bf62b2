"""How much and how many: numbers with their units, bounds and what is counted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from mnemes_lab.diff._grammar import SCALES
from mnemes_lab.diff._tokens import NUMBER, WORD, Token
from mnemes_lab.diff._units import CURRENCIES, UNITS, Unit, unusual
from mnemes_lab.diff._words import group

_ABOUT = group("about around approximately roughly nearly almost circa ca")
_PAIRED_UP_TO = 400  # pairs looked at; beyond, texts are too unlike anyway
_TOLERANCE = 0.1  # of a number said to be approximate
_BOUNDS = {
    ("at", "most"): "max",
    ("up", "to"): "max",
    ("less", "than"): "max",
    ("fewer", "than"): "max",
    ("at", "least"): "min",
    ("more", "than"): "min",
    ("no", "more", "than"): "max",
    ("not", "more", "than"): "max",
    ("no", "less", "than"): "min",
    ("no", "fewer", "than"): "min",
    ("under",): "max",
    ("below",): "max",
    ("maximum",): "max",
    ("over",): "min",
    ("above",): "min",
    ("minimum",): "min",
}


@dataclass(frozen=True, slots=True)
class Amount:
    """A number in the base unit of its dimension.

    Attributes:
        value: The number.
        bound: ``max``, ``min``, or empty for the number itself.
        about: Whether it is said to be approximate.
        dimension: What it measures; ``count`` for things.
        per: What one part of it belongs to, as in 18 USD a day.
        things: Lemmas of the words after it, the things counted.
        number: The number as written.
        unit: The unit as written, or the first of the things.
        text: As written, for reasons.
        place: How many words stand before it.
    """

    value: float
    bound: str
    about: bool
    dimension: str
    per: str
    things: tuple[str, ...]
    number: float
    unit: str
    text: str
    place: int

    def agrees(self, other: Amount) -> bool:
        """Whether both can be true of one thing."""
        if self.bound != other.bound and (self.bound or other.bound):
            low, high = (self, other) if self.bound != "max" else (other, self)
            if low.bound == "max" or high.bound == "min":
                low, high = high, low
            return low.value <= high.value or math.isclose(low.value, high.value)
        slack = _TOLERANCE if self.about or other.about else 1e-9
        return math.isclose(self.value, other.value, rel_tol=slack, abs_tol=1e-12)


def read_amount(tokens: list[Token], i: int, place: int) -> tuple[Amount, int] | None:
    """The amount that begins at token `i`, and the token after it."""
    start, unit = i, None
    if tokens[i].text in CURRENCIES:
        unit, i = UNITS[tokens[i].text], i + 1
    if i >= len(tokens) or tokens[i].kind != NUMBER:
        return None
    number, i = _value(tokens, i)
    name = tokens[i].text if i < len(tokens) else ""
    if unit is None and name:
        unit = UNITS.get(name)
        i += unit is not None
    if (
        unit
        and unit.dimension == "degree"
        and i < len(tokens)
        and tokens[i].text in ("celsius", "c")
    ):
        unit, i = UNITS["celsius"], i + 1
    per, share, end = _per(tokens, i) if unit else ("", 1.0, i)
    dimension, value = _scaled(number, unit)
    things = () if unit else _things(tokens, i)
    if not unit and tokens[start].text == "one" and value == 1:
        return None  # rather somebody than a number
    bound, about = _before(tokens, start)
    text = " ".join(token.text for token in tokens[start:end] or tokens[start:i])
    if things and not unit:
        text = f"{text} {tokens[i].text}"
    value /= share
    return Amount(value, bound, about, dimension, per, things, number, name, text, place), max(
        end, i
    )


def _value(tokens: list[Token], i: int) -> tuple[float, int]:
    """Number words and digits with what multiplies or completes them: 2.4 million, twenty one."""
    value, i = tokens[i].value, i + 1
    while i < len(tokens):
        token = tokens[i]
        if token.text in SCALES:
            value *= SCALES[token.text]
        elif token.kind == NUMBER and token.text.isalpha() and 20 <= value < 100 > 10 > token.value:
            value += token.value
        elif token.text == "and" and [t.text for t in tokens[i + 1 : i + 3]] == ["a", "half"]:
            value, i = value + 0.5, i + 2
        else:
            break
        i += 1
    return value, i


def _scaled(value: float, unit: Unit | None) -> tuple[str, float]:
    if unit is None:
        return "count", value
    if unit.dimension == "fahrenheit":
        return "celsius", (value - 32) / 1.8
    return unit.dimension, value * unit.factor


def _per(tokens: list[Token], i: int) -> tuple[str, float, int]:
    """`per kWh`, `a day`, `apiece`, `per hundred`: what it is for, how many of them, the end."""
    if i >= len(tokens):
        return "", 1.0, i
    word = tokens[i].text
    if word in ("apiece", "each"):
        return "", 1.0, i + 1
    if word not in ("per", "a", "an", "every") or i + 1 >= len(tokens):
        return "", 1.0, i
    what = tokens[i + 1]
    if what.text in SCALES and word == "per":
        return "", SCALES[what.text], i + 2
    if what.text in ("piece", "unit", "item"):
        return "", 1.0, i + 2
    return (what.lemma, 1.0, i + 2) if what.kind == WORD else ("", 1.0, i)


def _things(tokens: list[Token], i: int) -> tuple[str, ...]:
    found = []
    for token in tokens[i : i + 4]:
        if token.kind != WORD:
            break
        found.append(token.lemma)
    return tuple(found)


def _before(tokens: list[Token], i: int) -> tuple[str, bool]:
    words = tuple(token.text for token in tokens[max(0, i - 3) : i])
    for size in (3, 2, 1):
        if words[-size:] in _BOUNDS and len(words) >= size:
            return _BOUNDS[words[-size:]], False
    return "", bool(words) and words[-1] in _ABOUT


def clashes(ones: Sequence[Amount], others: Sequence[Amount]) -> list[tuple[Amount, Amount]]:
    """Amounts of the same thing that differ.

    Example:
        >>> kg = [Amount(n, "", False, "mass", "", (), n, "kg", f"{n} kg", 0) for n in (8, 10)]
        >>> clashes(kg[:1], kg[1:])[0][1].text
        '10 kg'
    """
    if len(ones) * len(others) > _PAIRED_UP_TO:
        return []
    # By place, and the same whichever statement comes first.
    pairs = sorted(
        ((i, j) for i in range(len(ones)) for j in range(len(others))),
        key=lambda at: (
            abs(at[0] - at[1]),
            sum(at),
            sorted((ones[at[0]].text, others[at[1]].text)),
        ),
    )
    found: list[tuple[Amount, Amount]] = []
    met: tuple[set[int], set[int]] = (set(), set())
    for agree in (True, False):
        for i, j in pairs:
            one, other = ones[i], others[j]
            if i in met[0] or j in met[1] or not _comparable(one, other):
                continue
            same = _equal_by_pint(one, other) or (
                one.dimension == other.dimension and one.agrees(other)
            )
            if same == agree:
                met[0].add(i)
                met[1].add(j)
                if not agree:
                    found.append((one, other))
    return found


def _comparable(one: Amount, other: Amount) -> bool:
    if one.dimension != other.dimension:
        return _by_pint(one, other) is not None
    if one.per != other.per:
        return False
    if one.dimension != "count":
        return True
    return not one.things or not other.things or bool(set(one.things) & set(other.things))


def _by_pint(one: Amount, other: Amount) -> tuple[float, float] | None:
    """Both numbers in one unit, where only pint knows how they compare."""
    if "count" not in (one.dimension, other.dimension):
        return None
    units = unusual(one.unit), unusual(other.unit)
    if units[0] is None or units[1] is None or units[0].dimension != units[1].dimension:
        return None
    return one.number * units[0].factor, other.number * units[1].factor


def _equal_by_pint(one: Amount, other: Amount) -> bool:
    both = _by_pint(one, other) if one.dimension != other.dimension else None
    return both is not None and math.isclose(*both, rel_tol=1e-3)
