"""The `rules` judge: deterministic, explainable, and in need of nothing but this package.

It compares what two statements are about before it compares what they say: subject, time, place and
certainty first, then numbers with units, times, negation, opposites and words that exclude each
other. Where facts name their subject, predicate and object, these decide. A clash that something
else may explain is none: the judge would rather miss a contradiction than invent one, and says with
its confidence how sure it is. Confidence 0.5 means that the rules cannot tell.

How statements are read is in :mod:`mnemes_lab.diff._parse`, how they are compared in
:mod:`mnemes_lab.diff._compare` and :mod:`mnemes_lab.diff._facts`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

from mnemes_lab.diff._compare import compare
from mnemes_lab.diff._difference import Finding, neutral
from mnemes_lab.diff._facts import apart_in_time, compare_facts
from mnemes_lab.diff._parse import Parsed, parse
from mnemes_lab.diff.judge import Statement, Verdict, register_judge

REMEMBERED = 1 << 16
"""How many parsed texts are kept; a scan meets every fact several times."""

_parsed = lru_cache(maxsize=REMEMBERED)(parse)


class RulesJudge:
    """Judges by rules.

    Cost: reading a statement of a dozen words takes some 30 microseconds, once; comparing two takes
    about as long. The result depends on the pair alone and is the same for both orders of it.

    Args:
        aliases: Other names, each with the one or the several it may stand for. A name with one
            meaning is read as that; where one with several meanings takes part in a clash, the pair
            is left unjudged with the candidates in the reason.

    Example:
        >>> rules = RulesJudge()
        >>> kept, dropped = Statement("Valve V-2 is open"), Statement("Valve V-2 is not open")
        >>> rules.judge([(kept, dropped)])[0]
        Verdict(relation='contradiction', confidence=0.95, reason='not open / open', judge='rules')
        >>> rules.judge([(Statement("It is 1.5 m long"), Statement("It is 150 cm long"))])[0][:3]
        ('entailment', 0.8, 'the same in other words')
    """

    name = "rules"

    def __init__(self, aliases: Mapping[str, str | Sequence[str]] | None = None) -> None:
        """Keep the aliases; no other state."""
        self._names = {
            " ".join(alias.casefold().split()): [names] if isinstance(names, str) else list(names)
            for alias, names in (aliases or {}).items()
            if alias.strip()
        }
        longest_first = sorted(self._names, key=lambda alias: (-len(alias), alias))
        written = "|".join(re.escape(alias).replace(r"\ ", r"\s+") for alias in longest_first)
        # A name does not begin or end inside a longer one: Ana Ruiz is not Ana Ruiz-Diaz.
        self._alias = re.compile(rf"(?<![\w-])(?:{written})(?![\w-])", re.I) if written else None

    def judge(self, pairs: Sequence[tuple[Statement, Statement]]) -> list[Verdict]:
        """One verdict for each pair, in order; never raises for what statements contain."""
        return [self._judge(one, other) for one, other in pairs]

    def _judge(self, one: Statement, other: Statement) -> Verdict:
        unclear: dict[str, list[str]] = {}
        if self._alias is not None:
            one, other = self._named(one, unclear), self._named(other, unclear)
        found = _relate(one, other)
        if unclear and found.relation == "contradiction":
            alias, names = min(unclear.items())
            found = Finding("unjudged", 0.0, f"{alias} may be {' or '.join(names)}")
        return Verdict(found.relation, found.confidence, found.reason, self.name)

    def _named(self, statement: Statement, unclear: dict[str, list[str]]) -> Statement:
        """The statement with every clear alias replaced; the unclear ones are noted."""

        def name(match: re.Match[str]) -> str:
            names = self._names[" ".join(match.group().casefold().split())]
            if len(names) == 1:
                return names[0]
            unclear[match.group()] = names
            return match.group()

        pattern = self._alias
        if pattern is None:
            return statement
        subject, value = statement.subject, statement.object
        return statement._replace(
            text=pattern.sub(name, statement.text),
            subject=subject and pattern.sub(name, subject),
            object=value and pattern.sub(name, value),
        )


def _relate(one: Statement, other: Statement) -> Finding:
    if apart_in_time(one, other):
        return neutral(0.95, "they hold at different times")
    texts = _parsed(one.text), _parsed(other.text)
    if not texts[0].key or not texts[1].key:
        return Finding("unjudged", 0.0, "one of them has no words")
    if one.object and other.object:
        parts = _parts(one, other)
        if parts:
            return compare_facts(one, other, texts, parts)
    return compare(*texts)


def _parts(one: Statement, other: Statement) -> list[tuple[Parsed, Parsed]]:
    """Subjects, predicates and objects, if both facts name all three in words."""
    parts = []
    for mine, theirs in zip(one[1:4], other[1:4], strict=True):
        if not isinstance(mine, str) or not isinstance(theirs, str):
            return []
        pair = _parsed(mine), _parsed(theirs)
        if not pair[0].key or not pair[1].key:
            return []
        parts.append(pair)
    return parts


register_judge("rules", lambda argument: RulesJudge())
