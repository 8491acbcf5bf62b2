"""Two clocks: when a statement holds in the world, and when the mesh accepted it.

All intervals are half-open, open ends are null, an empty interval holds nowhere. A version of a
fact is *on record* at R when ``recorded_at <= R`` and it was not closed at or before R; it *holds*
at V when ``valid_from <= V < valid_to``; it is past its time when ``expires_at <= R``.
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from mnemes_lab.clock import to_us
from mnemes_lab.errors import InputError


class AsOf(NamedTuple):
    """A point on both time axes; ``None`` leaves an axis open.

    ``valid_at=None`` does not look at validity; ``recorded_at=None`` means now. A search without
    an `AsOf` looks at what is current: both axes at now.

    Example:
        >>> AsOf(recorded_at="2031-06-11T00:00:00Z").micros(now=0)
        (None, 1938902400000000)
    """

    valid_at: datetime | str | None = None
    recorded_at: datetime | str | None = None

    def micros(self, now: int) -> tuple[int | None, int]:
        """Both points as microseconds, `now` standing in for an open record time.

        Raises:
            InstantError: a time without an offset or one that cannot be read.
        """
        valid = None if self.valid_at is None else to_us(self.valid_at, what="valid_at")
        recorded = now if self.recorded_at is None else to_us(self.recorded_at, what="recorded_at")
        return valid, recorded


def points(as_of: AsOf | None, now: int) -> tuple[int | None, int]:
    """The points a question looks at: both at `now` unless an `AsOf` says otherwise."""
    as_of = checked_as_of(as_of)
    return (now, now) if as_of is None else as_of.micros(now)


def checked_as_of(as_of: AsOf | None) -> AsOf | None:
    """An `AsOf` or None, and nothing that could be taken for a time on either axis.

    Raises:
        InputError: anything else.
    """
    if as_of is not None and not isinstance(as_of, AsOf):
        raise InputError(
            "as_of must be an AsOf or None.",
            found=as_of,
            hint='AsOf(valid_at="2031-06-11T09:30:00Z") names the axis of the time',
        )
    return as_of
