"""Judges: who says how two statements relate.

A judge reads pairs of statements and gives one verdict for each: contradiction, entailment,
neutral, or unjudged when it could not tell, with the reason. A judge never raises for what a
statement says; a server that fails, a model that babbles and a text that cannot be read all end in
``unjudged``, so that a failure is never taken for agreement.

Judges are found by name with :func:`judge_from`. A name may carry an argument after a colon
(``cross-encoder:some-model``); others are added with :func:`register_judge`.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from mnemes_lab.errors import InputError

RELATIONS = ["contradiction", "entailment", "neutral", "unjudged"]


class Statement(NamedTuple):
    """What a judge may look at: the text of a fact, and its parts where they are known.

    Attributes:
        text: The statement in words.
        subject: What it is about.
        predicate: What is said of the subject.
        object: The value of the predicate.
        valid_from: Start of its validity, microseconds since 1970 in UTC; None is open.
        valid_to: End of its validity, exclusive; None is open.
        namespace: Where it is kept.
    """

    text: str
    subject: str | None = None
    predicate: str | None = None
    object: str | None = None
    valid_from: int | None = None
    valid_to: int | None = None
    namespace: str | None = None


class Verdict(NamedTuple):
    """What a judge says of one pair.

    Attributes:
        relation: One of `RELATIONS`; ``unjudged`` is for what could not be judged.
        confidence: From 0 to 1, that the relation is right; 0 when unjudged.
        reason: For people: what clashed, or why nothing can be said.
        judge: Who says so.
    """

    relation: str
    confidence: float
    reason: str
    judge: str


@runtime_checkable
class Judge(Protocol):
    """Anything with a name that gives one verdict for each pair, in order.

    The first statement of a pair is the existing one, the second the incoming one. `judge` does not
    raise for what the statements contain.
    """

    name: str

    def judge(self, pairs: Sequence[tuple[Statement, Statement]]) -> list[Verdict]:
        """One verdict for each pair, in the order of the pairs."""
        ...


Factory = Callable[[str], Judge]
"""Makes a judge; gets what follows the colon of the name, or an empty text."""

# Modules of the package's own judges. Importing one registers its names, so a judge's libraries
# are loaded only when somebody asks for it.
_MODULES = {
    "rules": "mnemes_lab.diff.rules",
    "embedding": "mnemes_lab.diff.head",
    "llm": "mnemes_lab.diff.llm_judge",
    "cross-encoder": "mnemes_lab.diff.cross_encoder",
    "ensemble": "mnemes_lab.diff.ensemble",
    "default": "mnemes_lab.diff.ensemble",
}
_FACTORIES: dict[str, Factory] = {}


def register_judge(name: str, factory: Factory) -> None:
    """Offer a judge under a name; a later registration replaces an earlier one.

    Args:
        name: Without a colon; case does not matter.
        factory: Called with what follows the colon, an empty text when there is none.

    Raises:
        InputError: the name is blank or holds a colon.

    Example:
        >>> class Yes:
        ...     name = "yes"
        ...     def judge(self, pairs):
        ...         return [Verdict("neutral", 0.5, "says so", self.name) for _ in pairs]
        >>> register_judge("yes", lambda argument: Yes())
        >>> judge_from("yes").judge([(Statement("a"), Statement("b"))])[0].relation
        'neutral'
    """
    key = name.strip().casefold()
    if not key or ":" in key:
        raise InputError("This cannot be the name of a judge.", found=name, hint="use one word")
    _FACTORIES[key] = factory


def judge_names() -> list[str]:
    """Names that `judge_from` knows, sorted.

    Example:
        >>> {"rules", "embedding", "default"} <= set(judge_names())
        True
    """
    return sorted({*_MODULES, *_FACTORIES})


def judge_from(judge: str | Judge) -> Judge:
    """The judge of a name; a judge is given back as it is.

    Args:
        judge: One of `judge_names`, with an argument after a colon where the judge takes one, or an
            object with a `name` and a `judge` method.

    Raises:
        InputError: no judge has this name, or the object is not a judge.
        MissingExtraError: the judge needs a package that is not installed.

    Example:
        >>> judge_from("rules").name
        'rules'
        >>> judge_from("ruels")
        Traceback (most recent call last):
        ...
        mnemes_lab.errors.InputError: There is no such judge. Found 'ruels'. Hint: did you mean ...
    """
    if not isinstance(judge, str):
        if isinstance(judge, Judge) and isinstance(judge.name, str):
            return judge
        raise InputError(
            "This is not a judge.",
            found=judge,
            hint="give a name such as 'rules', or an object with name and judge(pairs)",
        )
    head, _, argument = judge.partition(":")
    key = head.strip().casefold()
    if key not in _FACTORIES and key in _MODULES:
        importlib.import_module(_MODULES[key])
    if key not in _FACTORIES:
        names = judge_names()
        close = difflib.get_close_matches(key, names, n=1, cutoff=0.5)
        known = f"known are {', '.join(names)}"
        raise InputError(
            "There is no such judge.",
            found=judge,
            hint=f"did you mean {close[0]!r}? {known.capitalize()}" if close else known,
        )
    return _FACTORIES[key](argument.strip())
