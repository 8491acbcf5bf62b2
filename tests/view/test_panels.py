"""A panel shows what the mesh answers at the two points its sliders stand at, and only tells."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pandas as pd
import polars as pl
import pytest

from mnemes_lab import LabClock, Mesh, schemas
from mnemes_lab.clock import to_us
from mnemes_lab.errors import InstantError, InvalidProvenanceError, MissingExtraError, SchemaError
from mnemes_lab.store.asof import AsOf, as_of
from mnemes_lab.store.evidence import item_keys
from mnemes_lab.store.lineage import items_of
from mnemes_lab.view import panels
from mnemes_lab.view.clocks import plot_two_clocks
from mnemes_lab.view.panels import OPEN, StillPanel, as_of_panel, instants, shown
from mnemes_lab.view.versions import Versions

HOSTILE = '<script>alert(1)</script> & \x1b[31m"x" \u202e <img src=x onerror=y>'


def day(n: int) -> datetime:
    return datetime(2031, 4, n, 9, tzinfo=UTC)


def fill(schema: Any, rows: list[dict[str, Any]]) -> pl.DataFrame:
    """A frame of a schema from what is special of its rows."""
    types = schemas.dtypes(schema)
    blank: dict[str, Any] = dict.fromkeys(types)
    return pl.DataFrame([{**blank, **row} for row in rows], schema=types)


def fact(fact_id: str, text: str, told: int, **more: Any) -> dict[str, Any]:
    usual = {"device_id": "d", "namespace": "n", "status": "active", "version": 1}
    return {"fact_id": fact_id, "text": text, "recorded_at": day(told), **usual, **more}


def edge(n: int, source: str, kind: str, target: str, told: int) -> dict[str, Any]:
    ends = {}
    for end, key in (("source", source), ("target", target)):
        ends[f"{end}_kind"], _, ends[f"{end}_id"] = key.partition(":")
    return {"edge_id": f"e{n:04}", "edge_type": kind, "recorded_at": day(told), **ends}


@dataclass
class Reached:
    """A lineage as far as a panel reads it."""

    root: str
    items: pl.DataFrame
    edges: pl.DataFrame
    truncated: bool = False


@dataclass
class Small:
    """A mesh as far as a panel reads it, answering from frames."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    ties: list[dict[str, Any]] = field(default_factory=list)
    label: str = "hub"
    broken: str | None = None
    asked: list[Any] = field(default_factory=list)
    worded_at: AsOf | None = None

    def facts(self, *, as_of: AsOf | None = None) -> pl.DataFrame:
        if self.broken:
            raise OSError(self.broken)
        return self._at(fill(schemas.Facts, self.rows), as_of)

    def edges(self, *, as_of: AsOf | None = None) -> pl.DataFrame:
        return self._at(fill(schemas.Edges, self.ties), as_of)

    def _at(self, frame: pl.DataFrame, point: AsOf | None) -> pl.DataFrame:
        self.asked.append(point)
        return frame if point is None else as_of(frame, point)

    def devices(self) -> pl.DataFrame:
        return fill(schemas.Devices, [{"device_id": "d", "label": self.label}])

    def items(self, edges: pl.DataFrame, *, as_of: AsOf | None = None) -> pl.DataFrame:
        words = {f"fact:{row['fact_id']}": row["text"] for row in self.rows}
        words |= {"actor:a": "planner", "operation:o": "observe fact", "device:d": self.label}
        self.worded_at = as_of
        keys = item_keys(edges)
        return items_of(dict.fromkeys(keys), {k: (words.get(k), self.label, None) for k in keys})

    def history(self, fact_id: str) -> pl.DataFrame:
        rows = [
            {"fact_id": fact_id, "version": n, "text": "t", "recorded_at": day(n)} for n in (1, 2)
        ]
        return fill(schemas.FactHistory, rows)

    def lineage(
        self, item: str, *, depth: int, as_of: AsOf | None = None, stop_at: Any = ()
    ) -> Reached:
        kind, _, id = item.partition(":")
        facts = self.facts(as_of=as_of)
        if id not in facts["fact_id"]:
            raise InvalidProvenanceError("No such fact.", found=item)
        edges = self.edges(as_of=as_of).filter(pl.col("source_id") == id)
        items = [{"item_kind": kind, "item_id": id, "depth": 0, "label": "root"}]
        return Reached(item, fill(schemas.Items, items), edges)


def house() -> Small:
    return Small(
        [
            fact("f1", "the 14th", 10, closed_at=day(12), status="superseded"),
            fact("f2", "the 16th", 12, valid_from=day(14), valid_to=day(20)),
            fact("f3", HOSTILE, 13),
        ],
        [
            edge(1, "fact:f1", "observed_by", "actor:a", 10),
            edge(2, "fact:f2", "supersedes", "fact:f1", 12),
        ],
    )


@pytest.fixture
def live(monkeypatch: pytest.MonkeyPatch) -> None:
    """Panels with sliders, and pictures of the graph that can be read."""
    monkeypatch.delenv("MNEMES_STATIC")
    monkeypatch.setattr(panels.ProvenanceGraph, "_body", lambda self: f"<i>{self!r}</i>")


# --- plain functions -------------------------------------------------------------------------
def test_the_instants_are_the_ends_of_intervals_on_each_axis():
    mesh = house()
    found = instants(mesh.facts(), mesh.edges())
    assert found.valid == [day(14), day(20)]
    assert found.recorded == [day(10), day(12), day(13)]


@pytest.mark.parametrize("as_pandas", [False, True])
def test_instants_are_read_from_a_history_too(as_pandas: bool):
    history = fill(
        schemas.FactHistory,
        [
            {"recorded_at": day(1), "closed_at": day(2), "expires_at": day(9)},
            {"recorded_at": day(2), "valid_to": day(3), "remainder": True},
        ],
    )
    found = instants(history.to_pandas() if as_pandas else history)
    assert found == ([day(3)], [day(1), day(2), day(9)])
    assert not any(isinstance(point, pd.Timestamp) for axis in found for point in axis)


def test_no_frame_no_instants():
    assert instants() == ([], [])
    with pytest.raises(SchemaError):
        instants([1])
    with pytest.raises(InstantError):
        instants(pl.DataFrame({"recorded_at": [datetime(2031, 4, 1)]}))


@pytest.mark.parametrize(
    ("valid", "recorded", "facts", "sentence"),
    [
        (None, None, ["f2", "f3"], "knows now about any time: 2 facts and 1 edge."),
        (
            None, day(11), ["f1"],
            "knew on 11 Apr 2031 at 09:00 UTC about any time: 1 fact and 1 edge.",
        ),
        (
            day(13), None, ["f3"],
            "knows now about the state on 13 Apr 2031 at 09:00 UTC: 1 fact and 1 edge.",
        ),
        (
            day(14), "2031-04-12T09:00:00Z", ["f2"],
            "knew on 12 Apr 2031 at 09:00 UTC about the state on 14 Apr 2031 at 09:00 UTC: "
            "1 fact and 1 edge.",
        ),
        (None, day(1), [], "knew on 1 Apr 2031 at 09:00 UTC about any time: 0 facts and 0 edges."),
    ],
)  # fmt: skip
def test_what_is_shown_is_what_the_mesh_answers(
    valid: Any, recorded: Any, facts: list[str], sentence: str
):
    mesh = house()
    at = shown(mesh, valid, recorded)
    assert mesh.asked[:2] == [AsOf(valid, recorded)] * 2
    assert at.facts["fact_id"].to_list() == facts
    assert at.sentence == f"What the mesh {sentence}"
    assert at.html.startswith("<div><p>What the mesh k")
    assert at.table in at.html and at.graph in at.html


def test_an_item_narrows_facts_and_edges():
    at = shown(house(), item="fact:f2", depth=1)
    assert at.facts["fact_id"].to_list() == ["f2"]
    assert at.edges["edge_id"].to_list() == ["e0002"]
    assert at.sentence.endswith("1 fact and 1 edge within 1 step of fact:f2.")


def test_the_graph_calls_its_items_by_name(monkeypatch: pytest.MonkeyPatch):
    drawn: list[Any] = []

    class Pencil:
        def __init__(self, edges: pl.DataFrame, items: pl.DataFrame) -> None:
            drawn.append(items)

        def _repr_mimebundle_(self) -> dict[str, str]:
            return {"text/html": "<i>drawn</i>"}

    monkeypatch.setattr(panels, "ProvenanceGraph", Pencil)
    mesh = house()
    mesh.rows[1]["version"] = 2
    mesh.ties.append(edge(3, "fact:f2", "observed_by", "device:d", 10))
    mesh.ties.append(edge(4, "fact:f1", "recorded_by", "operation:o", 10))
    assert shown(mesh, None, day(10)).graph == "<i>drawn</i>"
    assert dict(drawn[0].select("item_id", "label").iter_rows()) == {
        "a": "planner",
        "d": "hub",
        "f1": "the 14th",
        "f2": mesh.rows[1]["text"],
        "o": "observe fact",
    }
    assert mesh.worded_at == AsOf(None, day(10))  # nothing is called what it was called later
    shown(mesh, None, day(12))
    assert ("f1", "the 14th") in drawn[1].select("item_id", "label").rows()  # replaced by then


def test_texts_are_data_in_the_table_and_in_the_sentence():
    mesh = house()
    mesh.label = HOSTILE
    for item in (None, "fact:f3"):
        at = shown(mesh, item=item)
        for text in (at.table, at.html.replace(at.graph, "")):
            assert "<script" not in text and "<img" not in text and "onerror=y>" not in text
            assert "\x1b" not in text and "\u202e" not in text
        assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; \\x1b[31m&quot;x&quot;" in at.table
    with_item = panels._sentence(AsOf(), at.facts, at.edges, f" of {panels.visible(HOSTILE)}")
    assert "<script" not in panels.Shown(at.facts, at.edges, with_item, "", "").html


def test_a_redacted_text_is_not_shown():
    mesh = Small([fact("f", "secret", 1, status="redacted")])
    assert "secret" not in shown(mesh).html and "(redacted)" in shown(mesh).table


def test_a_long_table_is_cut_and_says_how_much_is_left():
    mesh = Small([fact(f"f{n:02}", f"text {n:02}", 1 + n) for n in range(25)])
    at = shown(mesh)
    assert at.facts.height == 25
    assert at.table.count("<tr>") == 21
    assert "text 24" in at.table and "text 04" not in at.table
    assert "5 more are not listed" in at.table
    assert "not listed" not in shown(Small(mesh.rows[:20])).table


def test_too_many_items_are_not_drawn_and_the_hint_is_shown(live: None):
    ties = [edge(n, f"fact:f{n}", "observed_by", "actor:a", 1) for n in range(300)]
    graph = shown(Small([], ties)).graph
    assert "301 items are too many to draw" in graph and "Hint" in graph
    assert "300 items, 299 edges" in shown(Small([], ties[:299])).graph


def test_without_edges_the_graph_says_so():
    assert "Nothing is on record" in shown(Small([fact("f", "t", 1)])).graph


# --- panels ----------------------------------------------------------------------------------
def test_the_panel_follows_its_sliders(live: None):
    panel = as_of_panel(house())
    valid, recorded, line, table, graph = panel.children
    assert [label for label, _ in valid.options] == [
        "14 Apr 2031 09:00", "20 Apr 2031 09:00", "any time",
    ]  # fmt: skip
    assert [value for _, value in recorded.options] == [day(10), day(12), day(13), OPEN]
    assert "knows now about any time: 2 facts" in line.value
    recorded.value = day(10)
    assert "knew on 10 Apr 2031 at 09:00 UTC about any time: 1 fact and 1 edge." in line.value
    assert "the 14th" in table.value and "the 16th" not in table.value
    assert "2 items, 1 edge" in graph.value
    valid.value, recorded.value = day(20), OPEN
    assert "about the state on 20 Apr 2031" in line.value
    assert "the 16th" not in table.value  # intervals are half-open


def test_the_panel_shows_what_shown_answers(live: None):
    mesh = house()
    valid, recorded, line, table, graph = as_of_panel(mesh, item="fact:f2", depth=2).children
    assert [value for _, value in recorded.options] == [day(12), OPEN]
    valid.value = day(14)
    at = shown(mesh, day(14), None, "fact:f2", 2)
    assert (line.value, table.value, graph.value) == (f"<p>{at.sentence}</p>", at.table, at.graph)


def test_what_goes_wrong_in_a_handler_is_told_and_goes_away_again(
    live: None, capsys: pytest.CaptureFixture[str]
):
    mesh = house()
    _, recorded, line, table, graph = as_of_panel(mesh).children
    before = (line.value, table.value, graph.value)
    mesh.broken = HOSTILE
    recorded.value = day(10)
    assert line.value.startswith('<p role="alert"><b>OSError: &lt;script&gt;')
    assert "<script" not in line.value and "\x1b" not in line.value
    assert (table.value, graph.value) == ("", "")
    mesh.broken = None
    recorded.value = OPEN
    assert (line.value, table.value, graph.value) == before
    assert capsys.readouterr() == ("", "")


def test_an_item_that_was_not_there_yet_is_told(live: None):
    mesh = house()
    mesh.ties.append(edge(3, "fact:f3", "observed_by", "actor:a", 11))
    _, recorded, line, _, _ = as_of_panel(mesh, item="fact:f3").children
    recorded.value = day(11)
    assert "InvalidProvenanceError: No such fact." in line.value


def test_a_mistake_in_the_call_is_raised_there(live: None):
    with pytest.raises(InvalidProvenanceError):
        as_of_panel(house(), item="fact:none")


def test_an_empty_mesh_has_a_panel(live: None):
    valid, recorded, line, table, graph = as_of_panel(Small()).children
    assert valid.options == (("any time", OPEN),) and recorded.options == (("now", OPEN),)
    assert "0 facts and 0 edges" in line.value
    assert table.value == "<p>No fact holds here.</p>" and "Nothing is on record" in graph.value


def test_earlier_versions_of_an_updated_fact_have_their_instants(live: None):
    mesh = Small([fact("f", "t", 2, version=2)])
    recorded = as_of_panel(mesh).children[1]
    assert [value for _, value in recorded.options] == [day(1), day(2), OPEN]


def test_a_slider_with_too_many_instants_is_thinned_and_says_so(
    live: None, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(panels, "MAX_STEPS", 4)
    recorded = as_of_panel(Small([fact(f"f{n}", "t", n) for n in range(1, 11)])).children[1]
    assert [value for _, value in recorded.options] == [day(1), day(4), day(7), day(10), OPEN]
    assert recorded.description == "record time (4 of 10)"


# --- a real mesh -----------------------------------------------------------------------------
def story(open_mesh: Callable[..., Mesh]) -> tuple[Mesh, list[str]]:
    """A mesh that changed its mind twice, and the ids of what it held."""
    clock = LabClock(day(10))
    mesh = open_mesh(clock=clock)
    hub = mesh.agent("planner", device="hub")
    first = hub.remember("service on the 14th")
    clock.forward_to(to_us(day(12)))
    second = mesh.supersede(first, "service on the 16th", valid_from=day(14), by=hub)
    clock.forward_to(to_us(day(13)))
    mesh.update(second, valid_to=day(20), by=hub)
    other = mesh.agent("gardener").remember(HOSTILE)
    return mesh, [first, second, other]


def test_a_real_mesh_is_shown_at_every_field_of_its_two_clocks(
    live: None, open_mesh: Callable[..., Mesh]
):
    mesh, (first, second, other) = story(open_mesh)
    valid, recorded, line, table, _ = as_of_panel(mesh).children
    assert [value for _, value in valid.options] == [day(14), day(20), OPEN]
    assert len(recorded.options) > 3
    for at in [value for _, value in valid.options]:
        for told in [value for _, value in recorded.options]:
            valid.value, recorded.value = at, told
            point = AsOf(*(None if value == OPEN else value for value in (at, told)))
            now = shown(mesh, *point)
            assert now.facts.equals(mesh.facts(as_of=point))
            assert now.edges.equals(mesh.edges(as_of=point))
            assert line.value == f"<p>{now.sentence}</p>" and table.value == now.table
    valid.value, recorded.value = OPEN, OPEN
    current = mesh.facts(as_of=AsOf())["fact_id"].to_list()
    assert sorted(current) == sorted([second, other]) and first not in current
    assert "16th" in table.value and "14th" not in table.value and "<script" not in table.value


def test_around_an_item_of_a_real_mesh_is_its_lineage(live: None, open_mesh: Callable[..., Mesh]):
    mesh, (_, second, _) = story(open_mesh)
    children = as_of_panel(mesh, item=f"fact:{second}", depth=2).children
    _, recorded, line, table, graph = children
    assert f"of fact:{second}." in line.value
    assert "16th" in table.value and "alert" not in table.value  # an actor is no bridge
    reached = mesh.lineage(f"fact:{second}", depth=2, stop_at=["actor", "device", "operation"])
    assert f"{len(reached.depths)} items, {reached.edges.height} edges" in graph.value
    recorded.value = recorded.options[0][1]
    assert "0 facts and 0 edges" in line.value  # it was not told of yet
    with pytest.raises(InvalidProvenanceError):
        as_of_panel(mesh, item="fact:none")


def test_a_redacted_text_leaves_the_panel(live: None, open_mesh: Callable[..., Mesh]):
    mesh, (first, *_) = story(open_mesh)
    mesh.redact(first)
    for told in (None, day(11)):
        assert "14th" not in shown(mesh, None, told).html
    assert "(redacted)" in shown(mesh, None, day(11)).table


def test_the_picture_of_a_real_history_agrees_with_the_mesh(open_mesh: Callable[..., Mesh]):
    mesh, (first, second, _) = story(open_mesh)
    third = mesh.supersede(second, "service on the 17th", valid_from=day(15), valid_to=day(16))
    mesh.update(third, valid_to=day(18))
    history = mesh.history(third)
    versions = Versions.of(history)
    assert len(versions.rows) == 5
    rest = history.filter("remainder").select("fact_id", closed=pl.col("closed_at").is_not_null())
    assert rest.rows() == [
        (first, False),  # before the 14th
        (first, False),  # from the 20th on
        (second, False),  # the 14th
        (second, True),  # the 16th on
        (second, False),  # the 18th on
    ]
    points = instants(history)
    last = {row["fact_id"]: row["version"] for row in versions.rows}
    for recorded in points.recorded:
        for valid in [day(1), *points.valid]:
            there = versions.there(to_us(valid), to_us(recorded))
            told = {(versions.rows[row]["fact_id"], versions.rows[row]["version"]) for row in there}
            facts = mesh.facts(as_of=AsOf(valid, recorded))
            chain = facts.filter(pl.col("fact_id").is_in(history["fact_id"].implode()))
            expected = {
                (fact["fact_id"], min(fact["version"], last[fact["fact_id"]]))
                for fact in chain.iter_rows(named=True)
            }
            assert told == expected and chain.height <= 1
    assert plot_two_clocks(history).get_title(loc="left") == (
        "5 versions, 3 still hold, each for its own time"
    )


def test_a_replacement_out_of_reach_has_its_instants(live: None, open_mesh: Callable[..., Mesh]):
    mesh, (first, *_) = story(open_mesh)
    valid, _, _, table, _ = as_of_panel(mesh, item=f"fact:{first}", depth=0).children
    assert [value for _, value in valid.options] == [day(14), day(20), OPEN]
    valid.value = day(14)
    assert table.value == "<p>No fact holds here.</p>"
    valid.value = day(20)
    assert "service on the 14th" in table.value


def test_an_empty_real_mesh_has_a_panel(live: None, open_mesh: Callable[..., Mesh]):
    assert "0 facts" in as_of_panel(open_mesh()).children[2].value


# --- notebooks that are not trusted ----------------------------------------------------------
def test_a_still_panel_is_a_picture_and_a_table_without_widgets(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MNEMES_STATIC", "1")
    panel = as_of_panel(house())
    assert isinstance(panel, StillPanel)
    bundle = panel._repr_mimebundle_()
    assert sorted(bundle) == ["text/html", "text/plain"]
    assert bundle["text/plain"] == "What the mesh knows now about any time: 2 facts and 1 edge."
    page = bundle["text/html"]
    assert 'src="data:image/svg+xml;base64,' in page and "<table>" in page
    assert "<script" not in page and "<iframe" not in page
    assert page == as_of_panel(house())._repr_mimebundle_()["text/html"]


def test_a_still_panel_needs_no_widgets(monkeypatch: pytest.MonkeyPatch, no_widgets: None):
    monkeypatch.setenv("MNEMES_STATIC", "1")
    assert isinstance(as_of_panel(Small()), StillPanel)


@pytest.fixture
def no_widgets(monkeypatch: pytest.MonkeyPatch) -> None:
    real: Callable[..., Any] = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("ipywidgets"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)


def test_without_widgets_the_extra_is_named(live: None, no_widgets: None):
    with pytest.raises(MissingExtraError, match=r"ipywidgets.*mnemes-lab\[lab\]"):
        as_of_panel(house())
