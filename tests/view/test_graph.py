"""The provenance picture shows what the frames say, whatever their texts try."""

from __future__ import annotations

import builtins
import html
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import threading
from collections.abc import Generator
from datetime import UTC, datetime, timedelta
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mnemes_lab import schemas
from mnemes_lab.errors import (
    IdError,
    InputError,
    InstantError,
    MissingColumnError,
    MissingExtraError,
    MnemesError,
    SchemaError,
)
from mnemes_lab.view import _vis
from mnemes_lab.view._scene import (
    LOOKS,
    OTHER_STROKE,
    STROKES,
    UNIT,
    Item,
    Relation,
    cut,
    lay_out,
    letters,
    plain,
    wrap,
)
from mnemes_lab.view.graph import ProvenanceGraph

START = datetime(2031, 6, 11, 7, 30, tzinfo=UTC)
HOSTILE = [
    "<img src=https://outside.invalid/q onerror=window.p=1>",
    "</script><script>window.p=2</script>",
    '"};window.p=3;//',
    "`${window.p=4}`",
    "a\u2028window.p=5\u2029b",
    '<a href="javascript:window.p=6">https://outside.invalid/</a>',
    "popup.innerHTML='https://cdn.outside.invalid/x.js'",
    "<!-- --><style>@import url(https://outside.invalid/s.css)</style>",
    "]]>]]&gt;<svg onload=window.p=7>",
    "nodes = new vis.DataSet([]);\n",
    "__proto__",
    "{{7*7}}{% raw %}%s\\u003c",
    "\x1b[31m\u202eabc\x00\uffff",
    "→ ≥ 泵",
]


def edge_rows(*rows: tuple[str, str, str, int | None]) -> dict[str, list[Any]]:
    """An edges frame as columns, from (source, type, target, minute)."""
    sources = [source.partition(":") for source, *_ in rows]
    targets = [target.partition(":") for _, _, target, _ in rows]
    return {
        "edge_id": [f"e-{n}" for n in range(len(rows))],
        "edge_type": [edge_type for _, edge_type, _, _ in rows],
        "source_kind": [kind for kind, _, _ in sources],
        "source_id": [id for _, _, id in sources],
        "target_kind": [kind for kind, _, _ in targets],
        "target_id": [id for _, _, id in targets],
        "recorded_at": [None if at is None else START + timedelta(minutes=at) for *_, at in rows],
    }


def item_rows(*rows: tuple[str, str | None, str | None, int | None]) -> dict[str, list[Any]]:
    """An items frame as columns, from (key, label, device, minute)."""
    keys = [key.partition(":") for key, *_ in rows]
    return {
        "item_kind": [kind for kind, _, _ in keys],
        "item_id": [id for _, _, id in keys],
        "depth": list(range(len(rows))),
        "label": [label for _, label, _, _ in rows],
        "device": [device for _, _, device, _ in rows],
        "recorded_at": [None if at is None else START + timedelta(minutes=at) for *_, at in rows],
    }


EDGES = edge_rows(
    ("fact:new", "supersedes", "fact:old", 9),
    ("fact:new", "derived_from", "document:mail", 9),
    ("fact:new", "observed_by", "actor:a", 9),
    ("fact:new", "recorded_by", "operation:o", 9),
)
ITEMS = item_rows(
    ("fact:new", "Flight AA1234 leaves at 8:00 PM", "kitchen", 9),
    ("fact:old", "Flight AA1234 leaves at 5:00 PM", "van", 0),
    ("document:mail", "mail from the airline", None, None),
    ("actor:a", "planner", "kitchen", -5),
    ("operation:o", "supersede", "kitchen", 9),
)


def hostile_graph() -> ProvenanceGraph:
    """Every place that shows stored text shows a hostile one."""
    keys = [f"fact:{text}" for text in HOSTILE]
    pairs = zip(keys, itertools.cycle(STROKES), [*keys[1:], keys[0]], strict=False)
    edges = edge_rows(*((a, kind, b, n) for n, (a, kind, b) in enumerate(pairs)))
    edges["edge_type"][3] = edges["source_kind"][5] = HOSTILE[0]
    items = item_rows(*((key, key[5:], HOSTILE[n % 9], n) for n, key in enumerate(keys)))
    graph = ProvenanceGraph(pd.DataFrame(edges), pd.DataFrame(items), root=f"fact:{HOSTILE[1]}")
    return graph


def chain(n: int) -> ProvenanceGraph:
    """A picture of `n` items over four devices."""
    items = item_rows(*((f"fact:{i}", f"statement {i}", f"d{i % 4}", i) for i in range(n)))
    types = itertools.cycle(STROKES)
    edges = edge_rows(
        *((f"fact:{i}", next(types), f"fact:{i * k // 7}", i) for i in range(1, n) for k in (3, 6))
    )
    return ProvenanceGraph(pl.DataFrame(edges), pl.DataFrame(items), root="fact:5")


def drawn(page: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Nodes and edges as the page gives them to the drawing library."""
    found = re.findall(r"^ *(?:nodes|edges) = new vis\.DataSet\((.*)\);$", page, re.MULTILINE)
    nodes, edges = map(json.loads, found)
    return nodes, edges


def by_title(page: str) -> dict[str, dict[str, Any]]:
    """Nodes by the first line of what they say."""
    return {node["title"].partition("\n")[0]: node for node in drawn(page)[0]}


def texts(svg: str, tag: str = "text") -> list[str]:
    """The texts of a picture, read as any XML parser reads them."""
    name = f"{{http://www.w3.org/2000/svg}}{tag}"
    return [element.text or "" for element in ElementTree.fromstring(svg).iter(name)]


class Tags(HTMLParser):
    """The tags of a page, in order, with the names of their attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, ...]] = []
        self.data: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, *(name for name, _ in attrs)))

    def handle_data(self, data: str) -> None:
        self.data.append(data)


# --- what people use ---------------------------------------------------------------------------
@pytest.mark.parametrize("make", [pl.DataFrame, pd.DataFrame])
def test_a_lineage_becomes_a_picture(make: Any, tmp_path: Path):
    lineage = SimpleNamespace(
        edges=make(EDGES), items=make(ITEMS), root="fact:new", truncated=False, skipped=[]
    )
    graph = ProvenanceGraph.of(lineage)
    assert repr(graph) == "ProvenanceGraph: 5 items, 4 edges, 2 devices"
    svg = graph.svg()
    assert texts(svg, "title")[0] == "Provenance of Flight AA1234 leaves at 8:00 PM"
    for text in ("kitchen", "van", "planner", "supersedes", "derived from", "07:39:00"):
        assert text in texts(svg)
    page = graph.save(tmp_path / "lineage.html").read_text(encoding="utf-8")
    assert page == graph.page()
    nodes = by_title(page)
    assert nodes["Flight AA1234 leaves at 8:00 PM"]["x"] > nodes["planner"]["x"]
    assert nodes["planner"]["size"] < nodes["mail from the airline"]["size"]
    assert len({nodes[name]["shape"] for name in ("planner", "supersede", *list(nodes)[:1])}) > 1


def test_both_kinds_of_frames_give_the_same_bytes():
    pictures = [
        ProvenanceGraph(make(EDGES), make(ITEMS), root="fact:new")
        for make in (pl.DataFrame, pd.DataFrame)
    ]
    assert pictures[0].svg() == pictures[1].svg() == pictures[0].svg()
    assert pictures[0].page() == pictures[1].page() == pictures[0].page()


def test_the_order_of_rows_does_not_matter():
    edges, items = pl.DataFrame(EDGES), pl.DataFrame(ITEMS)
    assert (
        ProvenanceGraph(edges.reverse(), items.reverse()).svg()
        == ProvenanceGraph(edges, items).svg()
    )


def test_frames_of_the_mesh_are_read_as_they_are():
    graph = ProvenanceGraph(schemas.empty(schemas.Edges), schemas.empty(schemas.Items))
    assert repr(graph) == "ProvenanceGraph: 0 items, 0 edges, 0 devices"
    assert "0 items, 0 edges, 0 devices" in texts(graph.svg())
    assert drawn(graph.page()) == ([], [])
    alone = ProvenanceGraph(schemas.empty(schemas.Edges), root="fact:f:1")
    assert "f:1" in texts(alone.svg())


def test_what_is_cut_off_is_said():
    frames = {"edges": pl.DataFrame(EDGES), "items": pl.DataFrame(ITEMS), "root": "fact:new"}
    graph = ProvenanceGraph.of(SimpleNamespace(**frames, truncated=True))
    bundle = graph._repr_mimebundle_()
    assert bundle["text/plain"] == "ProvenanceGraph: 5 items, 4 edges, 2 devices, truncated"
    said = "5 items, 4 edges, 2 devices; truncated: there is more than is drawn"
    assert said in texts(graph.svg())
    assert said in Tags(graph.page()).data


def test_something_else_is_no_lineage():
    with pytest.raises(InputError, match="no items, truncated"):
        ProvenanceGraph.of(SimpleNamespace(edges=pl.DataFrame(EDGES), root="fact:new"))


# --- notebooks and files -----------------------------------------------------------------------
def test_a_notebook_shows_the_page_in_a_sandbox(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("MNEMES_STATIC", raising=False)
    graph = hostile_graph()
    shown = Tags(graph._repr_mimebundle_()["text/html"])
    assert [tag[0] for tag in shown.tags] == ["div", "iframe"]
    frame = re.search(r'sandbox="([^"]*)" srcdoc="([^"]*)"', graph._repr_mimebundle_()["text/html"])
    assert frame is not None
    assert frame[1] == "allow-scripts"
    assert html.unescape(frame[2]) == graph.page()


def test_static_notebooks_show_a_picture(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MNEMES_STATIC", "1")
    bundle = hostile_graph()._repr_mimebundle_()
    assert [tag[0] for tag in Tags(bundle["text/html"]).tags] == ["div", "img"]
    assert 'src="data:image/svg+xml;base64,' in bundle["text/html"]
    assert len(bundle["text/html"]) < 100_000


def without_pyvis(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def refuse(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("pyvis"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)


def test_without_pyvis_there_is_the_picture(monkeypatch: pytest.MonkeyPatch):
    without_pyvis(monkeypatch)
    monkeypatch.delenv("MNEMES_STATIC", raising=False)
    graph = ProvenanceGraph(pl.DataFrame(EDGES))
    with pytest.raises(MissingExtraError, match=r"mnemes-lab\[lab\]"):
        graph.page()
    assert "<img" in graph._repr_mimebundle_()["text/html"]


def test_files_are_utf8_and_nothing_else_is_written(tmp_path: Path):
    graph = hostile_graph()
    for name in ("a.svg", "b.SVG", "c.html"):
        path = graph.save(str(tmp_path / name))
        assert path == tmp_path / name
        text = path.read_bytes().decode("utf-8")
        assert "→ ≥ 泵" in text if name != "c.html" else text == graph.page()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.svg", "b.SVG", "c.html"]


@pytest.mark.parametrize("name", ["lineage.png", "lineage", "lineage.svg.txt"])
def test_other_files_are_refused(name: str, tmp_path: Path):
    with pytest.raises(InputError, match=r"lineage\.html"):
        ProvenanceGraph(pl.DataFrame(EDGES)).save(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


# --- reading -----------------------------------------------------------------------------------
def test_what_is_not_said_comes_from_ids_and_edges():
    edges = edge_rows(("fact:x", "supports", "fact:y", 7), ("fact:y", "supports", "fact:z", 3))
    edges["device_id"] = ["d-1", "d-2"]
    items = item_rows(("fact:z", None, None, 5), ("device:d-2", "van", None, 1))
    graph = ProvenanceGraph(pl.DataFrame(edges), pl.DataFrame(items))
    nodes = by_title(graph.page())
    assert sorted(nodes) == ["van", "x", "y", "z"]
    ways = [nodes[name]["x"] for name in ("van", "y", "z", "x")]
    assert ways == sorted(set(ways))  # y is as old as its first edge
    assert [nodes[name]["title"].splitlines()[-1] for name in "xyz"] == [
        "device d-1",
        "device van",
        "device van",
    ]


def test_only_the_needed_columns_are_needed():
    needed = ["edge_type", "source_kind", "source_id", "target_kind", "target_id"]
    graph = ProvenanceGraph(pl.DataFrame(EDGES).select(needed))
    assert "no time" in texts(graph.svg())
    assert "no device" in texts(graph.svg())
    for name in needed:
        with pytest.raises(MissingColumnError, match=name):
            ProvenanceGraph(pl.DataFrame(EDGES).drop(name))


def test_times_without_an_offset_are_refused():
    edges = pl.DataFrame(EDGES).with_columns(pl.col("recorded_at").dt.replace_time_zone(None))
    with pytest.raises(SchemaError, match="naive datetimes name no instant"):
        ProvenanceGraph(edges)
    broken = pl.DataFrame({**EDGES, "recorded_at": ["2031-06-11T07:30:00Z", "noon", None, None]})
    with pytest.raises((SchemaError, InstantError), match="row 1"):
        ProvenanceGraph(broken)


def test_a_missing_id_names_its_row():
    with pytest.raises(SchemaError, match="row 2: target_id is missing"):
        ProvenanceGraph(pl.DataFrame({**EDGES, "target_id": ["a", "b", None, "d"]}))


@pytest.mark.parametrize(
    "ids",
    [
        [np.int64(7), np.int64(8), np.int64(9), np.int64(7)],
        [7, "eight", 9.5, ("t", 1)],
        [True, b"bytes", np.str_("s"), ""],
        ["__proto__", "constructor", " ", "n0"],
        ["\ud800", "\x00", "\uffff", "a" * 5000],
    ],
)
def test_ids_of_any_sort_are_drawn(ids: list[Any]):
    edges = {**EDGES, "source_id": pd.Series(ids, dtype=object), "source_kind": ["fact"] * 4}
    graph = ProvenanceGraph(pd.DataFrame(edges))
    nodes, lines = drawn(graph.page())
    assert len(nodes) == len(set(map(str, ids))) + 4
    assert len(lines) == 4
    assert all(node["label"].strip() for node in nodes)
    assert texts(graph.svg(), "title")
    numbers = pd.DataFrame({**EDGES, "source_id": np.arange(4)})
    assert "0 items" not in repr(ProvenanceGraph(numbers))


def test_repeated_ids_keep_everything_that_is_said():
    items = item_rows(
        ("fact:new", "leaves at 8", "kitchen", 9),
        ("fact:new", "leaves at 5", "van", 4),
        ("fact:new", "leaves at 8", "kitchen", 9),
    )
    graph = ProvenanceGraph(pl.DataFrame(EDGES), pl.DataFrame(items))
    assert repr(graph).startswith("ProvenanceGraph: 5 items, 4 edges")
    node = by_title(graph.page())["leaves at 5 / leaves at 8"]
    assert node["title"].splitlines()[-1] == "device kitchen / van"


def test_repeated_edges():
    twice = pl.concat([pl.DataFrame(EDGES)] * 2)
    assert repr(ProvenanceGraph(twice)) == repr(ProvenanceGraph(pl.DataFrame(EDGES)))
    assert "8 edges" in repr(ProvenanceGraph(twice.drop("edge_id")))
    other = twice.with_columns(pl.Series("edge_type", ["supports"] * 4 + EDGES["edge_type"]))
    assert "8 edges" in repr(ProvenanceGraph(other))  # one id, two contents: both are shown


@pytest.mark.parametrize("root", ["new", ":x", "fact:"])
def test_a_root_that_is_no_key(root: str):
    with pytest.raises(IdError):
        ProvenanceGraph(pl.DataFrame(EDGES), root=root)


@pytest.mark.parametrize(
    "wrong", [{"height": 0}, {"height": 10**9}, {"height": 1.5}, {"max_nodes": "many"}]
)
def test_wrong_sizes(wrong: dict[str, Any]):
    with pytest.raises(InputError):
        ProvenanceGraph(pl.DataFrame(EDGES), **wrong)


# --- bounds ------------------------------------------------------------------------------------
def test_too_much_is_refused_with_a_way_out():
    ids = [str(n) for n in range(20_000)]
    edges = pl.DataFrame(
        {
            "edge_type": ["supports"] * 19_999,
            "source_kind": ["fact"] * 19_999,
            "source_id": ids[1:],
            "target_kind": ["fact"] * 19_999,
            "target_id": ids[:-1],
        }
    )
    with pytest.raises(InputError, match=r"20,000 items .* 300\. Hint: .*depth.*limit.*kinds"):
        ProvenanceGraph(edges)
    few = pl.DataFrame(EDGES)
    assert "5 items" in repr(ProvenanceGraph(few, max_nodes=5))
    with pytest.raises(InputError, match="5 items"):
        ProvenanceGraph(few, max_nodes=4)
    with pytest.raises(InputError, match="6,001 edges"):
        ProvenanceGraph(pl.concat([few.drop("edge_id")[:1]] * 6001))


# --- looks -------------------------------------------------------------------------------------
SEEN_AS = {  # Machado, Oliveira and Fernandes 2009, full severity, on linear light
    "anyone": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    "protanopes": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopes": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "tritanopes": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}


def light(colour: str) -> np.ndarray:
    """Linear light of a colour."""
    share = np.array([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)])
    return np.where(share <= 0.04045, share / 12.92, ((share + 0.055) / 1.055) ** 2.4)


def lab(linear: np.ndarray) -> np.ndarray:
    """CIE L*a*b* of linear light."""
    xyz = np.array(
        [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    ) @ np.clip(linear, 0, 1)
    f = xyz / np.array([0.9505, 1.0, 1.089])
    f = np.where(f > 0.008856, np.cbrt(f), 7.787 * f + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("who", SEEN_AS)
def test_types_are_told_apart_by_everyone(who: str):
    seen = [lab(np.array(SEEN_AS[who]) @ light(one.colour)) for one in STROKES.values()]
    assert min(np.linalg.norm(a - b) for a, b in itertools.combinations(seen, 2)) >= 25


def test_types_are_told_apart_without_colour():
    assert list(STROKES) != [] and set(STROKES) == set(schemas.EDGE_TYPES)
    assert len({stroke.dashes for stroke in (*STROKES.values(), OTHER_STROKE)}) == 8
    for stroke in (*STROKES.values(), OTHER_STROKE):
        luminance = float(light(stroke.colour) @ [0.2126, 0.7152, 0.0722])
        assert 1.05 / (luminance + 0.05) >= 3  # on white
    assert len({look.shape for look in LOOKS.values()}) == len(LOOKS)


def test_the_legend_names_what_is_there():
    odd = edge_rows(("fact:a", "echoes", "memo:b", 1), ("fact:a", "mirrors", "memo:b", 1))
    assert {"2 other", "memo", "fact"} <= set(texts(ProvenanceGraph(pl.DataFrame(odd)).svg()))
    shown = texts(ProvenanceGraph(pl.DataFrame(EDGES)).svg())
    assert "supersedes" in shown and "supports" not in shown
    assert "supersedes" in Tags(ProvenanceGraph(pl.DataFrame(EDGES)).page()).data


def test_edges_of_one_pair_stay_apart():
    pair = ("fact:a", "fact:b")
    both = [(*pair, t) for t in ("supports", "contradicts", "supersedes")]
    rows = [*((a, t, b, 1) for a, b, t in both), ("fact:b", "supports", "fact:a", 2)]
    rows += [("fact:a", "supports", "fact:a", 1), ("fact:a", "contradicts", "fact:a", 1)]
    graph = ProvenanceGraph(pl.DataFrame(edge_rows(*rows)))
    paths = re.findall(r'<g><title>[^<]*</title>\s*<path d="([^"]*)"', graph.svg())
    assert len(set(paths)) == 6
    _, lines = drawn(graph.page())
    assert len({json.dumps([line.get("smooth"), line.get("selfReference")]) for line in lines}) == 6


def test_the_root_stands_out():
    graph = ProvenanceGraph(pl.DataFrame(EDGES), pl.DataFrame(ITEMS), root="fact:new")
    nodes = by_title(graph.page())
    colours = {name: node["color"]["background"] for name, node in nodes.items()}
    assert list(colours.values()).count(colours["Flight AA1234 leaves at 8:00 PM"]) == 1


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("short", ("short",)),
        ("the intake pump is off", ("the intake", "pump is off")),
        ("abcdefghijklmnopqrstuvwxyzabcdefgh", ("abcdefghijkl", "nopqrstuvwx…")),
        ("", ("",)),
    ],
)
def test_long_labels_are_wrapped_and_cut(text: str, lines: tuple[str, ...]):
    got = wrap(text, 12, 2)
    assert len(got) == len(lines)
    assert all(letters(line) <= 12 for line in got)
    assert got[-1].endswith("…") == lines[-1].endswith("…")


@given(st.text(max_size=80), st.integers(3, 30))
def test_a_cut_text_fits_and_starts_the_same(text: str, width: int):
    short = cut(text, width)
    assert letters(short) <= width + 1e-9
    assert short == text or (short.endswith("…") and text.startswith(short[:-1]))


ITEM = st.builds(
    Item,
    kind=st.sampled_from(["fact", "operation", "actor", "device", "memo"]),
    id=st.text(max_size=3),
    label=st.text(max_size=90),
    device=st.sampled_from(["", "a", "b"]),
    at=st.none() | st.integers(0, 5).map(lambda n: n * 1_000_000),
    root=st.booleans(),
)


@given(st.lists(ITEM, max_size=30), st.sampled_from([1000.0, 1400.0]))
def test_no_item_covers_another(items: list[Item], wide: float):
    scene = lay_out(items, [], wide=wide)
    boxes = []
    for item, spot in zip(items, scene.spots, strict=True):
        size = 9.5 if item.look.small else 11.9 if item.root else 11
        half = max(max(map(letters, spot.lines)) * UNIT * size / 11 / 2, item.look.radius)
        above, below = (18, 5) if item.look.small else (14, 29 + 12 * (len(spot.lines) - 1))
        boxes.append((spot.x - half, spot.x + half, spot.y - above, spot.y + below))
    for (l1, r1, t1, b1), (l2, r2, t2, b2) in itertools.combinations(boxes, 2):
        assert r1 <= l2 or r2 <= l1 or b1 <= t2 or b2 <= t1
    for left, right, top, bottom in boxes:
        assert left >= 0 and right <= scene.width and top >= 0 and bottom <= scene.height


def test_time_runs_by_rank():
    far = [0, 1, 10**12, 10**12 + 60_000_000]
    items = [Item("fact", str(at), "x", "d", at) for at in far]
    scene = lay_out(items, [Relation(0, 1, "supports")], wide=1000)
    steps = np.diff([spot.x for spot in scene.spots])
    assert len(set(steps.round(6))) == 1 and steps[0] > 0
    assert [tick.time for tick in scene.ticks][:2] == ["00:00:00.000000", "00:00:00.000001"]


# --- stored text is data -----------------------------------------------------------------------
def titled(label: str, id: str) -> str:
    return plain(label if label.strip() else id, limit=400)


@given(st.lists(st.sampled_from(HOSTILE) | st.text(max_size=40), min_size=2, max_size=5))
@settings(max_examples=50)
def test_the_picture_is_xml_and_says_the_labels(labels: list[str]):
    keys = [f"fact:{n}" for n in range(len(labels))]
    items = item_rows(*((key, text, text, 1) for key, text in zip(keys, labels, strict=True)))
    graph = ProvenanceGraph(
        pl.DataFrame(edge_rows((keys[0], "supports", keys[1], 1))),
        pl.DataFrame(items),
        root=keys[0],
    )
    titles = texts(graph.svg(), "title")
    for n, label in enumerate(labels):
        assert any(title.startswith(f"{titled(label, str(n))}\nfact:{n}") for title in titles)
    tags = {
        element.tag.rpartition("}")[2] for element in ElementTree.fromstring(graph.svg()).iter()
    }
    assert tags <= {"svg", "title", "desc", "g", "rect", "text", "path", "circle", "polygon"}


def one_pair(label: str) -> ProvenanceGraph:
    items = item_rows(("fact:a", label, label, 1), ("fact:b", "b", "d", 1))
    edges = edge_rows(("fact:a", "supports", "fact:b", 1))
    return ProvenanceGraph(pl.DataFrame(edges), pl.DataFrame(items), root="fact:a")


@cache
def tags_of_a_harmless_page() -> list[tuple[str, ...]]:
    return Tags(one_pair("plain words").page()).tags


@given(st.sampled_from(HOSTILE) | st.text(max_size=60))
@settings(max_examples=10)
@example("\n".join(HOSTILE))
def test_no_label_changes_the_structure_of_the_page(label: str):
    page = one_pair(label).page()
    assert Tags(page).tags == tags_of_a_harmless_page()
    title = drawn(page)[0][0]["title"].replace("h\u200bref", "href")
    assert title.startswith(titled(label, "a"))
    assert page == page.encode().decode() and "\u2028" not in page


def test_the_page_is_closed_to_the_outside():
    page = hostile_graph().page()
    found = Tags(page)
    assert not {tag[0] for tag in found.tags} & {"link", "img", "iframe", "object", "base", "form"}
    assert [tag for tag in found.tags if tag[0] == "script"].count(("script", "src")) == 0
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None
    assert policy[1].startswith("default-src 'none'; ")
    assert "http" not in policy[1] and "*" not in policy[1]
    assert page.index("Content-Security-Policy") < page.index("<script")
    assert "popup.innerHTML = " not in page


@pytest.mark.parametrize(
    "more",
    [
        '<script src="lib/x.js">0</script></html>',
        '<link rel="stylesheet" href="lib/x.css"></html>',
        "<img src=x></html>",
        "<style type='text/css'>@import 'x.css'</style></html>",
        "<style type='text/css'>a { background: url(x.png) }</style></html>",
        "<script>popup.innerHTML = 1</script></html>",
        '<script>load("https://cdn.example/x.js")</script></html>',
        "<body></html>",
    ],
)
def test_another_template_is_refused(more: str, monkeypatch: pytest.MonkeyPatch):
    real = _vis._pyvis_page
    monkeypatch.setattr(_vis, "_pyvis_page", lambda *a: real(*a).replace("</html>", more))
    with pytest.raises(MnemesError, match="not self-contained"):
        ProvenanceGraph(pl.DataFrame(EDGES)).page()


# --- a real browser ----------------------------------------------------------------------------
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "chrome"))), None)
WATCH = """<script>
window.broken = [];
addEventListener("securitypolicyviolation", e => broken.push(e.violatedDirective));
addEventListener("error", e => broken.push(e.message));
</script>"""
PROBE = """<script>
network.once("afterDrawing", function () {
  const found = {ms: performance.now(), canvas: document.querySelectorAll("canvas").length};
  const at = network.canvasToDOM(network.getPosition("n5"));
  network.interactionHandler._checkShowPopup(at);
  network.body.emitter.emit("select", {nodes: ["n5"], edges: []});
  setTimeout(function () {
    const tags = element => [...element.querySelectorAll("*")].map(e => e.tagName);
    found.ran = typeof window.p;
    found.broken = broken;
    found.fetched = performance.getEntriesByType("resource").length;
    found.tip = tags(document.querySelector(".vis-tooltip"));
    found.told = tags(document.getElementById("told"));
    found.said = document.getElementById("told").textContent;
    console.log("FOUND" + JSON.stringify(found) + "DONE");
  }, 100);
});
</script>"""


def lines_of_console(page: Path, folder: Path) -> Generator[str, None, None]:
    """Open a page in a browser without a network and give what it writes, until it is closed."""
    assert CHROMIUM is not None
    command = [
        *(CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"),
        *("--disable-background-networking", "--disable-component-update"),
        *("--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={folder / 'profile'}"),
        *("--enable-logging=stderr", "--remote-debugging-port=0", "--disable-dev-shm-usage"),
        *(f"--log-net-log={folder / 'net.json'}", page.as_uri()),
    ]
    browser = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        errors="replace",
        start_new_session=True,
    )

    def stop(sent: signal.Signals) -> None:
        if browser.poll() is None:
            os.killpg(browser.pid, sent)

    watchdog = threading.Timer(60, stop, [signal.SIGKILL])
    watchdog.start()
    try:
        assert browser.stderr is not None
        yield from browser.stderr
    finally:
        stop(signal.SIGTERM)
        browser.wait(timeout=20)
        browser.stderr.close()
        watchdog.cancel()


def look(page: Path, folder: Path) -> dict[str, Any]:
    """What the probe found in a page."""
    lines = lines_of_console(page, folder)
    seen = []
    for line in lines:
        seen.append(line)
        if "FOUND" in line:
            lines.close()
            found: dict[str, Any] = json.loads(line.partition("FOUND")[2].partition("DONE")[0])
            return found
    raise AssertionError("the page was not drawn: " + "".join(seen)[-2000:])


browser = pytest.mark.skipif(
    CHROMIUM is None or not hasattr(os, "killpg"), reason="needs chromium on the path"
)


@browser
def test_in_a_notebook_nothing_stored_runs_or_reaches_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("MNEMES_STATIC", raising=False)
    graph = hostile_graph()
    shown = graph._repr_mimebundle_()["text/html"]
    for mark, extra in (("<title>", WATCH + "<title>"), ("</body>", PROBE + "</body>")):
        assert shown.count(html.escape(mark)) == 1
        shown = shown.replace(html.escape(mark), html.escape(extra))
    path = tmp_path / "notebook.html"
    path.write_text(f"<!DOCTYPE html><meta charset=utf-8>{shown}", encoding="utf-8")
    found = look(path, tmp_path)
    node = drawn(graph.page())[0][5]
    assert found.pop("said") == node["title"]
    assert found.pop("ms") > 0
    assert set(found.pop("tip")) == {"BR"}
    assert found == {"canvas": 1, "ran": "undefined", "broken": [], "fetched": 0, "told": []}
    requests = (tmp_path / "net.json").read_text(encoding="utf-8", errors="replace")
    assert "notebook.html" in requests and "outside.invalid" not in requests


@browser
def test_300_items_are_drawn_within_two_seconds(tmp_path: Path):
    page = chain(300).page()
    assert len(drawn(page)[0]) == 300
    page = page.replace("<title>", WATCH + "<title>", 1).replace("</body>", PROBE + "</body>", 1)
    (tmp_path / "page.html").write_text(page, encoding="utf-8")
    # From a first page, so that the browser's own start is not counted as the drawing's.
    go = "<script>setTimeout(() => location.replace('page.html'), 500)</script>"
    (tmp_path / "go.html").write_text(go, encoding="utf-8")
    found = look(tmp_path / "go.html", tmp_path)
    assert found["broken"] == [] and found["canvas"] == 1
    assert found["ms"] < 2000
