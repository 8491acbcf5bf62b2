"""The command line: every command, every format, every exit code, and texts that try to act."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import polars as pl
import pytest
from typer.main import get_command
from typer.testing import CliRunner

import mnemes_lab as ml
from mnemes_lab import schemas
from mnemes_lab.cli import app, main, upkeep
from mnemes_lab.cli.base import Commands

LATER = "2031-07-01T00:00:00Z"
UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
HOSTILE = [
    "[bold]x[/]",
    "\x1b[31mred\x07",
    "=cmd()",
    "a\nb",
    "right\u202eleft",
    ":smile: [link=a]b",
]
CODES = [
    "KX-77",
    "09:15",
    "O'Malley's",
    "state=AND",
    "AND",
    "NEAR(",
    "C++",
    "v2.10",
    "beta)",
    '"KX',
    "-KX",
    "col:val",
    "C:\\data",
    "50%",
    "{x}",
    "rowid:1",
]
SILENT = ['"', "*", "^", "!!!"]  # no words, so nothing is found by words


def run(*args: object, code: int = 0) -> str:
    """Standard output of a command that must leave with `code`."""
    result = CliRunner().invoke(app, [str(arg) for arg in args])
    told = f"{result.stdout}\n{result.stderr}"
    assert result.exit_code == code, told
    assert "Traceback" not in told
    return result.stdout


def told(*args: object, code: int = 1) -> str:
    """Standard error of a command that must leave with `code`, in one piece."""
    result = CliRunner().invoke(app, [str(arg) for arg in args])
    assert result.exit_code == code, f"{result.stdout}\n{result.stderr}"
    return re.sub(r"[\s│╭╮╰╯─]+", " ", result.stderr)


def make(folder: Path, texts: list[str], **columns: object) -> Path:
    """A mesh that holds some texts, spread over two devices."""
    with ml.Mesh.open(folder, seed=7, encoder="hash") as mesh:
        devices = [("van", "kitchen")[i % 2] for i in range(len(texts))]
        answers = mesh.load(pl.DataFrame({"device": devices, "text": texts, **columns}))
        assert answers["outcome"].unique().to_list() == ["stored"]
    return folder


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    texts = ["The oven door sticks", "Flour is behind the blue jars", "The tyre of the van is worn"]
    return make(tmp_path_factory.mktemp("cli") / "mesh", texts, subject=["oven", None, "van"])


@pytest.fixture
def fresh(tmp_path: Path) -> Path:
    run("init", tmp_path / "mesh", "--seed", 7, "--encoder", "hash")
    return tmp_path / "mesh"


# --- the command itself ------------------------------------------------------------------------
COMMANDS = sorted(get_command(app).commands)


def test_the_commands_are_the_promised_ones():
    promised = (
        "demo init devices actors facts load search receipt check reencode bench lab "
        "lineage operations edges redact export"
    )
    assert sorted(promised.split()) == COMMANDS


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself_with_examples(command):
    text = run(command, "--help")
    assert f"mnemes-lab {command}" in text


@pytest.mark.parametrize("command", ["ingest", "search"])
def test_every_benchmark_explains_itself(command):
    assert f"mnemes-lab bench {command}" in run("bench", command, "--help")


def test_the_help_lists_commands_in_reading_order():
    shown = re.findall(r"(?m)^\W*([a-z]+)  +\S", run("--help"))
    assert [name for name in shown if name in COMMANDS][:3] == ["demo", "init", "load"]


def test_the_version_is_the_packages():
    assert run("--version") == f"mnemes-lab {ml.__version__}\n"


def test_an_unknown_command_is_wrong_usage():
    assert "No such command" in told("serch", code=2)


def test_an_error_is_one_line_and_no_traceback(tmp_path):
    result = CliRunner().invoke(app, ["facts", str(tmp_path / "nothing")])
    assert (result.exit_code, result.stdout) == (1, "")
    assert re.fullmatch(r"error: There is no mesh here\. .*Hint: .*\n", result.stderr)


def test_debug_shows_where_an_error_comes_from(tmp_path):
    result = CliRunner().invoke(app, ["--debug", "facts", str(tmp_path)])
    assert isinstance(result.exception, ml.errors.NotAMeshError)


def test_an_unforeseen_error_is_one_line_too(monkeypatch, capsys):
    def broken(*_: object) -> None:
        raise KeyError("a\nb")

    monkeypatch.setattr(Commands, "invoke", broken)
    monkeypatch.setattr("sys.argv", ["mnemes-lab", "check", "x"])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 1
    assert capsys.readouterr().err == "error: KeyError: 'a\\nb' Hint: --debug shows where\n"
    monkeypatch.setattr("sys.argv", ["mnemes-lab", "--debug", "check", "x"])
    with pytest.raises(KeyError):
        main()


@pytest.mark.parametrize(
    "command", ["facts", "devices", "actors", "check", "load", "search", "receipt", "reencode"]
)
@pytest.mark.parametrize("place", ["missing", "empty", "full", "file"])
def test_a_folder_that_is_not_a_mesh_is_refused_and_left_alone(tmp_path, command, place):
    folder = tmp_path / "x"
    if place == "file":
        folder.write_text("hello", encoding="utf-8")
    elif place != "missing":
        folder.mkdir()
    if place == "full":
        (folder / "letter.txt").write_text("hello", encoding="utf-8")
    rest = {"load": ["f.csv"], "search": ["q"], "receipt": ["r"], "reencode": ["--encoder", "hash"]}
    before = sorted(tmp_path.rglob("*"))
    assert "There is no mesh here." in told(command, folder, *rest.get(command, []))
    assert sorted(tmp_path.rglob("*")) == before


def test_a_pooled_db_that_is_something_else_is_refused(tmp_path):
    (tmp_path / "pooled.db").write_text("hello" * 100, encoding="utf-8")
    assert told("devices", tmp_path).startswith("error: ")
    assert "pooled.db" in told("check", tmp_path, code=1)


# --- init --------------------------------------------------------------------------------------
def test_init_makes_a_mesh_once_and_says_so(tmp_path):
    folder = tmp_path / "new" / "mesh"
    assert "made: encoder hash, seed 3" in run("init", folder, "--seed", 3, "--encoder", "hash")
    assert "was there already" in run("init", folder)
    assert "made with seed 3" in told("init", folder, "--seed", 4)


def test_bootstrap_shows_a_credential_that_opens_its_device(tmp_path):
    out = run("init", tmp_path / "m", "--encoder", "hash", "--bootstrap", "laptop")
    token = re.search(r"credential: (\S+)", out)[1]
    with ml.Mesh.open(tmp_path / "m") as mesh:
        assert mesh.authenticate(token).label == "laptop"
    for command in ("devices", "actors", "check"):
        for format in ("table", "json", "csv"):
            assert token.partition(":")[2] not in run(command, tmp_path / "m", "-f", format)
    assert "empty device registry" in told("init", tmp_path / "m", "--bootstrap", "other")


def test_init_tells_what_a_missing_encoder_means(tmp_path, monkeypatch):
    monkeypatch.setattr("mnemes_lab.text.encode.installed", lambda _: False)
    assert "mnemes-lab[embed]" in told("init", tmp_path / "m", code=0)
    assert told("init", tmp_path / "m", code=0) == ""  # the encoder is settled now


# --- devices and actors ------------------------------------------------------------------------
def test_a_device_lives_from_added_to_revoked(fresh):
    device_id = re.search(UUID, run("devices", fresh, "add", "van", "--platform", "linux"))[0]
    steps = [("heartbeat", "active"), ("quarantine", "quarantined"), ("reactivate", "active")]
    for action, status in [*steps, ("revoke", "revoked")]:
        assert run("devices", fresh, action, "van") == f"device van: {status}\n"
    [row] = json.loads(run("devices", fresh, "--format", "json"))
    assert (row["device_id"], row["platform"], row["status"]) == (device_id, "linux", "revoked")
    assert "cannot become active" in told("devices", fresh, "reactivate", "van")
    assert "No such device" in told("devices", fresh, "heartbeat", "ship")


def test_a_device_gets_and_rotates_its_credential(fresh):
    first = re.search(r"credential: (\S+)", run("devices", fresh, "add", "van", "--credential"))[1]
    second = re.search(r"credential: (\S+)", run("devices", fresh, "rotate", "van"))[1]
    with ml.Mesh.open(fresh) as mesh:
        assert mesh.authenticate(second).label == "van"
        with pytest.raises(ml.errors.InvalidCredentialError):
            mesh.authenticate(first)


def test_a_label_is_added_once(fresh):
    run("devices", fresh, "add", "van")
    assert "There is a device with this label." in told("devices", fresh, "add", "van")
    assert len(json.loads(run("devices", fresh, "-f", "json"))) == 1


def test_an_action_without_a_device_is_wrong_usage(fresh):
    assert "revoke needs LABEL" in told("devices", fresh, "revoke", code=2)
    assert "add needs NAME" in told("actors", fresh, "add", code=2)
    assert "add needs --device" in told("actors", fresh, "add", "planner", code=2)
    assert "explode" in told("devices", fresh, "explode", "van", code=2)


def test_actors_are_added_and_listed(fresh):
    run("devices", fresh, "add", "van")
    actor_id = re.search(UUID, run("actors", fresh, "add", "planner", "--device", "van"))[0]
    run("actors", fresh, "add", "Renée", "--device", "van", "--kind", "human")
    rows = json.loads(run("actors", fresh, "-f", "json"))
    assert {row["name"]: row["kind"] for row in rows} == {"planner": "agent", "Renée": "human"}
    assert actor_id in [row["actor_id"] for row in rows]
    assert "planner" in run("actors", fresh)
    refused = told("actors", fresh, "add", "boss", "--device", "van", "--profile", "operator")
    assert "Only an operator" in refused


# --- facts and formats -------------------------------------------------------------------------
@pytest.mark.parametrize("command", ["facts", "devices", "actors", "check"])
def test_every_frame_is_written_in_every_format(mesh, tmp_path, command):
    schema = {"check": "report"}.get(command, command)
    columns = list(schemas.PUBLIC[schema].columns())
    read = {
        "csv": lambda path: pl.read_csv(path, infer_schema=False),
        "json": lambda path: pl.DataFrame(json.loads(path.read_text("utf-8"))),
        "parquet": pl.read_parquet,
    }
    heights = set()
    for format, reader in read.items():
        path = tmp_path / f"{command}.{format}"
        run(command, mesh, "--output", path)  # the ending says the format
        frame = reader(path)
        heights.add(frame.height)
        assert frame.columns == columns or frame.height == 0
    assert len(heights) == 1
    path = tmp_path / "table.txt"
    run(command, mesh, "--output", path)
    assert path.read_text("utf-8") in run(command, mesh)


def test_json_and_csv_spell_instants_as_rfc_3339(mesh):
    [first, *_] = json.loads(run("facts", mesh, "--format", "json"))
    assert re.fullmatch(r"2031-01-01T00:00:\d\d\+00:00", first["recorded_at"])
    assert first["valid_from"] is None
    assert first["recorded_at"] in run("facts", mesh, "--format", "csv")


def test_parquet_never_goes_to_a_terminal(mesh):
    assert "parquet is binary" in told("facts", mesh, "--format", "parquet", code=2)


def test_an_output_that_cannot_be_written_is_an_error(mesh, tmp_path):
    for format in ("csv", "parquet"):
        path = tmp_path / "no" / f"such.{format}"
        assert str(path) in told("facts", mesh, "--output", path)


def test_facts_are_chosen_by_device_and_cut_by_limit(mesh):
    rows = json.loads(run("facts", mesh, "--device", "kitchen", "-f", "json"))
    assert [row["text"] for row in rows] == ["Flour is behind the blue jars"]
    assert "1 of 3 facts" in told("facts", mesh, "--limit", 1, code=0)
    assert "No such device" in told("facts", mesh, "--device", "ship")
    assert "--limit" in told("facts", mesh, "--limit", 0, code=2)


def test_facts_at_an_earlier_moment(mesh):
    assert (
        json.loads(run("facts", mesh, "--as-of-recorded", "2030-01-01T00:00:00Z", "-f", "json"))
        == []
    )
    assert len(json.loads(run("facts", mesh, "--as-of-valid", LATER, "-f", "json"))) == 3
    assert "RFC 3339" in told("facts", mesh, "--as-of-valid", "yesterday")


# --- texts that try to act ---------------------------------------------------------------------
@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("hostile") / "mesh", HOSTILE)


@pytest.mark.parametrize("args", [["facts"], ["search", "--exhaustive", "-k", 99]])
def test_a_table_shows_text_and_obeys_none(hostile, args):
    out = run(args[0], hostile, *args[1:], *(["x red cmd a b left smile"] if len(args) > 1 else []))
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", out)
    for shown in ("[bold]x[/]", "\\x1b[31mred\\x07", "=cmd()", "a\\nb", "\\u202e", ":smile: [link"):
        assert shown in out


def test_json_holds_the_texts_whole(hostile):
    out = run("facts", hostile, "--format", "json")
    assert sorted(row["text"] for row in json.loads(out)) == sorted(HOSTILE)
    assert "\x1b" not in out and "\u202e" not in out


def test_csv_runs_in_no_spreadsheet(hostile, tmp_path):
    run("facts", hostile, "--output", tmp_path / "out.csv")
    texts = pl.read_csv(tmp_path / "out.csv", infer_schema=False)["text"].to_list()
    assert sorted(texts) == sorted(t.replace("=cmd", "'=cmd") for t in HOSTILE)


def test_a_label_does_not_act_either(fresh):
    run("devices", fresh, "add", "[red]van[/red]")
    assert "[red]van[/red]" in run("devices", fresh)
    assert "\x1b" not in told("devices", fresh, "add", "\x1b[31mvan")


@pytest.mark.parametrize("text", HOSTILE)
def test_an_error_does_not_act_either(hostile, text):
    line = CliRunner().invoke(app, ["facts", str(hostile), "--device", text]).stderr
    assert "No such device" in line
    assert not re.search("[\x00-\x09\x0b-\x1f\u202e]", line)


# --- search ------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def codes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    texts = [f"The label here reads {code} today" for code in CODES]
    return make(tmp_path_factory.mktemp("codes") / "mesh", [*texts, "Nothing of the kind"])


def found(*args: object) -> list[str]:
    return [hit["text"] for hit in json.loads(run("search", *args, "-f", "json", "--"))["hits"]]


@pytest.mark.parametrize("query", CODES)
def test_a_code_finds_the_row_that_holds_it(codes, query):
    out = run("search", codes, "--exhaustive", "-k", 20, "-f", "json", "--", query)
    hits = json.loads(out)["hits"]
    assert any(query in hit["text"] for hit in hits if hit["lexical_rank"] is not None)


@pytest.mark.parametrize("query", ["KX-77", "09:15", "v2.10", "C++", "50%", "state=AND", "col:val"])
def test_a_code_that_is_a_word_of_its_own_comes_first(codes, query):
    assert query in found(codes, "--exhaustive", query)[0]


@pytest.mark.parametrize("query", SILENT)
def test_marks_alone_match_no_words(codes, query):
    out = json.loads(run("search", codes, "--exhaustive", "-f", "json", "--", query))
    assert out["complete"]
    assert [hit for hit in out["hits"] if hit["lexical_rank"] is not None] == []


@pytest.mark.parametrize("query", ["", "  ", "\u200b\u200b", "\u00a0", "\ufeff", "\n"])
def test_a_blank_question_finds_nothing(mesh, query):
    assert found(mesh, query) == []
    assert run("search", mesh, query).startswith("(no rows)\nreceipt ")


def test_a_question_with_a_dash_is_told_the_way_out(mesh):
    assert "goes after --" in told("search", mesh, "-KX", code=2)
    assert "goes after --" in told("search", mesh, "--exhaustve", "oven", code=2)


def test_half_a_character_is_refused(mesh):
    assert "half a character" in told("search", mesh, "a\ud83d")


def test_a_search_shows_hits_and_the_receipt(mesh):
    out = run("search", mesh, "oven door", "--budget", 1, "--asker", "van")
    assert "The oven door sticks" in out
    assert re.search(rf"receipt {UUID}: 1 of 2 shards searched, complete\n", out)
    assert "Trace" not in out


def test_a_trace_tells_who_was_asked(mesh):
    out = run("search", mesh, "oven door", "--budget", 1, "--trace")
    assert re.search(r"1\s+van\s+\d+\s+yes\s+budget", out)
    assert re.search(r"2\s+kitchen\s+\d+\s+no\s+over_budget", out)


def test_json_holds_everything_about_a_search(mesh):
    out = json.loads(run("search", mesh, "oven", "-f", "json", "-k", 1))
    assert sorted(out) == ["complete", "hits", "receipts", "trace"]
    assert (len(out["hits"]), len(out["trace"]), len(out["receipts"])) == (1, 2, 1)
    assert out["complete"] is True
    assert out["trace"][0]["receipt_id"] == out["receipts"][0]["receipt_id"]


@pytest.mark.parametrize("format", ["csv", "parquet"])
def test_csv_and_parquet_hold_the_hits_or_the_trace(mesh, tmp_path, format):
    read = {"csv": pl.read_csv, "parquet": pl.read_parquet}[format]
    path = tmp_path / f"out.{format}"
    assert run("search", mesh, "oven", "--output", path) == ""
    assert read(path).columns == list(schemas.Hits.columns())
    run("search", mesh, "oven", "--trace", "--output", path)
    assert read(path).columns == list(schemas.Trace.columns())


def test_csv_on_standard_output_is_nothing_but_csv(mesh):
    result = CliRunner().invoke(app, ["search", str(mesh), "oven", "-f", "csv", "-k", "1"])
    assert len(result.stdout.splitlines()) == 2
    assert result.stderr.startswith("receipt ")


def test_the_options_of_a_search_reach_it(mesh):
    def receipt(*args: object) -> dict[str, object]:
        out = run("search", mesh, "oven", "-f", "json", *args)
        return json.loads(out)["receipts"][0]

    assert receipt("--exhaustive")["exhaustive"] is True
    expanded = receipt("--expand", "--budget", 1, "--max-shards", 2)
    assert (expanded["expand"], expanded["budget"], expanded["max_shards"]) == (True, 1, 2)
    assert receipt("--namespace", "b", "--namespace", "a")["namespaces"] == ["a", "b"]
    assert receipt("--router", "overlap:ascii")["router"] == "overlap:ascii"
    assert receipt("-k", 3)["k"] == 3
    assert receipt("--as-of-valid", LATER)["as_of_valid"] == "1940630400000000"
    assert receipt("--as-of-recorded", LATER)["as_of_recorded"] == "1940630400000000"
    assert receipt("--any-time")["as_of_valid"] is None


def test_a_request_that_cannot_be_met_is_an_error(mesh):
    assert "budget" in told("search", mesh, "q", "--budget", 0)
    assert "router" in told("search", mesh, "q", "--router", "psychic")
    assert "No such device" in told("search", mesh, "q", "--asker", "ship")
    assert "either" in told("search", mesh, code=2)
    assert "either" in told("search", mesh, "q", "--any-time", "--as-of-valid", LATER, code=2)
    assert "json" in told("search", mesh, "q", "--trace", "-o", "x.txt", code=2)


def test_a_fact_of_another_time_is_found_when_asked_for(fresh, tmp_path):
    (tmp_path / "f.csv").write_text(
        "device,text,valid_to\nvan,The old key is red,2020-01-01T00:00:00Z\n", encoding="utf-8"
    )
    run("load", fresh, tmp_path / "f.csv")
    assert found(fresh, "key") == []
    assert found(fresh, "key", "--any-time") == ["The old key is red"]
    assert found(fresh, "key", "--as-of-valid", "2019-01-01T00:00:00Z") == ["The old key is red"]


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_a_file_of_questions_is_one_batch(mesh, tmp_path, kind):
    path = tmp_path / f"q.{kind}"
    frame = pl.DataFrame({"text": ["oven", "", "tyre"], "device_id": ["van", None, "kitchen"]})
    write = {"csv": frame.write_csv, "jsonl": frame.write_ndjson, "parquet": frame.write_parquet}
    write[kind](path)
    out = json.loads(run("search", mesh, "--queries", path, "--exhaustive", "-f", "json", "-k", 1))
    assert [hit["query_id"] for hit in out["hits"]] == ["q0", "q2"]
    assert len(out["receipts"]) == 3
    assert "q2" in run("search", mesh, "--queries", path)


def test_many_receipts_are_counted(mesh, tmp_path):
    path = tmp_path / "q.csv"
    pl.DataFrame({"text": ["oven"] * 6}).write_csv(path)
    assert "6 receipts, all complete" in run("search", mesh, "--queries", path)


def test_questions_that_cannot_be_read_are_named(mesh, tmp_path):
    path = tmp_path / "q.jsonl"
    path.write_bytes(b'{"text": "oven"}\n{"text": \n')
    assert "1 of 2 questions cannot be read; row 1 (line 2)" in told(
        "search", mesh, "--queries", path
    )
    path.write_bytes(b'{"question": "oven"}\n')
    assert "Missing column(s) ['text']" in told("search", mesh, "--queries", path)
    path.write_bytes(b"")
    assert json.loads(run("search", mesh, "--queries", path, "-f", "json"))["hits"] == []


# --- receipt -----------------------------------------------------------------------------------
def test_a_receipt_is_printed_and_verified(mesh):
    searched = json.loads(run("search", mesh, "oven", "-f", "json"))["receipts"][0]
    receipt_id = searched["receipt_id"]
    result = CliRunner().invoke(app, ["receipt", str(mesh), receipt_id])
    assert (result.exit_code, result.stderr) == (0, "verified\n")
    assert json.loads(result.stdout) == searched
    assert "oven" not in result.stdout
    assert "made for this question" in told(
        "receipt", mesh, receipt_id, "--verify-query", "oven", code=0
    )
    assert "another question" in told("receipt", mesh, receipt_id, "--verify-query", "door", code=4)


def test_an_unknown_receipt_is_an_error(mesh):
    assert "No such receipt" in told("receipt", mesh, "11111111-1111-4111-8111-111111111111")


def change_receipts(folder: Path, sql: str) -> None:
    import sqlite3

    conn = sqlite3.connect(folder / "pooled.db")
    conn.execute(sql)
    conn.commit()
    conn.close()


def test_a_changed_receipt_does_not_verify(tmp_path):
    folder = make(tmp_path / "m", ["The oven door sticks"])
    receipt = json.loads(run("search", folder, "oven", "-f", "json"))["receipts"][0]
    change_receipts(folder, "UPDATE receipts SET body = replace(body, '\"k\":10', '\"k\":11')")
    assert told("receipt", folder, receipt["receipt_id"], code=4).startswith("error: ")
    assert "do not verify" in run("check", folder, code=5)


# --- check, reencode ---------------------------------------------------------------------------
def test_check_finds_nothing_wrong_with_a_fresh_mesh(fresh):
    assert re.search(r"\d+ checks, 0 broken", run("check", fresh))


def test_check_finds_a_changed_text(tmp_path):
    folder = make(tmp_path / "m", ["The oven door sticks", "Flour is here"])
    [shard, *_] = sorted(folder.glob("shards/*/memory.db"))
    import sqlite3

    conn = sqlite3.connect(shard)
    conn.execute("UPDATE facts SET text = text || '!'")
    conn.commit()
    conn.close()
    assert "1 broken" in run("check", folder, code=5)
    report = json.loads(run("check", folder, "-f", "json", code=5))
    assert [row["check"] for row in report if row["outcome"] == "broken"] == ["content"]


def test_reencode_changes_the_encoder_and_nothing_else(tmp_path):
    folder = make(tmp_path / "m", ["The oven door sticks", "Flour is here"])
    before = run("facts", folder, "-f", "json")
    assert "2 facts are encoded by hash (hash-v1:64)" in run(
        "reencode", folder, "--encoder", "hash:64"
    )
    with ml.Mesh.open(folder) as mesh:
        assert mesh.encoder.dim == 64
    assert run("facts", folder, "-f", "json") == before
    assert "No such encoder" in told("reencode", folder, "--encoder", "hash:x")
    assert "--encoder" in told("reencode", folder, code=2)


# --- bench, lab --------------------------------------------------------------------------------
def test_bench_ingest_tells_its_measures(monkeypatch):
    from mnemes_lab.bench import ingest

    class Report:
        def to_json(self) -> str:
            return '{"bench": "ingest"}'

        def frame(self) -> pl.DataFrame:
            return pl.DataFrame({"measure": ["speed"], "value": [12345.0]})

    asked = {}
    monkeypatch.setattr(ingest, "run", lambda **sizes: asked.update(sizes) or Report())
    assert json.loads(run("bench", "ingest", "--json", "--devices", 3, "--facts", 60))
    assert asked == {"devices": 3, "facts": 60}
    assert "speed" in run("bench", "ingest")


def test_bench_search_spreads_its_facts(monkeypatch):
    from mnemes_lab.bench import search

    class Report:
        def to_json(self) -> str:
            return "{}"

    asked = {}
    monkeypatch.setattr(search, "run", lambda **sizes: asked.update(sizes) or Report())
    run("bench", "search", "--json", "--devices", 4, "--facts", 100)
    assert asked == {"devices": 4, "facts_per_device": 25}


def test_lab_starts_jupyterlab_on_a_folder(tmp_path, monkeypatch):
    called = []

    def start(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        called.append(command[1:])
        return subprocess.CompletedProcess(command, 7)

    monkeypatch.setattr(upkeep.importlib.util, "find_spec", lambda name: name)
    monkeypatch.setattr(upkeep.subprocess, "run", start)
    run("lab", "--folder", tmp_path, "--", "--no-browser", code=7)
    run("lab", code=7)
    assert called[0] == ["-m", "jupyterlab", "--no-browser", str(tmp_path)]
    assert called[1][-1].endswith("notebooks")
    assert "no such folder" in told("lab", "--folder", tmp_path / "no")


def test_lab_without_the_extra_names_it(monkeypatch):
    monkeypatch.setattr(upkeep.importlib.util, "find_spec", lambda _: None)
    assert "mnemes-lab[lab]" in told("lab")
