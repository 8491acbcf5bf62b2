"""What a statement says: its words, which of them are denied, its values, and its frame.

The frame is what has to agree before anything else is compared: whom or what it is about, whether
it is certain, possible, wished for or imagined, and whether it speaks of now or of formerly.

Negation is followed through a clause from left to right. A negator turns round what comes after it
until the clause ends; a second one turns it back; words such as *forget to*, *deny that* and *wrong
to say* turn like negators.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from mnemes_lab.diff import _grammar as g
from mnemes_lab.diff._amounts import Amount
from mnemes_lab.diff._lexicon import ABOVE, CARRIERS, TURNERS
from mnemes_lab.diff._times import Time
from mnemes_lab.diff._tokens import (
    ALL,
    ATTITUDE,
    AUX,
    BOUND,
    CODE,
    FORMER,
    IF,
    NEG,
    OBLIGED,
    PREP,
    SOME,
    STOP,
    VALUE,
    WORD,
    Token,
    read,
)
from mnemes_lab.diff._values import take_values

MODE = IF | ATTITUDE | FORMER  # not plainly so
NOT_ALL = 1 << 20


class Parsed(NamedTuple):
    """A statement as the rules see it.

    Attributes:
        key: Every token but punctuation; equal keys are equal statements.
        affirmed: Lemmas it affirms.
        denied: Lemmas it denies.
        every: Both.
        order: All of them in reading order, with repeats.
        shown: Lemma to how it was written first.
        opening: Lemmas before the verb.
        subject: Those of them that name the subject.
        verb: Lemma of the verb, unless it is an auxiliary.
        head: The last word of the subject, which says what kind of thing it is.
        codes: Identifiers.
        small: Prepositions and the like, for opposites among them.
        amounts: Numbers with units.
        times: Expressions of time.
        tokens: What is left of the text without its values.
        verb_at: How many tokens stand before the verb.
        value_denied: Whether a value stands where something is denied.
        vague: Whether the subject may be any of several: a pump, two pumps.
        flags: See `_tokens`.
    """

    key: tuple[str, ...]
    affirmed: frozenset[str]
    denied: frozenset[str]
    every: frozenset[str]
    order: tuple[str, ...]
    shown: dict[str, str]
    opening: frozenset[str]
    subject: frozenset[str]
    verb: str | None
    head: str | None
    codes: frozenset[str]
    small: frozenset[str]
    amounts: tuple[Amount, ...]
    times: tuple[Time, ...]
    tokens: Sequence[Token]
    verb_at: int
    value_denied: bool
    vague: bool
    flags: int


def parse(text: str) -> Parsed:
    """Read a statement. Linear in its length.

    Example:
        >>> found = parse("Do not forget to close valve VX-4 at noon, the pump does not run")
        >>> sorted(found.affirmed), sorted(found.denied), found.times[0].text
        (['close', 'pump', 'valv', 'vx-4'], ['run'], 'noon')
    """
    items, key, rich = read(text)
    amounts: tuple[Amount, ...] = ()
    times: tuple[Time, ...] = ()
    flags = 0
    if rich:
        items, amounts, times, flags = take_values(items)
    verb_at = _verb_at(items)
    scan = _Scan(items, flags, verb_at)
    scan.run()
    opening, subject, head = _subject(items, verb_at)
    affirmed = every = frozenset(scan.affirmed)
    denied: frozenset[str] = frozenset()
    if scan.denied:  # seldom, and set operations are not free
        denied = frozenset(scan.denied) - affirmed
        every = affirmed | denied
    return Parsed(
        tuple(key),
        affirmed,
        denied,
        every,
        tuple(scan.order),
        scan.shown,
        opening,
        subject,
        items[verb_at].lemma if verb_at < len(items) and items[verb_at].kind == WORD else None,
        head,
        frozenset(scan.codes),
        frozenset(scan.small),
        amounts,
        times,
        items,
        verb_at,
        scan.value_denied,
        bool(key) and (key[0] in g.VAGUE or (bool(amounts) and amounts[0].place == 0)),
        scan.flags,
    )


def _verb_at(items: Sequence[Token]) -> int:
    """Index of the first finite verb: an auxiliary, else what looks like a verb; or the length."""
    found = len(items)
    for i, token in enumerate(items):
        kind = token.kind
        if kind == AUX or (kind == NEG and token.lemma == "not" != token.text):
            return i
        if kind == WORD and i and i < found and _verbal(items, i):
            found = i
    return found


def _verbal(items: Sequence[Token], i: int) -> bool:
    token, before = items[i], items[i - 1]
    if not token.finite:
        return token.text.endswith("ing") and before.kind == WORD
    bearded = token.text.endswith("ed") and i + 1 < len(items) and items[i + 1].lemma in ABOVE
    return not bearded and before.text not in g.ARTICLES  # a bearded man, the savings


def _subject(
    items: Sequence[Token], verb_at: int
) -> tuple[frozenset[str], frozenset[str], str | None]:
    """Lemmas before the verb, those of them that name the subject, and the last of these."""
    if verb_at == len(items):
        return frozenset(), frozenset(), None
    opening, words, head, ended = [], [], None, False
    for token in items[:verb_at]:
        if token.kind in (WORD, CODE) and token.text != "longer":
            opening.append(token.lemma)
            if not ended:
                head = token.lemma
                words.append(head)
        elif words and (token.kind == PREP or token.text == "of"):
            ended = True
    return frozenset(opening), frozenset(words), head


class _Scan:
    """One walk over the tokens that keeps track of what is denied."""

    deny = False
    until_verb = False  # what is denied ends with the next verb
    only_next = False  # only the next word is denied
    pending = False  # a negator that has denied nothing yet
    imagined = False
    value_denied = False
    denied_from = 0  # where in `denied` the words of this negator begin
    clause = 0  # where in `affirmed` the clause begins

    def __init__(self, items: Sequence[Token], flags: int, verb_at: int) -> None:
        self.items = items
        self.verb_at = verb_at
        self.flags = flags
        self.affirmed: list[str] = []
        self.denied: list[str] = []
        self.order: list[str] = []
        self.codes: list[str] = []
        self.small: list[str] = []
        self.shown: dict[str, str] = {}

    def run(self) -> None:
        """Walk."""
        affirmed, denied, order, shown = self.affirmed, self.denied, self.order, self.shown
        for i, token in enumerate(self.items):
            kind = token.kind
            if token.flags:
                self._flag(i, token.flags)
            if token.plain and not self.only_next:  # most words
                word = token.lemma
                (denied if self.deny else affirmed).append(word)
                order.append(word)
                if word not in shown:
                    shown[word] = token.text
                self.pending = False
            elif kind in (WORD, CODE):
                self._word(i, token)
                if kind == CODE:
                    self.codes.append(token.lemma)
            elif kind == NEG:
                self._negator(i, token)
            elif kind == AUX:
                self._auxiliary(i, token)
            elif kind == BOUND:
                if token.text != "," or self._kind_after(i) != WORD:
                    self._end_clause()
            elif kind == PREP:
                self._particle(i, token)
            elif kind == VALUE:
                self.value_denied = self.value_denied or self.deny
                self.pending = False
            elif kind == STOP and token.text == "and" and self._kind_after(i) in (AUX, NEG):
                self._end_clause()
        self._end_clause()

    def _end_clause(self) -> None:
        if self.deny and self.pending:  # it came last, as in German: what it denies came before
            self.denied += self.affirmed[self.clause :]
            del self.affirmed[self.clause :]
        self.deny = self.pending = False
        self.clause = len(self.affirmed)

    def _turn(self) -> None:
        """Deny what follows, or no longer; denied twice, what stands between is affirmed."""
        if self.deny:
            self.affirmed += self.denied[self.denied_from :]
            del self.denied[self.denied_from :]
        self.deny = not self.deny
        self.denied_from = len(self.denied)

    def _flag(self, i: int, flags: int) -> None:
        self.imagined = self.imagined or self.items[i].text == "if"
        if flags & SOME and (i > self.verb_at or self.order or self._before(i) == "at"):
            flags &= ~SOME  # near some trees: not what the statement is about
        self.flags |= flags

    def _after(self, i: int) -> str:
        return self.items[i + 1].text if i + 1 < len(self.items) else ""

    def _before(self, i: int) -> str:
        return self.items[i - 1].text if i else ""

    def _kind_after(self, i: int) -> int:
        return self.items[i + 1].kind if i + 1 < len(self.items) else -1

    def _word(self, i: int, token: Token) -> None:
        word, after = token.lemma, self._after(i)
        if word in TURNERS and (
            word in ("lack", "avoid")
            or after == "of"
            or (word != "free" and (after in ("to", "that") or after.endswith("ing")))
        ):
            self._turn()
            if not self.imagined:
                self.flags &= ~IF  # "it would be wrong to say" imagines nothing
            return
        if word in CARRIERS and after in ("that", "to", "but"):
            return
        if token.flags & ATTITUDE and after != "to":
            self.flags &= ~ATTITUDE
        if token.text == "used" and after == "to":
            self.flags |= FORMER
            return
        if word == "long" and token.text == "longer" and i and self.items[i - 1].kind == NEG:
            return
        (self.denied if self.deny != self.only_next else self.affirmed).append(word)
        self.pending = False
        self.only_next = False
        self.order.append(word)
        self.shown.setdefault(word, token.text)

    def _particle(self, i: int, token: Token) -> None:
        """The last word of *the lamp is on* or *the strike is over* is no preposition."""
        if i and self.items[i - 1].kind in (AUX, NEG) and self._kind_after(i) in (-1, BOUND):
            self._word(i, token)
        else:
            self.small.append(token.text)

    def _negator(self, i: int, token: Token) -> None:
        after = self._after(i)
        if after in g.HARMLESS_NEXT or (not i and after == ",") or self._before(i) == "or":
            return
        if after == "." and self._kind_after(i + 1) in (CODE, VALUE):
            return  # pump no. 5
        if token.text == "non":
            self.only_next = True
            return
        if i + 1 < len(self.items) and self.items[i + 1].flags & ALL and not self.deny:
            self.flags |= NOT_ALL
            return
        if token.text != "nor" or not self.deny:
            self._turn()
        self.pending = self.deny
        before = self.items[i - 1].kind if i else BOUND
        # A man with no hat is here; a man not wearing a hat is here.
        limited = before == PREP or (token.text == "not" and before in (WORD, CODE))
        self.until_verb = token.text == "without" or limited

    def _auxiliary(self, i: int, token: Token) -> None:
        if self.until_verb:
            self.deny = self.until_verb = False
        if self._after(i) == "to":
            self.flags |= OBLIGED  # has to, is to
        if i == 0 and token.text in ("should", "were", "had"):
            self.flags = self.flags & ~OBLIGED | IF
