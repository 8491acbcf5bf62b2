"""How the words of two statements differ, and whether they speak of the same thing at all."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from mnemes_lab.diff._grammar import PRONOUNS
from mnemes_lab.diff._lexicon import DESCRIBING, RELATED, exclusive, general, negated_form, opposed
from mnemes_lab.diff._parse import MODE, Parsed
from mnemes_lab.diff._times import Time, differ
from mnemes_lab.diff._tokens import FIRST_PERSON, FUTURE, OBLIGED, PAST, POSSIBLE, PRESENT

_LIGHT = frozenset(["take", "have", "do", "make", "get", "go", "put", "use", "person", "thing"])
_PAIRED_UP_TO = 400  # pairs of words looked at; beyond, texts are too unlike anyway


class Finding(NamedTuple):
    """What a comparison found."""

    relation: str
    confidence: float
    reason: str


def neutral(confidence: float, reason: str) -> Finding:
    """Nothing that clashes."""
    return Finding("neutral", confidence, reason)


def clash(confidence: float, extra: float, reason: str) -> Finding:
    """A contradiction, less certain the more words one statement has that the other lacks."""
    return Finding("contradiction", round(max(0.5, confidence - 0.05 * min(extra, 3.0)), 2), reason)


class Clash(NamedTuple):
    """Two words that exclude each other, and why."""

    one: str
    other: str
    why: str


class Difference(NamedTuple):
    """The words that differ.

    Attributes:
        clashes: Pairs that exclude each other.
        left: What only the first has, and nothing answers to.
        right: What only the second has.
        kin: A word to the one it answers to, as its kind or as the denied opposite.
    """

    clashes: list[Clash]
    left: frozenset[str]
    right: frozenset[str]
    kin: dict[str, str]


def weight(words: Iterable[str]) -> float:
    """How much words say; words such as *take* say little."""
    return sum([0.3 if word in _LIGHT else 1.0 for word in words])


def other_frame(one: Parsed, other: Parsed) -> Finding | None:
    """A reason why two statements cannot clash whatever they say, if there is one."""
    if one.every.isdisjoint(other.every) and not (one.amounts and other.amounts):
        return neutral(0.9, "they share no word")
    odd = one.flags ^ other.flags
    if odd & (MODE | POSSIBLE | OBLIGED | FIRST_PERSON):
        if odd & MODE:
            return neutral(0.85, "one is imagined, wished for or past")
        if odd & POSSIBLE:
            return neutral(0.7, "one is merely possible")
        if odd & OBLIGED:
            return neutral(0.7, "one says what should be")
        return neutral(0.6, "one speaks of its writer")
    if one.codes and other.codes:
        mine, theirs = one.codes - other.codes, other.codes - one.codes
        if mine and theirs and (mine & one.opening or theirs & other.opening):
            return neutral(0.95, f"other subjects: {min(mine)} / {min(theirs)}")
    return None


def other_tense(one: Parsed, other: Parsed) -> bool:
    """Whether one speaks of what was, or will be, and the other of what is."""
    tenses = PAST | PRESENT | FUTURE
    found = {one.flags & tenses, other.flags & tenses}
    return PRESENT in found and bool(found & {PAST, FUTURE})


def other_subject(one: Parsed, other: Parsed, difference: Difference) -> bool:
    """Whether the subjects differ on both sides, or in the word that names them."""
    if one.key[0] != other.key[0] and one.key[0] in PRONOUNS and other.key[0] in PRONOUNS:
        return True
    if not one.subject or not other.subject:
        return False
    left, right = difference.left, difference.right
    if one.head in left or other.head in right:
        return True
    # Differing descriptions, old and small, may be of one thing; differing names are not.
    return bool(left & one.subject - DESCRIBING and right & other.subject - DESCRIBING)


def word_difference(one: Parsed, other: Parsed) -> Difference:
    """Pair the words that only one of two statements has."""
    left, right = sorted(one.every - other.every), sorted(other.every - one.every)
    if len(left) < 2 > len(right) and len(one.order) == len(other.order):
        # Word for word the same but in one place: the words there differ even if the rest has them.
        places = [(a, b) for a, b in zip(one.order, other.order, strict=True) if a != b]
        if len(places) == 1:
            left, right = [places[0][0]], [places[0][1]]
    if not left or not right:
        return Difference([], frozenset(left), frozenset(right), {})
    kin: dict[str, str] = {}
    clashes: list[Clash] = []
    mine, theirs = _relatable(one, left, right), _relatable(other, right, left)
    if mine and theirs and len(mine) * len(theirs) <= _PAIRED_UP_TO:
        for a in mine:
            for b in theirs:
                if general(a, b) or general(b, a):
                    kin[a], kin[b] = b, a
        pairs = [(a, b) for a in mine if a not in kin for b in theirs if b not in kin]
        # Which words meet must not depend on which statement comes first.
        for a, b in sorted(pairs, key=lambda pair: sorted(pair)):
            why = None if a in kin or b in kin else _excludes(one, a, other, b)
            if why is not None:
                if (a in one.denied) == (b in other.denied):
                    clashes.append(Clash(a, b, why))
                kin[a], kin[b] = b, a  # else: not closed, but open; not red, but blue: both can be
    return Difference(
        clashes, frozenset(left).difference(kin), frozenset(right).difference(kin), kin
    )


def _relatable(one: Parsed, words: list[str], others: list[str]) -> list[str]:
    """Of some words those that can relate to a word of another spelling."""
    negated = {negated_form(other) for other in others}
    return [
        word
        for word in words
        if word in RELATED
        or word in one.codes
        or word in negated
        or word[-1] == "."
        or ((positive := negated_form(word)) and positive in others)
    ]


def _excludes(one: Parsed, a: str, other: Parsed, b: str) -> str | None:
    """Why two words exclude each other, if they do."""
    if opposed(a, b):
        return "opposite"
    why = "code" if a in one.codes and b in other.codes else exclusive(a, b)
    if why is None:
        return None
    # Beside the same word, or at the same end: else they describe two things.
    i, j = one.order.index(a), other.order.index(b)
    after = one.order[i + 1 : i + 2] == other.order[j + 1 : j + 2]
    return why if after or one.order[:i][-1:] == other.order[:j][-1:] else None


def other_times(one: Parsed, other: Parsed) -> list[tuple[Time, Time]]:
    """Expressions of time of one kind that have no counterpart on the other side."""
    if not 0 < len(one.times) * len(other.times) <= _PAIRED_UP_TO:
        return []
    found = []
    for kind in ("clock", "date", "day", "period", "part"):
        mine = [time for time in one.times if time.kind == kind]
        theirs = [time for time in other.times if time.kind == kind]
        if mine and theirs and all(differ(a, b) for a in mine for b in theirs):
            found.append((mine[0], theirs[0]))
    return found
