"""Lineage: the index, a frame and a plain search of a list of edges give one answer."""

from __future__ import annotations

import sqlite3
import uuid
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mnemes_lab import AsOf, Lineage, Mesh, lineage, schemas
from mnemes_lab.clock import from_us, to_us
from mnemes_lab.errors import (
    InputError,
    InvalidProvenanceError,
    MissingColumnError,
    SchemaError,
)
from mnemes_lab.store.index_graph import IndexGraph

DAY = 86_400_000_000
NEW_YEAR = to_us("2031-01-01T00:00:00Z")


@pytest.fixture
def mesh(open_mesh):
    return open_mesh()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mesh]:
    """A mesh for graphs that have nothing in common."""
    with Mesh.open(tmp_path_factory.mktemp("shared"), seed=7, encoder="hash:16") as mesh:
        yield mesh


# --- the plain search ------------------------------------------------------------------------
class Arrow(NamedTuple):
    """An edge with what a walk looks at."""

    edge_id: str
    source: str
    target: str
    recorded_at: int
    valid_from: int | None
    valid_to: int | None
    replaces: str | None

    def shows(self, valid: int | None, recorded: int) -> bool:
        if self.recorded_at > recorded:
            return False
        if valid is None:
            return True
        begun = self.valid_from is None or self.valid_from <= valid
        return begun and (self.valid_to is None or valid < self.valid_to)


def arrows(frame: pl.DataFrame) -> list[Arrow]:
    return [
        Arrow(
            row["edge_id"],
            f"{row['source_kind']}:{row['source_id']}",
            f"{row['target_kind']}:{row['target_id']}",
            to_us(row["recorded_at"]),
            row["valid_from"] and to_us(row["valid_from"]),
            row["valid_to"] and to_us(row["valid_to"]),
            row["supersedes_edge_id"],
        )
        for row in frame.iter_rows(named=True)
    ]


@dataclass
class Ask:
    """What is asked of a graph."""

    root: str
    direction: str = "both"
    depth: int | None = 6
    limit: int = 10_000
    stop_at: tuple[str, ...] = ()
    valid: int | None = None
    recorded: int | None = None

    @property
    def point(self) -> AsOf | None:
        if self.valid is None and self.recorded is None:
            return None
        return AsOf(*(None if us is None else from_us(us) for us in (self.valid, self.recorded)))

    @property
    def options(self) -> dict[str, Any]:
        names = ("direction", "depth", "limit", "stop_at")
        return {name: getattr(self, name) for name in names}


class Told(NamedTuple):
    """The answer: edges in order, steps from the root, and whether something was left out."""

    edges: list[str]
    depths: dict[str, int]
    truncated: bool


def plain(graph: Sequence[Arrow], ask: Ask) -> Told:
    """Breadth first over a list, one item after the other."""
    latest = max((a.recorded_at for a in graph), default=0)
    shown = [a for a in graph if a.shows(ask.valid, ask.recorded or latest)]
    replaced = {a.replaces for a in shown}
    shown = [a for a in shown if a.edge_id not in replaced]

    def ways(item: str) -> list[tuple[Arrow, str]]:
        """Where one can go from an item."""
        if item != ask.root and item.split(":")[0] in ask.stop_at:
            return []
        out = [(a, a.target) for a in shown if a.source == item and ask.direction != "incoming"]
        return out + [
            (a, a.source) for a in shown if a.target == item and ask.direction != "outgoing"
        ]

    depths, queue = {ask.root: 0}, deque([ask.root])
    taken: dict[str, tuple[int, int, str, Arrow]] = {}
    left: set[str] = set()
    while queue:
        item = queue.popleft()
        if ask.depth is not None and depths[item] >= ask.depth:
            left |= {arrow.edge_id for arrow, _ in ways(item)}
            continue
        for arrow, there in ways(item):
            key = (depths[item], arrow.recorded_at, arrow.edge_id, arrow)
            taken[arrow.edge_id] = min(key, taken.get(arrow.edge_id, key))
            if there not in depths:
                depths[there] = depths[item] + 1
                queue.append(there)
    ordered = sorted(taken.values())
    kept = [arrow for *_, arrow in ordered[: ask.limit]]
    ends = {ask.root, *(end for a in kept for end in (a.source, a.target))}
    truncated = len(ordered) > ask.limit or bool(left - set(taken))
    return Told(
        [a.edge_id for a in kept], {k: d for k, d in depths.items() if k in ends}, truncated
    )


def told(found: Lineage) -> Told:
    return Told(found.edges["edge_id"].to_list(), dict(found.depths), found.truncated)


def frame_of(edges: Sequence[tuple[Any, ...]]) -> pl.DataFrame:
    """An `edges` frame of (id, source, target, record day, from, to, replaced id)."""
    day = {None: None} | {d: from_us(NEW_YEAR + d * DAY) for d in range(-1, 10)}
    rows = [
        {
            "edge_id": edge_id,
            "edge_type": "derived_from",
            **dict(zip(("source_kind", "source_id"), source.split(":", 1), strict=True)),
            **dict(zip(("target_kind", "target_id"), target.split(":", 1), strict=True)),
            "operation_id": "o",
            "recorded_at": day[recorded],
            "valid_from": day[start],
            "valid_to": day[end],
            "supersedes_edge_id": replaces,
        }
        for edge_id, source, target, recorded, start, end, replaces in edges
    ]
    empty = schemas.empty(schemas.Edges)
    return pl.DataFrame(
        rows, schema={n: empty.schema[n] for n in rows[0]} if rows else empty.schema
    )


def simple(*pairs: str) -> pl.DataFrame:
    """Edges named by their ends: ``ab`` leads from a to b."""
    ends = [(p, f"fact:{p[0]}", f"fact:{p[1]}", i, None, None, None) for i, p in enumerate(pairs)]
    return frame_of(ends)


# --- small graphs ----------------------------------------------------------------------------
CYCLE, CHAIN = ("ab", "bc", "ca"), ("ab", "bc")


@pytest.mark.parametrize(
    ("graph", "root", "direction", "depth", "edges", "truncated"),
    [
        (CYCLE, "a", "outgoing", 4, "ab bc ca", False),
        (CYCLE, "a", "outgoing", 3, "ab bc ca", False),
        (CYCLE, "a", "outgoing", 2, "ab bc", True),
        (CYCLE, "a", "outgoing", 1, "ab", True),
        (CYCLE, "a", "outgoing", 0, "", True),
        (CYCLE, "a", "outgoing", None, "ab bc ca", False),
        (CYCLE, "a", "incoming", 2, "ca bc", True),
        (CYCLE, "a", "incoming", 3, "ca bc ab", False),
        (CYCLE, "a", "both", 1, "ab ca", True),
        (CYCLE, "a", "both", 2, "ab ca bc", False),
        (CHAIN, "a", "outgoing", 2, "ab bc", False),
        (CHAIN, "a", "outgoing", 3, "ab bc", False),
        (CHAIN, "a", "outgoing", 1, "ab", True),
        (CHAIN, "a", "outgoing", 0, "", True),
        (CHAIN, "c", "outgoing", 0, "", False),
        (CHAIN, "c", "outgoing", 6, "", False),
        (CHAIN, "c", "incoming", 1, "bc", True),
        (CHAIN, "c", "incoming", None, "bc ab", False),
        (CHAIN, "a", "incoming", 0, "", False),
        (CHAIN, "b", "both", 1, "ab bc", False),
        (CHAIN, "z", "both", 6, "", False),
        (("ab", "ba"), "a", "outgoing", 1, "ab", True),
        (("ab", "ba"), "a", "both", 1, "ab ba", False),
        ((), "a", "both", None, "", False),
    ],
)
def test_what_is_reached_and_what_is_left_out(graph, root, direction, depth, edges, truncated):
    """Left out means that there is an edge which more depth would show, and nothing else."""
    frame = simple(*graph)
    ask = Ask(f"fact:{root}", direction, depth)
    found = lineage(frame, ask.root, direction=direction, depth=depth)
    assert found.edges["edge_id"].to_list() == edges.split()
    assert found.truncated is truncated
    assert told(found) == plain(arrows(frame), ask)


@pytest.mark.parametrize("limit", [1, 2, 3, 4])
def test_a_limit_keeps_the_nearest_then_the_oldest(limit):
    frame = simple("bd", "ab", "ac", "cd")
    found = lineage(frame, "fact:a", direction="outgoing", limit=limit)
    assert found.edges["edge_id"].to_list() == ["ab", "ac", "bd", "cd"][:limit]
    assert found.truncated == (limit < 4)
    assert set(found.depths) == {f"fact:{k}" for k in ["ab", "abc", "abcd", "abcd"][limit - 1]}


def test_kinds_to_stop_at_are_shown_and_not_passed():
    frame = frame_of(
        [
            ("1", "fact:a", "actor:x", 0, None, None, None),
            ("2", "fact:b", "actor:x", 1, None, None, None),
            ("3", "fact:a", "fact:c", 2, None, None, None),
        ]
    )
    stopped = lineage(frame, "fact:a", stop_at=["actor"])
    assert stopped.edges["edge_id"].to_list() == ["1", "3"]
    assert dict(stopped.depths) == {"fact:a": 0, "actor:x": 1, "fact:c": 1}
    assert not stopped.truncated
    assert lineage(frame, "fact:a").edges["edge_id"].to_list() == ["1", "3", "2"]
    rooted = lineage(frame, "actor:x", stop_at=["actor"], depth=1)
    assert rooted.edges["edge_id"].to_list() == ["1", "2"]
    assert rooted.truncated


def test_a_replaced_edge_is_followed_only_before_its_replacement():
    frame = frame_of(
        [
            ("old", "fact:a", "fact:b", 0, None, None, None),
            ("new", "fact:a", "fact:b", 2, None, 5, "old"),
            ("on", "fact:b", "fact:c", 0, None, None, None),
        ]
    )

    def seen(valid: int | None, recorded: int | None) -> list[str]:
        ask = Ask("fact:a", valid=valid, recorded=recorded)
        found = lineage(frame, ask.root, point=ask.point)
        assert told(found) == plain(arrows(frame), ask)
        return found.edges["edge_id"].to_list()

    assert seen(None, None) == ["new", "on"]
    assert seen(None, NEW_YEAR + DAY) == ["old", "on"]
    assert seen(NEW_YEAR + 4 * DAY, NEW_YEAR + 3 * DAY) == ["new", "on"]
    assert seen(NEW_YEAR + 5 * DAY, NEW_YEAR + 3 * DAY) == ["old", "on"]


# --- any graph, as a frame -------------------------------------------------------------------
NODES = [f"{kind}:{n}" for kind in "xyz" for n in "123"]
_day = st.none() | st.integers(0, 4)
_node = st.integers(0, len(NODES) - 1)
_asks = st.builds(
    Ask,
    root=st.sampled_from(NODES),
    direction=st.sampled_from(["both", "outgoing", "incoming"]),
    depth=st.none() | st.integers(0, 6),
    limit=st.sampled_from([1, 2, 3, 5, 10_000]),
    stop_at=st.sampled_from([(), (), ("y",), ("x", "z"), ("nothing",)]),
    valid=st.none() | st.integers(0, 4).map(lambda d: NEW_YEAR + d * DAY),
    recorded=st.none() | st.integers(-1, 3).map(lambda d: NEW_YEAR + d * DAY),
)


@st.composite
def graphs(draw: st.DrawFn) -> list[tuple[Any, ...]]:
    """Edges over three days; some replace an earlier one."""
    ends = draw(st.lists(st.tuples(_node, _node, _day, _day), max_size=16))
    edges: list[tuple[Any, ...]] = []
    for n, (source, target, start, end) in enumerate(ends):
        if start is not None and end is not None and end < start:
            start, end = end, start
        replaces = None
        if edges and draw(st.integers(0, 4)) == 0:
            before = draw(st.sampled_from(edges))
            replaces, source, target = before[0], NODES.index(before[1]), NODES.index(before[2])
        if source != target:
            day = n * 3 // len(ends)
            edges.append((f"e{n}", NODES[source], NODES[target], day, start, end, replaces))
    return edges


@settings(max_examples=60)
@given(graphs(), st.lists(_asks, min_size=1, max_size=3))
def test_a_frame_is_walked_as_a_list_of_edges_is(edges, asks):
    frame = frame_of(edges)
    for ask in asks:
        found = lineage(frame, ask.root, point=ask.point, **ask.options)
        assert told(found) == plain(arrows(frame), ask)
        assert found.root == ask.root
        assert found.as_of == ask.point


def test_both_kinds_of_frame_give_one_answer(frame_kind):
    frame = simple("ab", "bc", "ca", "cd")
    native = frame if frame_kind.name == "polars" else frame.to_pandas()
    found = lineage(native, "fact:a", depth=1)
    assert isinstance(found.edges, pl.DataFrame)
    assert found.edges["edge_id"].to_list() == ["ab", "ca"]
    assert found.edges.schema == schemas.empty(schemas.Edges).schema
    assert found.items.schema == schemas.empty(schemas.Items).schema
    assert found.items.select("item_kind", "item_id", "depth").rows() == [
        ("fact", "a", 0),
        ("fact", "b", 1),
        ("fact", "c", 1),
    ]


def test_an_id_may_hold_colons():
    frame = frame_of([("e", "note:a:b", "note:c::", 0, None, None, None)])
    found = lineage(frame, "note:a:b")
    assert dict(found.depths) == {"note:a:b": 0, "note:c::": 1}
    assert found.items["item_id"].to_list() == ["a:b", "c::"]


# --- any graph, in a mesh --------------------------------------------------------------------
class Grown:
    """A graph in a mesh: facts of two devices and plain items, written in three goes."""

    count = 0

    def __init__(self, mesh: Mesh, edges: Sequence[tuple[Any, ...]]) -> None:
        Grown.count += 1
        self.mesh, self.edges = mesh, edges
        rows = [{"device": d, "text": f"fact {Grown.count} {d}"} for d in ("a", "b", "a")]
        facts = mesh.load_records(rows, encode=False)["fact_id"].to_list()
        self.names = {
            node: f"fact:{facts[int(node[2]) - 1]}" if node[0] == "x" else f"{node}-{Grown.count}"
            for node in NODES
        }
        self.turns = [to_us(mesh.facts()["recorded_at"].max())]
        ids: dict[str, str] = {}
        for day in range(3):
            part = [edge for edge in edges if edge[3] == day]
            answers = mesh.add_edges(self._input(part, ids)) if part else []
            ids |= dict(zip((e[0] for e in part), answers["edge_id"], strict=True)) if part else {}
            self.turns.append(mesh.store.now())

    def _input(self, part: Sequence[tuple[Any, ...]], ids: dict[str, str]) -> pl.DataFrame:
        day = {None: None} | {d: from_us(NEW_YEAR + d * DAY) for d in range(10)}
        types = ["derived_from", "supports", "contradicts", "retrieved_from"]
        kinds = {edge[0]: types[i % 4] for i, edge in enumerate(self.edges)}
        for edge in self.edges:  # what replaces another is of its type
            kinds[edge[0]] = kinds.get(edge[6], kinds[edge[0]])
        rows = [
            {
                "edge_type": kinds[edge_id],
                "source": self.names[source],
                "target": self.names[target],
                "valid_from": day[start],
                "valid_to": day[end],
                "supersedes_edge_id": ids.get(replaces),
            }
            for edge_id, source, target, _, start, end, replaces in part
        ]
        utc = pl.Datetime("us", "UTC")
        schema = dict.fromkeys(rows[0], pl.String()) | {"valid_from": utc, "valid_to": utc}
        return pl.DataFrame(rows, schema=schema)

    def ask(self, ask: Ask) -> Ask:
        """The same question, of this mesh."""
        when = ask.recorded and self.turns[min(3, (ask.recorded - NEW_YEAR) // DAY + 1)]
        stop = tuple("fact" if kind == "x" else kind for kind in ask.stop_at)
        return Ask(self.names[ask.root], ask.direction, ask.depth, ask.limit, stop, ask.valid, when)


@settings(max_examples=12)
@given(graphs(), st.lists(_asks, min_size=3, max_size=5))
def test_the_index_walks_as_a_frame_and_a_list_do(shared, edges, asks):
    grown = Grown(shared, edges)
    everything = shared.edges()
    listed = arrows(everything)
    for ask in map(grown.ask, asks):
        found = shared.lineage(ask.root, as_of=ask.point, **ask.options)
        framed = lineage(everything, ask.root, point=ask.point, **ask.options)
        assert told(found) == told(framed) == plain(listed, ask)
        assert found.edges.equals(framed.edges)
        assert found.edges.schema == everything.schema
        assert found.as_of == ask.point
        again = lineage(shared, ask.root, point=ask.point, **ask.options)
        assert told(again) == told(found)


def sample(mesh: Mesh) -> list[Ask]:
    """A mesh with a bit of everything, and questions about it."""
    agent, other = mesh.agent("a"), mesh.agent("b")
    first = agent.remember("gate B2")
    second = agent.remember("gate B9", derived_from=[first, "document:plan"])
    third = other.remember("B9 is open", source=f"fact:{second}")
    moment = mesh.store.now()
    fourth = agent.supersede(first, "gate B3", valid_from="2031-02-01T00:00:00Z")
    edge = mesh.add_edge("supports", f"fact:{third}", f"fact:{fourth}")
    mesh.add_edge("supports", f"fact:{third}", f"fact:{fourth}", supersedes_edge_id=edge)
    other.add_edge("contradicts", f"fact:{third}", f"fact:{first}", valid_to="2031-03-01T00:00:00Z")
    operation = mesh.submit("adjudicate", f"fact:{third}", content="fine").operation_id
    mesh.add_edge("recorded_by", "note:1", f"operation:{operation}")
    roots = [
        f"fact:{first}",
        f"fact:{fourth}",
        "document:plan",
        f"actor:{agent.actor_id}",
        f"operation:{mesh.operations(target_id=second)['operation_id'][0]}",
        f"device:{agent.device.device_id}",
        "note:1",
    ]
    asks = [Ask(root, depth=None) for root in roots]
    asks += [Ask(root, stop_at=("actor", "operation")) for root in roots]
    asks += [Ask(roots[0], recorded=moment), Ask(roots[0], valid=NEW_YEAR + 70 * DAY)]
    return [*asks, Ask(roots[0], limit=3), Ask(roots[1], "outgoing"), Ask(roots[0], "incoming")]


def everything_of(mesh: Mesh, asks: Sequence[Ask]) -> list[tuple[Any, ...]]:
    out = []
    for ask in asks:
        found = mesh.lineage(ask.root, as_of=ask.point, **ask.options)
        frames = [found.edges, found.items, found.operations]
        out.append((told(found), found.skipped, [frame.rows() for frame in frames]))
    return out


def test_a_reader_and_a_rebuilt_index_tell_the_same(open_mesh):
    with open_mesh("made") as mesh:
        asks = sample(mesh)
    with open_mesh("made", seed=None, read_only=True) as reader:  # the index is still empty
        read = everything_of(reader, asks)
    with open_mesh("made") as again:
        assert everything_of(again, asks) == read
        listed = arrows(again.edges())
        assert [answer[0] for answer in read] == [plain(listed, ask) for ask in asks]
        before = index_rows(again)
        again.rebuild_evidence()
        assert index_rows(again) == before
        assert everything_of(again, asks) == read
        again.rebuild_evidence()
        again.agent("a").remember("later")
        for (old, _, old_frames), (new, _, new_frames) in zip(
            [read[i] for i, ask in enumerate(asks) if ask.recorded],
            everything_of(again, [ask for ask in asks if ask.recorded]),
            strict=True,
        ):
            assert (old, old_frames) == (new, new_frames)
        assert set(again.check()["outcome"]) <= {"ok", "pending"}


def index_rows(mesh: Mesh) -> list[Any]:
    with sqlite3.connect(mesh.store.path) as conn:
        found = [
            conn.execute("SELECT * FROM operations ORDER BY home, operation_id").fetchall(),
            conn.execute(
                "SELECT home, edge_id, edge_type, source, target, operation_id, actor_id,"
                " device_id, valid_from, valid_to, recorded_at, generation FROM edges"
                " ORDER BY edge_id"
            ).fetchall(),
        ]
    conn.close()
    return found


def test_one_shard_answers_for_itself(mesh):
    """Its own edges only, from its own file; other shards are not needed for it."""
    asks = sample(mesh)
    for name in ("a", "b"):
        device = mesh.device(name)
        alone = mesh.edges(device=device)
        with sqlite3.connect(mesh.store.shard_path(device.device_id)) as conn:
            held = conn.execute("SELECT edge_id FROM edges ORDER BY recorded_at, edge_id")
            assert alone["edge_id"].to_list() == [row[0] for row in held]
        conn.close()
        assert mesh.edges(device=device.device_id).equals(alone)
        assert mesh.edges(device=name).equals(alone)
        for ask in asks[::2]:
            found = lineage(alone, ask.root, point=ask.point, **ask.options)
            assert told(found) == plain(arrows(alone), ask)
    both = pl.concat([mesh.edges(device="a"), mesh.edges(device="b")])["edge_id"]
    assert both.is_unique().all()
    rest = set(mesh.edges()["edge_id"]) - set(both)
    pooled = mesh.edges(source="note:1")["edge_id"].to_list()
    assert rest == set(pooled) != set()


@pytest.mark.parametrize(
    ("leaves", "chain", "limit", "depth"), [(90, 60, 200, 100), (90, 0, 100, 60)]
)
def test_many_ways_round_do_not_use_up_the_limit(mesh, leaves, chain, limit, depth):
    """A star is walked to and fro at every depth; each of its items counts once."""
    star = [("supports", "note:hub", f"note:{i}") for i in range(leaves)]
    ends = ["note:hub", *(f"link:{i}" for i in range(chain))]
    star += [("derived_from", a, b) for a, b in pairwise(ends)]
    mesh.add_edges(pl.DataFrame(star, schema=["edge_type", "source", "target"], orient="row"))
    found = mesh.lineage("note:hub", limit=limit, depth=depth)
    framed = lineage(mesh.edges(), "note:hub", limit=limit, depth=depth)
    assert told(framed)[1:] == (dict(framed.depths), False)
    assert found.edges.height == leaves + chain
    assert told(found) == told(framed)


@pytest.mark.parametrize("depth", [2, None])
def test_a_wide_graph_is_cut_and_says_so(shared, depth):
    wide = 10_050
    ends = {"source": ["note:wide"] * wide, "target": [f"wide:{i}" for i in range(wide)]}
    shared.add_edges(pl.DataFrame({"edge_type": ["supports"] * wide, **ends}), idempotency_key="w")
    for limit in (100, wide - 1) if depth else (100, wide):
        found = shared.lineage("note:wide", limit=limit, depth=depth)
        assert found.edges.height == limit
        assert found.truncated == (limit < wide)
        assert len(found.depths) == limit + 1
    assert shared.lineage("note:wide").truncated
    one = shared.lineage("wide:7", direction="incoming", depth=1)
    assert (one.edges.height, one.truncated) == (1, False)


def test_a_long_chain_is_walked_to_its_end(shared):
    n = 3000
    ends = {
        "source": [f"long:{i + 1}" for i in range(n)],
        "target": [f"long:{i}" for i in range(n)],
    }
    shared.add_edges(pl.DataFrame({"edge_type": ["derived_from"] * n, **ends}))
    found = shared.lineage(f"long:{n}", direction="outgoing", depth=None)
    assert (found.depths["long:0"], found.truncated) == (n, False)
    assert shared.lineage(f"long:{n}", direction="outgoing", depth=n).depths == found.depths
    assert shared.lineage(f"long:{n}", direction="outgoing", depth=n - 1).truncated
    assert found.items["depth"].to_list() == list(range(n + 1))


# --- what is told with it --------------------------------------------------------------------
def test_operations_are_those_that_are_items_and_those_behind_the_edges(mesh):
    agent = mesh.agent("a")
    fact = agent.remember("gate B2")
    (stated,) = mesh.operations(target_id=fact)["operation_id"]
    named = mesh.submit("observe", "note:1", content="x").operation_id
    mesh.add_edge("supports", "note:1", f"fact:{fact}")  # an operation no edge leads to
    (silent,) = mesh.edges(source="note:1")["operation_id"]
    mesh.add_edge("retrieved_from", "note:1", f"operation:{named}")
    (other,) = mesh.edges(target=f"operation:{named}")["operation_id"]
    found = mesh.lineage(f"fact:{fact}")
    operations = mesh.operations()
    assert found.operations.schema == operations.schema
    wanted = operations.filter(pl.col("operation_id").is_in([stated, named, silent, other]))
    assert found.operations.equals(wanted)
    assert found.skipped == []
    near = mesh.lineage(f"fact:{fact}", depth=1)
    assert set(near.operations["operation_id"]) == {stated, silent}
    alone = mesh.lineage(f"operation:{named}", depth=0)
    assert alone.operations["operation_id"].to_list() == [named]


def test_items_are_named(mesh):
    agent = mesh.agent("planner", device="laptop")
    fact = agent.remember("gate B2")
    mesh.add_edge("derived_from", f"fact:{fact}", "document:plan")
    mesh.add_edge("observed_by", f"fact:{fact}", f"device:{agent.device.device_id}")
    items = mesh.lineage(f"fact:{fact}", depth=1).items
    assert items.schema == schemas.empty(schemas.Items).schema
    shown = {row["item_kind"]: row for row in items.iter_rows(named=True)}
    assert {kind: (row["label"], row["device"]) for kind, row in shown.items()} == {
        "fact": ("gate B2", "laptop"),
        "actor": ("planner", "laptop"),
        "device": ("laptop", "laptop"),
        "operation": ("observe fact", "laptop"),
        "document": (None, None),
    }
    recorded = mesh.facts()["recorded_at"].item()
    assert shown["fact"]["recorded_at"] == shown["operation"]["recorded_at"] == recorded
    assert shown["document"]["recorded_at"] is None
    assert items["depth"].to_list() == [0, 1, 1, 1, 1]
    mesh.redact(fact)
    assert mesh.lineage(f"fact:{fact}", depth=0).items["label"].to_list() == ["(redacted)"]


def test_an_operation_that_is_none_is_passed_over_and_named(mesh):
    """Such edges come with files written elsewhere: no door of the mesh lets them in."""
    unknown = str(uuid.UUID(int=5, version=4))
    fact = mesh.agent("a").remember("gate B2")
    for target in ("not-a-uuid", unknown):
        with pytest.raises(InvalidProvenanceError, match="not there"):
            mesh.add_edge("retrieved_from", f"fact:{fact}", f"operation:{target}")
    mesh.add_edge("supports", "note:1", "note:2")
    with sqlite3.connect(mesh.store.path) as conn:
        for edge_id, target in (("e1", "not-a-uuid"), ("e2", unknown)):
            conn.execute(
                "INSERT INTO edges (home, edge_id, edge_type, source, target, operation_id,"
                " recorded_at, generation) SELECT home, ?, 'retrieved_from', ?, ?, operation_id,"
                " recorded_at, generation FROM edges WHERE source = 'note:1'",
                (edge_id, f"fact:{fact}", f"operation:{target}"),
            )
    conn.close()
    found = mesh.lineage(f"fact:{fact}")
    assert {"e1", "e2"} < set(found.edges["edge_id"])
    assert found.skipped == sorted(["not-a-uuid", unknown])
    keys = [f"operation:{i}" for i in ("not-a-uuid", unknown)]
    assert [found.depths[key] for key in keys] == [1, 1]
    known = set(mesh.operations()["operation_id"])
    assert set(found.operations["operation_id"]) <= known
    unnamed = found.items.filter(pl.col("item_id").is_in(["not-a-uuid", unknown]))
    assert unnamed["label"].to_list() == [None, None]


def test_a_frame_names_operations_that_are_none_too():
    frame = frame_of([("e", "fact:a", "operation:not-a-uuid", 0, None, None, None)])
    found = lineage(frame, "fact:a")
    assert found.edges.height == 1
    assert found.skipped == ["not-a-uuid"]


def test_it_shows_itself_in_a_line():
    frame = simple("ab", "bc")
    assert repr(lineage(frame, "fact:a")) == "Lineage('fact:a', 3 items, 2 edges)"
    short = lineage(frame, "fact:a", depth=1)
    assert repr(short) == "Lineage('fact:a', 2 items, 1 edges, truncated)"


# --- one moment ------------------------------------------------------------------------------
@pytest.mark.parametrize("depth", [1, None])
def test_a_walk_sees_one_state_of_the_mesh(mesh, monkeypatch, depth):
    """Somebody writes in the middle of it."""
    mesh.add_edge("supports", "note:1", "note:hub")
    mesh.add_edge("derived_from", "note:hub", "note:9")
    before = mesh.lineage("note:hub", depth=depth)
    written: list[str] = []
    for name in ("reach", "touching", "whole"):
        inner = getattr(IndexGraph, name)

        def interrupted(self: Any, *args: Any, inner: Any = inner) -> Any:
            n = len(written)
            written.append(mesh.add_edge("supports", f"late:{n}", "note:hub"))
            mesh.add_edge("supports", f"later:{n}", "note:1")
            return inner(self, *args)

        monkeypatch.setattr(IndexGraph, name, interrupted)
    during = mesh.lineage("note:hub", depth=depth)
    monkeypatch.undo()
    assert written
    assert told(during) == told(before)
    assert during.edges.equals(before.edges)
    assert mesh.lineage("note:hub").edges.height == before.edges.height + 2 * len(written)


def test_the_index_follows_whoever_writes(open_mesh):
    """Also another opening of the same folder, and an item written only now is found."""
    one, other = open_mesh("shared"), open_mesh("shared")
    first = one.agent("a").remember("gate B2")
    assert other.lineage(f"fact:{first}").edges.height == 2
    second = other.agent("a").remember("gate B9", derived_from=[first])
    assert one.lineage(f"fact:{second}", depth=1).edges.height == 3
    assert one.lineage(f"fact:{first}", direction="incoming").edges.height == 1


def test_an_operation_is_found_before_anything_else_was_asked(open_mesh):
    mesh = open_mesh("made")
    fact = mesh.agent("a").remember("gate B2")
    (operation,) = mesh.operations(target_id=fact)["operation_id"]
    found = mesh.lineage(f"operation:{operation}", direction="incoming", depth=1)
    assert found.depths == {f"operation:{operation}": 0, f"fact:{fact}": 1}


def test_a_reader_finds_an_operation_too(open_mesh):
    with open_mesh("made") as mesh:
        fact = mesh.agent("a").remember("gate B2")
        (operation,) = mesh.operations(target_id=fact)["operation_id"]
    with open_mesh("made", seed=None, read_only=True) as reader:
        found = reader.lineage(f"operation:{operation}", direction="incoming", depth=1)
        assert found.depths == {f"operation:{operation}": 0, f"fact:{fact}": 1}


# --- what is refused -------------------------------------------------------------------------
@pytest.mark.parametrize("kind", ["fact", "operation", "actor", "device", "receipt"])
def test_items_that_the_mesh_should_hold_and_does_not_are_refused(shared, kind):
    for id in ("nothing", str(uuid.UUID(int=9, version=4)), "'; DROP TABLE edges; --"):
        with pytest.raises(InvalidProvenanceError, match="not there"):
            shared.lineage(f"{kind}:{id}")
        assert lineage(simple("ab"), f"{kind}:{id}").edges.is_empty()


def test_items_of_other_kinds_need_no_registration(shared):
    for root in ("document:nowhere", "x:'; DROP TABLE edges; --", "ñ:泵\u2028", "x:%", "x:_"):
        found = shared.lineage(root)
        assert (found.edges.height, found.depths, found.truncated) == (0, {root: 0}, False)


@pytest.mark.parametrize(
    "root",
    ["", "fact", "fact:", ":x", " : ", "a\x00:b", "x:\ud800", "x:" + "y" * 500, None, 5, [1]],
)
def test_what_is_no_item_is_refused(shared, root):
    for ask in (shared.lineage, lambda r: lineage(simple("ab"), r)):
        with pytest.raises(InvalidProvenanceError, match="root"):
            ask(root)


@pytest.mark.parametrize(
    "options",
    [
        {"direction": "up"},
        {"direction": None},
        {"direction": ["both"]},
        {"depth": -1},
        {"depth": 1.5},
        {"depth": True},
        {"depth": "1"},
        {"limit": 0},
        {"limit": 2**70},
        {"limit": None},
        {"limit": True},
        {"stop_at": "actor"},
    ],
    ids=repr,
)
def test_options_that_make_no_sense_are_refused(shared, options):
    for ask in (shared.lineage, lambda r, **o: lineage(simple("ab"), r, **o)):
        with pytest.raises(InputError):
            ask("note:1", **options)


@pytest.mark.parametrize("options", [{"depth": 2**70}, {"depth": 2**63}], ids=repr)
def test_a_depth_of_any_size_is_a_depth(shared, options):
    shared.add_edge("supports", "big:1", "big:2", idempotency_key="big")
    found = shared.lineage("big:1", **options)
    assert (found.edges.height, found.truncated) == (1, False)
    assert told(lineage(shared.edges(), "big:1", **options)) == told(found)


@pytest.mark.parametrize("stop_at", [None, 5, [5], [None], {"actor": 1}.values()], ids=repr)
def test_kinds_to_stop_at_are_a_list_of_texts(shared, stop_at):
    for ask in (shared.lineage, lambda r, **o: lineage(simple("ab"), r, **o)):
        with pytest.raises(InputError, match="stop_at"):
            ask("note:1", stop_at=stop_at)


def test_what_is_no_frame_of_edges_is_refused():
    frame = simple("ab", "bc")
    for wrong, error in (
        (None, SchemaError),
        ([("a", "b")], SchemaError),
        (frame.lazy(), SchemaError),
        (frame.drop("source_kind"), MissingColumnError),
        (frame.with_columns(edge_type=pl.lit("likes")), SchemaError),
        (frame.with_columns(edge_id=pl.lit("same")), SchemaError),
        (frame.with_columns(recorded_at=pl.lit("yesterday")), SchemaError),
        (frame.with_columns(pl.col("recorded_at").dt.replace_time_zone(None)), SchemaError),
        (frame.with_columns(source_id=pl.lit(None, pl.String)), SchemaError),
    ):
        with pytest.raises(error):
            lineage(wrong, "fact:a")
    with pytest.raises(InputError, match="as_of"):
        lineage(frame, "fact:a", point="2031-01-01T00:00:00Z")  # type: ignore[arg-type]
