"""The word lists as tables: which spelling means which word, and how two words relate.

A word is known by its `lemma`: inflected forms and synonyms share one. Unknown words get a stem
that is the same for their usual forms. Everything here is a pure function of a spelling.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from mnemes_lab.diff import _grammar, _words

_CACHE_LIMIT = 1 << 16


def _groups(text: str, bar: str = "|") -> Iterator[str]:
    """The entries of a list: separated by line ends or a bar; a line may go on after a plus."""
    for line in text.replace("\n+", " ").splitlines():
        yield from filter(None, (part.strip() for part in line.split(bar)))


def _first_of_each(text: str) -> dict[str, str]:
    table: dict[str, str] = {}
    for group in _groups(text):
        first, *others = group.split()
        for word in others:
            table.setdefault(word, first)
    return table


_SAME = _first_of_each(_words.SAME)
_IRREGULAR = _first_of_each(_words.IRREGULAR)
for _form, _base in list(_IRREGULAR.items()):
    _IRREGULAR[_form] = _SAME.get(_base, _base)


def _relations() -> tuple[dict[str, set[str]], dict[str, set[str]], set[str]]:
    """Kinds (a word and everything more general) and the exclusive classes of each word."""
    above: dict[str, set[str]] = {}
    classes: dict[str, set[str]] = {}
    phrases: set[str] = set()
    for entry in _groups(_words.KINDS):
        general, mark, members = re.split(r"\s*([:!])\s*", entry, maxsplit=1)
        for word in members.split():
            if "_" in word:
                phrases.add(word)
            lemma = _SAME.get(word, word)
            above.setdefault(lemma, set()).add(general)
            if mark == "!":
                classes.setdefault(lemma, set()).add(f"{general} {members[:12]}")
    changed = True
    while changed:  # what is above a general word is above its kinds too
        changed = False
        for words in above.values():
            more = set().union(*(above.get(word, set()) for word in words)) - words
            words |= more
            changed = changed or bool(more)
    return above, classes, phrases


def _opposites() -> dict[str, set[str]]:
    table: dict[str, set[str]] = {}
    for entry in _groups(f"{_words.OPPOSITE};{_grammar.HAN_OPPOSITE}", bar=";"):
        one, other = (
            {_IRREGULAR.get(w, _SAME.get(w, w)) for w in side.split()} for side in entry.split("|")
        )
        for word in one:
            table.setdefault(word, set()).update(other)
        for word in other:
            table.setdefault(word, set()).update(one)
    return table


ABOVE, CLASSES, _PHRASES = _relations()
OPPOSITES = _opposites()
PHRASES = {tuple(phrase.split("_")): phrase for phrase in sorted(_PHRASES)}
PHRASES |= {tuple(word.split("_")): base for word, base in sorted(_SAME.items()) if "_" in word}
PHRASE_STARTS = frozenset(words[0] for words in PHRASES)
GENERAL = frozenset(word for words in ABOVE.values() for word in words)
DESCRIBING = frozenset(OPPOSITES)  # words that say how something is
RELATED = frozenset([*ABOVE, *GENERAL, *CLASSES, *OPPOSITES])  # words that relate to others
_KNOWN = frozenset(
    [
        *(*_SAME, *_SAME.values(), *_IRREGULAR.values(), *RELATED),
        *(*_grammar.TURNERS, *_grammar.CARRIERS, *_grammar.ATTITUDE),
        *(*_grammar.LISTED, *_grammar.EVENTS),
    ]
)


def _candidates(word: str) -> Iterator[str]:
    """Base forms the word may be an inflection of, likeliest first."""
    if word.endswith("ies") or word.endswith("ied"):
        yield word[:-3] + "y"
    if word.endswith("ying") and len(word) > 5:
        yield word[:-3]
    for suffix in ("s", "es", "ing", "ed", "er", "ly"):
        base = word[: -len(suffix)]
        if not word.endswith(suffix) or len(base) < 2:
            continue
        if suffix in ("s", "es"):
            if base[-1] in "sxzho" if suffix == "es" else base[-1] not in "siu":
                yield base
            continue
        if len(base) > 3 and base[-1] == base[-2]:
            yield base[:-1]
        # A short vowel before one consonant would have doubled it: hoping is hope, hopping hop.
        silent = base[-1] not in "aeiouy" and base[-2] in "aeiouy"
        yield from (base + "e", base) if silent else (base, base + "e")


def _lemma(word: str) -> str:
    if word in _IRREGULAR:
        return _IRREGULAR[word]
    if word in _KNOWN:
        return _SAME.get(word, word)
    if (positive := negated_form(word)) and positive in _KNOWN:
        return word[: -len(positive)] + _SAME.get(positive, positive)
    for base in _candidates(word):
        if base in _KNOWN and not (word.endswith("er") and base in ABOVE):
            return _SAME.get(base, base)
    return _stem(word)


def _stem(word: str) -> str:
    """One stem for the usual forms of an unknown word; short words stay as they are."""
    if len(word) < 4 or not word.isascii():
        return word
    stem = word
    if stem.endswith(("ies", "ied")):
        stem = stem[:-3] + "y"
    elif stem.endswith("ing") and len(stem) > 5:
        stem = stem[:-3]
    elif (stem.endswith("ed") and len(stem) > 4) or (stem.endswith("es") and stem[-3] in "sxzh"):
        stem = stem[:-2]
    elif stem.endswith("s") and stem[-2] not in "siu":
        stem = stem[:-1]
    if len(stem) > 3 and stem[-1] == stem[-2] and stem != word and stem[-1] not in "sl":
        stem = stem[:-1]
    if len(stem) > 3 and stem.endswith("e"):
        stem = stem[:-1]
    return stem


_lemmas: dict[str, str] = {}


def lemma(word: str) -> str:
    """What a folded word is compared by.

    Example:
        >>> [lemma(word) for word in ("kids", "slicing", "slices", "shut", "closed", "juggling")]
        ['child', 'cut', 'cut', 'close', 'close', 'juggl']
    """
    found = _lemmas.get(word)
    if found is None:
        if len(_lemmas) > _CACHE_LIMIT:  # spellings are without end, memory is not
            _lemmas.clear()
        found = _lemmas[word] = _lemma(word)
    return found


def opposed(one: str, other: str) -> bool:
    """Whether two lemmas are opposites, by the list or by a negating prefix.

    Example:
        >>> opposed("open", "close"), opposed("lock", "unlock"), opposed("vent", "invent")
        (True, True, False)
    """
    if other in OPPOSITES.get(one, ()):
        return True
    return negated_form(one) == other or negated_form(other) == one


@lru_cache(maxsize=_CACHE_LIMIT)
def negated_form(word: str) -> str | None:
    """The shorter word that a prefix or suffix of this one negates, if it looks like that."""
    if len(word) < 6 or word in _words.NOT_NEGATED:
        return None
    for prefix in _words.PREFIXES:
        if word.startswith(prefix) and len(word) - len(prefix) >= 4:
            return word[len(prefix) :]
    return None


def general(one: str, other: str) -> bool:
    """Whether the first lemma is a kind of the second.

    Example:
        >>> general("dog", "animal"), general("animal", "dog")
        (True, False)
    """
    return other in ABOVE.get(one, ())


def exclusive(one: str, other: str) -> str | None:
    """The class in which two lemmas exclude each other, if there is one.

    Example:
        >>> exclusive("red", "blue"), exclusive("dog", "puppy"), exclusive("1.", "3.")
        ('colour', None, 'places in a row')
    """
    if one[-1] == other[-1] == "." and one != other:
        return "places in a row"
    common = CLASSES.get(one, set()) & CLASSES.get(other, set())
    if not common or one == other or general(one, other) or general(other, one):
        return None
    return min(common).partition(" ")[0]


LISTED, EVENTS, LIST_NOUNS, TURNERS, CARRIERS, ATTITUDE, CHANGES = (
    frozenset(map(lemma, words))
    for words in (
        _grammar.LISTED,
        _grammar.EVENTS,
        _grammar.LIST_NOUNS,
        _grammar.TURNERS,
        _grammar.CARRIERS,
        _grammar.ATTITUDE,
        _grammar.CHANGES,
    )
)
