"""Instants and clocks.

An instant is an integer: microseconds since 1970-01-01 in UTC. Frames show it as
``Datetime[us, UTC]``, files store the integer, and comparison never looks at text.

One rule for times without an offset: they are refused, everywhere. RFC 3339 text is read in any
offset and with an upper- or lower-case ``t`` or ``z``; week dates, epoch numbers and local forms
are refused, because each can be read in two ways.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from mnemes_lab.errors import InstantError

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_RFC3339 = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt ]([01]\d|2[0-3])(:\d\d:\d\d)(?:\.(\d{1,9}))?([Zz]|[+-]\d\d:[0-5]\d)",
    re.ASCII,
)
_FIRST = (datetime.min.replace(tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)
_LAST = (datetime.max.replace(tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)
_HINT = "give an RFC 3339 time with an offset, such as 2031-06-11T09:30:00+02:00"

_STEP_HINT = "two readings must never be the same instant"


def to_us(value: datetime | str, *, what: str = "time") -> int:
    """Read an aware datetime or RFC 3339 text as microseconds since the epoch.

    Raises:
        InstantError: no offset, an impossible date, a form that is not RFC 3339, or an instant
            outside the years 1 to 9999 in UTC.

    Example:
        >>> to_us("2031-06-11T09:30:00+02:00") == to_us("2031-06-11T07:30:00z")
        True
    """
    if isinstance(value, str):
        match = _RFC3339.fullmatch(value.strip())
        if match is None:
            raise InstantError(f"{what} is not an RFC 3339 time.", found=value, hint=_HINT)
        day, hour, rest, fraction, offset = match.groups()
        micros = ((fraction or "") + "000000")[:6]
        offset = "+00:00" if offset in "Zz" else offset
        try:
            value = datetime.fromisoformat(f"{day}T{hour}{rest}.{micros}{offset}")
        except ValueError:
            raise InstantError(f"{what} is not a real instant.", found=value, hint=_HINT) from None
    if not isinstance(value, datetime) or value != value:  # pandas.NaT is a datetime
        raise InstantError(f"{what} is not a datetime or RFC 3339 text.", found=value, hint=_HINT)
    if value.utcoffset() is None:
        raise InstantError(
            f"{what} has no offset, so it names no instant.", found=value.isoformat(), hint=_HINT
        )
    us = (value - EPOCH) // timedelta(microseconds=1)
    if not _FIRST <= us <= _LAST:  # its own offset carries it out of what UTC can show
        raise InstantError(f"{what} is outside the years 1 to 9999.", found=value.isoformat())
    return us


def from_us(us: int) -> datetime:
    """The aware UTC datetime of an instant."""
    return EPOCH + timedelta(microseconds=us)


def rfc3339(us: int) -> str:
    """Spell an instant as the receipts do: ``+00:00``, fraction of 0, 3 or 6 digits as needed.

    Example:
        >>> rfc3339(1_784_455_200_500_000)
        '2026-07-19T10:00:00.500+00:00'
    """
    seconds, fraction = divmod(us, 1_000_000)
    text = (EPOCH + timedelta(seconds=seconds)).isoformat().removesuffix("+00:00")
    if fraction:
        text += f".{fraction // 1000:03d}" if fraction % 1000 == 0 else f".{fraction:06d}"
    return text + "+00:00"


def spelled(value: Any) -> Any:
    """A value as JSON can hold it: an instant, however spelled, as microseconds.

    Example:
        >>> spelled(EPOCH), spelled("1970-01-01T02:00:00+02:00"), spelled("text")
        ('0', '0', 'text')
    """
    if isinstance(value, str) and _RFC3339.fullmatch(value.strip()) is None:
        return value
    return str(to_us(value)) if isinstance(value, (datetime, str)) else value


class Clock(Protocol):
    """Where instants and durations come from."""

    def now(self) -> int:
        """The next instant, never earlier than the one before."""
        ...

    def stopwatch(self) -> Callable[[], float]:
        """Start measuring; the returned function answers milliseconds so far."""
        ...

    def forward_to(self, us: int) -> None:
        """Never answer an instant at or before `us` again."""
        ...

    def machine(self) -> int:
        """What the clock shows by itself, whatever is on record."""
        ...


class SystemClock:
    """The machine's clock, kept from running backwards."""

    def __init__(self) -> None:
        """Start without a memory of earlier instants."""
        self._last = 0

    def now(self) -> int:
        """Microseconds since the epoch; strictly increasing even when the machine is set back."""
        self._last = max(time.time_ns() // 1000, self._last + 1)
        return self._last

    def stopwatch(self) -> Callable[[], float]:
        """Measure with the monotonic clock."""
        start = time.perf_counter()
        return lambda: (time.perf_counter() - start) * 1000.0

    def forward_to(self, us: int) -> None:
        """Remember an instant that is already on record."""
        self._last = max(self._last, us)

    def machine(self) -> int:
        """The machine's time, which may have been set back."""
        return time.time_ns() // 1000


class LabClock:
    """A clock for experiments: starts fixed, advances by a fixed step at every reading.

    Args:
        start: First instant it answers.
        step_ms: How far each reading moves it.
        latency_ms: What every stopwatch answers.

    Example:
        >>> clock = LabClock()
        >>> clock.now() < clock.now()
        True
    """

    def __init__(
        self,
        start: datetime | str = "2031-01-01T00:00:00Z",
        *,
        step_ms: int = 1000,
        latency_ms: float = 1.0,
    ) -> None:
        """Set the first instant, the step and the answer of every stopwatch."""
        if step_ms < 1:
            raise InstantError("step_ms must be at least 1.", found=step_ms, hint=_STEP_HINT)
        self.step_us = step_ms * 1000
        self.latency_ms = latency_ms
        self._next = to_us(start)

    def now(self) -> int:
        """The current instant; then move one step."""
        now, self._next = self._next, self._next + self.step_us
        return now

    def peek(self) -> int:
        """The instant the next reading gives, without moving: looking is not part of a story."""
        return self._next

    def stopwatch(self) -> Callable[[], float]:
        """Every duration is `latency_ms`, so latencies repeat to the bit."""
        return lambda: self.latency_ms

    def forward_to(self, us: int) -> None:
        """Continue one step after an instant that is already on record."""
        self._next = max(self._next, us + self.step_us)

    def machine(self) -> int:
        """The next instant: this clock has no other."""
        return self._next
