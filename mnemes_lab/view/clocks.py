"""One fact on two clocks: what held when, as told when.

Valid time runs to the right, record time upwards. Every change takes one step of an axis, however
long the time between two changes: so nothing is too small to see, and inside one field of the grid
every question has one answer.

Example:
    >>> import polars as pl
    >>> history = pl.DataFrame(
    ...     {
    ...         "fact_id": ["f", "f"],
    ...         "version": [1, 2],
    ...         "text": ["code 5521", "code 7310"],
    ...         "status": ["superseded", "active"],
    ...         "recorded_at": ["2031-04-10T08:00:00Z", "2031-04-12T08:00:00Z"],
    ...         "closed_at": ["2031-04-12T08:00:00Z", None],
    ...     }
    ... )
    >>> plot_two_clocks(history).get_title(loc="left")
    '2 versions, 1 still holds'
    >>> plot_two_clocks(history, now="2031-04-13T08:00:00Z").get_title(loc="left")
    '2 versions; now holds 2 “code 7310”'
"""

from __future__ import annotations

import unicodedata
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import partial
from itertools import accumulate
from typing import Any

from mnemes_lab.clock import to_us
from mnemes_lab.errors import InputError
from mnemes_lab.store.asof import AsOf
from mnemes_lab.store.remainders import without
from mnemes_lab.view.charts import ACCENT, INK, MUTED, _axes, png
from mnemes_lab.view.plain import visible
from mnemes_lab.view.versions import Area, Versions, moment

_COLOURS = [ACCENT, "#c2571a", "#4f8a2b", "#7a4fa3", "#a8860b", "#a33b5c"]
_GREY, _LINE = "#9aa5b1", "#e4e7eb"
_CHAR, _LEAD = 0.075, 0.16  # inches: a character and a line of the text in a rectangle


def plot_two_clocks(
    history: Any,
    *,
    now: datetime | str | None = None,
    at: AsOf | tuple[datetime | str | None, datetime | str | None] | None = None,
    ax: Any = None,
) -> Any:
    """The versions of a fact on valid time and record time.

    Args:
        history: `history` frame of one fact; pandas or polars.
        now: The present, marked by a ring, with what holds there in the title. None: the title
            counts what still holds after the last change on record.
        at: A point to mark by a cross, (valid time, record time), with what holds there in the
            caption. A valid time of None is all of them, a record time of None is the present.
        ax: Where to draw; None makes a figure. A notebook shows that one where the axes are the
            last thing in a cell; :func:`mnemes_lab.view.charts.png` makes a file of it.

    Returns:
        The axes. A version has a colour and the number of its place in the history, also where it
        holds again after its replacement; redacted ones are hatched. A side without a line, with
        arrowheads, is an open end. A version that holds nowhere is named in the caption.

    Raises:
        SchemaError: `history` is no such frame.
        InstantError: `now` or `at` hold a time without an offset, or one that cannot be read.
        MissingExtraError: matplotlib is not installed.
    """
    versions = Versions.of(history)
    held = versions.areas
    present = None if now is None else to_us(now, what="now")
    end = versions.last if present is None else present
    if at is not None and (isinstance(at, str) or not isinstance(at, tuple) or len(at) != 2):
        raise InputError(
            "at must be a point on both axes.", found=at, hint="at=AsOf(valid, recorded)"
        )
    point = None if at is None else AsOf(*at).micros(end)
    x = _Axis((t for a in held for t in a[1:3]), open_start=any(a[1] is None for a in held))
    y = _Axis((t for a in held for t in a[3:5]), open_start=False)
    if ax is None:
        ax = _axes()
        ax.figure.set_size_inches(7.4, min(12.0, max(4.6, 0.27 * len(y.points))))
        ax._repr_png_ = partial(png, ax)  # pyplot, which notebooks draw with, does not know it
    _frame(ax, x, y)
    for area in held:
        _draw(ax, area, versions, x, y)
    _labels(ax, versions, x, y)
    if present is not None:
        _ring(ax, x.field(present), y.field(present))
    if point is not None:
        _cross(ax, None if point[0] is None else x.field(point[0]), y.field(point[1]))
    _say(ax, versions.finding(present), versions.caption(point))
    return ax


class _Axis:
    """One step per distinct instant; room for an open end on either side."""

    def __init__(self, instants: Iterable[int | None], *, open_start: bool) -> None:
        self.points = sorted({t for t in instants if t is not None})
        self.low = 0.0 if open_start else 0.75
        self.high = len(self.points) + 1.0

    def start(self, us: int | None) -> float:
        return self.low if us is None else 1.0 + self.points.index(us)

    def end(self, us: int | None) -> float:
        return self.high if us is None else 1.0 + self.points.index(us)

    def field(self, us: int) -> float:
        """A place inside the field an instant lies in; texts begin above it."""
        before = bisect_right(self.points, us)
        low = max(self.low, before)
        return low + 0.4 * (before + 1 - low)

    def ticks(self, most: int, join: str, *, day_first: bool) -> tuple[list[float], list[str]]:
        """At most so many places and labels; a day is not repeated."""
        step = max(1, -(-len(self.points) // max(1, most)))
        last, labels = "", []
        for us in self.points[::step]:
            day, time = moment(us)
            parts = [day, time] if day_first else [time, day]
            labels.append(time if day == last else join.join(parts))
            last = day
        return [1.0 + i for i in range(0, len(self.points), step)], labels


def _frame(ax: Any, x: _Axis, y: _Axis) -> None:
    ax.set_xlim(x.low, x.high)
    ax.set_ylim(y.low, y.high)
    width, height = _inches(ax)
    ax.set_xticks(*x.ticks(int(width / 0.9), "\n", day_first=False))
    ax.set_yticks(*y.ticks(int(height / 0.22), "  ", day_first=True))
    ax.set_xlabel("valid time: when it holds in the world (UTC, one step per change)", color=MUTED)
    ax.set_ylabel("record time: when it was told", color=MUTED)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        ax.spines[side].set_color(_GREY)
    ax.tick_params(colors=INK, length=3, color=_GREY, labelsize=9)
    ax.grid(color=_LINE, linewidth=0.8)
    ax.set_axisbelow(True)


def _inches(ax: Any) -> tuple[float, float]:
    dpi = ax.figure.dpi
    return ax.bbox.width / dpi, ax.bbox.height / dpi


def _draw(ax: Any, area: Area, versions: Versions, x: _Axis, y: _Axis) -> None:
    """A filled rectangle; lines on its closed sides, arrowheads on its open ones."""
    from matplotlib.colors import to_rgb
    from matplotlib.patches import Rectangle

    redacted = versions.redacted(area.row)
    colour = _GREY if redacted else _COLOURS[area.row % len(_COLOURS)]
    pale = tuple(0.18 * c + 0.82 for c in to_rgb(colour))
    left, right, low, high = _box(area, x, y)
    fill = Rectangle((left, low), right - left, high - low, facecolor=pale, linewidth=0)
    if redacted:
        fill.set(hatch="///", edgecolor="#cbd2d9")
    fill.set_gid(f"version {area.row + 1}")
    ax.add_patch(fill)
    for side in _sides(area, versions.areas, x, y):
        ax.plot(*side, color=colour, linewidth=1.6, solid_capstyle="projecting", zorder=2)
    ends = [
        (area.recorded_to, (left + right) / 2, high, "^"),
        (area.valid_from, left, (low + high) / 2, "<"),
        (area.valid_to, right, (low + high) / 2, ">"),
    ]
    for end, middle, up, head in ends:
        if end is None:
            ax.plot([middle], [up], head, color=colour, markersize=7, clip_on=False, zorder=3)


def _box(area: Area, x: _Axis, y: _Axis) -> tuple[float, float, float, float]:
    """Left, right, low and high of a rectangle in the picture."""
    across = x.start(area.valid_from), x.end(area.valid_to)
    return (*across, y.start(area.recorded_from), y.end(area.recorded_to))


def _sides(
    area: Area, held: Sequence[Area], x: _Axis, y: _Axis
) -> list[tuple[list[float], list[float]]]:
    """The closed sides, without what they have in common with other pieces of the version."""
    left, right, low, high = _box(area, x, y)
    mates = [other for other in held if other.row == area.row and other != area]
    below = [other[1:3] for other in mates if other.recorded_to == area.recorded_from]
    above = [other[1:3] for other in mates if other.recorded_from == area.recorded_to]
    sides = []
    for end, level, covers in ((area.recorded_from, low, below), (area.recorded_to, high, above)):
        parts = [] if end is None else without(area[1:3], covers)
        sides += [([x.start(a), x.end(b)], [level, level]) for a, b in parts]
    for end, place in ((area.valid_from, left), (area.valid_to, right)):
        sides += [] if end is None else [([place, place], [low, high])]
    return sides


def _labels(ax: Any, versions: Versions, x: _Axis, y: _Axis) -> None:
    """Number and text of each version in its largest rectangle, the number where it comes back."""

    def size(area: Area) -> float:
        left, right, low, high = _box(area, x, y)
        return (right - left) * (high - low)

    for row in dict.fromkeys(area.row for area in versions.areas):
        pieces = [area for area in versions.areas if area.row == row]
        largest = max(pieces, key=size)
        text = "" if versions.redacted(row) else visible(versions.rows[row]["text"], limit=240)
        _write(ax, f"{row + 1}  {text}".rstrip(), _box(largest, x, y))
        near = [largest]
        for one in near:  # it grows on the way
            near += [p for p in pieces if p not in near and (_meet(one, p) or _meet(p, one))]
        for piece in pieces:
            if piece not in near and not any(_meet(other, piece) for other in pieces):
                _write(ax, str(row + 1), _box(piece, x, y))


def _meet(low: Area, high: Area) -> bool:
    """Whether one piece lies on another."""
    both = without(high[1:3], [low[1:3]]) != [high[1:3]]
    return low.recorded_to == high.recorded_from and both


def _write(ax: Any, text: str, box: tuple[float, float, float, float]) -> None:
    """As much of a text as a rectangle has room for, and no letter outside of it."""
    from matplotlib.patches import Rectangle

    left, right, low, high = box
    width, height = _inches(ax)
    (first, last), (bottom, top) = ax.get_xlim(), ax.get_ylim()
    columns = int((width / (last - first) * (right - left) - 0.16) / _CHAR)
    lines = int((height / (top - bottom) * (high - low) - 0.04) / _LEAD)
    wrapped = _wrapped(text, columns, lines) or text.split(" ")[:1]
    hangs = len(wrapped) < lines  # from the top, else it stands in the middle
    label = ax.annotate(
        "\n".join(wrapped),
        (left, high if hangs else (low + high) / 2),
        xytext=(6, -5 if hangs else 0),
        textcoords="offset points",
        va="top" if hangs else "center",
        color=INK,
        fontsize=9 if lines else 7,
        parse_math=False,
        zorder=4,
    )
    label.set_in_layout(False)
    size = right - left, high - low  # letters may be wider than was reckoned
    label.set_clip_path(Rectangle((left, low), *size, transform=ax.transData))


def _wrapped(text: str, columns: int, lines: int) -> list[str]:
    """Text in at most so many lines, broken at blanks where there are some; … for what is left."""
    out: list[str] = []
    while text and len(out) < lines and columns > 3:
        n = _fitting(text, columns)
        blank = text.rfind(" ", 1, n + 1)
        cut = blank if n < len(text) and blank > n / 2 else n
        out.append(text[:cut].rstrip())
        text = text[cut:].lstrip()
    if text and out:
        out[-1] = out[-1][: _fitting(out[-1], columns - 1)].rstrip() + "…"
    return out


def _fitting(text: str, columns: int) -> int:
    """How many letters fit; some scripts have letters twice as wide."""
    wide = (2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text)
    return bisect_right(list(accumulate(wide)), columns)


def _ring(ax: Any, across: float, up: float) -> None:
    ax.plot([across], [up], "o", color=INK, markerfacecolor="white", markersize=7, zorder=5)
    ax.annotate(
        "now", (across, up), xytext=(7, -3), textcoords="offset points", color=INK, fontsize=9
    )


def _cross(ax: Any, across: float | None, up: float) -> None:
    """A cross with thin lines to both axes; all of valid time is a line."""
    thin = {"color": INK, "linewidth": 0.8, "linestyle": (0, (2, 3)), "zorder": 4}
    if across is None:
        ax.axhline(up, **{**thin, "linewidth": 1.4})
        return
    ax.plot([ax.get_xlim()[0], across, across], [up, up, ax.get_ylim()[0]], **thin)
    ax.plot([across], [up], "x", color=INK, markersize=10, markeredgewidth=2.2, zorder=5)


def _say(ax: Any, title: str, caption: Sequence[str]) -> None:
    """The finding above the picture, the caption between them."""
    columns = int(_inches(ax)[0] / 0.075)
    lines = [part for line in caption for part in _wrapped(line, columns, 3)]
    ax.annotate(
        "\n".join(lines),
        (0, 1),
        xycoords="axes fraction",
        xytext=(0, 7),
        textcoords="offset points",
        color=MUTED,
        fontsize=9,
        linespacing=1.35,
        parse_math=False,
    )
    ax.set_title(
        "\n".join(_wrapped(title, int(columns * 0.8), 3)),
        loc="left",
        color=INK,
        fontweight="bold",
        parse_math=False,
        pad=10 + 13 * len(lines),
    )
