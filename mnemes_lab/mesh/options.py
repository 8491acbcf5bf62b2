"""How to search: the options of one request, checked when made."""

from __future__ import annotations

from dataclasses import dataclass

from mnemes_lab.errors import BudgetError, InputError
from mnemes_lab.router.merge import checked_k
from mnemes_lab.router.rankers import initial_budget, router_named
from mnemes_lab.store.asof import AsOf


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
            BudgetError: k, budget or max_shards below 1, or max_shards below the budget.
            InputError: an unknown router, or namespaces that are not a list of texts.
        """
        object.__setattr__(self, "k", checked_k(self.k))
        router_named(self.router)
        initial_budget(self.budget, 1, exhaustive=False)
        initial_budget(self.max_shards, 1, exhaustive=False)
        if self.max_shards is not None and self.max_shards < (self.budget or 1):
            raise BudgetError(
                "max_shards is below the budget.",
                found=(self.max_shards, self.budget),
                hint="it bounds how far expand=True may go past the budget",
            )
        if self.namespaces is not None:
            plain = not isinstance(self.namespaces, str)
            if not plain or not all(isinstance(n, str) for n in self.namespaces):
                raise InputError(
                    "namespaces must be a list of texts.",
                    found=self.namespaces,
                    hint="an empty list finds nothing; None searches all",
                )
            object.__setattr__(self, "namespaces", tuple(sorted(set(self.namespaces))))
