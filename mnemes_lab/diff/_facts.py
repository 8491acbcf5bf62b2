"""Facts in parts: subject, predicate, object and the time they hold.

Where two facts name their parts, the parts decide: another subject or another predicate is another
question, and validity that does not overlap is another time. One subject, one predicate and two
objects clash if the predicate has one object at a time; what it has several of, such as languages
spoken, does not clash.
"""

from __future__ import annotations

from collections.abc import Sequence

from mnemes_lab.diff._compare import compare, compare_values
from mnemes_lab.diff._difference import Finding, clash, neutral, other_times, word_difference
from mnemes_lab.diff._grammar import ONE_OBJECT
from mnemes_lab.diff._lexicon import LIST_NOUNS, LISTED, opposed
from mnemes_lab.diff._parse import MODE, Parsed
from mnemes_lab.diff._tokens import PREP, tokens
from mnemes_lab.diff.judge import Statement


def apart_in_time(one: Statement, other: Statement) -> bool:
    """Whether the intervals in which two facts hold have no moment in common.

    Example:
        >>> apart_in_time(Statement("a", valid_to=5), Statement("b", valid_from=5))
        True
    """
    for s in (one, other):
        if s.valid_to is None:
            continue
        if any(t.valid_from is not None and t.valid_from >= s.valid_to for t in (one, other)):
            return True
    return False


def one_object(predicate: str) -> bool:
    """Whether a predicate has one object at a time, as far as its words tell.

    Nouns have (gate, blood group), so have verbs with *at, by, in* and the like (departs at, lives
    in); bare verbs (speaks, waters) and plurals have several.

    Example:
        >>> [one_object(p) for p in ("blood group", "departs at", "speaks", "allergic to")]
        [True, True, False, False]
    """
    cut = tokens(predicate)
    if not cut:
        return False
    if any(token.lemma in LISTED or token.lemma in LIST_NOUNS for token in cut):
        return False
    last = cut[-1]
    if last.kind == PREP or last.text in ("of", "to"):
        return last.text in ONE_OBJECT
    plural = last.text.endswith("s") and not last.text.endswith(("ss", "us", "is"))
    return last.text != "do" and not plural


def compare_facts(
    one: Statement,
    other: Statement,
    texts: tuple[Parsed, Parsed],
    parts: Sequence[tuple[Parsed, Parsed]],
) -> Finding:
    """How two facts with subject, predicate and object relate.

    Args:
        one: The existing fact.
        other: The incoming fact.
        texts: Their texts, parsed.
        parts: Their subjects, predicates and objects, parsed.
    """
    subjects, predicates, objects = parts
    same = _same_name(*subjects)
    if not same and not _contained(*subjects):
        return neutral(0.9, f"other subjects: {one.subject} / {other.subject}")
    if same and _same_words(*predicates):
        return _objects(one, other, texts, objects)
    found = compare(*texts)
    if same and not predicates[0].every.isdisjoint(predicates[1].every):
        return found
    if found.relation != "contradiction":
        return found
    if same:
        return neutral(0.6, f"other predicates: {one.predicate} / {other.predicate}")
    if _extended(*subjects):
        return neutral(0.6, f"maybe other subjects: {one.subject} / {other.subject}")
    return found._replace(confidence=max(0.5, round(found.confidence - 0.1, 2)))


def _same_words(one: Parsed, other: Parsed) -> bool:
    values = [[*(a.value for a in p.amounts), *(t.value for t in p.times)] for p in (one, other)]
    return one.every == other.every and values[0] == values[1]


def _contained(one: Parsed, other: Parsed) -> bool:
    """Whether one name holds all words of the other, and no other code."""
    if one.codes and other.codes and one.codes != other.codes:
        return False
    return bool(one.every and other.every) and (
        one.every <= other.every or other.every <= one.every
    )


def _same_name(one: Parsed, other: Parsed) -> bool:
    """One name, articles and the like apart; a code says enough."""
    if one.codes and one.codes == other.codes and _contained(one, other):
        return True
    return _same_words(one, other) and one.small == other.small


def _extended(one: Parsed, other: Parsed) -> bool:
    """Whether one name goes on where the other ends: Ana Ruiz, Ana Ruiz-Diaz."""
    short, long = sorted((one.order, other.order), key=len)
    return len(short) < len(long) and long[: len(short)] == short


def _objects(
    one: Statement,
    other: Statement,
    texts: tuple[Parsed, Parsed],
    objects: tuple[Parsed, Parsed],
) -> Finding:
    """Two objects of one subject and predicate."""
    shown = f"{one.object} / {other.object} for {one.subject}, {one.predicate}"
    mine, theirs = objects
    if mine.key == theirs.key:
        return Finding("entailment", 0.9, f"both say {one.object}")
    if (texts[0].flags ^ texts[1].flags) & MODE:
        return neutral(0.85, "one is imagined, wished for or past")
    said = {time.kind for time in (*mine.times, *theirs.times)}
    when = [pair for pair in other_times(*texts) if pair[0].kind not in said]
    if when and not _says_one_time(*objects):
        return neutral(0.85, f"other times: {when[0][0].text} / {when[0][1].text}")
    found = compare_values(mine, theirs)
    if found.relation == "contradiction":
        kinds = [why for _, _, why in word_difference(mine, theirs).clashes if why != "opposite"]
        if kinds and not one_object(str(one.predicate)):
            return neutral(0.6, f"{shown}: both may be so")
        return clash(max(0.9, found.confidence), 0.0, shown)
    valued = (mine.times or mine.amounts) and (theirs.times or theirs.amounts)
    if found.relation == "entailment" or valued:
        return found
    return _other_object(str(one.predicate), mine, theirs, shown)


def _says_one_time(mine: Parsed, theirs: Parsed) -> bool:
    return bool(mine.times and theirs.times) and not other_times(mine, theirs)


def _other_object(predicate: str, mine: Parsed, theirs: Parsed, shown: str) -> Finding:
    """Objects that do not clash by their words: more detail, another item, or another value."""
    single = one_object(predicate)
    small = [mine.every | mine.small, theirs.every | theirs.small]
    if single and any(opposed(a, b) for a in small[0] for b in small[1]):
        return clash(0.85, 0.0, shown)
    difference = word_difference(mine, theirs)
    if (not difference.left or not difference.right) and _letters(mine) == _letters(theirs):
        return neutral(0.7, f"{shown}: one says more")
    if mine.denied != theirs.denied or {"yes"} in (mine.every, theirs.every):
        return neutral(0.55, f"{shown}: nothing clashes")
    if not single:
        return neutral(0.7, f"{shown}: both may be so")
    return clash(0.7, 0.0, shown)


def _letters(parsed: Parsed) -> list[str]:
    """Single letters, which are no articles in an object: blood group A."""
    return [text for text in parsed.key if len(text) == 1 and text.isalpha()]
