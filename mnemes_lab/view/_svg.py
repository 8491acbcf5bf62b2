"""A provenance picture as SVG: no scripts, nothing fetched, every text escaped."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from mnemes_lab.view._scene import (
    BANDS,
    GRID,
    INK,
    LOOKS,
    MUTED,
    OTHER_LOOK,
    OTHER_STROKE,
    PAD,
    ROOT_FILL,
    STROKES,
    UNIT,
    Item,
    Look,
    Relation,
    Scene,
    Spot,
    Stroke,
    Tick,
    cut,
    letters,
    plain,
    safe,
)

_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', 'DejaVu Sans', sans-serif"
_LEAST = 620.0  # room for the heading and the legend
_HALO = f'paint-order="stroke" stroke="{BANDS[1]}" stroke-width="3" stroke-linejoin="round"'


def draw(scene: Scene, heading: str, caption: str) -> str:
    """The whole picture.

    Args:
        scene: What stands where.
        heading: The title.
        caption: A sentence under it.
    """
    width = max(scene.width, _LEAST)
    legend, top = _legend(scene, width, 62.0)
    height = top + scene.height + 52
    title = cut(plain(heading), (width - 2 * PAD) / (UNIT * 15 / 11 * 1.06))
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {_n(width)} '
            f'{_n(height)}" width="{_n(width)}" height="{_n(height)}" font-family="{_FONT}" '
            f'font-size="11" fill="{INK}">',
            f"<title>{safe(heading)}</title>",
            f"<desc>{safe(caption)}</desc>",
            f'<rect width="{_n(width)}" height="{_n(height)}" fill="#ffffff"/>',
            f'<text x="{_n(PAD)}" y="24" font-size="15" font-weight="bold">{safe(title)}</text>',
            f'<text x="{_n(PAD)}" y="42" fill="{MUTED}">{safe(caption)}</text>',
            *legend,
            f'<g transform="translate(0 {_n(top)})">',
            *_bands(scene, width),
            *_axis(scene),
            *_names(scene, width),
            *(line for at in range(len(scene.relations)) for line in _relation(scene, at)),
            *(
                line
                for item, spot in zip(scene.items, scene.spots, strict=True)
                for line in _item(item, spot)
            ),
            "</g>",
            "</svg>",
        ]
    )


def _n(value: float) -> str:
    """A coordinate: short, and the same on every machine."""
    return f"{value:.1f}".removesuffix(".0")


# --- legend ----------------------------------------------------------------------------------
class Entry(NamedTuple):
    """A line of the legend: its sample, drawn in 30 by 12 pixels, and its name."""

    sample: str
    name: str


def entries(scene: Scene) -> list[Entry]:
    """What the picture uses, relations first, always in the same order."""
    types = {relation.type for relation in scene.relations}
    kinds = {item.kind for item in scene.items}
    lines = [(name, stroke) for name, stroke in STROKES.items() if name in types]
    marks = [(kind, look) for kind, look in LOOKS.items() if kind in kinds]
    if types - STROKES.keys():
        lines.append((_others(types - STROKES.keys()), OTHER_STROKE))
    if kinds - LOOKS.keys():
        marks.append((_others(kinds - LOOKS.keys()), OTHER_LOOK))
    return [
        *(Entry(_line(stroke), name.replace("_", " ")) for name, stroke in lines),
        *(
            Entry(_shape(look._replace(radius=min(5, look.radius)), 15, 6), name)
            for name, look in marks
        ),
    ]


def _others(names: Iterable[str]) -> str:
    found = sorted(names)
    return cut(plain(found[0]), 20) if len(found) == 1 else f"{len(found)} other"


def _line(stroke: Stroke) -> str:
    return _path("M1 6L22 6", stroke) + _head((29.0, 6.0), (1.0, 0.0), stroke)


def _legend(scene: Scene, width: float, top: float) -> tuple[list[str], float]:
    """The legend in as many rows as it needs, and where it ends."""
    out, x, y = [], PAD, top
    for sample, name in entries(scene):
        wide = 36 + letters(name) * UNIT + 16
        if x + wide > width and x > PAD:
            x, y = PAD, y + 18
        out.append(
            f'<g transform="translate({_n(x)} {_n(y - 10)})">{sample}'
            f'<text x="36" y="10">{safe(name)}</text></g>'
        )
        x += wide
    return out, y + 14


# --- ground ----------------------------------------------------------------------------------
def _bands(scene: Scene, width: float) -> list[str]:
    return [
        f'<rect x="0" y="{_n(lane.top)}" width="{_n(width)}" '
        f'height="{_n(lane.bottom - lane.top)}" fill="{BANDS[at % 2]}"/>'
        for at, lane in enumerate(scene.lanes)
    ]


def _names(scene: Scene, width: float) -> list[str]:
    room = (width - 2 * PAD) / (UNIT * 1.08)
    return [
        f'<g><title>{safe(lane.label)}</title><text x="{_n(PAD)}" y="{_n(lane.top + 15)}" '
        f'font-weight="bold" fill="{MUTED}">{safe(cut(lane.label, room))}</text></g>'
        for lane in scene.lanes
    ]


def _axis(scene: Scene) -> list[str]:
    y = scene.height
    out = [f'<g fill="{MUTED}" text-anchor="middle" font-size="10">']
    for tick in scene.ticks:
        out.append(
            f'<path d="M{_n(tick.x)} {_n(y + 4)}V0h{_n(tick.span)}V{_n(y + 4)}" stroke="{GRID}" '
            f'fill="{GRID}" fill-opacity="0.5"/>'
        )
    date = ""
    for tick in _legible(scene.ticks):
        x = _n(tick.x + tick.span / 2)
        out.append(f'<text x="{x}" y="{_n(y + 16)}">{safe(tick.time)}</text>')
        if tick.date != date:
            out.append(f'<text x="{x}" y="{_n(y + 29)}">{safe(tick.date)}</text>')
        date = tick.date
    out.append(
        f'<text x="{_n(PAD)}" y="{_n(y + 44)}" text-anchor="start">'
        "record time (UTC), in order, not to scale</text></g>"
    )
    return out


def _legible(ticks: Sequence[Tick]) -> list[Tick]:
    """The first, the last, and those between whose text has room."""
    if not ticks:
        return []
    room = max(max(letters(tick.time), letters(tick.date)) for tick in ticks) * 6.0 + 8
    middles = [tick.x + tick.span / 2 for tick in ticks]
    taken = [0]
    for at, x in enumerate(middles[1:-1], start=1):
        if x - middles[taken[-1]] >= room and middles[-1] - x >= room:
            taken.append(at)
    if middles[-1] - middles[taken[-1]] >= room:
        taken.append(len(ticks) - 1)
    return [ticks[at] for at in taken]


# --- items and relations ---------------------------------------------------------------------
def _shape(look: Look, x: float, y: float, *, grow: int = 0, root: bool = False) -> str:
    r = look.radius + grow
    style = f'fill="{ROOT_FILL if root else look.fill}" stroke="{INK if root else look.border}" '
    style += f'stroke-width="{2 if root else 1.4}"'
    if look.shape == "dot":
        return f'<circle cx="{_n(x)}" cy="{_n(y)}" r="{r}" {style}/>'
    if look.shape == "square":
        return f'<rect x="{_n(x - r)}" y="{_n(y - r)}" width="{2 * r}" height="{2 * r}" {style}/>'
    sides, turn = {"triangle": (3, 0.0), "hexagon": (6, 30.0), "diamond": (4, 0.0)}[look.shape]
    turns = [math.radians(turn + 360 * side / sides) for side in range(sides)]
    points = " ".join(f"{_n(x + r * math.sin(a))},{_n(y - r * math.cos(a))}" for a in turns)
    return f'<polygon points="{points}" {style}/>'


def _item(item: Item, spot: Spot) -> list[str]:
    out = [f"<g><title>{html.escape(told(item))}</title>"]
    if item.root:
        out.append(
            f'<circle cx="{_n(spot.x)}" cy="{_n(spot.y)}" r="{item.look.radius + 5}" '
            f'fill="none" stroke="{ROOT_FILL}" stroke-width="1.5"/>'
        )
    out.append(_shape(item.look, spot.x, spot.y, root=item.root))
    size = 9.5 if item.look.small else 11
    first = spot.y - 9 if item.look.small else spot.y + (26 if item.root else 22)
    weight = ' font-weight="bold"' if item.root else ""
    for n, line in enumerate(spot.lines):
        out.append(
            f'<text x="{_n(spot.x)}" y="{_n(first + 12 * n)}" text-anchor="middle" '
            f'font-size="{size}"{weight} {_HALO}>{safe(line)}</text>'
        )
    return [*out, "</g>"]


def told(item: Item) -> str:
    """An item in words, in which nothing acts."""
    lines = [plain(item.label, limit=400), plain(f"{item.kind}:{item.id}", limit=240)]
    if item.device:
        lines.append(f"device {plain(item.device, limit=120)}")
    return "\n".join(lines)


def _relation(scene: Scene, at: int) -> list[str]:
    relation, bow = scene.relations[at], scene.bows[at]
    a, b = scene.spots[relation.source], scene.spots[relation.target]
    start, end = scene.items[relation.source].look, scene.items[relation.target].look
    out = [f"<g><title>{html.escape(relation_told(scene, relation))}</title>"]
    if relation.source == relation.target:
        x, y = a.x + start.radius * 0.7, a.y - start.radius * 0.7
        path = f"M{_n(x)} {_n(y)}a{_n(bow)} {_n(bow)} 0 1 0 {_n(-1.4 * start.radius)} 0"
        out += [_path(path, relation.stroke), "</g>"]
        return out
    dx, dy = b.x - a.x, b.y - a.y
    far = math.hypot(dx, dy) or 1.0
    # The middle of a quadratic curve stands half as far off as its control point.
    via = ((a.x + b.x) / 2 + 2 * bow * dy / far, (a.y + b.y) / 2 - 2 * bow * dx / far)
    out_x, out_y = _unit(via[0] - a.x, via[1] - a.y)
    in_x, in_y = _unit(b.x - via[0], b.y - via[1])
    tip = (b.x - in_x * (end.radius + 3), b.y - in_y * (end.radius + 3))
    neck = (tip[0] - in_x * 6, tip[1] - in_y * 6)
    tail = (a.x + out_x * (start.radius + 2), a.y + out_y * (start.radius + 2))
    path = f"M{_n(tail[0])} {_n(tail[1])}Q{_n(via[0])} {_n(via[1])} {_n(neck[0])} {_n(neck[1])}"
    out += [_path(path, relation.stroke), _head(tip, (in_x, in_y), relation.stroke), "</g>"]
    return out


def relation_told(scene: Scene, relation: Relation) -> str:
    """A relation in words, in which nothing acts."""
    source, target = scene.items[relation.source], scene.items[relation.target]
    return "\n".join(
        [
            plain(source.label, limit=200),
            f"{plain(relation.type, limit=60).replace('_', ' ')} →",
            plain(target.label, limit=200),
        ]
    )


def _unit(dx: float, dy: float) -> tuple[float, float]:
    far = math.hypot(dx, dy) or 1.0
    return dx / far, dy / far


def _path(path: str, stroke: Stroke) -> str:
    dashes = " ".join(map(str, stroke.dashes))
    dashes = f' stroke-dasharray="{dashes}"' if dashes else ""
    return (
        f'<path d="{path}" fill="none" stroke="{stroke.colour}" '
        f'stroke-width="{stroke.width}"{dashes}/>'
    )


def _head(tip: tuple[float, float], way: tuple[float, float], stroke: Stroke) -> str:
    """An arrow's head, drawn itself: markers would need names that pages share."""
    (x, y), (dx, dy) = tip, way
    base = (x - 7 * dx, y - 7 * dy)
    left, right = (base[0] - 3.2 * dy, base[1] + 3.2 * dx), (base[0] + 3.2 * dy, base[1] - 3.2 * dx)
    points = " ".join(f"{_n(px)},{_n(py)}" for px, py in (tip, left, right))
    return f'<polygon points="{points}" fill="{stroke.colour}"/>'
