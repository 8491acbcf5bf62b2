"""Every error the package raises on purpose.

One root, :class:`MnemesError`. Each message says what was wrong, what was found and, after
``Hint:``, what to do about it. Errors that answer a Python convention also inherit the built-in
class (``ValueError``, ``LookupError``, ``ImportError``), so ordinary ``except`` clauses work.

Example:
    >>> raise BudgetError("budget must be at least 1.", found=0, hint="give 1 or more")
    Traceback (most recent call last):
    ...
    mnemes_lab.errors.BudgetError: budget must be at least 1. Found 0. Hint: give 1 or more
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

_NOTHING = object()


class MnemesError(Exception):
    """Root of the family: ``what`` was wrong, what was ``found``, and a ``hint``."""

    def __init__(self, what: str, *, found: object = _NOTHING, hint: str = "") -> None:
        """Build the message from its three parts; `found` is shown by its repr."""
        self.what, self.hint = what, hint
        parts = [what]
        if found is not _NOTHING:
            shown = repr(found)
            parts.append(f"Found {shown if len(shown) <= 200 else shown[:200] + '...'}.")
        if hint:
            parts.append(f"Hint: {hint}")
        super().__init__(" ".join(parts))

    def __str__(self) -> str:
        """The message itself, also for subclasses of KeyError (which would show its repr)."""
        return str(self.args[0])


# --- input -----------------------------------------------------------------------------------
class InputError(MnemesError, ValueError):
    """An argument is outside what the function accepts."""


class BudgetError(InputError):
    """A budget, a k or a number of shards that cannot be met."""


class IdError(InputError):
    """Text that is not a usable identity."""


class InstantError(InputError):
    """A time without an offset, or one that cannot be read."""


class InvalidAsOfError(InstantError):
    """A point or interval on the two time axes that makes no sense."""


class InvalidProvenanceError(InputError):
    """An edge or operation that the rules of provenance do not allow."""


class SchemaError(InputError):
    """A frame that does not have the shape its name promises; ``problems`` lists all of them."""

    def __init__(self, what: str, *, problems: Iterable[str] = (), hint: str = "") -> None:
        """Collect every problem into one message."""
        self.problems = list(problems)
        super().__init__(" ".join([what, *(f"[{p}]" for p in self.problems)]), hint=hint)


class MissingColumnError(SchemaError, KeyError):
    """A required column is absent."""


class ScenarioError(InputError):
    """A scenario or workload that is unknown or damaged."""


# --- store -----------------------------------------------------------------------------------
class StoreError(MnemesError):
    """Something about the files of a mesh."""


class NotAMeshError(StoreError):
    """The folder or file holds something else."""


class SchemaAheadError(StoreError):
    """The files were written by a newer version; nothing was touched."""


class MigrationError(StoreError):
    """Bringing an older file forward failed; the backup is named."""


class StoreBusyError(StoreError):
    """Another writer kept the lock for longer than the wait."""


class ReadOnlyError(StoreError):
    """The folder cannot be written, or the mesh was opened for reading only."""


class CorruptStoreError(StoreError):
    """A file is damaged or was changed by something else."""


class NotFoundError(StoreError, LookupError):
    """No such device, actor, fact, receipt."""


class DeviceNotFoundError(NotFoundError):
    """No device has this id or label."""


class ActorNotFoundError(NotFoundError):
    """No actor has this id."""


class FactNotFoundError(NotFoundError):
    """No fact has this id."""


class OperationNotFoundError(NotFoundError):
    """No operation has this id, or none had at the record time asked for."""


class EdgeNotFoundError(NotFoundError):
    """No provenance edge has this id."""


class ReceiptNotFoundError(NotFoundError):
    """No receipt has this id."""


class DeviceNotActiveError(StoreError):
    """The device is quarantined or revoked."""


class TransitionError(StoreError, ValueError):
    """A status change the device life cycle does not allow."""


class InvalidCredentialError(StoreError):
    """The credential does not open this device. Says no more, on purpose."""


class AuthorizationDeniedError(StoreError):
    """The actor may not do this."""


class BootstrapRejectedError(StoreError):
    """Bootstrap is for an empty registry only."""


class ConflictError(StoreError, ValueError):
    """The same identity with other content, or a fact that has already been replaced."""


class IdempotencyConflictError(ConflictError):
    """The same key for another request."""


# --- text and routing ------------------------------------------------------------------------
class EncoderError(MnemesError):
    """An encoder failed or answered with something unusable."""


class NotFiniteError(EncoderError):
    """An encoder gave numbers that are not finite for some texts, the ones at `rows`.

    `vectors` holds what it gave for the others, and zeros in place of these.
    """

    rows: Sequence[int] = ()
    vectors: Any = None


class EncoderMismatchError(EncoderError, ValueError):
    """The mesh was encoded by another model or size."""


class ReceiptError(MnemesError):
    """A receipt that cannot be trusted; `reason` is the failing check."""

    reason = "receipt"

    def __init__(
        self, what: str, *, reason: str = "", found: object = _NOTHING, hint: str = ""
    ) -> None:
        """Keep the failing check as one word beside the message."""
        super().__init__(what, found=found, hint=hint)
        self.reason = reason or self.reason


class ReceiptKeyError(ReceiptError):
    """The key a receipt needs is missing, unreadable or not private."""

    reason = "key"


class MissingExtraError(MnemesError, ImportError):
    """An optional package is absent."""

    @classmethod
    def of(cls, feature: str, package: str, extra: str) -> MissingExtraError:
        """Name the feature, the package and the extra that brings it."""
        return cls(f"{feature} needs {package}.", hint=f"pip install 'mnemes-lab[{extra}]'")


# --- language models -------------------------------------------------------------------------
class LLMError(MnemesError):
    """A language model gave no usable answer; `reason` says why in one word."""

    reason = "llm"

    def __init__(
        self, what: str, *, reason: str = "", found: object = _NOTHING, hint: str = ""
    ) -> None:
        """Keep the reason as one word beside the message."""
        super().__init__(what, found=found, hint=hint)
        self.reason = reason or self.reason
