"""Arguments of a mesh, checked before anything is done: how to open it, how to search it."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mnemes_lab.errors import BudgetError, InputError
from mnemes_lab.frames import whole_number
from mnemes_lab.ids import FILLERS
from mnemes_lab.router.merge import checked_k
from mnemes_lab.router.rankers import checked_shards, router_named
from mnemes_lab.store.asof import AsOf, checked_as_of

_UNSEEN = ("Zs", "Zl", "Zp", "Cc", "Cf")  # categories that show nothing


@dataclass(frozen=True)
class Options:
    """How to search; checked when made."""

    k: int = 10
    budget: int | None = None
    max_shards: int | None = None
    expand: bool = False
    exhaustive: bool = False
    router: str = "overlap"
    as_of: AsOf | None = None
    namespaces: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be met.

        Raises:
            BudgetError: k, budget or max_shards out of range, or max_shards below the budget.
            InputError: an unknown router, a flag that is none, an `as_of` that is no `AsOf`, or
                namespaces that are not a list of names a fact can have.
        """
        set_to = object.__setattr__
        set_to(self, "k", checked_k(self.k))
        router_named(self.router)
        budget = checked_shards(self.budget, "budget", "None means min(2, eligible shards)")
        set_to(self, "budget", budget)
        set_to(self, "max_shards", checked_shards(self.max_shards, "max_shards", "None: no end"))
        for name in ("expand", "exhaustive"):
            if not isinstance(getattr(self, name), bool):
                raise InputError(
                    f"{name} must be True or False.", found=getattr(self, name), hint="give a bool"
                )
        checked_as_of(self.as_of)
        if self.max_shards is not None and self.max_shards < (self.budget or 1):
            raise BudgetError(
                "max_shards is below the budget.",
                found=(self.max_shards, self.budget),
                hint="it bounds how far expand=True may go past the budget",
            )
        if self.namespaces is not None:
            set_to(self, "namespaces", _names(self.namespaces))


def _names(namespaces: Any) -> tuple[str, ...]:
    """Distinct names, each one that a fact can have."""
    listed = isinstance(namespaces, Iterable) and not isinstance(namespaces, str)
    names = list(namespaces) if listed else []
    if not listed or not all(isinstance(name, str) for name in names):
        raise InputError(
            "namespaces must be a list of texts.",
            found=namespaces,
            hint="an empty list finds nothing; None searches all",
        )
    for name in names:
        kinds = [unicodedata.category(c) for c in name]
        if "Cc" in kinds or "Cs" in kinds:
            why = "holds a control character or half a character"
        elif all(k in _UNSEEN or c in FILLERS for c, k in zip(name, kinds, strict=True)):
            why = "is blank"
        else:
            continue
        raise InputError(
            f"A namespace {why}.", found=name, hint="no fact can be in it; None searches all"
        )
    return tuple(sorted(set(names)))


def checked_folder(path: str | os.PathLike[str]) -> Path:
    """The folder of a mesh, with ``~`` spelled out.

    Raises:
        InputError: not a path, or one that no folder can have.
    """
    hint = 'give a path such as "notes/mesh"'
    try:
        text = os.fspath(path)
        usable = isinstance(text, str) and text != "" and b"\0" not in os.fsencode(text)
        if usable and "://" not in text:
            return Path(text).expanduser()
    except (TypeError, UnicodeEncodeError):
        pass
    except RuntimeError:  # ~somebody without a home
        hint = "spell the folder out, without ~"
    raise InputError("A mesh lives in a folder.", found=path, hint=hint)


def at_least_1(value: Any, what: str) -> int:
    """A whole number above zero.

    Raises:
        InputError: anything else.
    """
    number = whole_number(value, what)
    if number < 1:
        raise InputError(f"{what} must be at least 1.", found=number, hint="leave it out")
    return number
