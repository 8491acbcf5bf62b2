"""Where everything in a provenance picture stands and how it looks.

Across runs record time, by the rank of the instants, so that a busy minute is as readable as a
quiet month. Each device has a lane; in a lane what was done stands above what is known. Items that
would fall on one another take further rows, so no label covers another.
"""

from __future__ import annotations

import html
import math
import re
import unicodedata
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from mnemes_lab.clock import rfc3339
from mnemes_lab.view.plain import visible

INK, MUTED, GRID = "#1f2933", "#616e7c", "#e4e7eb"
BANDS = ("#f5f7fa", "#ffffff")
ROOT_FILL = "#0b6e99"


class Stroke(NamedTuple):
    """How relations of one type are drawn."""

    colour: str
    dashes: tuple[int, ...]
    width: float


# Told apart by people with any colour vision (CIE76 distance of 25 or more between every two, also
# as protanopes, deuteranopes and tritanopes see them) and, by their dashes, without any colour.
STROKES = {
    "derived_from": Stroke("#1d4f9e", (), 1.8),
    "supersedes": Stroke("#1f2933", (12, 4), 1.8),
    "supports": Stroke("#47a35f", (6, 3), 1.8),
    "contradicts": Stroke("#a3231a", (9, 3, 2, 3), 2.2),
    "retrieved_from": Stroke("#a32cf0", (10, 3, 2, 3, 2, 3), 1.8),
    "observed_by": Stroke("#ae9020", (2, 3), 1.2),
    "recorded_by": Stroke("#7a8088", (1, 4), 1.2),
}
OTHER_STROKE = Stroke("#616e7c", (4, 2, 1, 2, 1, 2), 1.5)


class Look(NamedTuple):
    """How items of one kind are drawn; small ones stand above the others."""

    shape: str
    radius: int
    fill: str
    border: str
    small: bool = False


LOOKS = {
    "fact": Look("dot", 9, "#c8dbe6", "#0b6e99"),
    "device": Look("hexagon", 9, "#e4e7eb", "#52606d"),
    "operation": Look("square", 4, "#9aa5b1", "#52606d", small=True),
    "actor": Look("triangle", 5, "#f7e7b4", "#8a6d00", small=True),
}
OTHER_LOOK = Look("diamond", 9, "#eadcf4", "#7a3fa0")


class Item(NamedTuple):
    """Something the picture shows."""

    kind: str
    id: str
    label: str
    device: str
    at: int | None
    root: bool = False

    @property
    def look(self) -> Look:
        """How it is drawn."""
        return LOOKS.get(self.kind, OTHER_LOOK)


class Relation(NamedTuple):
    """An edge between two items, given by their places in the list."""

    source: int
    target: int
    type: str
    at: int | None = None

    @property
    def stroke(self) -> Stroke:
        """How it is drawn."""
        return STROKES.get(self.type, OTHER_STROKE)


class Spot(NamedTuple):
    """Where an item stands and what is written at it."""

    x: float
    y: float
    lines: tuple[str, ...]


class Lane(NamedTuple):
    """The band of one device."""

    label: str
    top: float
    bottom: float


class Tick(NamedTuple):
    """An instant on the time axis; `span` is how far to the right its items reach."""

    x: float
    span: float
    time: str
    date: str


@dataclass(frozen=True)
class Scene:
    """Everything in its place.

    Attributes:
        items: What is shown.
        spots: Where each item stands.
        relations: What connects them.
        bows: How far the middle of each relation stands off the straight line; positive is to
            the left of its way. For a relation of an item with itself, the radius of its loop.
        lanes: The bands, from the top.
        ticks: The instants, from the left.
        width: Extent to the right.
        height: Extent downwards.
    """

    items: Sequence[Item]
    spots: Sequence[Spot]
    relations: Sequence[Relation]
    bows: Sequence[float]
    lanes: Sequence[Lane]
    ticks: Sequence[Tick]
    width: float
    height: float


# --- text ------------------------------------------------------------------------------------
UNIT = 6.1  # pixels of an ordinary letter at 11 px
_BEYOND_XML = re.compile("[\ufffe\uffff]")


def plain(text: str, *, limit: int | None = None) -> str:
    """Text in which nothing acts and which XML can hold."""
    return _BEYOND_XML.sub(lambda match: f"\\u{ord(match[0]):04x}", visible(text, limit=limit))


def safe(text: str) -> str:
    """Text as it stands in SVG and HTML."""
    return html.escape(plain(text), quote=True)


def letters(text: str) -> float:
    """Width of a text in ordinary letters, on the wide side."""
    return sum(map(_width, text))


def _width(char: str) -> float:
    if unicodedata.category(char) in ("Mn", "Me", "Cf"):
        return 0.1  # stands on its neighbour; not nothing, or a line could hold any number
    if unicodedata.east_asian_width(char) in "WF":
        return 2.0
    if char in "mwMW@%—…":
        return 1.6
    if char in " iljtfrI.,:;'|!()[]":
        return 0.6
    return 1.25 if char.isupper() else 1.0


def cut(text: str, width: float) -> str:
    """Text of at most `width` ordinary letters; an ellipsis says that it goes on.

    Example:
        >>> cut("the pump is off", 20), cut("the pump is off", 10)
        ('the pump is off', 'the pump…')
    """
    ends = list(accumulate(map(_width, text)))
    if not ends or ends[-1] <= width:
        return text
    return text[: bisect_right(ends, width - _width("…"))].rstrip() + "…"


def wrap(text: str, width: float, lines: int) -> tuple[str, ...]:
    """Text in at most `lines` lines, broken between words where there are any.

    Example:
        >>> wrap("the intake pump is off", 12, 2)
        ('the intake', 'pump is off')
    """
    out: list[str] = []
    while len(out) < lines - 1 and letters(text) > width:
        fits = max(1, bisect_right(list(accumulate(map(_width, text))), width))
        gap = text.rfind(" ", 1, fits + 1)
        out.append(text[: gap if gap > 0 else fits].rstrip())
        text = text[gap if gap > 0 else fits :].lstrip()
    return (*out, cut(text, width))


# --- places ----------------------------------------------------------------------------------
PAD = 14.0
_LETTERS, _SMALL_LETTERS = 20.0, 12.0
_BOX, _SMALL_BOX = 136.0, 78.0  # what an item takes across, its label included
_ROW, _SMALL_ROW = 74.0, 38.0
_STRIP = 22.0  # the lane's name
_STACKS = (1, 2, 3, 4, 5)  # items of one instant under one another; more stand side by side
_STEP = 150.0  # the most from one instant to the next
_CROWDED = 22  # instants; with more the picture grows wider rather than denser


def lay_out(items: Sequence[Item], relations: Sequence[Relation], *, wide: float) -> Scene:
    """Give everything its place, in about `wide` pixels across unless much happened."""
    instants = sorted({item.at for item in items}, key=lambda at: (at is not None, at or 0))
    names = _lane_order(items)
    cells: dict[tuple[int, int, bool], list[int]] = defaultdict(list)
    for place, item in enumerate(items):
        lane, column = names.index(item.device), instants.index(item.at)
        cells[lane, column, item.look.small].append(place)
    columns = _columns(len(instants), cells, wide)
    spots: dict[int, Spot] = {}
    lanes: list[Lane] = []
    top = 0.0
    for lane, name in enumerate(names):
        bottom = top + _STRIP
        for small in (True, False):
            bottom = _pack(items, cells, (lane, small), columns, bottom, spots)
        lanes.append(Lane(plain(name, limit=400) or "no device", top, bottom + 4))
        top = lanes[-1].bottom
    placed = [spots[place] for place in range(len(items))]
    width = max([spot.x for spot in placed], default=0.0) + _BOX / 2 + PAD
    return Scene(
        items=items,
        spots=placed,
        relations=relations,
        bows=_bows(placed, relations),
        lanes=lanes,
        ticks=_ticks(instants, columns),
        width=width,
        height=top,
    )


def _lane_order(items: Sequence[Item]) -> list[str]:
    """Devices in the order in which they enter the story; what belongs to none comes last."""
    first: dict[str, tuple[bool, int]] = {}
    for item in items:
        entered = (item.at is None, item.at or 0)
        first[item.device] = min(first.get(item.device, entered), entered)
    return sorted(first, key=lambda name: (not name, first[name], name))


class _Columns(NamedTuple):
    """Where each instant starts, how far it reaches, and how many of its items are stacked."""

    starts: list[float]
    spans: list[float]
    stack: int


def _columns(n: int, cells: dict[tuple[int, int, bool], list[int]], wide: float) -> _Columns:
    """An instant at which much happened takes more room; the lowest stack that fits is taken."""
    step = min(_STEP, wide / max(1, min(n, _CROWDED)))
    for stack in _STACKS:
        spans = [0.0] * n
        for (_, column, small), members in cells.items():
            beside = (len(members) - 1) // stack * (_SMALL_BOX if small else _BOX)
            spans[column] = max(spans[column], beside)
        starts = [PAD + _BOX / 2 + at * step + sum(spans[:at]) for at in range(n)]
        if n and starts[-1] + spans[-1] <= wide:
            break
    return _Columns(starts, spans, stack)


def _pack(
    items: Sequence[Item],
    cells: dict[tuple[int, int, bool], list[int]],
    which: tuple[int, bool],
    columns: _Columns,
    top: float,
    spots: dict[int, Spot],
) -> float:
    """Put the items of one lane and size in rows, each in the first with room; answer their end."""
    lane, small = which
    box, row = (_SMALL_BOX, _SMALL_ROW) if small else (_BOX, _ROW)
    ends: list[float] = []  # of each row
    for column, at in enumerate(columns.starts):
        for order, place in enumerate(cells.get((lane, column, small), ())):
            x = at + order // columns.stack * box
            free = [n for n, end in enumerate(ends) if end <= x - box / 2 + 0.01]
            if not free:
                free = [len(ends)]
                ends.append(0.0)
            ends[free[0]] = x + box / 2
            y = top + free[0] * row + (28.0 if small else 16.0)
            spots[place] = Spot(x, y, _lines(items[place]))
    return top + len(ends) * row


def _lines(item: Item) -> tuple[str, ...]:
    text = plain(item.label, limit=200)
    if item.look.small:
        return (cut(text, _SMALL_LETTERS),)
    return wrap(text, _LETTERS * (0.9 if item.root else 1.0), 3)  # the root's letters are bold


def _bows(spots: Sequence[Spot], relations: Sequence[Relation]) -> list[float]:
    """Relations of one pair stand apart; all bend upwards, away from the labels."""
    pairs = [tuple(sorted((relation.source, relation.target))) for relation in relations]
    total, seen = Counter(pairs), Counter[tuple[int, ...]]()
    out = []
    for relation, pair in zip(relations, pairs, strict=True):
        a, b = relation.source, relation.target
        further = seen[pair] * min(22.0, 180.0 / total[pair])
        seen[pair] += 1
        if a == b:
            out.append(10.0 + further / 3)
            continue
        dx, dy = spots[b].x - spots[a].x, spots[b].y - spots[a].y
        upright = abs(dx) < 1.0
        bow = (0.0 if upright and abs(dy) < 60 else min(0.12 * math.hypot(dx, dy), 30.0)) + further
        # Left of the way is up when it runs to the right; upright ones bend to the right.
        out.append(bow if dx >= 1.0 or (upright and dy > 0) else -bow)
    return out


def _ticks(instants: Sequence[int | None], columns: _Columns) -> list[Tick]:
    known = [at for at in instants if at is not None]
    digits = 0 if not any(at % 1_000_000 for at in known) else 3
    digits = 6 if any(at % 1_000 for at in known) else digits
    out = []
    for at, x, span in zip(instants, columns.starts, columns.spans, strict=True):
        if at is None:
            out.append(Tick(x, span, "no time", ""))
            continue
        date, _, rest = rfc3339(at).partition("T")
        clock, _, fraction = rest.removesuffix("+00:00").partition(".")
        fraction = fraction.ljust(digits, "0")
        out.append(Tick(x, span, f"{clock}.{fraction}" if digits else clock, date))
    return out
