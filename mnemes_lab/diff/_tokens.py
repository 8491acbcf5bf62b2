"""From text to tokens: folding, cutting, and what each token is.

Case, width, kinds of quotes and white space make no difference. A text is cut by one expression;
what a token is depends on its spelling alone and is remembered.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import NamedTuple

from mnemes_lab.diff import _grammar as g
from mnemes_lab.diff._lexicon import ATTITUDE as WISHES
from mnemes_lab.diff._lexicon import CARRIERS, PHRASE_STARTS, TURNERS, lemma
from mnemes_lab.diff._words import IRREGULAR_PAST

# Kinds of tokens.
WORD, STOP, PREP, AUX, NEG, BOUND, NUMBER, CODE, CLOCK, DATE, SIGN, VALUE = range(12)
# What a token tells about the whole statement.
POSSIBLE, ABLE, OBLIGED, ATTITUDE, IF, FORMER, ALL, SOME, FIRST_PERSON, PAST, PRESENT, FUTURE = (
    1 << bit for bit in range(12)
)

_CACHE_LIMIT = 1 << 16
_TOKEN = re.compile(
    r"""
      \d{1,2}:\d\d(?::\d\d)?(?!\d)                     # time of day
    | \d{4}-\d\d(?:-\d\d)?(?![\w-])                    # date or month
    | \d{1,4}(?:st|nd|rd|th)\b                         # place in a row
    | \d+(?:-\d+)+                                     # number with dashes: a code
    | (?:[^\W\d_]+-)*[^\W\d_]+-?\d\w*(?:[-/._]\w*\d\w*)*   # letters and digits: a code
    | [ap]\.m\b\.?
    | \d+(?:[.,]\d+)*
    | [^\W\d_]+(?:['/][^\W\d_]+)*
    | [€$£¥%]|°[cf]?
    | [.;,!?:](?=\s|$)
    """,
    re.VERBOSE,
)
_TIDY = {
    0x200B: " ",
    **dict.fromkeys((0x2018, 0x2019, 0x201B, 0x02BC, 0x2032, 0x60, 0xB4), "'"),
    **dict.fromkeys((0x2010, 0x2011, 0x2012, 0x2013, 0x2212), "-"),
    **{0x3002: ".", 0xFF0C: ",", 0x3001: ",", 0xFF1B: ";", 0xFF01: "!", 0xFF1F: "?"},
}
_TIDY = {code: f"{mark} " if mark in ".,;!?" else mark for code, mark in _TIDY.items()}
_FREE_OF = re.compile(r"(\w+)-free\b")
_HAN = re.compile(r"[\u3400-\u9fff]+")
_HAN_WORD = re.compile("|".join([*sorted(g.HAN_WHOLE, key=lambda word: (-len(word), word)), "."]))


@dataclass(slots=True, eq=False)  # never changed; checking that costs time with every new word
class Token:
    """One token: its spelling, kind and lemma; the number it writes; its flags."""

    text: str
    kind: int
    lemma: str = ""
    value: float = 0.0
    flags: int = 0
    rich: bool = False  # may be part of a number, a time or a code
    finite: bool = False  # looks like a verb
    plain: bool = False  # a word that only says what it says


_RICH = frozenset(
    [
        *(*g.MONTHS, *g.DAYS, *g.PARTS, *g.NAMED_CLOCKS, *g.NUMBER_WORDS, *g.SCALES, *g.RELATIVE),
        *(*PHRASE_STARTS, "half", "quarter", "yesterday", "today", "tomorrow", "fy", "cy"),
        *("until", "till", "first", "second", "third", "fourth"),
    ]
)
_FLAGS: dict[str, int] = {}
for _words, _flag in (
    (g.POSSIBLE, POSSIBLE),
    (g.ABLE, ABLE),
    (g.OBLIGED, OBLIGED),
    (g.HYPOTHETICAL, IF),
    (g.FORMER, FORMER),
    (g.UNIVERSAL, ALL),
    (g.PARTIAL, SOME),
    (g.FIRST_PERSON, FIRST_PERSON),
    (g.PAST, PAST),
    (g.PRESENT, PRESENT),
    (g.FUTURE, FUTURE),
):
    for _word_of in _words:
        _FLAGS[_word_of] = _FLAGS.get(_word_of, 0) | _flag
_SPECIAL = WISHES | TURNERS | CARRIERS
_VERBAL = POSSIBLE | ABLE | OBLIGED


_PAST_FORM = re.compile(r".*[aeiouy].*[^e]ed")


def looks_past(text: str) -> bool:
    """Whether a word looks like a past form: closed and ran, but not bed or speed."""
    if text.endswith("ed"):
        return _PAST_FORM.fullmatch(text) is not None
    return text in IRREGULAR_PAST


def looks_finite(text: str) -> bool:
    """Whether a word may be a verb with a subject before it: closed, runs."""
    return looks_past(text) or (text.endswith("s") and text[-2:-1] not in ("s", "i", "u", ""))


def _classify(text: str) -> Token:
    if text.isalpha():
        return _word(text)
    head = text[0]
    if head.isdigit():
        return _digits(text)
    if not (head.isalpha() or "\u3400" <= head <= "\u9fff"):
        return Token(text, BOUND if head in ".;,!?:" else SIGN, text, rich=head not in ".;,!?:")
    if any(map(str.isdigit, text)):
        return Token(text, CODE, text, rich=True)
    if text[:3] in ("a.m", "p.m"):
        return Token(text, SIGN, text[0] + "m", rich=True)
    if "'" in text:
        base, _, tail = text.rpartition("'")
        if tail == "t" and base.endswith("n"):
            verb = {"ca": "can", "wo": "will", "sha": "shall"}.get(base[:-1], base[:-1])
            return Token(text, NEG, "not", flags=_FLAGS.get(verb, 0))
        if tail in ("s", "ll", "re", "ve", "d", "m"):
            return _classify(base)
        if base in ("d", "l", "n", "qu", "j", "c", "s", "m", "t"):  # elided articles of French
            return _classify(tail)
    return _word(text)


def _digits(text: str) -> Token:
    if ":" in text:
        hours, minutes, *_ = map(int, text.split(":"))
        return Token(text, CLOCK, text, value=60 * hours + minutes, rich=True)
    if "-" in text:
        return Token(
            text, DATE if re.fullmatch(r"\d{4}(-\d\d){1,2}", text) else CODE, text, rich=True
        )
    if text[-1] in "tdh":
        return Token(text, WORD, f"{int(text[:-2])}.", rich=True)
    return Token(text, NUMBER, text, value=_number(text), rich=True)


def _number(text: str) -> float:
    """The value; a comma or point before exactly three digits of a longer group is for reading."""
    if re.fullmatch(r"[1-9]\d{0,2}(,\d{3})+(\.\d+)?", text):
        text = text.replace(",", "")
    elif re.fullmatch(r"[1-9]\d{0,2}(\.\d{3}){2,}(,\d+)?", text):
        text = text.replace(".", "").replace(",", ".")
    elif re.fullmatch(r"\d+,\d+", text):
        text = text.replace(",", ".")
    try:
        return float(text)
    except ValueError:
        return float("nan")


def _word(text: str) -> Token:
    rich = text in _RICH
    if text in g.NEGATORS or text in g.HAN_DENY:
        return Token(text, NEG, text, flags=ABLE if text == "cannot" else 0, rich=rich)
    flags = _FLAGS.get(text, 0)
    if text in g.AUXILIARIES or flags & _VERBAL:
        return Token(text, AUX, text, flags=flags, rich=rich)
    if text in g.BOUNDS:
        return Token(text, BOUND, text)
    if text in g.PREPOSITIONS:
        return Token(text, PREP, text, rich=rich)
    if text in g.STOP or flags or text in ("and", "or"):
        return Token(text, STOP, text, flags=flags, rich=rich)
    if text in g.ORDINALS:
        return Token(text, WORD, f"{g.ORDINALS[text]}.", rich=rich)
    value = g.NUMBER_WORDS.get(text)
    if value is not None:
        return Token(text, NUMBER, text, value=value, rich=True)
    base = lemma(text)
    return Token(
        text,
        WORD,
        base,
        flags=ATTITUDE if base in WISHES else 0,
        rich=rich,
        finite=looks_finite(text),
        plain=not (
            base in WISHES or base in TURNERS or base in CARRIERS or text in ("used", "longer")
        ),
    )


def fold(text: str) -> str:
    """The spelling that is compared: lower case, plain quotes, dashes and widths.

    Example:
        >>> fold("Dépôt STRASSE")
        'depot strasse'
    """
    if text.isascii():
        return text.lower()
    text = unicodedata.normalize("NFKD", unicodedata.normalize("NFC", text).casefold().casefold())
    if not text.isascii():
        text = "".join(c for c in text.translate(_TIDY) if unicodedata.category(c) not in _DROPPED)
    return unicodedata.normalize("NFC", text).casefold()


_DROPPED = ("Mn", "Cf")


class _Chunk(NamedTuple):
    """What a piece between white space holds."""

    tokens: tuple[Token, ...]
    words: tuple[str, ...]  # without punctuation
    rich: bool


_chunks: dict[str, _Chunk] = {}


def _chunk(chunk: str) -> _Chunk:
    folded = fold(chunk)
    if not folded.isascii() and _HAN.search(folded):
        folded = _HAN.sub(lambda run: f" {' '.join(_HAN_WORD.findall(run.group()))} ", folded)
    if "-free" in folded:
        folded = _FREE_OF.sub(r"without \1", folded)
    cuts: list[str] = []
    for cut in _TOKEN.findall(folded):
        split = "/" in cut and cut not in SLASHED and not any(map(str.isdigit, cut))
        cuts += cut.split("/") if split else [cut]
    found = tuple([_classify(cut) for cut in cuts])
    words = tuple([token.text for token in found if token.kind != BOUND])
    return _Chunk(found, words, any([token.rich for token in found]))


SLASHED = frozenset(("km/h", "m/s", "mmol/l", "mg/l", "g/l", "l/min", "mg/dl", "mbit/s", "kg/m"))


def tokens(text: str) -> list[Token]:
    """The tokens of a text in reading order.

    No token crosses white space, so what a piece between white space holds is remembered.

    Example:
        >>> [token.text for token in tokens("Pump KX-77 isn't at 5:00 PM.")]
        ['pump', 'kx-77', "isn't", 'at', '5:00', 'pm', '.']
    """
    return read(text)[0]


def read(text: str) -> tuple[list[Token], list[str], bool]:
    """The tokens of a text, its words without punctuation, and whether numbers may be in it."""
    found: list[Token] = []
    words: list[str] = []
    rich = False
    for chunk in text.split():
        known = _chunks.get(chunk)
        if known is None:
            if len(_chunks) > _CACHE_LIMIT:  # pieces are without end, memory is not
                _chunks.clear()
            known = _chunks[chunk] = _chunk(chunk)
        some, texts, values = known
        found += some
        words += texts
        rich = rich or values
    return found, words, rich
