"""Two clocks: one predicate, everywhere, and a past answer that no later write moves.

The first part compares `as_of`, the store's SQL and the index of a shard, cell by cell, with a
replay of every version over a small grid. ``MNEMES_HISTORIES`` says how many histories to invent;
programs of writes grow with it.
"""

from __future__ import annotations

import functools
import os
import random
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import BigInteger, Column, MetaData, Table, create_engine, insert, select

from mnemes_lab import AsOf, LabClock, Mesh, as_of, lineage
from mnemes_lab.clock import from_us, to_us
from mnemes_lab.errors import (
    ConflictError,
    InputError,
    InstantError,
    InvalidAsOfError,
    MissingColumnError,
    SchemaError,
)
from mnemes_lab.store.asof import visible
from mnemes_lab.store.index import ShardIndex

HISTORIES = int(os.environ.get("MNEMES_HISTORIES", "10000"))
GRID = 6  # ticks on either axis
MIDNIGHT, HOUR = to_us("2031-01-01T00:00:00Z"), 3_600_000_000
MICROSECOND = timedelta(microseconds=1)
POINTS = [(valid, recorded) for valid in (None, *range(GRID)) for recorded in range(GRID)]


@pytest.fixture
def mesh(open_mesh):
    return open_mesh()


def at(tick: int | None) -> int | None:
    """The instant of a tick."""
    return None if tick is None else MIDNIGHT + tick * HOUR


# --- the grid --------------------------------------------------------------------------------
class Version(NamedTuple):
    """One version of a fact, its times as ticks; only `recorded_at` is never open."""

    recorded_at: int
    closed_at: int | None
    expires_at: int | None
    valid_from: int | None
    valid_to: int | None
    remainder: int


CELL_TIMES = [name for name in Version._fields if name != "remainder"]


@functools.cache
def replay(version: Version) -> tuple[bool, ...]:
    """Whether a version shows at each of `POINTS`, by letting both clocks run over the grid."""
    shown: dict[tuple[int | None, int], bool] = {}
    known = closed = expired = False
    for recorded in range(GRID):
        known |= version.recorded_at == recorded
        closed |= version.closed_at == recorded
        expired |= version.expires_at == recorded
        on_record = known and not closed and not expired
        shown[None, recorded] = on_record and not version.remainder
        begun, ended = version.valid_from is None, False
        for valid in range(GRID):
            begun |= version.valid_from == valid
            ended |= version.valid_to == valid
            shown[valid, recorded] = on_record and begun and not ended
    return tuple(shown[point] for point in POINTS)


def invent(rng: random.Random) -> list[Version]:
    """A history of up to eight versions: lived through, or with every time on its own."""
    n = rng.randint(1, 8)

    def tick(open_: float = 0.3) -> int | None:
        return None if rng.random() < open_ else rng.randrange(GRID)

    if rng.random() < 0.5:
        return [
            Version(rng.randrange(GRID), *(tick() for _ in range(4)), rng.randrange(2))
            for _ in range(n)
        ]
    turns = sorted(rng.choices(range(GRID), k=n))
    starts, ends = [tick() for _ in range(n)], [tick() for _ in range(n)]
    return [
        Version(
            turns[i],
            turns[i + 1] if i + 1 < n else tick(0.7),
            tick(0.7),
            starts[i],
            ends[i],
            int(rng.random() < 0.2),
        )
        for i in range(n)
    ]


def histories(seed: int, n: int) -> list[tuple[int, Version]]:
    """Many histories, one after the other: the number of each, and a version of it."""
    rng = random.Random(seed)
    return [(number, version) for number in range(n) for version in invent(rng)]


def history_frame(told: Sequence[tuple[int, Version]]) -> pl.DataFrame:
    """The versions as one frame with the columns of `history` that matter."""
    columns = {
        name: pl.Series([at(getattr(version, name)) for _, version in told], dtype=pl.Int64)
        for name in CELL_TIMES
    }
    remainder = [bool(version.remainder) for _, version in told]
    frame = pl.DataFrame(
        {"row": range(len(told)), "fact_id": [f"f{i}" for i, _ in told], "remainder": remainder}
    )
    return frame.with_columns(
        series.cast(pl.Datetime("us", "UTC")).alias(name) for name, series in columns.items()
    )


def stored(version: Version) -> dict[str, int | None]:
    """A version as the store keeps it."""
    return {
        **{name: at(getattr(version, name)) for name in CELL_TIMES},
        "remainder": version.remainder,
    }


def expected(told: Sequence[tuple[int, Version]]) -> np.ndarray:
    """One row per version, one column per point."""
    return np.array([replay(version) for _, version in told], np.bool_)


def point(valid: int | None, recorded: int) -> AsOf:
    """A point of the grid, spelled in two ways."""
    moment = at(valid)
    shown = None if moment is None else from_us(moment).isoformat()
    return AsOf(shown, from_us(MIDNIGHT + recorded * HOUR))


def test_every_cell_of_the_grid_is_what_a_replay_says():
    told = histories(1, HISTORIES)
    frame, model = history_frame(told), expected(told)
    wrong = 0
    for column, (valid, recorded) in zip(model.T, POINTS, strict=True):
        assert column.any()
        assert not column.all()
        kept = as_of(frame, point(valid, recorded))["row"].to_numpy()
        wrong += len(np.setxor1d(kept, np.flatnonzero(column)))
        assert (np.diff(kept) > 0).all()
    assert wrong == 0


def test_pandas_and_polars_give_the_same_cells(frame_kind):
    told = histories(2, 500)
    frame, model = history_frame(told), expected(told)
    native = frame if frame_kind.name == "polars" else frame.to_pandas()
    for column, (valid, recorded) in zip(model.T, POINTS, strict=True):
        kept = as_of(native, point(valid, recorded))
        assert frame_kind.column(kept, "row") == np.flatnonzero(column).tolist()


def test_the_stores_sql_says_the_same():
    told = histories(3, 2000)
    model = expected(told)
    columns = [Column(name, BigInteger) for name in ("row", *Version._fields)]
    table = Table("versions", MetaData(), *columns)
    engine = create_engine("sqlite://")
    table.metadata.create_all(engine)
    rows = [{"row": i, **stored(version)} for i, (_, version) in enumerate(told)]
    wrong = 0
    with engine.begin() as conn:
        conn.execute(insert(table), rows)
        for column, (valid, recorded) in zip(model.T, POINTS, strict=True):
            rule = visible(table.c, at(valid), MIDNIGHT + recorded * HOUR)
            kept = conn.execute(select(table.c.row).where(rule)).scalars().all()
            wrong += len(np.setxor1d(kept, np.flatnonzero(column)))
    engine.dispose()
    assert wrong == 0


@pytest.mark.parametrize("at_once", [1, 500])
def test_the_index_of_a_shard_says_the_same(at_once):
    """Also of few rows, where it may answer from the extremes alone."""
    told = histories(4, 500)
    stamp = {"mesh_id": "m", "device_id": "d", "encoder": "e", "generation": 2}
    wrong = seen_whole = 0
    for first in range(0, 500, at_once):
        part = [(i, v) for i, v in told if first <= i < first + at_once]
        rows: list[Any] = [
            {
                "row_key": key,
                "fact_id": f"f{key}",
                "text": "pump",
                "namespace": "n",
                "content_digest": b"",
                **stored(version),
            }
            for key, (_, version) in enumerate(part)
        ]
        index = ShardIndex.build(stamp, rows, np.ones((len(rows), 2), np.float32))
        model = expected(part)
        for column, (valid, recorded) in zip(model.T, POINTS, strict=True):
            mask = index.visible(at(valid), MIDNIGHT + recorded * HOUR, None)
            seen_whole += mask is None
            kept = np.ones(len(rows), np.bool_) if mask is None else mask
            wrong += int((kept != column).sum())
    assert wrong == 0
    assert bool(seen_whole) == (at_once == 1)


# --- as_of on a frame ------------------------------------------------------------------------
def test_the_rest_of_a_frame_stays_as_it_is(frame_kind):
    told = histories(5, 40)
    order = random.Random(5).sample(range(len(told)), len(told))
    frame = history_frame(told)[order].with_columns(
        odd=pl.Series([None if i % 3 else i for i in order], dtype=pl.Int64),
        kind=pl.Series([f"k{i % 2}" for i in order], dtype=pl.Enum(["k1", "k0", "k9"])),
        many=pl.Series([[i] for i in order]),
    )
    native: Any = frame
    if frame_kind.name == "pandas":
        native = frame.drop("many").to_pandas().astype({"odd": "Int64", "kind": "category"})
        native.index = pd.Index(range(90, 90 + len(native)))
    before = native.copy() if frame_kind.name == "pandas" else native.clone()
    kept = as_of(native, valid_at=from_us(MIDNIGHT + 3 * HOUR), recorded_at=from_us(MIDNIGHT))
    assert native.equals(before)
    shown = {i for i, (_, v) in enumerate(told) if replay(v)[POINTS.index((3, 0))]}
    assert frame_kind.column(kept, "row") == [i for i in order if i in shown] != sorted(shown)
    assert frame_kind.column(kept, "odd") == [None if i % 3 else i for i in order if i in shown]
    assert list(kept.columns) == list(native.columns)
    assert list(kept.dtypes) == list(native.dtypes)
    if frame_kind.name == "pandas":
        assert list(kept.index) == list(range(len(kept)))


def test_without_a_record_time_the_last_one_counts(frame_kind):
    frame = frame_kind.make_frame(
        {
            "text": ["gate B2", "gate B9", "gate B7"],
            "recorded_at": [from_us(MIDNIGHT + h * HOUR) for h in (0, 2, 3)],
            "closed_at": [from_us(MIDNIGHT + h * HOUR) if h else None for h in (2, 0, 4)],
        }
    )
    assert frame_kind.column(as_of(frame), "text") == ["gate B9"]
    earlier = as_of(frame, recorded_at=from_us(MIDNIGHT + 4 * HOUR) - MICROSECOND)
    assert frame_kind.column(earlier, "text") == ["gate B9", "gate B7"]
    assert frame_kind.column(as_of(frame, AsOf()), "text") == ["gate B9"]
    assert list(as_of(frame[:0]).columns) == list(frame.columns)
    assert len(as_of(frame[:0])) == 0


def test_what_was_never_recorded_never_shows():
    frame = pl.DataFrame({"n": [1, 2], "recorded_at": ["2031-01-01T00:00:00Z", None]})
    assert as_of(frame, recorded_at="2999-01-01T00:00:00Z")["n"].to_list() == [1]


def test_text_and_zones_are_read_as_instants(frame_kind):
    """Twelve o'clock in Tokyo is before twelve o'clock in Lima."""
    frame = frame_kind.make_frame(
        {
            "n": [1, 2, 3],
            "recorded_at": [
                "2031-06-11T12:00:00+09:00",
                "2031-06-11T12:00:00-05:00",
                "2031-06-11t12:00:00z",
            ],
        }
    )
    for moment, wanted in (
        ("2031-06-11T03:00:00Z", [1]),
        ("2031-06-11T12:00:00Z", [1, 3]),
        ("2031-06-11T17:00:00Z", [1, 2, 3]),
        ("2031-06-11T16:59:59.999999Z", [1, 3]),
    ):
        assert frame_kind.column(as_of(frame, recorded_at=moment), "n") == wanted
    tokyo = pl.Series(["2031-06-11T12:00:00+09:00"]).str.to_datetime(time_zone="Asia/Tokyo")
    zoned = pl.DataFrame({"n": [1], "recorded_at": tokyo})
    native = zoned if frame_kind.name == "polars" else zoned.to_pandas()
    assert len(as_of(native, recorded_at="2031-06-11T03:00:00Z")) == 1
    assert len(as_of(native, recorded_at="2031-06-11T02:59:59Z")) == 0


@pytest.mark.parametrize(
    ("columns", "error"),
    [
        ({"n": [1]}, MissingColumnError),
        ({"recorded_at": [datetime(2031, 1, 1)]}, SchemaError),
        ({"recorded_at": [1]}, SchemaError),
        ({"recorded_at": ["2031-01-01T00:00:00"]}, SchemaError),
        ({"recorded_at": ["2031-01-01T00:00:00Z"], "valid_to": [7]}, SchemaError),
        ({"recorded_at": ["2031-01-01T00:00:00Z"], "expires_at": ["1"]}, SchemaError),
        ({"recorded_at": ["2031-01-01T00:00:00Z"], "closed_at": [True]}, SchemaError),
    ],
)
def test_a_frame_without_proper_times_is_refused(frame_kind, columns, error):
    with pytest.raises(error):
        as_of(frame_kind.make_frame(columns))


@pytest.mark.parametrize("frame", [None, [1], {"recorded_at": []}, "x", pl.LazyFrame({"a": [1]})])
def test_what_is_no_frame_is_refused(frame):
    with pytest.raises(SchemaError):
        as_of(frame)


def test_a_point_is_an_as_of_or_two_names():
    frame = pl.DataFrame({"recorded_at": ["2031-01-01T00:00:00Z"]})
    moment = from_us(MIDNIGHT)
    for wrong in (moment, "2031-01-01T00:00:00Z", (moment, moment), 5):
        with pytest.raises(InputError, match="AsOf"):
            as_of(frame, wrong)
    for axis in ("valid_at", "recorded_at"):
        with pytest.raises(InputError, match="either"):
            as_of(frame, AsOf(), **{axis: moment})


# --- a mesh against a model ------------------------------------------------------------------
@dataclass
class Told:
    """What one version of a fact is known to say, and when; times in microseconds."""

    fact_id: str
    text: str
    recorded_at: int
    valid_from: int | None = None
    valid_to: int | None = None
    expires_at: int | None = None
    retracted_at: int | None = None
    above: str | None = None  # the fact that superseded it

    def holds(self, valid: int) -> bool:
        """Whether an instant lies in its interval."""
        if self.valid_from is not None and valid < self.valid_from:
            return False
        return self.valid_to is None or valid < self.valid_to


TICK = 8_000_000
MOMENTS = [MIDNIGHT + i * TICK for i in range(6)]  # a program of ten steps takes about as long


class Program:
    """A mesh and a model that are told the same things."""

    def __init__(self, mesh: Mesh) -> None:
        self.mesh, self.model, self.n = mesh, list[Told](), 0
        self.agent = mesh.agent("a")

    def do(self, verb: str, pick: int, times: tuple[int | None, ...]) -> None:
        """One write; times are validity and expiry."""
        start, end, expires = (None if i is None else MOMENTS[i] for i in times)
        if start is not None and end is not None and end < start:
            start, end = end, start
        self.n += 1
        text = f"fact number {self.n}"
        columns = {
            name: from_us(us)
            for name, us in (("valid_from", start), ("valid_to", end), ("expires_at", expires))
            if us is not None
        }
        new = Told("", text, 0, start, end, expires)
        last = {v.fact_id: v for v in self.model}
        heads = [v for v in last.values() if v.retracted_at is None and v.above is None]
        head = heads[pick % len(heads)] if heads else None
        if head is None or verb == "remember":
            self._note(self.agent.remember(text, **columns), new)
        elif verb == "load":
            rows = [{"device": d, "text": f"{text} {d}", **columns} for d in ("a", "b")]
            for row, fact_id in zip(rows, self.mesh.load_records(rows)["fact_id"], strict=True):
                self._note(fact_id, replace(new, text=row["text"]))
        elif verb == "retract":
            self.mesh.retract(head.fact_id)
            head.retracted_at = to_us(self.mesh.history(head.fact_id)["closed_at"].drop_nulls()[-1])
        elif verb == "update":
            changes = dict.fromkeys(("valid_from", "valid_to", "expires_at")) | columns
            self.mesh.update(head.fact_id, text=text, **changes)
            self._note(head.fact_id, new)
        else:
            head.above = self.mesh.supersede(head.fact_id, text, **columns)
            self._note(head.above, new)

    def _note(self, fact_id: str, told: Told) -> int:
        history = self.mesh.history(fact_id).filter(pl.col("fact_id") == fact_id)
        now = to_us(history["recorded_at"][-1])
        assert all(now > v.recorded_at or now == self.model[-1].recorded_at for v in self.model)
        self.model.append(replace(told, fact_id=fact_id, recorded_at=now))
        return now

    def expected(self, valid: int | None, recorded: int) -> list[tuple[str, str]]:
        """The rules, one after the other, of what was on record then."""
        known = {v.fact_id: v for v in self.model if v.recorded_at <= recorded}
        return sorted(
            (v.fact_id, v.text) for v in known.values() if self._shows(v, known, valid, recorded)
        )

    def _shows(self, told: Told, known: dict[str, Told], valid: int | None, recorded: int) -> bool:
        if told.expires_at is not None and recorded >= told.expires_at:
            return False
        if told.retracted_at is not None and recorded >= told.retracted_at:
            return False
        last = next(v for v in reversed(self.model) if v.fact_id == told.fact_id)
        above = known.get(last.above or "")
        if valid is None:
            return above is None
        while above is not None:
            if above.holds(valid):
                return False
            last = next(v for v in reversed(self.model) if v.fact_id == above.fact_id)
            above = known.get(last.above or "")
        return told.holds(valid)

    def chains(self) -> pl.DataFrame:
        """Every version of every fact."""
        facts = sorted({v.fact_id for v in self.model})
        return pl.concat([self.mesh.history(f) for f in facts]).unique(["fact_id", "version"])


def said(frame: pl.DataFrame) -> list[tuple[str, str]]:
    return sorted(frame.select("fact_id", "text").iter_rows())


def instant(us: int | None) -> datetime | None:
    return None if us is None else from_us(us)


def answers(mesh: Mesh, point: AsOf, root: str) -> list[pl.DataFrame]:
    """All that a mesh answers for one point."""
    found = mesh.lineage(root, as_of=point, depth=None)
    hits = mesh.search("fact number", exhaustive=True, k=1000, as_of=point).hits
    return [
        mesh.facts(as_of=point),
        mesh.edges(as_of=point),
        mesh.operations(as_of=point),
        found.edges,
        found.items.drop("label"),
        found.operations,
        hits,
    ]


_moment = st.none() | st.integers(0, len(MOMENTS) - 1)
_steps = st.lists(
    st.tuples(
        st.sampled_from(["remember", "load", "update", "supersede", "supersede", "retract"]),
        st.integers(0, 20),
        st.tuples(_moment, _moment, st.none() | _moment),
        _moment,
    ),
    min_size=3,
    max_size=6,
)


@settings(max_examples=max(3, HISTORIES // 3000))
@given(_steps)
def test_a_mesh_answers_as_the_model_does_and_never_otherwise_later(steps):
    with (
        tempfile.TemporaryDirectory() as folder,
        Mesh.open(folder, seed=7, encoder="hash:16") as mesh,
    ):
        program = Program(mesh)
        program.do("remember", 0, (None, None, None))
        root = f"fact:{program.model[0].fact_id}"
        past: list[tuple[AsOf, list[pl.DataFrame]]] = []
        for verb, pick, times, look in steps:
            program.do(verb, pick, times)
            for point, before in past:
                for old, new in zip(before, answers(mesh, point, root), strict=True):
                    assert old.equals(new)
            valid = None if look is None else MOMENTS[look]
            now = AsOf(instant(valid), from_us(mesh.store.now()))
            past.append((now, answers(mesh, now, root)))
        _compare_everywhere(program)


class Edge(NamedTuple):
    """An edge and its times."""

    edge_id: str
    recorded_at: int
    valid_from: int | None
    valid_to: int | None

    def shows(self, valid: int | None, recorded: int) -> bool:
        if recorded < self.recorded_at:
            return False
        if valid is None:
            return True
        begun = self.valid_from is None or self.valid_from <= valid
        return begun and (self.valid_to is None or valid < self.valid_to)


def _compare_everywhere(program: Program) -> None:
    """At points where something begins or ends, and just before."""
    mesh, chains = program.mesh, program.chains()
    edges = [
        Edge(row[0], *(end and to_us(end) for end in row[1:]))
        for row in mesh.edges()
        .select("edge_id", "recorded_at", "valid_from", "valid_to")
        .iter_rows()
    ]
    turns = {us for v in program.model for us in (v.recorded_at, v.retracted_at) if us is not None}
    turns |= {us - 1 for us in turns} | set(MOMENTS) | {mesh.store.now()}
    points = [(valid, known) for known in sorted(turns) for valid in (None, *MOMENTS)]
    for i, (valid, known) in enumerate(random.Random(7).sample(points, 48)):
        point = AsOf(instant(valid), from_us(known))
        wanted = program.expected(valid, known)
        assert said(as_of(chains, point)) == wanted
        if i % 2 == 0:
            assert said(mesh.facts(as_of=point)) == wanted
        if i % 6 == 0:
            hits = mesh.search("fact number", exhaustive=True, k=1000, as_of=point).hits
            shown = mesh.evidence(point)
            assert said(hits) == said(shown.facts) == wanted
            holding = [edge.edge_id for edge in edges if edge.shows(valid, known)]
            assert shown.edges["edge_id"].to_list() == holding


def test_only_a_redaction_changes_a_past_answer(mesh):
    agent = mesh.agent("a")
    kept, gone = agent.remember("fact number 1"), agent.remember("fact number 2")
    changed = agent.supersede(gone, "fact number 3", valid_from="2031-01-01T00:00:30Z")
    moment = AsOf("2031-01-01T00:00:10Z", from_us(mesh.store.now()))
    before = answers(mesh, moment, f"fact:{changed}")
    assert said(before[0]) == sorted([(kept, "fact number 1"), (gone, "fact number 2")])
    mesh.redact(gone, reason="asked for")
    after = answers(mesh, moment, f"fact:{changed}")
    for i, (old, new) in enumerate(zip(before, after, strict=True)):
        assert old.equals(new) == (i not in (0, 6))  # facts and hits
    assert said(after[0]) == sorted([(kept, "fact number 1"), (gone, "")])
    assert after[0].filter(pl.col("fact_id") == gone)["status"].to_list() == ["redacted"]
    assert said(after[6]) == [(kept, "fact number 1")]
    for column in ("recorded_at", "content_digest", "valid_from", "version", "device_id"):
        assert before[0][column].to_list() == after[0][column].to_list()


def test_looking_at_the_present_is_a_past_answer_too(mesh):
    """What `current` points at is over once somebody writes."""
    agent = mesh.agent("a")
    first = agent.remember("gate B2")
    point = mesh.current()

    def shown() -> list[pl.DataFrame]:
        found = mesh.lineage(f"fact:{first}", as_of=point)
        return [mesh.facts(as_of=point), mesh.edges(as_of=point), found.edges]

    before = shown()
    assert [frame.height for frame in before] == [1, 2, 2]
    agent.remember("gate B9")
    agent.update(first, text="gate B7")
    for old, new in zip(before, shown(), strict=True):
        assert old.equals(new)


def test_a_point_taken_in_the_middle_of_a_write_shows_the_same_later(mesh, monkeypatch):
    """Somebody looks from `current` while a write is announced and not published yet."""
    agent = mesh.agent("a")
    agent.remember("gate B2")
    seen: list[tuple[AsOf, list[str]]] = []
    publish = mesh.store.publish

    def late(*args: Any, **options: Any) -> None:
        point = mesh.current()
        seen.append((point, mesh.facts(as_of=point)["text"].to_list()))
        publish(*args, **options)

    monkeypatch.setattr(mesh.store, "publish", late)
    agent.remember("gate B9")
    ((point, before),) = seen
    assert before == ["gate B2"]
    assert mesh.facts(as_of=point)["text"].to_list() == before


def test_the_labels_of_a_past_lineage_stay(mesh):
    agent = mesh.agent("a")
    first = agent.remember("gate B2")
    point = AsOf(recorded_at=from_us(mesh.store.now()))
    before = mesh.lineage(f"fact:{first}", as_of=point).items
    assert before["label"][0] == "gate B2"
    agent.update(first, text="gate B9")
    assert mesh.lineage(f"fact:{first}", as_of=point).items.equals(before)
    assert mesh.lineage(f"fact:{first}").items["label"][0] == "gate B9"


# --- one predicate for facts, edges, searches and evidence -----------------------------------
BEGIN, END = datetime(2031, 2, 1, tzinfo=UTC), datetime(2031, 3, 1, tzinfo=UTC)
SHAPES: dict[str, tuple[datetime | None, datetime | None]] = {
    "both": (BEGIN, END),
    "from": (BEGIN, None),
    "to": (None, END),
    "always": (None, None),
    "never": (BEGIN, BEGIN),
    "tick": (BEGIN, BEGIN + MICROSECOND),
}


@pytest.fixture(scope="module")
def shaped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mesh]:
    """A fact and an edge of every shape of validity."""
    with Mesh.open(tmp_path_factory.mktemp("shaped"), seed=7, encoder="hash:16") as mesh:
        for name, (start, end) in SHAPES.items():
            times = {"valid_from": start, "valid_to": end}
            mesh.agent("a").remember(f"pump {name}", fact_id=name, **times)
            mesh.add_edge("supports", f"note:{name}", "note:hub", **times)
        yield mesh


def sets(mesh: Mesh, point: AsOf) -> list[set[str]]:
    """Which shapes each of the doors shows."""
    shown, edges = mesh.evidence(point), mesh.edges()
    hub = {"target": "note:hub", "as_of": point}
    of_frame = lineage(edges, "note:hub", point=point, depth=1).edges
    doors = [
        mesh.facts(as_of=point)["fact_id"],
        shown.facts["fact_id"],
        mesh.search("pump", exhaustive=True, k=99, as_of=point).hits["fact_id"],
        mesh.edges(**hub)["source_id"],
        mesh.edges(**hub, include_superseded=True)["source_id"],
        shown.edges.filter(target_id="hub")["source_id"],
        mesh.lineage("note:hub", as_of=point).edges["source_id"],
        of_frame["source_id"],
        as_of(mesh.facts(), point)["fact_id"],
        as_of(edges, point).filter(target_id="hub")["source_id"],
    ]
    return [set(door.to_list()) for door in doors]


@pytest.mark.parametrize(
    ("moment", "wanted"),
    [
        (BEGIN - MICROSECOND, {"to", "always"}),
        (BEGIN, {"both", "from", "to", "always", "tick"}),
        (BEGIN + MICROSECOND, {"both", "from", "to", "always"}),
        (END - MICROSECOND, {"both", "from", "to", "always"}),
        (END, {"from", "always"}),
        (None, set(SHAPES)),
        (datetime(1, 1, 1, tzinfo=UTC), {"to", "always"}),
        (datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC), {"from", "always"}),
    ],
)
def test_all_doors_agree_where_validity_begins_and_ends(shaped, moment, wanted):
    for shown in sets(shaped, AsOf(valid_at=moment)):
        assert shown == wanted


def test_all_doors_agree_where_a_record_begins(shaped):
    facts, edges = shaped.facts(), shaped.edges(target="note:hub")
    for name in ("both", "always"):
        fact = facts.filter(fact_id=name)["recorded_at"].item()
        edge = edges.filter(source_id=name)["recorded_at"].item()
        for moment, holder in ((fact, facts), (edge, edges)):
            for known in (moment - MICROSECOND, moment):
                point = AsOf(recorded_at=known)
                of_facts = set(facts.filter(pl.col("recorded_at") <= known)["fact_id"])
                of_edges = set(edges.filter(pl.col("recorded_at") <= known)["source_id"])
                shown = sets(shaped, point)
                assert all(door == of_facts for door in (*shown[:3], shown[8]))
                assert all(door == of_edges for door in (*shown[3:8], shown[9]))
                ours = of_facts if holder is facts else of_edges
                assert (name in ours) == (known == moment)


def test_a_fact_gives_way_where_its_successor_and_their_edge_begin(mesh):
    agent = mesh.agent("a")
    old = agent.remember("gate B2")
    new = agent.supersede(old, "gate B9", valid_from=BEGIN)
    closed = mesh.facts().filter(fact_id=old)["closed_at"].item()
    for valid, known, holder in (
        (BEGIN - MICROSECOND, closed, old),
        (BEGIN, closed, new),
        (BEGIN - MICROSECOND, closed - MICROSECOND, old),
        (BEGIN, closed - MICROSECOND, old),
        (None, closed - MICROSECOND, old),
        (None, closed, new),
    ):
        point = AsOf(valid, known)
        assert mesh.facts(as_of=point)["fact_id"].to_list() == [holder]
        assert as_of(mesh.history(new), point)["fact_id"].to_list() == [holder]
        assert mesh.evidence(point).facts["fact_id"].to_list() == [holder]
        hits = mesh.search("gate", exhaustive=True, as_of=point).hits
        assert hits["fact_id"].to_list() == [holder]
        replaced = mesh.edges(types=["supersedes"], as_of=point)
        assert replaced["source_id"].to_list() == ([new] if holder == new else [])
        recorded = mesh.edges(source=f"fact:{old}", types=["recorded_by"], as_of=point)
        assert recorded.height == (holder == old)


# --- what late and early news do -------------------------------------------------------------
def now_said(mesh: Mesh) -> list[str]:
    """What holds at present, by every way of asking for it."""
    texts = sorted(mesh.facts(as_of=mesh.current())["text"])
    assert sorted(mesh.search("gate", exhaustive=True).texts()) == texts
    point = AsOf(mesh.current().valid_at)
    assert sorted(mesh.facts(as_of=point)["text"]) == texts
    return texts


def test_news_of_the_past_that_arrives_late_changes_no_present(mesh):
    load = mesh.load_records
    load([{"device": "a", "text": "gate B9", "valid_from": "2030-06-01T00:00:00Z"}])
    before = AsOf("2030-03-01T00:00:00Z", from_us(mesh.store.now()))
    assert now_said(mesh) == ["gate B9"]
    late = {"valid_from": "2030-01-01T00:00:00Z", "valid_to": "2030-06-01T00:00:00Z"}
    load([{"device": "a", "text": "gate B2", **late}])
    load([{"device": "b", "text": "gate B1", **late}])
    assert now_said(mesh) == ["gate B9"]
    assert mesh.facts(as_of=before).is_empty()
    then = AsOf("2030-03-01T00:00:00Z")
    assert sorted(mesh.facts(as_of=then)["text"]) == ["gate B1", "gate B2"]
    assert sorted(mesh.search("gate", exhaustive=True, as_of=then).texts()) == [
        "gate B1",
        "gate B2",
    ]


def test_a_successor_that_holds_later_leaves_the_old_one_current_until_then(open_mesh):
    clock = LabClock(step_ms=1)
    mesh = open_mesh(clock=clock)
    agent = mesh.agent("a")
    old = agent.remember("gate B2")
    new = agent.supersede(old, "gate B9", valid_from="2031-01-02T00:00:00Z")
    assert now_said(mesh) == ["gate B2"]
    assert mesh.facts(as_of=mesh.current())["fact_id"].to_list() == [old]
    assert dict(mesh.facts().select("fact_id", "status").iter_rows())[old] == "superseded"
    with pytest.raises(ConflictError, match=new):
        agent.supersede(old, "gate B7")
    clock.forward_to(to_us("2031-01-02T00:00:00Z") - 2)
    assert now_said(mesh) == ["gate B9"]
    earlier = AsOf("2031-01-01T12:00:00Z")
    assert mesh.facts(as_of=earlier)["text"].to_list() == ["gate B2"]
    assert mesh.search("gate", as_of=earlier).texts() == ["gate B2"]


def test_withdrawing_the_successor_does_not_bring_the_old_one_back(mesh):
    agent = mesh.agent("a")
    old = agent.remember("gate B2")
    new = agent.supersede(old, "gate B9", valid_from=BEGIN)
    agent.retract(new)
    assert mesh.facts(as_of=AsOf(BEGIN - MICROSECOND))["fact_id"].to_list() == [old]
    assert mesh.facts(as_of=AsOf(BEGIN)).is_empty()


def test_what_holds_for_a_while_gives_the_place_back(mesh):
    """Before and after it the old one holds, and now does not change when a past time is told."""
    agent = mesh.agent("a")
    old = agent.remember("gate B2")
    past = {"valid_from": "2030-03-01T00:00:00Z", "valid_to": "2030-06-01T00:00:00Z"}
    new = agent.supersede(old, "gate B1", **past)
    assert now_said(mesh) == ["gate B2"]
    for moment, holder in (
        ("2030-02-28T23:59:59.999999Z", old),
        ("2030-03-01T00:00:00Z", new),
        ("2030-05-31T23:59:59.999999Z", new),
        ("2030-06-01T00:00:00Z", old),
    ):
        point = AsOf(moment)
        assert mesh.facts(as_of=point)["fact_id"].to_list() == [holder]
        assert as_of(mesh.history(old), point)["fact_id"].to_list() == [holder]
        assert mesh.search("gate", as_of=point).hits["fact_id"].to_list() == [holder]
        assert mesh.edges(types=["supersedes"], as_of=point).height == (holder == new)


def test_an_update_closes_for_all_time(mesh):
    agent = mesh.agent("a")
    fact = agent.remember("gate B2")
    agent.update(fact, text="gate B9", valid_from=BEGIN)
    assert mesh.facts(as_of=AsOf(BEGIN - MICROSECOND)).is_empty()
    assert mesh.facts(as_of=AsOf(BEGIN))["text"].to_list() == ["gate B9"]


def test_a_successor_without_a_beginning_holds_for_all_time(mesh):
    agent = mesh.agent("a")
    old = agent.remember("gate B2")
    agent.supersede(old, "gate B9")
    for valid in (None, datetime(1, 1, 1, tzinfo=UTC), BEGIN):
        assert mesh.facts(as_of=AsOf(valid))["text"].to_list() == ["gate B9"]


# --- times at the door -----------------------------------------------------------------------
BERLIN = ZoneInfo("Europe/Berlin")
NO_INSTANT = [
    "2031-03-30T02:30",  # does not exist in Berlin
    "2031-10-26T02:30",  # exists twice
    "2031-03-30T02:30:00",
    datetime(2031, 3, 30, 2, 30),
    datetime(2031, 10, 26, 2, 30, fold=1),
    "2031-W05-1",
    "30/03/2031",
    "2031-01-01",
    "2031-02-30T00:00:00Z",
    "2031-01-01T24:00:00Z",
    "2031-01-01T00:00:00+24:00",
    "2031-01-01T00:00:00 Europe/Berlin",
    "0000-01-01T00:00:00Z",
    "now",
    "",
    "1924000000",
    1_924_000_000,
    1,
    "1",
    1.5,
    True,
    date(2031, 1, 1),
    datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14))),  # before the year 1 in UTC
]
COLUMNS = ("observed_at", "valid_from", "valid_to", "expires_at")


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Mesh, str]]:
    """A mesh with one fact and one edge, for tests after which there is no other."""
    with Mesh.open(tmp_path_factory.mktemp("door"), seed=7, encoder="hash:16") as mesh:
        fact = mesh.agent("a").remember("gate B2")
        yield mesh, fact


@pytest.mark.parametrize("value", [*NO_INSTANT, pd.NaT], ids=repr)
def test_what_is_no_instant_is_no_point(door, value):
    mesh, _ = door
    for point in (AsOf(valid_at=value), AsOf(recorded_at=value), AsOf(value, BEGIN)):
        with pytest.raises(InvalidAsOfError):
            point.micros(0)
        with pytest.raises(InvalidAsOfError):
            mesh.facts(as_of=point)


@pytest.mark.parametrize("value", ["2031-10-26T02:30", datetime(2031, 3, 30, 2, 30), 1], ids=repr)
def test_a_point_without_an_instant_is_refused_by_every_question(door, value):
    mesh, fact = door
    key, operation = f"fact:{fact}", mesh.operations()["operation_id"][0]
    for point in (AsOf(valid_at=value), AsOf(recorded_at=value), AsOf(value, BEGIN)):
        for question in (
            lambda p: mesh.facts(as_of=p),
            lambda p: mesh.edges(as_of=p),
            lambda p: mesh.edges(as_of=p, include_superseded=True),
            lambda p: mesh.operations(as_of=p),
            lambda p: mesh.operation(operation, as_of=p),
            lambda p: mesh.evidence(p),
            lambda p: mesh.lineage(key, as_of=p),
            lambda p: mesh.search("gate", as_of=p),
            lambda p: lineage(mesh.edges(), key, point=p),
            lambda p: as_of(mesh.facts(), p),
            lambda p: as_of(mesh.edges(), p),
        ):
            with pytest.raises(InvalidAsOfError):
                question(point)


@pytest.mark.parametrize("column", COLUMNS)
def test_a_time_without_an_instant_is_refused_by_every_write(door, column):
    """A row of its own, by the name of its column; nothing is stored."""
    mesh, fact = door
    agent, before = mesh.agent("a"), (mesh.facts(), mesh.edges(), mesh.operations())
    rows = [{"device": "a", "text": "x", column: value} for value in NO_INSTANT]
    for answer in mesh.load_records(rows, encode=False).iter_rows(named=True):
        assert (answer["outcome"], column in answer["reason"]) == ("refused", True)
    for i, value in enumerate(NO_INSTANT):
        times: dict[str, Any] = {column: value}
        writes = [lambda t: agent.remember("x", **t)]
        if i % 4 == 0:
            writes.append(lambda t: agent.update(fact, **t))
            writes.append(lambda t: agent.supersede(fact, "x", **t))
        if column != "expires_at":
            writes.append(lambda t: mesh.add_edge("supports", "note:1", f"fact:{fact}", **t))
        for write in writes:
            with pytest.raises(InputError, match=column):
                write(times)
    for old, new in zip(before, (mesh.facts(), mesh.edges(), mesh.operations()), strict=True):
        assert old.equals(new)


@pytest.mark.parametrize("value", NO_INSTANT, ids=repr)
def test_an_operation_and_a_sign_of_life_need_instants_too(door, value):
    mesh, _ = door
    before = mesh.operations(), mesh.devices()
    for column in ("observed_at", "valid_time"):
        with pytest.raises(InstantError, match=column):
            mesh.submit("observe", "note:1", content="x", **{column: value})
    with pytest.raises(InstantError, match="device_time"):
        mesh.device("a").heartbeat(device_time=value)
    assert mesh.operations().equals(before[0])
    assert mesh.devices().equals(before[1])


def test_an_edge_without_an_instant_is_an_invalid_point(mesh):
    """As the edge's documentation promises; the row of a frame says why."""
    for column in ("valid_from", "valid_to"):
        with pytest.raises(InvalidAsOfError):
            mesh.add_edge("supports", "note:1", "note:2", **{column: "2031-10-26T02:30"})


SAME = "2031-06-11T07:30:00Z"


SPELLINGS = [
    SAME,
    "2031-06-11t07:30:00z",
    "2031-06-11 07:30:00.000000000+00:00",
    "2031-06-11T21:30:00+14:00",
    datetime(2031, 6, 11, 9, 30, tzinfo=BERLIN),
    datetime(2031, 6, 11, 13, 15, tzinfo=timezone(timedelta(hours=5, minutes=45))),
    pd.Timestamp("2031-06-11T09:30:00", tz="Europe/Berlin"),
]


def test_every_spelling_of_an_instant_is_the_same_instant(mesh):
    agent, wanted, expiring = mesh.agent("a"), from_us(to_us(SAME)), []
    for i, spelling in enumerate(SPELLINGS):
        first = agent.remember(f"gate B{i}", valid_from=spelling, observed_at=spelling)
        row = {"device": "b", "text": f"gate C{i}", "valid_from": spelling, "expires_at": spelling}
        (loaded,) = mesh.load_records([row], encode=False)["fact_id"]
        agent.supersede(first, f"gate D{i}", valid_from=spelling)
        mesh.add_edge("supports", f"note:{i}", f"fact:{first}", valid_from=spelling)
        mesh.submit("observe", f"note:{i}", content="x", valid_time=spelling)
        expiring.append(loaded)
        assert not mesh.history(first)["remainder"].any()  # both begin at that instant
        assert AsOf(spelling, spelling).micros(0) == (to_us(SAME), to_us(SAME))
    n, facts = len(SPELLINGS), mesh.facts()
    assert facts["valid_from"].to_list() == [wanted] * 3 * n
    expires = facts.filter(pl.col("fact_id").is_in(expiring))["expires_at"]
    assert expires.to_list() == [wanted] * n
    assert mesh.edges()["valid_from"].drop_nulls().to_list() == [wanted] * 2 * n
    times = mesh.operations()["valid_time"].drop_nulls()
    assert set(times) == {wanted}
    assert len(times) >= 2 * n
    shown = [mesh.facts(as_of=AsOf(spelling)) for spelling in SPELLINGS]
    assert all(frame.equals(shown[0]) for frame in shown)


def test_the_hour_that_a_zone_repeats_is_two_instants(mesh):
    agent = mesh.agent("a")
    early = datetime(2031, 10, 26, 2, 30, tzinfo=BERLIN)
    late = early.replace(fold=1)
    fact = agent.remember("gate B2", valid_from=early, valid_to=late)
    shown = mesh.facts()
    assert (shown["valid_to"] - shown["valid_from"]).item() == timedelta(hours=1)
    for moment, there in ((early, True), (late, False), ("2031-10-26T01:00:00Z", True)):
        assert mesh.facts(as_of=AsOf(moment)).height == there
        assert mesh.search("gate", as_of=AsOf(moment)).hits.height == there
    assert mesh.history(fact).height == 1


@pytest.mark.parametrize("year", [1969, 2200, *(year for year in (1, 1600, 2300, 9999))])
def test_far_times_are_times(open_mesh, year):
    mesh = open_mesh()
    moment = datetime(year, 1, 1, tzinfo=UTC)
    agent = mesh.agent("a")
    agent.remember("gate B2", valid_from=moment, observed_at=moment)
    rows = [{"device": "a", "text": "gate B9", "valid_from": moment}]
    assert mesh.load_records(rows)["outcome"].to_list() == ["stored"]
    mesh.add_edge("supports", "note:1", "note:2", valid_from=moment, observed_at=moment)
    mesh.submit("observe", "note:1", content="x", valid_time=moment, observed_at=moment)
    agent.remember("gate B7", expires_at=moment, idempotency_key="k")
    point = AsOf(moment)
    assert mesh.facts(as_of=point)["text"].sort().to_list() == (
        ["gate B2", "gate B7", "gate B9"] if year > 2031 else ["gate B2", "gate B9"]
    )
    assert mesh.edges(as_of=point, source="note:1").height == 1
    assert mesh.edges(as_of=AsOf(moment + MICROSECOND), source="note:1").height == 1
    if year > 1:
        assert mesh.edges(as_of=AsOf(moment - MICROSECOND), source="note:1").is_empty()


def test_what_ends_before_it_begins_is_refused_by_every_write(mesh):
    agent = mesh.agent("a")
    fact = agent.remember("gate B2", valid_to=END)
    wrong = {"valid_from": END, "valid_to": BEGIN}
    (answer,) = mesh.load_records([{"device": "a", "text": "x", **wrong}]).to_dicts()
    assert (answer["outcome"], answer["reason"]) == (
        "refused",
        "valid_to lies before valid_from",
    )
    for write in (
        lambda: agent.remember("x", **wrong),
        lambda: agent.supersede(fact, "x", **wrong),
        lambda: agent.update(fact, valid_from=END + MICROSECOND),
    ):
        with pytest.raises(InputError, match="valid_to lies before valid_from"):
            write()
    with pytest.raises(InvalidAsOfError, match="valid_to lies before valid_from"):
        mesh.add_edge("supports", "note:1", "note:2", **wrong)
    assert mesh.facts()["version"].to_list() == [1]
    assert mesh.edges(source="note:1").is_empty()


# --- a device whose clock is wrong -----------------------------------------------------------
def test_a_fast_clock_wins_nothing_and_shows(open_mesh):
    """B is three days fast; what A says later stays, and B is heard again once it is right."""
    clock = LabClock("2031-06-01T00:00:00Z")
    mesh = open_mesh(clock=clock)
    a, b = mesh.agent("a"), mesh.agent("b")
    fast = timedelta(days=3)

    def ahead() -> dict[str, float]:
        return dict(mesh.devices().select("label", "clock_ahead_ms").iter_rows())

    assert ahead() == {"a": 0.0, "b": 0.0}
    opened = b.remember("the dock is open", observed_at=from_us(clock.peek()) + fast)
    seen = ahead()
    assert seen["a"] == 0.0
    assert fast.total_seconds() * 1000 - 10_000 <= seen["b"] <= fast.total_seconds() * 1000
    b.device.heartbeat(device_time=from_us(clock.peek()) + fast)
    assert ahead()["b"] == fast.total_seconds() * 1000
    closed = mesh.supersede(opened, "the dock is closed", by=a)
    a.device.heartbeat(device_time=from_us(clock.peek()) - fast)  # being slow is not running ahead
    assert mesh.facts(as_of=mesh.current())["fact_id"].to_list() == [closed]
    assert mesh.search("dock", exhaustive=True).texts() == ["the dock is closed"]
    facts = mesh.facts()
    assert facts.filter(fact_id=closed)["recorded_at"].item() < from_us(clock.peek())

    b.device.heartbeat(device_time=from_us(clock.peek()))
    again = b.supersede(closed, "the dock is open again", observed_at=from_us(clock.peek()))
    b.remember("the dock is wet", observed_at=from_us(clock.peek()))
    assert ahead() == {"a": 0.0, "b": fast.total_seconds() * 1000}
    assert sorted(mesh.search("dock", exhaustive=True).texts()) == [
        "the dock is open again",
        "the dock is wet",
    ]
    assert mesh.history(again)["text"].to_list() == [
        "the dock is open",
        "the dock is closed",
        "the dock is open again",
    ]
    assert mesh.history(again)["recorded_at"].is_sorted()


def test_no_time_of_a_caller_becomes_a_record_time(mesh):
    a = mesh.agent("a")
    before = from_us(mesh.store.now())
    late = "2200-01-01T00:00:00Z"
    fact = a.remember("gate B2", observed_at=late, valid_to=late, expires_at=late)
    edge = mesh.add_edge("supports", "note:1", f"fact:{fact}", valid_to=late)
    mesh.submit("observe", "note:1", content="x")
    a.device.heartbeat(device_time="2999-01-01T00:00:00Z")
    a.remember("gate B9")
    after = from_us(mesh.store.now())
    for frame in (mesh.facts(), mesh.edges(), mesh.operations().tail(4)):
        assert frame["recorded_at"].is_between(before, after).all()
    assert mesh.edges().filter(edge_id=edge).height == 1
    for refused in (
        lambda: a.remember("x", recorded_at=late),
        lambda: mesh.add_edge("supports", "note:1", "note:2", recorded_at=late),
    ):
        with pytest.raises(SchemaError, match="recorded_at"):
            refused()
