"""Lineage: what an item came from and what came of it.

From the root, edges are followed outgoing (to what it came from), incoming (to what came of it) or
both, breadth first, each item once, so cycles end. An edge is included when an item it was reached
from lies less than `depth` steps away; `truncated` says that an edge was left out. Edges that
another one replaces are not followed; superseded items are, that being the point.

Across devices one recursive query over the index finds the items; a frame of edges, such as that
of one shard alone, is walked in memory and gives the same answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from typing import Any, NamedTuple, Protocol

import polars as pl

from mnemes_lab import frames, schemas
from mnemes_lab.errors import InputError
from mnemes_lab.frames import whole_number
from mnemes_lab.ids import is_uuid4
from mnemes_lab.store.asof import AsOf, as_of
from mnemes_lab.store.operations import item

MAX_LIMIT = 10_000_000
DIRECTIONS = ("both", "outgoing", "incoming")
Describe = Callable[["Lineage"], tuple[pl.DataFrame, pl.DataFrame, list[str]]]


Step = tuple[Any, ...]  # key, source, target, recorded_at, and whatever the graph adds


class Walk(NamedTuple):
    """How far and which way."""

    direction: str
    depth: int | None
    limit: int
    stop_at: tuple[str, ...] = ()

    def goes_on(self, key: str, root: str) -> bool:
        """Whether the walk passes through an item, or ends there."""
        return key == root or key.partition(":")[0] not in self.stop_at


@dataclass(frozen=True)
class Lineage:
    """What a walk from one item reached.

    Attributes:
        root: The item, ``kind:id``.
        edges: `edges` frame, nearest first, then oldest.
        depths: Steps from the root, by item.
        truncated: Whether edges were left out because of `depth` or `limit`.
        as_of: The point it was asked for.
    """

    root: str
    edges: pl.DataFrame
    depths: Mapping[str, int]
    truncated: bool
    as_of: AsOf | None = None
    _describe: Describe | None = field(default=None, repr=False, compare=False)

    @cached_property
    def _told(self) -> tuple[pl.DataFrame, pl.DataFrame, list[str]]:
        return (self._describe or _plain)(self)

    @property
    def items(self) -> pl.DataFrame:
        """`items` frame, nearest first."""
        return self._told[0]

    @property
    def operations(self) -> pl.DataFrame:
        """`operations` frame: those that are items, and those that recorded the edges."""
        return self._told[1]

    @property
    def skipped(self) -> list[str]:
        """Operations named by an edge that are no operation of the mesh."""
        return self._told[2]

    def __repr__(self) -> str:
        """Counts, and whether it is whole."""
        cut = ", truncated" if self.truncated else ""
        return f"Lineage({self.root!r}, {len(self.depths)} items, {self.edges.height} edges{cut})"


def items_of(
    depths: Mapping[str, int | None], known: Mapping[str, tuple[Any, ...]] | None = None
) -> pl.DataFrame:
    """The `items` frame, nearest first; `known` gives label, device and record time by item."""
    rows = [
        (*key.split(":", 1), depth, *(known or {}).get(key, (None, None, None)))
        for key, depth in sorted(depths.items(), key=lambda kv: (kv[1] or 0, kv[0]))
    ]
    wanted = schemas.dtypes(schemas.Items)
    raw = {n: pl.Int64 if isinstance(d, pl.Datetime) else d for n, d in wanted.items()}
    return pl.DataFrame(rows, schema=raw, orient="row").cast(pl.Schema(wanted))


def _plain(lineage: Lineage) -> tuple[pl.DataFrame, pl.DataFrame, list[str]]:
    named = [key.partition(":")[2] for key in lineage.depths if key.startswith("operation:")]
    skipped = sorted(id for id in named if not is_uuid4(id))
    return items_of(lineage.depths), schemas.empty(schemas.Operations), skipped


# --- the walk --------------------------------------------------------------------------------
class Graph(Protocol):
    """Where a walk reads edges from."""

    def reach(self, root: str, walk: Walk, most: int) -> tuple[dict[str, int], bool]:
        """Items within `depth` steps and how far each is; and whether `most` cut it short."""
        ...

    def touching(self, items: Sequence[str], direction: str) -> Iterator[Step]:
        """Edges that leave (outgoing), enter (incoming) or touch (both) these items."""
        ...

    def whole(self, items: Sequence[str], direction: str) -> Iterator[Step]:
        """The same, with all that `frame` needs."""
        ...

    def first(self, steps: list[Step], far: Sequence[int], limit: int) -> list[Step]:
        """The nearest, oldest `limit` edges, ties broken by edge id, with all `frame` needs."""
        ...

    def frame(self, steps: Sequence[Step]) -> pl.DataFrame:
        """The `edges` frame of some edges, in their order."""
        ...


def checked_walk(
    direction: str, depth: int | None, limit: int, stop_at: Sequence[str] = ()
) -> Walk:
    """A walk whose arguments make sense.

    Raises:
        InputError
    """
    if direction not in DIRECTIONS:
        raise InputError("No such direction.", found=direction, hint=f"one of {DIRECTIONS}")
    if depth is not None and whole_number(depth, "depth") < 0:
        raise InputError("depth must be 0 or more.", found=depth, hint="None goes all the way")
    if not 1 <= whole_number(limit, "limit") <= MAX_LIMIT:
        raise InputError(f"limit must be 1 to {MAX_LIMIT}.", found=limit)
    several = isinstance(stop_at, Iterable) and not isinstance(stop_at, str)
    kinds: tuple[Any, ...] = tuple(stop_at) if several else (None,)
    if not all(isinstance(kind, str) for kind in kinds):
        raise InputError("stop_at takes a list of kinds.", found=stop_at, hint='["actor"]')
    return Walk(direction, None if depth is None else int(depth), int(limit), kinds)


def follow(graph: Graph, root: str, walk: Walk) -> Lineage:
    """Walk a graph from an item; see the module's text for what is included."""
    reached, cut = graph.reach(root, walk, 4 * walk.limit + 1000)
    passed = [key for key in reached if walk.goes_on(key, root)] if walk.stop_at else list(reached)
    inner = {k: reached[k] for k in passed if walk.depth is None or reached[k] < walk.depth}
    near, way = list(inner), walk.direction
    found = islice(graph.whole(near, way), 2 * walk.limit + 1)
    steps = {step[0]: step for step in found}
    if len(steps) > walk.limit:
        slim = list({step[0]: step for step in graph.touching(near, way)}.values())
        chosen, cut = graph.first(slim, _distances(slim, inner, way), walk.limit), True
    else:
        chosen = list(steps.values())
    if not cut:
        rim = [key for key in passed if key not in inner]
        cut = any(step[0] not in steps for step in graph.touching(rim, way))
    far = _distances(chosen, inner, way)
    frame = graph.frame(chosen).with_columns(_far=pl.Series(far, dtype=pl.Int64))
    frame = frame.sort("_far", "recorded_at", "edge_id").drop("_far")
    return Lineage(root, frame, _touched(root, chosen, far, reached), cut)


def _distances(steps: Sequence[Step], inner: Mapping[str, int], way: str) -> list[int]:
    """How far the nearer end of each edge is, of those it was reached from."""
    if way != "both":
        end = 1 if way == "outgoing" else 2
        return [inner[step[end]] for step in steps]
    beyond = len(inner) + 1
    return [min(inner.get(s[1], beyond), inner.get(s[2], beyond)) for s in steps]


def _touched(
    root: str, steps: Sequence[Step], far: Sequence[int], reached: Mapping[str, int]
) -> dict[str, int]:
    """The items at the ends of some edges, and how far each is."""
    ends = {step[1] for step in steps} | {step[2] for step in steps} | {root}
    depths = {key: depth for key, depth in reached.items() if key in ends}
    if len(depths) < len(ends):  # the walk was cut before it came to some of them
        for step, distance in zip(steps, far, strict=True):
            for end in step[1:3]:
                depths.setdefault(end, distance + 1)
    return depths


class Adjacent:
    """Edges in memory, by the items they touch."""

    def __init__(self, steps: Iterable[Step]) -> None:
        """Sort edges by both ends."""
        self.out: dict[str, list[Step]] = {}
        self.into: dict[str, list[Step]] = {}
        for step in steps:
            self.out.setdefault(step[1], []).append(step)
            self.into.setdefault(step[2], []).append(step)

    def reach(self, root: str, walk: Walk, most: int) -> tuple[dict[str, int], bool]:
        """Breadth first, each item once."""
        far, layer, depth = {root: 0}, [root], 0
        while layer and (walk.depth is None or depth < walk.depth):
            depth += 1
            found: list[str] = []
            for key in layer:
                if walk.goes_on(key, root):
                    if walk.direction != "incoming":
                        found += (step[2] for step in self.out.get(key, ()))
                    if walk.direction != "outgoing":
                        found += (step[1] for step in self.into.get(key, ()))
            layer = [key for key in dict.fromkeys(found) if key not in far]
            far.update(dict.fromkeys(layer, depth))
        return far, False

    def touching(self, items: Sequence[str], direction: str) -> Iterator[Step]:
        """From the lists of each item."""
        for key in items:
            if direction != "incoming":
                yield from self.out.get(key, ())
            if direction != "outgoing":
                yield from self.into.get(key, ())


class FrameGraph(Adjacent):
    """Edges of a frame that no other of them replaces."""

    def __init__(self, edges: pl.DataFrame) -> None:
        """`edges` of one point on the two time axes."""
        replaced = edges["supersedes_edge_id"].drop_nulls()
        self.edges = edges = edges.filter(~pl.col("edge_id").is_in(replaced.implode()))
        keyed = edges.select(
            "edge_id",
            pl.concat_str("source_kind", pl.lit(":"), "source_id").alias("source"),
            pl.concat_str("target_kind", pl.lit(":"), "target_id").alias("target"),
            pl.col("recorded_at").cast(pl.Int64),
        )
        super().__init__(keyed.iter_rows())

    whole = Adjacent.touching

    def first(self, steps: list[Step], far: Sequence[int], limit: int) -> list[Step]:
        """The key is the edge's id."""
        ranked = sorted((d, step[3], step[0], step) for d, step in zip(far, steps, strict=True))
        return [step for *_, step in ranked[:limit]]

    def frame(self, steps: Sequence[Step]) -> pl.DataFrame:
        """Rows of the frame."""
        order = pl.DataFrame({"edge_id": [s[0] for s in steps]}, schema={"edge_id": pl.String})
        found = order.join(self.edges, on="edge_id", how="left", maintain_order="left")
        return found.select(self.edges.columns)


def lineage(
    edges: Any,
    root: str,
    *,
    direction: str = "both",
    depth: int | None = 6,
    limit: int = 10_000,
    point: AsOf | None = None,
    stop_at: Sequence[str] = (),
) -> Lineage:
    """Lineage of an item in a frame of edges, or in a mesh.

    Args:
        edges: An `edges` frame, pandas or polars; or a mesh, whose own index answers.
        root: The item, ``kind:id``.
        direction: `outgoing` to what it came from, `incoming` to what came of it, or `both`.
        depth: Most steps from the root; None goes all the way.
        limit: Most edges, nearest first.
        point: Only edges on record and valid at this point; None is everything in the frame.
        stop_at: Kinds of items to show and not to pass through, such as `["actor"]`.

    Returns:
        A :class:`Lineage`. Its frames are polars.

    Raises:
        InputError, InvalidProvenanceError, SchemaError

    Cost: linear in the frame; the index of a mesh looks only at what it reaches.

    Example:
        >>> import polars as pl
        >>> from mnemes_lab import schemas
        >>> from mnemes_lab.clock import from_us
        >>> ends = [("e1", "b", "a"), ("e2", "c", "b")]  # c comes from b, b from a
        >>> edges = pl.DataFrame(
        ...     [{"edge_id": e, "edge_type": "derived_from", "source_kind": "fact", "source_id": s,
        ...       "target_kind": "fact", "target_id": t, "operation_id": "o",
        ...       "recorded_at": from_us(0)} for e, s, t in ends])
        >>> lineage(edges, "fact:c", direction="outgoing")
        Lineage('fact:c', 3 items, 2 edges)
        >>> lineage(edges, "fact:c", direction="outgoing", depth=1).truncated
        True
    """
    if hasattr(edges, "lineage"):
        found: Lineage = edges.lineage(
            root, direction=direction, depth=depth, limit=limit, as_of=point, stop_at=stop_at
        )
        return found
    walk = checked_walk(direction, depth, limit, stop_at)
    table = frames.read(edges, schemas.Edges)
    table = as_of(table, point, include_superseded=True) if point is not None else table
    return replace(follow(FrameGraph(table), item(root, "root"), walk), as_of=point)
