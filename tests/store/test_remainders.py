"""Facts of a chain lie like layers: at an instant of valid time the topmost that holds counts."""

from __future__ import annotations

import tempfile
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mnemes_lab import AsOf, LabClock, Mesh, as_of
from mnemes_lab.clock import from_us, to_us
from mnemes_lab.store.remainders import without

START = to_us("2031-01-01T00:00:00Z")
CELL = 3_600_000_000
ends = st.none() | st.integers(0, 6)
intervals = st.tuples(ends, ends)


def covers(interval: tuple[int | None, int | None], at: int) -> bool:
    start, end = interval
    return (start is None or start <= at) and (end is None or at < end)


@given(intervals, st.lists(intervals, max_size=4))
def test_what_is_left_is_what_no_cover_holds(interval, above):
    left = without(interval, above)
    for at in range(-2, 9):
        expected = covers(interval, at) and not any(covers(c, at) for c in above)
        assert any(covers(part, at) for part in left) == expected
    firsts = [part[0] for part in left[1:]]
    assert all(
        a is not None and b is not None and b < a for (_, b), a in zip(left, firsts, strict=False)
    )


def hour(cell: int | None) -> Any:
    return None if cell is None else from_us(START + cell * CELL)


ordered = intervals.filter(lambda i: None in i or i[0] <= i[1])
steps = st.lists(st.tuples(st.sampled_from(["supersede", "update"]), ordered), max_size=7)


@settings(max_examples=15)
@given(first=ordered, steps=steps)
def test_the_topmost_layer_counts_at_every_point(first, steps):
    """Every cell of valid time at every record time, against a stack of layers in plain Python."""
    with (
        tempfile.TemporaryDirectory() as folder,
        Mesh.open(folder, seed=7, encoder="hash:8", clock=LabClock()) as mesh,
    ):
        agent = mesh.agent("a")
        head = agent.remember("t0", valid_from=hour(first[0]), valid_to=hour(first[1]))
        layers = [("t0", first)]
        seen = [(mesh.current().recorded_at, list(layers))]
        for number, (verb, interval) in enumerate(steps, 1):
            text = f"t{number}"
            columns = {"valid_from": hour(interval[0]), "valid_to": hour(interval[1])}
            if verb == "supersede":
                head = agent.supersede(head, text, **columns)
                layers.append((text, interval))
            else:
                agent.update(head, text=text, **columns)
                layers[-1] = (text, interval)
            seen.append((mesh.current().recorded_at, list(layers)))
        history = mesh.history(head)
        for recorded, stack in seen:
            for cell in range(-1, 8):
                point = AsOf(hour(cell), recorded)
                expected = next((t for t, i in reversed(stack) if covers(i, cell)), None)
                assert as_of(history, point)["text"].to_list() == ([expected] if expected else [])
        for cell in (-1, 2, 5, 7):
            point = AsOf(hour(cell), seen[-1][0])
            expected = as_of(history, point)["text"].to_list()
            assert mesh.facts(as_of=point)["text"].to_list() == expected
            assert mesh.search("t0 t1 t2", as_of=point, exhaustive=True).texts() == expected
        assert mesh.check().filter(pl.col("outcome") == "broken").rows() == []
        assert mesh.facts()["fact_id"].is_unique().all()


def test_a_lower_layer_comes_back_when_the_upper_one_moves(open_mesh):
    mesh = open_mesh()
    old = mesh.agent("a").remember("gate B2")
    new = mesh.supersede(old, "gate B9", valid_from=hour(3))
    assert mesh.facts(as_of=AsOf(hour(4)))["text"].to_list() == ["gate B9"]
    before = mesh.current()
    mesh.update(new, valid_from=hour(5))
    assert mesh.facts(as_of=AsOf(hour(4)))["text"].to_list() == ["gate B2"]
    assert mesh.facts(as_of=AsOf(hour(4), before.recorded_at))["text"].to_list() == ["gate B9"]
    mesh.retract(new)
    assert mesh.facts(as_of=AsOf(hour(4)))["text"].to_list() == ["gate B2"]
    assert mesh.facts(as_of=AsOf(hour(6)))["text"].to_list() == []


@pytest.mark.parametrize("as_of_", [None, AsOf()])
def test_without_a_valid_time_remainders_are_not_listed(open_mesh, as_of_):
    mesh = open_mesh()
    old = mesh.agent("a").remember("gate B2")
    mesh.supersede(old, "gate B9", valid_from=hour(3), valid_to=hour(5))
    expected = ["gate B9"] if as_of_ else ["gate B2", "gate B9"]
    assert sorted(mesh.facts(as_of=as_of_)["text"]) == expected
    assert mesh.search("gate", as_of=AsOf(), exhaustive=True).texts() == ["gate B9"]
    history = mesh.history(old)
    assert history["remainder"].to_list() == [False, True, True, False]
    assert history["status"].to_list() == ["superseded"] * 3 + ["active"]
