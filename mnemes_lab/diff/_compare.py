"""Two statements side by side: first what they are about, then what they say of it.

In this order:

1. **Frame.** Imagined, wished for, merely possible or former against plain; other codes; another
   speaker: nothing clashes.
2. **Words.** Words of one statement that the other lacks are paired: a kind with its general word,
   opposites, members of a class that exclude each other. What stays unpaired is detail on one side,
   or another subject.
3. **Denial.** One statement denies what the other affirms, if most of what is denied is affirmed.
4. **Values.** Amounts, times, codes and paired words clash, if nothing else explains the
   difference: a second difference, in time or in subject, does.

Every step is symmetric: the order of two statements changes no more than the order in the reason.
"""

from __future__ import annotations

from mnemes_lab.diff._amounts import Amount, clashes
from mnemes_lab.diff._difference import (
    Clash,
    Difference,
    Finding,
    clash,
    neutral,
    other_frame,
    other_subject,
    other_tense,
    other_times,
    weight,
    word_difference,
)
from mnemes_lab.diff._lexicon import DESCRIBING, EVENTS, LISTED, general, opposed
from mnemes_lab.diff._parse import NOT_ALL, Parsed
from mnemes_lab.diff._times import Time
from mnemes_lab.diff._tokens import ABLE, ALL, AUX, BOUND, NEG, PREP, SOME

_MOST = 0.75  # share of what is denied that the other statement has to affirm


def compare(one: Parsed, other: Parsed) -> Finding:
    """How two statements relate, with the reason.

    Example:
        >>> from mnemes_lab.diff._parse import parse
        >>> compare(parse("The valve is open."), parse("The valve is shut."))
        Finding(relation='contradiction', confidence=0.85, reason='open / shut')
        >>> compare(parse("Valve V-1 is open."), parse("Valve V-2 is shut.")).reason
        'other subjects: v-1 / v-2'
    """
    if one.key == other.key:
        return Finding("entailment", 0.98, "the same words")
    return other_frame(one, other) or compare_values(one, other)


def compare_values(one: Parsed, other: Parsed) -> Finding:
    """As `compare`, for statements known to have the same frame."""
    difference = word_difference(one, other)
    found = None
    if one.denied or other.denied:
        found = None if difference.clashes else _denial(one, other, difference)
    elif difference.left and difference.right:  # most pairs: they say different things
        return neutral(0.6 if difference.clashes else 0.75, "they differ in more than one thing")
    return (
        found
        or _not_all(one, other, difference)
        or _values(one, other, difference)
        or _agreement(one, other, difference)
    )


# --- denial -------------------------------------------------------------------------------------
def _denial(one: Parsed, other: Parsed, difference: Difference) -> Finding | None:
    if other_subject(one, other, difference):
        return None
    left, right = difference.left, difference.right
    if any(code in left for code in one.codes) and any(code in right for code in other.codes):
        return None
    ways = [
        _denies(one, other, left, right, difference.kin),
        _denies(other, one, right, left, difference.kin),
    ]
    contradictions_first = sorted(finding for finding in ways if finding)
    return contradictions_first[0] if contradictions_first else None


def _denies(
    denier: Parsed,
    other: Parsed,
    mine: frozenset[str],
    theirs: frozenset[str],
    kin: dict[str, str],
) -> Finding | None:
    """Whether the first denies what the other affirms, and how much of it."""
    if not denier.denied or (denier.flags & SOME and not other.flags & ALL):
        return None
    met, missed, words = 0.0, 0.0, set()
    for word in sorted(denier.denied):
        size, relative = weight([word]), kin.get(word)
        if word in other.affirmed:
            met += size
        elif relative in other.affirmed and not opposed(word, relative or ""):
            part = 1.0 if general(relative or "", word) else 0.7
            met, missed = met + part * size, missed + (1 - part) * size
        else:
            missed += 0.0 if word in other.denied else size
            continue
        words.add(word)
    background = mine & denier.affirmed
    described = len(background & DESCRIBING)
    missed += 0.7 * (weight(background) - described) + 0.3 * described
    if denier.denied & other.denied and words <= other.opening:
        return None  # both deny it, one of the subject as well: neither brake works
    if not words or met / (met + missed) <= _MOST:
        part = met > 0.4 * (met + missed)
        return neutral(0.5, "part of what is denied is affirmed") if part else None
    if other_times(denier, other) or clashes(denier.amounts, other.amounts):
        return neutral(0.6, "they speak of other times or amounts")
    if other_tense(denier, other):
        return neutral(0.55, "they speak of other times")
    if other.flags & ABLE and not denier.flags & ABLE:
        return neutral(0.6, "one says what can be")
    share = met / (met + missed)
    shown = " ".join(text for word, text in denier.shown.items() if word in words)
    confidence = round(0.3 + 0.65 * share - 0.05 * min(3.0, weight(theirs)), 2)
    return Finding("contradiction", max(0.5, confidence), f"not {shown} / {shown}")


def _not_all(one: Parsed, other: Parsed, difference: Difference) -> Finding | None:
    """Not all gates are open, all gates are open."""
    if not (one.flags ^ other.flags) & NOT_ALL or difference.left or difference.right:
        return None
    both = one.flags | other.flags
    if one.flags & ALL and other.flags & ALL and both & NOT_ALL and not difference.clashes:
        return clash(0.9, 0.0, "not all / all")
    return None


# --- values -------------------------------------------------------------------------------------
def _values(one: Parsed, other: Parsed, difference: Difference) -> Finding | None:
    amounts = clashes(one.amounts, other.amounts) if one.amounts and other.amounts else []
    times = other_times(one, other)
    words = difference.clashes
    left, right = difference.left, difference.right
    small = _small_clashes(one, other) if one.small != other.small else []
    if small and (amounts or times):
        return neutral(0.6, "they differ in more than one thing")
    if not left and not right:
        words = words or small
    if not amounts and not times and not words:
        return _denied_value(one, other, difference)
    if one.value_denied != other.value_denied and (amounts or times):
        return neutral(0.7, "not one value, but another")
    if left and right:
        return neutral(0.6, "they differ in more than one thing")
    if other_subject(one, other, difference):
        return neutral(0.7, "they have other subjects")
    if one.verb in left or other.verb in right:
        return neutral(0.55, "they have other verbs")
    if (amounts or words) and times:
        return neutral(0.85, f"other times: {times[0][0].text} / {times[0][1].text}")
    for a, b, _ in words:
        if a in one.opening and b in other.opening:
            return _subjects_clash(one, other, difference)
        if one.opening and other.opening and (a in one.opening) != (b in other.opening):
            return neutral(0.5, "the same words in other roles")
    kinds = {(amount.dimension, amount.per) for amount, _ in amounts}
    if len(words) + len(kinds) > 1 or len(times) > 1 or (one.denied != other.denied and not words):
        return neutral(0.5, "they differ in more than one thing")
    if other_tense(one, other):
        return neutral(0.55, "they speak of other times")
    extra = weight(left) + weight(right)
    if amounts:
        return _amounts_clash(one, other, amounts, extra)
    if words:
        return _words_clash(one, other, words[0], extra)
    return _times_clash(one, other, times[0], extra)


def _small_clashes(one: Parsed, other: Parsed) -> list[Clash]:
    """Opposites among prepositions, as in up / down, where all other words are the same."""
    mine, theirs = sorted(one.small - other.small), sorted(other.small - one.small)
    return [Clash(a, b, "small") for a in mine for b in theirs if opposed(a, b)][:1]


def _subjects_clash(one: Parsed, other: Parsed, difference: Difference) -> Finding:
    """A difference in what describes the subject: another subject, as a rule.

    Two sentences about somebody unnamed that are the same but for one description are likelier to
    paint one scene in two ways; that is a guess, and its confidence says so.
    """
    a, b, why = difference.clashes[0]
    alone = len(difference.clashes) == 1 and not difference.left and not difference.right
    person = one.head == other.head and (one.head == "person" or general(one.head or "", "person"))
    unnamed = one.vague and other.vague and why != "places in a row"
    if person and alone and unnamed and len(one.every) > 2:
        return clash(0.52, 0.0, f"{_show(one, a)} / {_show(other, b)} of one {one.head}")
    return neutral(0.5, "they may have other subjects")


def _show(parsed: Parsed, word: str) -> str:
    return parsed.shown.get(word, word)


def _amounts_clash(
    one: Parsed, other: Parsed, amounts: list[tuple[Amount, Amount]], extra: float
) -> Finding:
    kinds = [{time.kind for time in parsed.times} for parsed in (one, other)]
    if bool(kinds[0]) != bool(kinds[1]) and amounts[0][0].dimension != "count":
        return neutral(0.5, "only one says when")
    mine, theirs = amounts[0]
    return clash(0.9, extra, f"{mine.text} / {theirs.text}")


def _words_clash(one: Parsed, other: Parsed, words: Clash, extra: float) -> Finding:
    a, b, why = words
    shared = one.every & other.every
    if (one.flags | other.flags) & SOME and not one.flags & other.flags & ALL:
        return neutral(0.6, "some may and others not")
    both_vague = one.vague and other.vague
    if both_vague and (len(shared) < 3 or why == "small"):
        return neutral(0.5, "they may speak of two things")
    reason = f"{_show(one, a)} / {_show(other, b)}"
    if why in ("opposite", "small"):
        return clash(0.65 if both_vague else 0.85, extra, reason)
    if why != "places in a row" and _listed(one, other, words):
        return neutral(0.6, f"{reason} may both be so")
    if why == "code":
        return clash(0.75 if shared & one.codes else 0.65, extra, reason)
    return clash(0.6 if both_vague else 0.75, extra, f"{reason}, each one {why}")


def _listed(one: Parsed, other: Parsed, words: Clash) -> bool:
    """Whether several values may hold at once: what somebody speaks, bites or is allergic to."""
    if one.vague and other.vague:
        return False  # rather one scene than a habit
    for word in one.every & other.every & LISTED:
        if not (one.shown[word].endswith("ing") and other.shown[word].endswith("ing")):
            return True
    return _acted_on(one, words.one) and _acted_on(other, words.other)


def _acted_on(parsed: Parsed, word: str) -> bool:
    """Whether a word is what a verb acts on: bit a cat, but not lives in Peru or is a cat."""
    if parsed.verb is None or word in parsed.opening:
        return False
    at = next((i for i, token in enumerate(parsed.tokens) if token.lemma == word), 0)
    for token in reversed(parsed.tokens[parsed.verb_at + 1 : at]):
        if token.kind in (PREP, AUX, NEG, BOUND):
            return False
    return True


def _times_clash(one: Parsed, other: Parsed, times: tuple[Time, Time], extra: float) -> Finding:
    """A time that differs is what is said, or else only when it is said of."""
    shown = f"{times[0].text} / {times[1].text}"
    for parsed, time in zip((one, other), times, strict=True):
        before_verb = time.place < parsed.verb_at < len(parsed.tokens)
        measured = any(amount.dimension != "count" for amount in parsed.amounts)
        span = time.kind in ("period", "part") or (time.kind == "date" and time.value[2] is None)
        once = bool(parsed.every & EVENTS)
        if (
            before_verb or measured or (span and not once) or time.text.endswith("days")
        ):  # on Mondays
            return neutral(0.8, f"other times: {shown}")
    return clash(0.8, extra, shown)


def _denied_value(one: Parsed, other: Parsed, difference: Difference) -> Finding | None:
    """One says it is not 80 kg, the other that it is."""
    if one.value_denied == other.value_denied or difference.left or difference.right:
        return None
    both = (one.amounts and other.amounts) or (one.times and other.times)
    if one.denied or other.denied or not both:
        return None
    text = (one.amounts or one.times)[0].text
    return clash(0.8, 0.0, f"{text} / not {text}")


def _agreement(one: Parsed, other: Parsed, difference: Difference) -> Finding:
    """Nothing clashes; how sure that is, and whether they say the same."""
    left, right = difference.left, difference.right
    same_values = len(one.amounts) == len(other.amounts) and len(one.times) == len(other.times)
    if not left and not right and not difference.clashes and same_values:
        turned = sorted(one.order) == sorted(other.order) and one.order[:1] != other.order[:1]
        if turned and one.small == other.small:
            return neutral(0.5, "the same words in other roles")
        if one.denied == other.denied and not difference.kin:
            return Finding("entailment", 0.8, "the same in other words")
        return neutral(0.6, "nothing clashes")
    if one.denied or other.denied:
        return neutral(0.55, "what is denied is not what is affirmed")
    return neutral(0.7, "nothing clashes")
