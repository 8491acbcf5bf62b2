"""Items bear the words that the mesh knew by then."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import polars as pl
import pytest

from mnemes_lab import AsOf, LabClock, Mesh
from mnemes_lab.clock import to_us
from mnemes_lab.store.evidence import item_keys


def day(n: int) -> datetime:
    return datetime(2031, 4, n, 9, tzinfo=UTC)


@pytest.fixture
def story(open_mesh: Callable[..., Mesh]) -> tuple[Mesh, list[str]]:
    """A mesh that was told three facts, and their ids."""
    clock = LabClock(day(10))
    mesh = open_mesh(clock=clock)
    hub = mesh.agent("planner", device="hub")
    first = hub.remember("on the 14th")
    clock.forward_to(to_us(day(12)))
    second = hub.supersede(first, "on the 16th", valid_from=day(14))
    other = hub.remember("a cat")
    clock.forward_to(to_us(day(13)))
    hub.update(other, text="two cats")
    return mesh, [first, second, other]


def words(items: pl.DataFrame) -> dict[str, str | None]:
    return dict(items.select("item_id", "label").iter_rows())


def test_every_item_of_the_edges_is_there_once_in_order(story: tuple[Mesh, list[str]]):
    mesh, _ = story
    edges = mesh.edges(include_superseded=True)
    items = mesh.items(edges)
    assert [f"{kind}:{id}" for kind, id, *_ in items.iter_rows()] == item_keys(edges)
    assert items.select("item_kind", "item_id").is_unique().all()
    assert len(item_keys(edges[:0])) == mesh.items(edges[:0]).height == 0


def test_items_have_words_devices_and_times(story: tuple[Mesh, list[str]]):
    mesh, (first, second, other) = story
    ends = [(f"fact:{id}", "derived_from", "document:log") for id in (first, second, other)]
    mesh.add_edges(pl.DataFrame(ends, schema=["source", "edge_type", "target"], orient="row"))
    items = mesh.items(mesh.edges(include_superseded=True))
    told = words(items)
    assert [told[id] for id in (first, second, other)] == ["on the 14th", "on the 16th", "two cats"]
    assert told["log"] is None
    actors = items.filter(item_kind="actor")
    assert actors["label"].to_list() == ["planner"]
    operations = items.filter(item_kind="operation")
    assert set(operations["label"]) == {"observe fact"}
    assert set(items.filter(pl.col("item_kind") != "document")["device"]) == {"hub"}
    when = dict(items.select("item_id", "recorded_at").iter_rows())
    assert when[first] < day(12) <= when[second]
    assert day(12) <= when[other] < day(13)  # when it was first told, not when it was updated


def test_words_that_were_not_told_yet_are_not_said(story: tuple[Mesh, list[str]]):
    mesh, (first, second, _) = story
    edges = mesh.edges(include_superseded=True)
    told = words(mesh.items(edges, as_of=AsOf(None, day(11))))
    assert told[first] == "on the 14th" and told[second] is None
    assert words(mesh.items(edges, as_of=AsOf(day(1)))) == words(mesh.items(edges))


def test_a_redacted_fact_says_so(story: tuple[Mesh, list[str]]):
    mesh, (first, *_) = story
    mesh.redact(first)
    items = mesh.items(mesh.edges(include_superseded=True))
    assert words(items)[first] == "(redacted)"
    assert "14th" not in str(items.rows())
