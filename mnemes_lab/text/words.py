r"""Words: how text becomes search terms.

The search tokenizer, :func:`tokens`, in this order:

1. **Fold.** Compatibility decomposition and full case folding (``ﬁ`` is ``fi``, ``STRASSE`` is
   ``straße``), so that every normal form of a text gives the same terms.
2. **Tidy.** Invisible format characters, variation selectors and the Arabic tatweel are dropped, a
   zero-width space separates, curly apostrophes and the various hyphens become ``'`` and ``-``,
   decimal digits of any script become those of ASCII.
3. **Strip accents.** Non-spacing marks are removed after a Latin, Greek, Cyrillic, Arabic or Hebrew
   letter and after a digit, where readers leave them out at will (``dépôt`` is ``depot``).
   Everywhere else a mark is part of the spelling (Devanagari vowels, Japanese voicing) and stays.
4. **Words.** Maximal runs of letters, numbers and their marks.
5. **Codes.** Words that touch through one to three joiners (``- . : / ' _ @ + % # = \ &``) form a
   chain. A chain also yields each pair of neighbours and itself whole, so ``KX-77`` is found as
   ``kx-77`` even inside ``pump=KX-77``, and never takes ``KX-78`` for its equal.
6. **Tails.** ``++``, ``+``, ``#`` or ``%`` after a word adds the word with it: ``c++``, ``50%``.
7. **Scripts without spaces** (Han, kana, Thai, Lao, Khmer, Myanmar) yield overlapping pairs of
   characters, or the one character of a run that has no second.

Anything else separates. Text of punctuation alone has no terms; no text is an error.
"""

from __future__ import annotations

import re
import unicodedata

_JOINERS = r"\-.:/'_@+%#=\\&"
_TAIL = r"(?:\+\+?|[#%])?"
_ASCII_RUN = re.compile(rf"[a-z0-9]+(?:[{_JOINERS}]{{1,3}}[a-z0-9]+)*{_TAIL}")
# The same over kinds of characters: l, o letters and numbers; m marks; b scripts without spaces.
_KIND_RUN = re.compile(rf"[lo][lom]*(?:[{_JOINERS}]{{1,3}}[lo][lom]*)*{_TAIL}|b[bm]*")
_ACCENTED = re.compile("lm+")
_JOINED = re.compile(rf"([{_JOINERS}]+)")
_ROUTING_WORD = re.compile("[A-Za-z0-9]+")

_ACCENTS_OPTIONAL = ("LATIN ", "GREEK ", "CYRILLIC ", "ARABIC ", "HEBREW ")
_HAN_KANA = ("CJK ", "IDEOGRAPHIC ", "HIRAGANA ", "KATAKANA")
_NO_SPACES = (*_HAN_KANA, "THAI ", "LAO ", "KHMER ", "MYANMAR ")


class _Kinds(dict[int, str]):
    """Code point to a one-letter kind, learnt from the Unicode tables as characters turn up."""

    def __missing__(self, code: int) -> str:
        self[code] = kind = self._kind(chr(code))
        return kind

    @staticmethod
    def _kind(char: str) -> str:
        if re.match(f"[{_JOINERS}]", char):
            return char
        category = unicodedata.category(char)
        if category[0] not in "LMN":
            return " "
        name = unicodedata.name(char, "")
        if name.startswith(_NO_SPACES):
            return "b"
        if category in ("Mn", "Me"):
            return "m"
        return "l" if category[0] == "N" or name.startswith(_ACCENTS_OPTIONAL) else "o"


class _Tidy(dict[int, "int | str | None"]):
    """Code point to what stands for it; None drops it. Learnt like :class:`_Kinds`."""

    def __missing__(self, code: int) -> int | str | None:
        category = unicodedata.category(chr(code))
        meant: int | str | None = code
        if category == "Nd":
            meant = str(unicodedata.decimal(chr(code)))
        elif category == "Cf" or "VARIATION SELECTOR" in unicodedata.name(chr(code), ""):
            meant = None
        self[code] = meant
        return meant


_KINDS = _Kinds()
_TIDY = _Tidy(
    {0x200B: " ", 0x0640: None}
    | dict.fromkeys((0x2018, 0x2019, 0x201B, 0x02BC, 0x2032), "'")
    | dict.fromkeys((0x2010, 0x2011, 0x2012, 0x2013, 0x2212), "-")
)


def tokens(text: str) -> list[str]:
    r"""The search terms of a text in reading order, repeats kept.

    The rule is in the module's text. Terms never hold white space or control characters. Linear
    in the length of the text; plain ASCII takes a shorter way to the same answer.

    Example:
        >>> tokens("Dépôt KX-77 closed")
        ['depot', 'kx', '77', 'kx-77', 'closed']
        >>> tokens("C++ at 50%"), tokens("关闭进水"), tokens('"!!!')
        (['c', 'c++', 'at', '50', '50%'], ['关闭', '闭进', '进水'], [])
    """
    if text.isascii():
        return _ascii_terms(text.lower())
    out: list[str] = []
    for piece in text.split():  # no term crosses white space, and most pieces may still be ASCII
        folded = piece.lower() if piece.isascii() else _fold(piece)
        out += _ascii_terms(folded) if folded.isascii() else _terms(folded)
    return out


def _fold(text: str) -> str:
    """Steps 1 to 3: the spelling under which texts are compared."""
    # Folding can undo a normal form and the other way round; this order is Unicode's definition of
    # a compatibility caseless match (Unicode Standard, section 3.13, D146).
    text = unicodedata.normalize("NFD", text).casefold()
    text = unicodedata.normalize("NFKD", text).casefold()
    text = unicodedata.normalize("NFKD", text).translate(_TIDY)
    kinds = text.translate(_KINDS)
    if "m" in kinds:
        kept, end = [], 0
        for found in _ACCENTED.finditer(kinds):
            kept.append(text[end : found.start() + 1])
            end = found.end()
        text = "".join([*kept, text[end:]])
    return unicodedata.normalize("NFC", text)


def _ascii_terms(folded: str) -> list[str]:
    out: list[str] = []
    for run in _ASCII_RUN.findall(folded):
        if run.isalnum():
            out.append(run)
        else:
            out += _chain(run)
    return out


def _terms(folded: str) -> list[str]:
    """Steps 4 to 7 for any script: the runs are found among the kinds, then cut from the text."""
    kinds = folded.translate(_KINDS)
    out: list[str] = []
    for found in _KIND_RUN.finditer(kinds):
        start, end = found.span()
        run = folded[start:end]
        if kinds[start] != "b":
            out += _chain(run)
        elif len(run) == 1:
            out.append(run)
        else:
            out += [run[i : i + 2] for i in range(len(run) - 1)]
    return out


def _chain(run: str) -> list[str]:
    """The words of a chain, its neighbouring pairs, the whole, and the last word with its tail."""
    pieces = _JOINED.split(run)
    tail = []
    if not pieces[-1]:
        tail = [pieces[-3] + pieces[-2]]
        del pieces[-2:]
    pairs = ["".join(pieces[i : i + 3]) for i in range(0, len(pieces) - 2, 2)]
    whole = ["".join(pieces)] if len(pairs) > 1 else []
    return pieces[::2] + pairs + whole + tail


def routing_tokens(text: str) -> list[str]:
    """The distinct search terms of a text, sorted: what a router compares.

    Example:
        >>> routing_tokens("pump, Pump and valve")
        ['and', 'pump', 'valve']
    """
    return sorted(set(tokens(text)))


def ascii_tokens(text: str) -> list[str]:
    """The source system's routing terms: ASCII words, lower case, sorted, distinct.

    Every character that is not an ASCII letter or digit separates, so other scripts have none.

    Example:
        >>> ascii_tokens("café au lait"), ascii_tokens("日本語")
        (['au', 'caf', 'lait'], [])
    """
    # Words are cut out first: lower-casing the Kelvin sign, say, would make an ASCII letter of it.
    return sorted({word.lower() for word in _ROUTING_WORD.findall(text)})
