"""Where facts come from, on the command line: lineage, operations, edges, redact, export."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from types import SimpleNamespace

import networkx as nx
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.main import get_command

import mnemes_lab as ml
from mnemes_lab import schemas
from mnemes_lab.cli import app
from mnemes_lab.cli.evidence import Direction, _tree
from mnemes_lab.clock import from_us
from mnemes_lab.view.parquet import read_parquet

BEFORE, AFTER = "2031-06-30T00:00:00Z", "2031-07-02T00:00:00Z"
ACTING = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]")
COMMAND = get_command(app)  # made once: it takes longer than most of what is tested
READING = ["lineage", "operations", "edges", "export prov", "export parquet", "export graph"]


def call(*args: object, code: int = 0) -> tuple[str, str]:
    """Standard output and standard error of a command that must leave with `code`."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as left:
        COMMAND.main([str(arg) for arg in args], prog_name="mnemes-lab")
    assert left.value.code == code, f"{out.getvalue()}\n{err.getvalue()}"
    return out.getvalue(), err.getvalue()


def rows(*args: object) -> list[dict[str, object]]:
    return json.loads(call(*args, "--format", "json")[0])


def failed(*args: object, code: int = 1) -> str:
    """What an error tells, in one piece."""
    out, err = call(*args, code=code)
    assert out == ""
    return re.sub(r"[\s│╭╮╰╯─]+", " ", err)


def make(folder: Path) -> Path:
    """One agent corrects itself from July on; another one concludes something from that."""
    with ml.Mesh.open(folder, seed=7, encoder="hash:16") as mesh:
        desk, tower = mesh.agent("desk"), mesh.agent("tower")
        desk.remember("The gate is B2", fact_id="old", idempotency_key="k-1")
        desk.supersede("old", "The gate is B9", fact_id="new", valid_from="2031-07-01T00:00:00Z")
        tower.remember("Send the bus to B9", fact_id="bus", derived_from=["new"])
        tower.remember("The code is kestrel", fact_id="code")
        mesh.add_edge("supports", "document:plan", "fact:new")
    return folder


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Only read."""
    return make(tmp_path_factory.mktemp("evidence") / "mesh")


@pytest.fixture
def fresh(mesh: Path, tmp_path: Path) -> Path:
    """To write to."""
    return shutil.copytree(mesh, tmp_path / "mesh")


def files(folder: Path) -> dict[str, bytes]:
    """What lies in a folder; a cache does not count."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.endswith(("-shm", "-wal", "vectors.db"))
    }


# --- lineage -----------------------------------------------------------------------------------
def test_json_holds_what_the_mesh_answers(mesh):
    told = json.loads(call("lineage", mesh, "fact:new", "-f", "json")[0])
    assert told == json.loads(call("lineage", mesh, "new", "-f", "json")[0])
    with ml.Mesh.open(mesh, read_only=True) as opened:
        found = opened.lineage("fact:new")
        assert [e["edge_id"] for e in told["edges"]] == found.edges["edge_id"].to_list()
        assert [i["label"] for i in told["items"]] == found.items["label"].to_list()
        ids = found.operations["operation_id"].to_list()
        assert [o["operation_id"] for o in told["operations"]] == ids
    assert (told["root"], told["truncated"], told["skipped"]) == ("fact:new", False, [])


def test_people_see_a_tree(mesh):
    out, err = call("lineage", mesh, "new")
    lines = [re.split(r"\s{2,}", line.strip()) for line in out.splitlines()]
    assert lines[2][:3] == ["0", "The gate is B9", "desk"]
    assert lines[2][3] == "2031-01-01T00:00:06+00:00" and lines[2][4] == "fact:new"
    steps = {(line[0], line[1], line[-1]) for line in lines[3:-1]}
    assert {
        ("1", "→ supersedes", "fact:old"),
        ("1", "← derived_from", "fact:bus"),
        ("1", "← supports", "document:plan"),
    } <= steps
    assert re.search(r"(?m)^ +1 +← derived_from .*\n +2   +→ (recorded|observed)_by ", out)
    assert out.endswith("\n11 items, 12 edges\n")
    assert err == ""


def test_a_lineage_goes_one_way_or_stops(mesh):
    def items(*args: str) -> set[str]:
        told = json.loads(call("lineage", mesh, "new", *args, "-f", "json")[0])
        return {item["item_id"] for item in told["items"] if item["item_kind"] == "fact"}

    assert items("--direction", "outgoing") == {"new", "old"}
    assert items("--direction", "incoming") == {"new", "bus"}
    assert items() == {"new", "old", "bus", "code"}  # said by the one who said bus
    assert items("--stop-at", "actor", "--stop-at", "device") == {"new", "old", "bus"}


def test_a_cut_lineage_says_so_and_how_to_get_more(mesh):
    _, err = call("lineage", mesh, "new", "--depth", 1)
    assert err == "truncated: more lies beyond depth 1; --depth all goes all the way\n"
    out, err = call("lineage", mesh, "new", "--limit", 2)
    assert err == "truncated: there are more than 2 edges; a larger --limit shows them\n"
    assert out.endswith("2 edges\n")
    for way in (["--depth", "all"], ["--limit", 12], ["--limit", 10**30]):
        assert call("lineage", mesh, "new", *way)[1] == ""
    assert json.loads(call("lineage", mesh, "new", "--depth", 0, "-f", "json")[0])["truncated"]


@pytest.mark.parametrize("format", ["csv", "parquet"])
def test_csv_and_parquet_hold_the_edges_or_the_items(mesh, tmp_path, format):
    read = {"csv": pl.read_csv, "parquet": pl.read_parquet}[format]
    for args, schema, n in ([], schemas.Edges, 12), (["--items"], schemas.Items, 11):
        path = tmp_path / f"{len(args)}.{format}"
        assert call("lineage", mesh, "new", *args, "-o", path) == ("", "")
        assert read(path).columns == list(schema.columns())
        assert read(path).height == n


def test_a_lineage_of_an_earlier_moment(mesh):
    with ml.Mesh.open(mesh, read_only=True) as opened:
        at = opened.history("new")["recorded_at"][-1].isoformat()
    told = json.loads(call("lineage", mesh, "new", "--as-of-recorded", at, "-f", "json")[0])
    ids = {item["item_id"] for item in told["items"]}
    assert "old" in ids and "bus" not in ids
    out, _ = call("lineage", mesh, "new", "--as-of-valid", BEFORE)
    assert "→ derived_from" in out and "→ supersedes" not in out


def test_an_item_the_mesh_does_not_keep_has_a_lineage_too(mesh):
    assert "→ supports" in call("lineage", mesh, "document:plan")[0]
    assert call("lineage", mesh, "document:other")[0].endswith("\n1 item, 0 edges\n")


ENDS = st.tuples(st.sampled_from(schemas.EDGE_TYPES), *[st.sampled_from("abcdef")] * 2)


@settings(max_examples=50)
@given(
    st.lists(ENDS.filter(lambda e: e[1] != e[2]), max_size=14),
    st.sampled_from(Direction),
    st.none() | st.integers(0, 3),
    st.integers(1, 14),
    st.sets(st.sampled_from(["x", "y"])),
)
def test_a_tree_shows_every_edge_once_below_where_it_was_followed_from(
    edges, direction, depth, limit, stops
):
    def kind(name: str) -> str:
        return "x" if name in "ab" else "y"

    frame = pl.DataFrame(
        [
            {
                "edge_id": f"e{n:02}", "edge_type": edge_type, "operation_id": "o",
                "source_kind": kind(s), "source_id": s, "target_kind": kind(t), "target_id": t,
                "recorded_at": from_us(n),
            }
            for n, (edge_type, s, t) in enumerate(edges)
        ],
        schema_overrides=schemas.dtypes(schemas.Edges) if edges else None,
        schema=None if edges else schemas.dtypes(schemas.Edges),
    )  # fmt: skip
    found = ml.lineage(
        frame, "x:a", direction=direction.value, depth=depth, limit=limit, stop_at=sorted(stops)
    )
    shown = _tree(found, direction, sorted(stops)).select("depth", "edge", "item").rows()
    assert shown[0] == (0, "", "x:a")
    above, drawn = ["x:a"], []
    for far, step, item in shown[1:]:
        level = (len(step) - len(step.lstrip())) // 2
        arrow, edge_type = step.split()
        near = above[level]
        assert found.depths[near] == level and found.depths[item] == far
        assert near == "x:a" or near[0] not in stops
        assert arrow == {"outgoing": "→", "incoming": "←"}.get(direction.value, arrow)
        drawn.append((edge_type, near, item) if arrow == "→" else (edge_type, item, near))
        above = [*above[: level + 1], item]
    wanted = [
        (
            row["edge_type"],
            *(f"{row[f'{end}_kind']}:{row[f'{end}_id']}" for end in ("source", "target")),
        )
        for row in found.edges.iter_rows(named=True)
    ]
    assert sorted(drawn) == sorted(wanted)


# --- operations and edges ----------------------------------------------------------------------
def test_operations_are_chosen_by_what_is_known_of_them(mesh):
    everything = rows("operations", mesh)
    assert list(everything[0]) == list(schemas.Operations.columns())
    kinds = [row["operation_kind"] for row in rows("operations", mesh, "--target", "old")]
    assert kinds == ["observe", "supersede"]
    [one] = rows("operations", mesh, "--target", "fact:old", "--kind", "supersede")
    assert rows("operations", mesh, "--device", "desk", "--kind", "supersede") == [one]
    assert [o["target_id"] for o in rows("operations", mesh, "--key", "k-1")] == ["old"]
    earlier = rows("operations", mesh, "--as-of-recorded", one["recorded_at"])
    assert 0 < len(earlier) < len(everything) and one in earlier
    out, _ = call("operations", mesh, "--kind", "supersede")
    assert re.search(rf"supersede +fact:old +desk +{one['operation_id']}", out)
    assert "(the mesh's owner)" in call("operations", mesh, "--target", "document:plan")[0]


@pytest.mark.parametrize("command", ["operations", "edges"])
def test_rows_left_out_are_counted(mesh, command):
    n = len(rows(command, mesh))
    _, err = call(command, mesh, "--limit", 2)
    assert err == f"2 of {n} {command}, the oldest; --limit changes that\n"
    assert len(rows(command, mesh, "--limit", 2)) == 2
    assert call(command, mesh, "--limit", 10**30)[1] == ""
    assert "--limit" in failed(command, mesh, "--limit", 0, code=2)


def test_a_table_shows_a_hundred_rows(fresh):
    with ml.Mesh.open(fresh) as opened:
        texts = [f"remark {n}" for n in range(101)]
        opened.load(pl.DataFrame({"device": ["desk"] * 101, "text": texts}), encode=False)
    assert call("edges", fresh, "--type", "recorded_by")[1].startswith("100 of 105 edges")
    assert len(rows("edges", fresh, "--type", "recorded_by")) == 105


def test_edges_are_chosen_by_what_is_known_of_them(mesh):
    def ends(*args: object) -> list[str]:
        found = rows("edges", mesh, *args)
        return sorted(f"{e['source_id']} {e['edge_type']} {e['target_id']}" for e in found)

    assert list(rows("edges", mesh)[0]) == list(schemas.Edges.columns())
    replaced = ["new derived_from old", "new supersedes old"]
    assert ends("--target", "old") == replaced
    assert ends("--source", "new", "--target", "fact:old", "--type", "supersedes") == replaced[1:]
    both = ["--type", "supersedes", "--type", "supports"]
    assert ends(*both) == ["new supersedes old", "plan supports new"]
    [operation] = rows("operations", mesh, "--kind", "supersede")
    assert ends("--operation", operation["operation_id"]) == replaced
    assert ends("--device", "tower", "--type", "derived_from") == ["bus derived_from new"]
    assert ends("--source", "old", "--as-of-recorded", operation["recorded_at"]) == []
    kept = ends("--source", "old", "--as-of-valid", AFTER, "--include-superseded")
    assert len(kept) == 2
    assert len(ends("--source", "old", "--as-of-valid", BEFORE)) == 2
    assert ends("--source", "old", "--as-of-valid", AFTER) == []
    assert re.search(r"fact:new +supersedes +fact:old +desk +2031-07", call("edges", mesh)[0])


# --- facts on two clocks -----------------------------------------------------------------------
def test_a_fact_replaced_from_a_later_date_holds_before_it(mesh):
    def texts(*args: str) -> set[str]:
        return {row["text"] for row in rows("facts", mesh, "--device", "desk", *args)}

    assert texts("--as-of-valid", BEFORE) == {"The gate is B2"}
    assert texts("--as-of-valid", AFTER) == {"The gate is B9"}
    with ml.Mesh.open(mesh, read_only=True) as opened:
        first = opened.history("old")["recorded_at"][0].isoformat()
    assert texts("--as-of-valid", AFTER, "--as-of-recorded", first) == {"The gate is B2"}
    assert "2031-07-01T00:00:00+00:00" in call("facts", mesh, "--as-of-valid", BEFORE)[0]


def test_a_fact_replaced_for_some_time_holds_before_and_after_it(fresh):
    with ml.Mesh.open(fresh) as opened:
        span = {"valid_from": BEFORE, "valid_to": AFTER}
        opened.supersede("code", "The code is heron", **span)

    def texts(at: str) -> set[str]:
        return {r["text"] for r in rows("facts", fresh, "--as-of-valid", at)} - {
            "Send the bus to B9"
        }

    assert "The code is kestrel" in texts("2031-06-29T00:00:00Z") & texts(AFTER)
    assert "The code is heron" in texts(BEFORE) - texts(AFTER)
    assert "2031-07-02T00:00:00+00:00" in call("facts", fresh, "--as-of-valid", AFTER)[0]


# --- redact ------------------------------------------------------------------------------------
def test_a_redacted_text_is_shown_nowhere(fresh):
    assert b"kestrel" in b"".join(files(fresh).values())
    out, err = call("redact", fresh, "code", "--reason", "privacy")
    assert (out, err) == ("fact code: redacted\n", "")
    for command in (["facts"], ["lineage", "code"], ["operations"], ["edges"]):
        assert "kestrel" not in call(command[0], fresh, *command[1:], "-f", "json")[0]
    assert "(redacted)" in call("lineage", fresh, "code")[0]
    assert b"kestrel" not in b"".join(path.read_bytes() for path in fresh.rglob("*.db*"))
    with ml.Mesh.open(fresh, read_only=True) as opened:
        assert opened.history("code")["reason"].to_list() == ["privacy"]
    assert "redacted already" in failed("redact", fresh, "code")


def test_a_key_makes_a_redaction_repeatable(fresh):
    for _ in range(2):
        assert call("redact", fresh, "code", "--key", "r-1")[0] == "fact code: redacted\n"
    assert len(rows("operations", fresh, "--key", "r-1")) == 1
    assert "another request" in failed("redact", fresh, "bus", "--key", "r-1")
    assert "another request" in failed("redact", fresh, "code", "--key", "r-1", "--reason", "x")
    assert [row["text"] for row in rows("facts", fresh) if row["fact_id"] == "bus"] != [""]


def test_traces_left_in_files_are_told(fresh, monkeypatch):
    monkeypatch.setattr(ml.Mesh, "scrub", lambda _: ["a device"])
    out, err = call("redact", fresh, "code")
    assert out == "fact code: redacted\n"
    assert "traces" in err and "mnemes-lab check" in err


# --- export ------------------------------------------------------------------------------------
def test_prov_holds_the_mesh_or_a_part(mesh, tmp_path):
    out, err = call("export", "prov", mesh, tmp_path / "all.json")
    assert re.fullmatch(
        r"wrote .*all\.json: 2 devices, 2 actors, 4 facts, 10 operations, 12 edges\n", out
    )
    assert err == ""
    told = json.loads((tmp_path / "all.json").read_bytes())
    assert told["entity"]["mesh:item/fact/code"]["prov:value"] == "The code is kestrel"
    args = ["--item", "bus", "--depth", 1]
    out, err = call("export", "prov", mesh, tmp_path / "part.json", *args)
    assert out.endswith(": 2 devices, 1 actor, 2 facts, 1 operation, 3 edges\n")
    assert "truncated" in err and "--depth all" in err
    part = json.loads((tmp_path / "part.json").read_bytes())
    assert "mesh:item/fact/new" in part["entity"]
    assert "mesh:item/fact/code" not in part["entity"]


def test_parquet_reads_back_as_the_evidence(mesh, tmp_path):
    out, _ = call("export", "parquet", mesh, tmp_path / "all", "--as-of-valid", BEFORE)
    with ml.Mesh.open(mesh, read_only=True) as opened:
        wanted = opened.evidence(ml.AsOf(BEFORE))
    found = read_parquet(tmp_path / "all")
    for name in ("devices", "actors", "facts", "operations", "edges"):
        assert getattr(found, name).equals(getattr(wanted, name))
    digest = json.loads((tmp_path / "all" / "manifest.json").read_bytes())["digest"]
    assert out.endswith(f"\nmanifest digest {digest}\n")
    call("export", "parquet", mesh, tmp_path / "part", "--item", "new", "--depth", "all")
    part = read_parquet(tmp_path / "part")
    with ml.Mesh.open(mesh, read_only=True) as opened:
        assert part.edges.equals(opened.lineage("fact:new", depth=None).edges)
    assert set(part.facts["fact_id"]) == {"new", "old", "bus", "code"}
    assert set(part.devices["label"]) == {"desk", "tower"}


def graph_of(path: Path) -> nx.MultiDiGraph:
    text = path.read_text("utf-8")
    if path.suffix == ".json":
        return nx.node_link_graph(json.loads(text), name="key", edges="edges")
    return nx.parse_graphml(text, edge_key_type=str, force_multigraph=True)


@pytest.mark.parametrize("ending", ["graphml", "json"])
def test_a_graph_holds_everything_or_a_lineage(mesh, tmp_path, ending):
    out, _ = call("export", "graph", mesh, tmp_path / f"all.{ending}")
    whole = graph_of(tmp_path / f"all.{ending}")
    assert f": {len(whole)} items, {len(whole.edges)} edges\n" in out
    assert len(whole.edges) == len(rows("edges", mesh))
    call("export", "graph", mesh, tmp_path / f"part.{ending}", "--item", "new", "--depth", "all")
    part = graph_of(tmp_path / f"part.{ending}")
    assert part.nodes["fact:bus"]["depth"] == 1
    for node, data in part.nodes(data=True):  # the same words, with or without a root
        assert whole.nodes[node] == {name: v for name, v in data.items() if name != "depth"}
    assert whole.nodes["fact:new"]["label"] == "The gate is B9"


def test_a_graph_shows_what_was_changed_or_redacted_in_the_words_of_then(fresh, tmp_path):
    with ml.Mesh.open(fresh) as opened:
        opened.update("code", text="The code is heron")
        opened.redact("bus")
        at = opened.history("code")["recorded_at"].to_list()
    then = ["--as-of-recorded", at[0].isoformat()]
    for n, args in enumerate([[], then]):
        call("export", "graph", fresh, tmp_path / f"{n}.json", *args)
    now, then = (graph_of(tmp_path / f"{n}.json").nodes for n in range(2))
    assert now["fact:code"]["label"] == "The code is heron"
    assert now["fact:bus"]["label"] == "(redacted)"
    assert "heron" not in str(dict(then))


@pytest.mark.parametrize("ending", ["html", "svg"])
def test_a_picture_is_for_people(mesh, tmp_path, ending):
    if ending == "html":
        pytest.importorskip("pyvis")
    call("export", "graph", mesh, tmp_path / f"a.{ending}")
    call("export", "graph", mesh, tmp_path / f"b.{ending}", "--item", "new", "--depth", 1)
    whole, part = ((tmp_path / f"{n}.{ending}").read_text("utf-8") for n in "ab")
    assert "kestrel" in whole and "kestrel" not in part
    assert "truncated" in part and "truncated" not in whole


def test_too_much_to_draw_is_an_error_with_a_hint(fresh, tmp_path):
    with ml.Mesh.open(fresh) as opened:
        texts = [f"remark {n}" for n in range(300)]
        opened.load(pl.DataFrame({"device": ["desk"] * 300, "text": texts}), encode=False)
    for ending in ("html", "svg"):
        told = failed("export", "graph", fresh, tmp_path / f"a.{ending}")
        assert "are too many to draw; the most is 300" in told and "smaller depth" in told
    assert list(tmp_path.iterdir()) == [fresh]
    assert "312 items" in call("export", "graph", fresh, tmp_path / "a.graphml")[0]


def test_nothing_is_overwritten_without_force(mesh, tmp_path):
    for kind, name in ("prov", "a.json"), ("graph", "b.svg"):
        path = tmp_path / name
        path.write_text("mine", encoding="utf-8")
        assert "--force replaces it" in failed("export", kind, mesh, path)
        assert path.read_text("utf-8") == "mine"
        assert "not there" in failed("export", kind, mesh, path, "--force", "--item", "nope")
        assert path.read_text("utf-8") == "mine"
        call("export", kind, mesh, path, "--force")
        assert path.read_text("utf-8") != "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.json", "b.svg"]


def test_an_earlier_export_is_replaced_as_a_whole(mesh, tmp_path):
    out = tmp_path / "out"
    call("export", "parquet", mesh, out, "--as-of-recorded", "2020-01-01T00:00:00Z")
    assert "--force replaces it" in failed("export", "parquet", mesh, out)
    assert read_parquet(out).edges.height == 0
    call("export", "parquet", mesh, out, "--force")
    assert read_parquet(out).edges.height == 12
    assert list(tmp_path.iterdir()) == [out]


@pytest.mark.parametrize("content", ["letter.txt", "manifest.json", "both"])
def test_force_replaces_no_folder_but_an_export(mesh, tmp_path, content):
    out = tmp_path / "out"
    out.mkdir()
    if content == "both":
        out.rmdir()
        call("export", "parquet", mesh, out)
        content = "letter.txt"
    (out / content).write_text("[]", encoding="utf-8")
    before = files(tmp_path)
    assert "no export is here" in failed("export", "parquet", mesh, out, "--force")
    assert files(tmp_path) == before


def test_an_empty_folder_is_free(mesh, tmp_path):
    (tmp_path / "out").mkdir()
    call("export", "parquet", mesh, tmp_path / "out")
    assert read_parquet(tmp_path / "out").facts.height == 4


def test_a_place_that_cannot_be_used_is_an_error(mesh, tmp_path):
    (tmp_path / "folder.json").mkdir()
    (tmp_path / "link.json").symlink_to(tmp_path / "absent.json")
    (tmp_path / "file").write_text("mine", encoding="utf-8")
    before = files(tmp_path)
    force = ["--force"]
    for kind in ("prov", "graph"):
        assert "this is a folder" in failed("export", kind, mesh, tmp_path / "folder.json", *force)
        assert "no-such" in failed("export", kind, mesh, tmp_path / "no-such" / "a.json")
        link = tmp_path / "link.json"
        (tmp_path / "absent.json").write_text("mine", encoding="utf-8")
        assert "can be replaced" in failed("export", kind, mesh, link, *force)
        (tmp_path / "absent.json").unlink()
    assert "no export" in failed("export", "parquet", mesh, tmp_path / "file", *force)
    assert files(tmp_path) == before
    assert ".graphml" in failed("export", "graph", mesh, tmp_path / "a.png", code=2)


@pytest.mark.parametrize("kind", ["prov", "parquet", "graph"])
def test_an_export_never_goes_into_the_mesh(fresh, kind):
    before = files(fresh)
    for name in ("pooled.json", "shards/a.json", "."):
        if kind == "graph" and name == ".":
            continue
        assert "into the mesh's folder" in failed("export", kind, fresh, fresh / name, "--force")
    assert files(fresh) == before


def test_without_the_extra_a_document_names_it(mesh, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "prov.constants", None)
    assert "mnemes-lab[prov]" in failed("export", "prov", mesh, tmp_path / "a.json")
    assert list(tmp_path.iterdir()) == []


def test_a_write_that_fails_leaves_what_was_there(mesh, tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    call("export", "prov", mesh, path)
    before = files(tmp_path)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("mnemes_lab.cli.export.os", SimpleNamespace(path=os.path, replace=full))
    assert "No space left" in failed("export", "prov", mesh, path, "--force")
    assert path.read_bytes() == before["a.json"]


# --- all of them -------------------------------------------------------------------------------
@pytest.mark.parametrize("command", ["lineage", "operations", "edges", "redact", *READING[3:]])
def test_a_folder_that_is_no_mesh_is_refused_and_left_alone(tmp_path, command):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("mine", encoding="utf-8")
    rest = {"lineage": ["f"], "redact": ["f"], "operations": [], "edges": []}
    before = sorted(tmp_path.rglob("*"))
    for place in ("missing", "full"):
        args = rest.get(command, [tmp_path / "out.json"])
        assert "There is no mesh here" in failed(*command.split(), tmp_path / place, *args)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("command", READING)
def test_looking_changes_nothing(mesh, tmp_path, command):
    before = files(mesh)
    rest = {"lineage": ["new"], "operations": [], "edges": []}
    call(*command.split(), mesh, *rest.get(command, [tmp_path / "out.json"]))
    assert files(mesh) == before


@pytest.mark.parametrize(
    ("args", "code", "told"),
    [
        (["lineage", "nope"], 1, "not there"),
        (["lineage", ""], 1, "needs a kind and an id"),
        (["lineage", ":x"], 1, "needs a kind and an id"),
        (["lineage", "a\ud83d"], 1, "half a character"),
        (["lineage", "x" * 500], 1, "longer than 400"),
        (["lineage", "a\x1b[31m"], 1, "control character"),
        (["lineage", "new", "--depth", "-1"], 2, "a number of steps or all"),
        (["lineage", "new", "--depth", "9" * 5000], 2, "a number of steps or all"),
        (["lineage", "new", "--depth", "\u0663"], 2, "a number of steps or all"),
        (["lineage", "new", "--direction", "up"], 2, "'outgoing'"),
        (["lineage", "new", "--as-of-valid", "yesterday"], 1, "RFC 3339"),
        (["lineage", "new", "-f", "parquet"], 2, "parquet is binary"),
        (["operations", "--kind", "[bold]x[/]"], 2, "'[bold]x[/]' is not one of ['observe'"),
        (["operations", "--kind", "\x1b[31m"], 2, "is not one of"),
        (["operations", "--as-of-recorded", "2031-01-01T00:00:00"], 1, "offset"),
        (["operations", "--device", "ship"], 1, "No such device"),
        (["operations", "--device", "\ud83d"], 1, "half a character"),
        (["operations", "--key", "\ud83d"], 1, "half a character"),
        (["edges", "--type", "supersedes", "--type", "likes"], 2, "'likes' is not one of"),
        (["edges", "--source", "fact:"], 1, "needs a kind and an id"),
        (["edges", "--operation", "\ud83d"], 1, "half a character"),
        (["edges", "--as-of-valid", "2031-13-01T00:00:00Z"], 1, "2031-13-01"),
        (["redact", "nope"], 1, "No such fact"),
        (["redact", "fact:new"], 1, "No such fact"),
        (["redact", "new", "--key", " "], 1, "blank"),
        (["redact", "new", "--key", "a\x07"], 1, "control character"),
        (["redact", "new", "--reason", "\ud83d"], 1, "half a character"),
        (["redact", "\x1b[31m"], 1, "No such fact"),
    ],
)
def test_what_cannot_be_meant_is_an_error_in_words(mesh, args, code, told):
    before = files(mesh)
    command, *rest = args
    err = failed(command, mesh, *rest, code=code)
    assert told in err
    assert not ACTING.search(err)
    assert files(mesh) == before


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile") / "mesh"
    with ml.Mesh.open(folder, seed=7, encoder="hash:16") as mesh:
        agent = mesh.agent("[red]x\u202e")
        agent.remember(
            "\x1b]0;owned\x07\x9b2J\r\n[bold]=1+1", fact_id="a", idempotency_key="=k\u202e"
        )
        mesh.add_edge("supports", "=cmd\u202e:[link=x]y", "fact:a")
    return folder


@pytest.mark.parametrize("args", [["lineage", "a"], ["operations"], ["edges"]])
def test_stored_text_acts_on_no_terminal(hostile, args):
    command, *rest = args
    for way in ([], ["--format", "json"]):
        out, err = call(command, hostile, *rest, *way)
        assert not ACTING.search(out + err)
    out = call(command, hostile, *rest)[0]
    assert "=cmd\\u202e:[link=x]y" in out
    out = call(command, hostile, *rest, "-f", "csv")[0]
    for row in csv.reader(io.StringIO(out, newline="")):
        assert not [cell for cell in row if cell.startswith(("=", "+", "@"))]


def test_exports_tell_their_name_and_no_more(hostile, tmp_path):
    path = tmp_path / "\x1b[31m\u202e.graphml"
    out, err = call("export", "graph", hostile, path)
    assert "\\x1b[31m\\u202e.graphml" in out and not ACTING.search(out + err)
    assert not ACTING.search(failed("export", "graph", hostile, path))
    assert len(graph_of(path).edges) == 3
