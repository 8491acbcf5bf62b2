"""A mesh at any point of its two clocks: two sliders, and the facts and the graph that follow.

What a panel shows is computed by plain functions; the sliders only call them, so everything works
and is tested without a browser. Handlers never print and never raise: what goes wrong is told in
the panel. Where ``MNEMES_STATIC=1`` is set the panel is a picture and a table at the open end,
which every notebook shows, trusted or not.

Example:
    >>> import polars as pl
    >>> facts = pl.DataFrame({"recorded_at": ["2031-04-10T08:00:00Z"], "closed_at": [None]})
    >>> instants(facts).recorded[0].isoformat(), instants(facts).valid
    ('2031-04-10T08:00:00+00:00', [])
"""

from __future__ import annotations

import html
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

import narwhals as nw
import polars as pl

from mnemes_lab import frames
from mnemes_lab.clock import from_us, to_us
from mnemes_lab.errors import InputError, MissingExtraError
from mnemes_lab.store.asof import AsOf
from mnemes_lab.store.evidence import item_keys
from mnemes_lab.view.graph import ProvenanceGraph
from mnemes_lab.view.plain import cell, visible
from mnemes_lab.view.versions import moment

OPEN = "open"  # the end of a slider: any valid time, the present record time
MAX_ROWS, MAX_ITEMS, MAX_STEPS, MAX_HISTORIES = 20, 300, 400, 100
_VALID = ("valid_from", "valid_to")
_RECORDED = ("recorded_at", "closed_at", "expires_at")
_HUBS = ("actor", "device", "operation")  # they connect everything with everything
_CELL = "line-height:1.4;padding:0.25em 0.75em 0.25em 0;text-align:left;vertical-align:top"


class Instants(NamedTuple):
    """The instants at which something changes, on each of the two axes, in order."""

    valid: list[datetime]
    recorded: list[datetime]


def instants(*tables: Any) -> Instants:
    """Where the ends of intervals lie in frames of facts, histories or edges.

    Args:
        tables: pandas or polars. Read, where present, are valid_from and valid_to for valid time,
            and recorded_at, closed_at and expires_at for record time.

    Raises:
        SchemaError: what was given is no frame.
        InstantError: a column holds times without an offset.
    """
    found: tuple[set[int], set[int]] = (set(), set())
    for table in tables:
        frames.kind_of(table)
        frame = nw.from_native(table, eager_only=True)
        for points, names in zip(found, (_VALID, _RECORDED), strict=True):
            for name in [name for name in names if name in frame.columns]:
                told = frame[name].drop_nulls().unique().to_list()
                points.update(to_us(instant, what=name) for instant in told)
    return Instants(*(list(map(from_us, sorted(points))) for points in found))


@dataclass(frozen=True)
class Shown:
    """What a mesh shows at a point of its two clocks.

    Attributes:
        facts: `facts` frame; around an item, only those within reach.
        edges: `edges` frame.
        sentence: What is shown, in words.
        table: The facts as HTML, newest first.
        graph: The edges as HTML: a picture, or why there is none.
    """

    facts: pl.DataFrame
    edges: pl.DataFrame
    sentence: str
    table: str
    graph: str

    @property
    def html(self) -> str:
        """All of it."""
        return f"<div><p>{_safe(self.sentence)}</p>{self.table}{self.graph}</div>"


def shown(
    mesh: Any,
    valid: datetime | str | None = None,
    recorded: datetime | str | None = None,
    item: str | None = None,
    depth: int = 3,
) -> Shown:
    """What the mesh knew at a record time about the state at a valid time.

    Args:
        mesh: An open mesh.
        valid: When in the world; None does not look at validity.
        recorded: As told by then; None is now.
        item: Only what is within reach of this item, as ``kind:id``; None is everything. Actors,
            devices and operations on the way are shown and not passed through.
        depth: How many steps from `item`.

    Raises:
        InvalidAsOfError, InvalidProvenanceError, InputError: as the mesh's own questions do.
    """
    point = AsOf(valid, recorded)
    facts = mesh.facts(as_of=point)
    labels = dict(mesh.devices().select("device_id", "label").iter_rows())
    if item is None:
        edges, reach = mesh.edges(as_of=point), ""
        graph = _graph(lambda: ProvenanceGraph(edges, mesh.items(edges, as_of=point)), edges)
    else:
        lineage = mesh.lineage(item, depth=depth, as_of=point, stop_at=_HUBS)
        edges = lineage.edges
        facts = _within(facts, lineage)
        steps = "1 step" if depth == 1 else f"{depth} steps"
        reach = f" within {steps} of {visible(item, limit=60)}"
        graph = _graph(lambda: ProvenanceGraph.of(lineage), edges)
    return Shown(facts, edges, _sentence(point, facts, edges, reach), _table(facts, labels), graph)


def _within(facts: pl.DataFrame, lineage: Any) -> pl.DataFrame:
    """The facts a lineage reached."""
    reached = lineage.items.filter(pl.col("item_kind") == "fact")["item_id"]
    return facts.filter(pl.col("fact_id").is_in(reached.implode()))


def _graph(draw: Callable[[], ProvenanceGraph], edges: pl.DataFrame) -> str:
    """The picture of edges, or in words why there is none."""
    if not edges.height:
        return "<p>Nothing is on record about where this came from.</p>"
    items = len(item_keys(edges))
    if items > MAX_ITEMS:
        told = f"{items:,} items are too many to draw; the most is {MAX_ITEMS}."
        return f"<p>{told} Hint: look around one item (item=), or take fewer steps (depth=).</p>"
    try:
        return str(draw()._repr_mimebundle_()["text/html"])
    except InputError as error:  # more edges than can be told apart
        return f"<p>{_safe(str(error))}</p>"


def _sentence(point: AsOf, facts: pl.DataFrame, edges: pl.DataFrame, reach: str) -> str:
    valid, recorded = point.micros(0)
    told = "knows now" if point.recorded_at is None else f"knew on {_spoken(recorded)}"
    about = "any time" if valid is None else f"the state on {_spoken(valid)}"
    counts = f"{_count(facts.height, 'fact')} and {_count(edges.height, 'edge')}"
    return f"What the mesh {told} about {about}: {counts}{reach}."


def _spoken(us: int) -> str:
    return "{} at {} UTC".format(*moment(us))


def _count(n: int, what: str) -> str:
    return f"{n:,} {what}{'' if n == 1 else 's'}"


# --- the table -------------------------------------------------------------------------------
def _table(facts: pl.DataFrame, labels: dict[str, str]) -> str:
    """The newest facts as HTML. Texts are data: each is escaped here and nowhere else."""
    if not facts.height:
        return "<p>No fact holds here.</p>"
    rows = facts.sort("recorded_at", "fact_id", descending=[True, False]).head(MAX_ROWS)
    out = [_row("th", ["fact", "device", "valid from", "valid to", "recorded at"])]
    for fact in rows.iter_rows(named=True):
        device = labels.get(fact["device_id"], fact["device_id"])
        text = "(redacted)" if fact["status"] == "redacted" else fact["text"]
        times = [_instant(fact[name]) for name in ("valid_from", "valid_to", "recorded_at")]
        out.append(_row("td", [text, device, *times]))
    more = facts.height - rows.height
    note = f"<p>The newest {MAX_ROWS}; {more:,} more are not listed.</p>" if more else ""
    return f"<table>{''.join(out)}</table>{note}"


def _row(tag: str, cells: Sequence[str]) -> str:
    filled = "".join(
        f'<{tag} style="{_CELL}">{html.escape(cell(value, limit=200), quote=True)}</{tag}>'
        for value in cells
    )
    return f"<tr>{filled}</tr>"


def _instant(value: datetime | None) -> str:
    return "" if value is None else " ".join(moment(to_us(value))).replace(" ", "\xa0")


def _safe(text: str) -> str:
    return html.escape(visible(text), quote=True)


# --- the panel -------------------------------------------------------------------------------
class StillPanel:
    """A panel without sliders, at the open end of both clocks: no widget, no state, no script."""

    def __init__(self, at_end: Shown) -> None:
        """Keep what is shown."""
        self.shown = at_end

    def __repr__(self) -> str:
        """What is shown, in words."""
        return self.shown.sentence

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """What a notebook shows; text for where it shows no HTML."""
        return {"text/plain": repr(self), "text/html": self.shown.html}


def as_of_panel(mesh: Any, *, item: str | None = None, depth: int = 3) -> Any:
    """Two sliders, valid time and record time, with the facts and the graph that follow them.

    Args:
        mesh: An open mesh. Its instants are gathered once: what is written later shows at the
            ends that lie open, and as new instants in a new panel.
        item: Only what is within reach of this item, as ``kind:id``; None is everything.
        depth: How many steps from `item`.

    Returns:
        An ipywidgets VBox of the two sliders, a line that says what is shown, the table and the
        graph; a :class:`StillPanel` where ``MNEMES_STATIC=1`` is set.

    Raises:
        MissingExtraError: ipywidgets is not installed.
        InvalidProvenanceError, InputError: as :func:`shown` raises them.

    Cost: every move asks the mesh for its facts and edges; a graph is drawn for up to 300 items.
    """
    at_end = shown(mesh, item=item, depth=depth)
    if os.environ.get("MNEMES_STATIC") == "1":
        return StillPanel(at_end)
    try:
        import ipywidgets as widgets
    except ImportError:
        raise MissingExtraError.of("A panel", "ipywidgets", "lab") from None
    points = instants(*_told(mesh, item, depth))
    valid = _slider(widgets, "valid time", points.valid, "any time")
    recorded = _slider(widgets, "record time", points.recorded, "now")
    line, table, graph = (widgets.HTML() for _ in range(3))

    def show(now: Shown) -> None:
        line.value, table.value, graph.value = f"<p>{_safe(now.sentence)}</p>", now.table, now.graph

    def follow(_change: Any) -> None:
        at, told = (None if s.value == OPEN else s.value for s in (valid, recorded))
        try:
            show(shown(mesh, at, told, item, depth))
        except Exception as error:  # a panel tells; it leaves no traceback in some other cell
            said = f"{type(error).__name__}: {error}"
            line.value = f'<p role="alert"><b>{_safe(said)}</b></p>'
            table.value = graph.value = ""

    show(at_end)
    for slider in (valid, recorded):
        slider.observe(follow, names="value")
    return widgets.VBox([valid, recorded, line, table, graph])


def _told(mesh: Any, item: str | None, depth: int) -> list[pl.DataFrame]:
    """The frames whose instants matter: facts, their earlier versions and remainders, and edges."""
    facts, edges, changed = mesh.facts(), None, pl.col("version") > 1
    if item is None:
        edges = mesh.edges()
    else:
        lineage = mesh.lineage(item, depth=depth, stop_at=_HUBS)
        facts, edges = _within(facts, lineage), lineage.edges
        changed |= pl.col("superseded_by").is_not_null()  # by one that may be out of reach
    told = facts.filter(changed)["fact_id"].sort().head(MAX_HISTORIES)
    return [facts, edges, *(mesh.history(fact_id) for fact_id in told)]


def _slider(widgets: Any, name: str, points: Sequence[datetime], open_end: str) -> Any:
    """A slider over instants that starts at its open end, on the right."""
    n = len(points)
    kept = points
    if n > MAX_STEPS:  # evenly thinned, the first and the last kept
        kept = [points[i * (n - 1) // (MAX_STEPS - 1)] for i in range(MAX_STEPS)]
        name = f"{name} ({MAX_STEPS} of {n:,})"
    options: list[tuple[str, Any]] = [(" ".join(moment(to_us(point))), point) for point in kept]
    return widgets.SelectionSlider(
        options=[*options, (open_end, OPEN)],
        value=OPEN,
        description=name,
        continuous_update=False,
        layout=widgets.Layout(width="95%"),
        style={"description_width": "11em" if n > MAX_STEPS else "6em"},
    )
