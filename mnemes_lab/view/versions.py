"""Where the versions of a fact hold, and that in words.

A version holds on a piece of the plane of valid time and record time: from the instant it was
recorded until it was closed or expired, and over the time it speaks of. What is left of a replaced
version where its replacement does not hold is on record as rows of its own, its remainders: with
them its piece has the shape of an L, or a U. An empty interval holds nowhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import polars as pl

from mnemes_lab import frames, schemas
from mnemes_lab.clock import from_us
from mnemes_lab.view.plain import visible

_MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
_INSTANTS = ["valid_from", "valid_to", "recorded_at", "closed_at", "expires_at"]
_QUOTE = 32  # characters of a text in a sentence


class Area(NamedTuple):
    """A rectangle on which one version holds; open ends are None, instants are microseconds.

    Attributes:
        row: Place of the version in the history, from 0.
        valid_from: Start on the valid axis, inclusive.
        valid_to: End on the valid axis, exclusive.
        recorded_from: Start on the record axis, inclusive.
        recorded_to: End on the record axis, exclusive.
        rest: Whether it is a remainder: what a replaced version keeps where its replacement does
            not hold. That is seen by who asks for a valid time only.
    """

    row: int
    valid_from: int | None
    valid_to: int | None
    recorded_from: int
    recorded_to: int | None
    rest: bool = False

    def covers(self, valid: int | None, recorded: int) -> bool:
        """Whether a point lies in it; `valid=None` does not look at the valid axis.

        Example:
            >>> area = Area(0, 10, 20, 5, None)
            >>> area.covers(10, 5), area.covers(20, 5), area.covers(None, 4)
            (True, False, False)
        """
        inside = not self.rest if valid is None else _within(self.valid_from, self.valid_to, valid)
        return inside and self.on_record(recorded)

    def on_record(self, recorded: int) -> bool:
        """Whether it is on record at an instant, for some valid time."""
        return _within(self.recorded_from, self.recorded_to, recorded)


def _within(start: int | None, end: int | None, at: int) -> bool:
    return (start is None or start <= at) and (end is None or at < end)


def _first(*ends: int | None) -> int | None:
    return min((end for end in ends if end is not None), default=None)


def moment(us: int) -> tuple[str, str]:
    """Day and time of an instant in UTC, as people write them; seconds only where there are some.

    Example:
        >>> moment(1_784_455_200_000_000), moment(1_784_455_200_500_000)
        (('19 Jul 2026', '10:00'), ('19 Jul 2026', '10:00:00.500'))
    """
    at = from_us(us)
    time = f"{at.hour:02d}:{at.minute:02d}"
    if at.second or at.microsecond:
        time += f":{at.second:02d}"
    if at.microsecond:
        milli, rest = divmod(at.microsecond, 1000)
        time += f".{at.microsecond:06d}" if rest else f".{milli:03d}"
    return f"{at.day} {_MONTHS[at.month - 1]} {at.year}", time


@dataclass(frozen=True)
class Versions:
    """The versions of a history and where they hold.

    Attributes:
        rows: The versions, oldest first, instants as microseconds; remainders are no versions.
        areas: Rectangles for each: of the version, then of its remainders; none when it holds
            nowhere.
        last: The last change on record; 0 when there is none.

    Example:
        >>> texts = {"fact_id": "f", "text": "t", "status": "superseded"}
        >>> times = [("T01", "T03", None, False), ("T03", None, "T02", True)]
        >>> rows = [
        ...     {**texts, "version": n, "recorded_at": f"1970-01-01{told}:00:00Z",
        ...      "closed_at": closed and f"1970-01-01{closed}:00:00Z",
        ...      "valid_to": until and f"1970-01-01{until}:00:00Z", "remainder": rest}
        ...     for n, (told, closed, until, rest) in enumerate(times, 1)]
        >>> versions = Versions.of(pl.DataFrame(rows))
        >>> [(a.valid_to, a.recorded_from, a.recorded_to) for a in versions.areas]
        [(None, 3600000000, 10800000000), (7200000000, 10800000000, None)]
        >>> versions.finding(), versions.name(0)
        ('1 version, and it still holds', '1 “t”')
    """

    rows: list[dict[str, Any]]
    areas: list[Area]
    last: int

    @classmethod
    def of(cls, history: Any) -> Versions:
        """Read a `history` frame, pandas or polars; versions are counted by recorded_at.

        A remainder belongs to the last version of its fact; where a frame holds none, it is one.

        Raises:
            SchemaError: it is no such frame.
        """
        table = frames.read(history, schemas.FactHistory)
        told = (
            table.with_columns(pl.col(_INSTANTS).cast(pl.Int64))
            .sort("recorded_at", "fact_id", "version")
            .to_dicts()
        )
        whole = {v["fact_id"] for v in told if not v["remainder"]}
        versions = [v for v in told if not v["remainder"] or v["fact_id"] not in whole]
        last = {v["fact_id"]: row for row, v in enumerate(versions)}
        areas = [_area(row, v) for row, v in enumerate(versions)]
        rest = [v for v in told if v["remainder"] and v["fact_id"] in whole]
        areas += [_area(last[v["fact_id"]], v) for v in rest]
        areas.sort(key=lambda area: area.row)
        changes = [v[c] for v in told for c in ("recorded_at", "closed_at") if v[c] is not None]
        return cls(versions, [a for a in areas if not _empty(a)], max(changes, default=0))

    def there(self, valid: int | None, recorded: int) -> list[int]:
        """Which versions hold at a point, by row."""
        return list(dict.fromkeys(a.row for a in self.areas if a.covers(valid, recorded)))

    def redacted(self, row: int) -> bool:
        """Whether the text of a version must not be shown."""
        return bool(self.rows[row]["status"] == "redacted")

    def name(self, row: int) -> str:
        """A version by its number and the start of its text."""
        if self.redacted(row):
            return f"{row + 1} (redacted)"
        return f"{row + 1} “{visible(self.rows[row]['text'], limit=_QUOTE)}”"

    def finding(self, now: int | None = None) -> str:
        """How many there are, and what holds now or, without a now, after the last change."""
        n = len(self.rows)
        if not n:
            return "No version on record"
        count = "1 version" if n == 1 else f"{n} versions"
        if now is not None:
            names = " and ".join(self.name(row) for row in self.there(now, now))
            return f"{count}; now holds {names}" if names else f"{count}; none holds now"
        still = len({area.row for area in self.areas if area.on_record(self.last)})
        if still > 1:
            return f"{count}, {still} still hold, each for its own time"
        if n == 1:
            return f"{count}, and it {'still holds' if still else 'no longer holds'}"
        return f"{count}, {still or 'none'} still holds"

    def caption(self, point: tuple[int | None, int] | None = None) -> list[str]:
        """What holds at a point, and what a picture of the plane cannot show."""
        lines = []
        if point is not None:
            valid, recorded = point
            there = [self.name(row) for row in self.there(valid, recorded)]
            when = "at any time of the world" if valid is None else f"on {' '.join(moment(valid))}"
            names = " and ".join(there) or "no version"
            verb = "hold" if len(there) > 1 else "holds"
            lines.append(f"Told by {' '.join(moment(recorded))}: {names} {verb} {when}")
        shown = {area.row for area in self.areas}
        nowhere = [self.name(row) for row in range(len(self.rows)) if row not in shown]
        if nowhere:
            lines.append(f"Holds nowhere: {', '.join(nowhere)}")
        if any(self.redacted(area.row) for area in self.areas):
            lines.append("Hatched: redacted, its text is gone")
        return lines


def _area(row: int, v: dict[str, Any]) -> Area:
    until = _first(v["closed_at"], v["expires_at"])
    rest = bool(v["remainder"])
    return Area(row, v["valid_from"], v["valid_to"], v["recorded_at"], until, rest=rest)


def _empty(area: Area) -> bool:
    _, start, end, told, closed, _ = area
    return (start is not None and end is not None and start >= end) or (
        closed is not None and told >= closed
    )
