"""The interactive picture of provenance: what came from what, who did it, and when.

:class:`ProvenanceGraph` draws frames of edges and items. In a notebook it is an interactive page
in a frame of its own, or a static picture where ``MNEMES_STATIC=1`` is set or pyvis is absent.
Stored text is data here too: it is shown letter by letter and never runs, neither as script nor as
HTML, and the page forbids itself every request to the outside.
"""

from __future__ import annotations

import base64
import html
import os
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import narwhals as nw
import polars as pl

from mnemes_lab.errors import InputError, MissingExtraError, SchemaError
from mnemes_lab.frames import kind_of, read_rows, whole_number
from mnemes_lab.ids import ItemRef
from mnemes_lab.view import _svg, _vis
from mnemes_lab.view._scene import Item, Relation, lay_out

_EDGES_PER_NODE = 20  # more hide one another, and a browser takes seconds
_HEIGHTS = (120, 4000)
_MANY = 20  # problems listed one by one


class ProvenanceGraph:
    """A picture of provenance.

    Record time runs from left to right by rank, each device has a lane, and the line between two
    items says by its dashes and colour in which relation they stand.

    Args:
        edges: An `edges` frame, pandas or polars. Read are edge_type, source_kind, source_id,
            target_kind and target_id and, where present, edge_id, device_id and recorded_at.
        items: An `items` frame. Read are item_kind and item_id and, where present, label, device
            and recorded_at; what is missing falls back to the id and to the item's edges. Items
            without an edge are drawn too.
        root: The item to highlight, as ``kind:id``.
        height: Of the interactive drawing in a notebook, in pixels.
        max_nodes: The most items to draw.

    Raises:
        InputError: There are more than `max_nodes` items, or more than 20 edges for each allowed
            item.
        SchemaError: A frame lacks a column, or a row lacks a kind, an id or a type.

    Example:
        >>> import polars as pl
        >>> edges = pl.DataFrame(
        ...     {
        ...         "edge_type": ["supersedes", "derived_from"],
        ...         "source_kind": ["fact", "fact"],
        ...         "source_id": ["f-2", "f-2"],
        ...         "target_kind": ["fact", "document"],
        ...         "target_id": ["f-1", "log"],
        ...     }
        ... )
        >>> graph = ProvenanceGraph(edges, root="fact:f-2")
        >>> graph
        ProvenanceGraph: 3 items, 2 edges, 0 devices
        >>> graph.svg().startswith("<svg")
        True
    """

    def __init__(
        self,
        edges: Any,
        items: Any = None,
        *,
        root: str | None = None,
        height: int = 420,
        max_nodes: int = 300,
    ) -> None:
        """Read the frames and refuse what is too much to draw."""
        self.height = whole_number(height, "height")
        if not _HEIGHTS[0] <= self.height <= _HEIGHTS[1]:
            raise InputError(
                f"height must be from {_HEIGHTS[0]} to {_HEIGHTS[1]} pixels.", found=height
            )
        self.max_nodes = whole_number(max_nodes, "max_nodes")
        if self.max_nodes < 1:
            raise InputError("max_nodes must be 1 or more.", found=max_nodes)
        self.root = root
        self.truncated = False
        self._items, self._relations = _read(edges, items, root)
        self._refuse_too_many("items", len(self._items), self.max_nodes)
        most = _EDGES_PER_NODE * max(1, self.max_nodes)
        self._refuse_too_many("edges", len(self._relations), most)

    @classmethod
    def of(cls, lineage: Any, *, height: int = 420, max_nodes: int = 300) -> ProvenanceGraph:
        """The picture of a lineage: of anything that has edges, items, root and truncated.

        Raises:
            InputError: as for the class, or one of the four is absent.
        """
        lacking = [n for n in ("edges", "items", "root", "truncated") if not hasattr(lineage, n)]
        if lacking:
            raise InputError(
                f"This is not a lineage: it has no {', '.join(lacking)}.",
                found=type(lineage).__name__,
                hint="give what mesh.lineage(...) answers, or frames to ProvenanceGraph(...)",
            )
        graph = cls(
            lineage.edges, lineage.items, root=lineage.root, height=height, max_nodes=max_nodes
        )
        graph.truncated = bool(lineage.truncated)
        return graph

    @staticmethod
    def _refuse_too_many(what: str, n: int, most: int) -> None:
        if n > most:
            raise InputError(
                f"{n:,} {what} are too many to draw; the most is {most:,}.",
                hint="draw less: a smaller depth or limit of the lineage, or only some kinds or "
                "edge types of its frames; max_nodes raises the bound",
            )

    def __repr__(self) -> str:
        """The picture in one line that holds no stored text."""
        devices = len({item.device for item in self._items} - {""})
        counts = [(len(self._items), "item"), (len(self._relations), "edge"), (devices, "device")]
        told = ", ".join(f"{n} {name}{'' if n == 1 else 's'}" for n, name in counts)
        return f"{type(self).__name__}: {told}{', truncated' if self.truncated else ''}"

    @property
    def _heading(self) -> str:
        root = [item.label for item in self._items if item.root]
        return f"Provenance of {root[0]}" if root else "Provenance"

    @property
    def _caption(self) -> str:
        told = repr(self).partition(": ")[2]
        if not self.truncated:
            return told
        return f"{told.removesuffix(', truncated')}; truncated: there is more than is drawn"

    def page(self) -> str:
        """One HTML page that holds all it needs; the same bytes for the same frames.

        Raises:
            MissingExtraError: pyvis is not installed.
            MnemesError: pyvis made a page that reaches outside.
        """
        scene = lay_out(self._items, self._relations, wide=1400)
        return _vis.compose(scene, self._heading, self._caption, self.height)

    def svg(self) -> str:
        """The static picture."""
        scene = lay_out(self._items, self._relations, wide=1000)
        return _svg.draw(scene, self._heading, self._caption)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the page (``.html``) or the static picture (``.svg``), as UTF-8.

        Returns:
            The path written.

        Raises:
            InputError: another suffix, or no such folder.
        """
        target = Path(path)
        suffix = target.suffix.lower()
        if suffix not in (".html", ".svg"):
            raise InputError(
                "A picture is saved as .html or .svg.",
                found=target.name,
                hint="name the file lineage.html (interactive) or lineage.svg (static)",
            )
        if not target.parent.is_dir():
            raise InputError("The folder for the picture is not there.", found=str(target.parent))
        text = self.page() if suffix == ".html" else self.svg() + "\n"
        target.write_text(text, encoding="utf-8", newline="\n")
        return target

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """What a notebook shows; text for where it shows no HTML."""
        return {
            "text/plain": repr(self),
            "text/html": f'<div style="overflow-x:auto">{self._body()}</div>',
        }

    def _body(self) -> str:
        if os.environ.get("MNEMES_STATIC") != "1":
            try:
                page = html.escape(self.page(), quote=True)
            except MissingExtraError:
                pass  # the static picture needs nothing that may be absent
            else:
                tall = self.height + _vis.FURNITURE
                return (
                    f'<iframe title="{self!r}" sandbox="allow-scripts" srcdoc="{page}" '
                    f'style="width:100%;height:{tall}px;border:0"></iframe>'
                )
        picture = base64.b64encode(self.svg().encode()).decode("ascii")
        return (
            f'<img alt="{self!r}" src="data:image/svg+xml;base64,{picture}" '
            'style="max-width:100%;height:auto">'
        )


# --- reading ---------------------------------------------------------------------------------
# Ids are taken as they come: numbers of any library, tuples and blanks are ids too, and an id that
# is given twice keeps everything that is said of it.
Key = tuple[str, str]


class _Edge(NamedTuple):
    """A row of the edges; the order of the fields is the order of drawing."""

    at: tuple[bool, int]  # whether there is an instant, and which
    source: Key
    target: Key
    type: str
    id: str
    device: str

    @property
    def instant(self) -> int | None:
        return self.at[1] if self.at[0] else None


@dataclass
class _Known:
    """What the frames say of one item."""

    labels: set[str] = field(default_factory=set)
    devices: set[str] = field(default_factory=set)
    instants: set[int] = field(default_factory=set)


def _read(edges: Any, items: Any, root: str | None) -> tuple[list[Item], list[Relation]]:
    """The items, sorted by key, and the relations, oldest first."""
    drawn = _read_edges(edges)
    known: dict[Key, _Known] = defaultdict(_Known)
    if items is not None:
        _read_items(items, known)
    devices = _device_labels(known, drawn)
    touching: dict[Key, list[_Edge]] = defaultdict(list)
    for edge in drawn:
        touching[edge.source].append(edge)
        touching[edge.target].append(edge)
    top = None if root is None else ItemRef.parse(root)
    keys = sorted({*known, *touching, *([] if top is None else [(top.kind, top.id)])})
    order = {key: place for place, key in enumerate(keys)}
    relations = [
        Relation(order[edge.source], order[edge.target], edge.type, edge.instant) for edge in drawn
    ]
    return [_item(key, known[key], touching[key], devices, key == top) for key in keys], relations


def _item(
    key: Key, known: _Known, touching: list[_Edge], devices: dict[str, str], root: bool
) -> Item:
    """An item with what is not said of it taken from its id and its edges."""
    kind, id = key
    label = _joined(known.labels) or id
    if not label.strip():
        label = f"{kind}:{id}"
    device = label if kind == "device" else _joined(known.devices)
    if not device:
        ids = [edge.device for edge in touching if edge.device]
        device = devices.get(ids[0], ids[0]) if ids else ""
    at = known.instants or {edge.instant for edge in touching if edge.instant is not None}
    return Item(kind, id, label, device, min(at, default=None), root)


def _joined(texts: set[str]) -> str:
    return " / ".join(sorted(texts))


def _device_labels(known: dict[Key, _Known], edges: list[_Edge]) -> dict[str, str]:
    """Labels of device ids, as far as the frames tell them without contradiction."""
    told: dict[str, set[str]] = defaultdict(set)
    for edge in edges:
        if edge.device and edge.source in known:
            told[edge.device] |= known[edge.source].devices
    for (kind, id), item in known.items():
        if kind == "device":
            told[id] = item.labels
    return {id: next(iter(labels)) for id, labels in told.items() if len(labels) == 1}


def _read_items(frame: Any, known: dict[Key, _Known]) -> None:
    table = _columns(frame, "an items frame", ["item_kind", "item_id"], ["label", "device"])
    for kind, id, label, device, at in zip(*table, strict=True):
        item = known[kind, id]
        item.labels |= {label} if label.strip() else set()
        item.devices |= {device} if device.strip() else set()
        item.instants |= set() if at is None else {at}


def _read_edges(frame: Any) -> list[_Edge]:
    """The edges, oldest first; one that was gathered several times under its own id is one."""
    required = ["source_kind", "source_id", "target_kind", "target_id", "edge_type"]
    table = _columns(frame, "an edges frame", required, ["edge_id", "device_id"])
    rows = [
        _Edge((at is not None, at or 0), (kind, id), (to_kind, to_id), edge_type, edge_id, device)
        for kind, id, to_kind, to_id, edge_type, edge_id, device, at in zip(*table, strict=True)
    ]
    own = {edge for edge in rows if edge.id}
    return sorted([*own, *(edge for edge in rows if not edge.id)])


def _columns(frame: Any, what: str, required: list[str], optional: list[str]) -> list[list[Any]]:
    """Columns as texts, absent ones empty, and the instants in microseconds last."""
    kind_of(frame, f"{what} (polars or pandas)", "give the frames of a lineage")
    instants, bad = read_rows(
        frame, {"recorded_at": pl.Datetime("us", "UTC")}, required=required, extra="drop"
    )
    problems = [f"row {row}: {why}" for row, why in sorted(bad.items())]
    source = nw.from_native(frame, eager_only=True)
    out: list[list[Any]] = []
    for name in [*required, *optional]:
        if name not in source.columns:
            out.append([""] * len(source))
            continue
        nulls = source[name].is_null().to_list()
        values = zip(source[name].to_list(), nulls, strict=True)
        out.append(["" if null else str(value) for value, null in values])
        if name in required:
            problems += [f"row {row}: {name} is missing" for row, null in enumerate(nulls) if null]
    if problems:
        problems[_MANY:] = [f"and {len(problems) - _MANY} more"] if len(problems) > _MANY else []
        raise SchemaError(f"This is not {what}.", problems=problems)
    return [*out, instants["recorded_at"].cast(pl.Int64).to_list()]
