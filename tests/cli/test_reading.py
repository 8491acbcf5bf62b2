"""Files in: a row that cannot be read is refused with its reason and stops no other."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import mnemes_lab as ml
from mnemes_lab.cli import app
from mnemes_lab.cli.reading import LOADED, Kind, kind_of, pairs, read_file
from mnemes_lab.errors import InputError, SchemaError

BLANKS = ["", "   ", "\u200b\u200b", "\u00a0", "\ufeff", "\n", None]
LONG = "filler " * 40_000 + "The spare key code is kestrel-9"


@pytest.fixture
def mesh(tmp_path: Path) -> Path:
    ml.Mesh.open(tmp_path / "mesh", seed=7, encoder="hash").close()
    return tmp_path / "mesh"


def load(folder: Path, file: Path, *args: str, code: int = 0) -> tuple[str, str]:
    result = CliRunner().invoke(app, ["load", str(folder), str(file), *args])
    assert result.exit_code == code, f"{result.stdout}\n{result.stderr}"
    return result.stdout, result.stderr


def texts(folder: Path) -> list[str]:
    with ml.Mesh.open(folder, read_only=True) as mesh:
        return sorted(mesh.facts()["text"].to_list())


def lines(path: Path, *rows: object) -> Path:
    """A file of JSON lines; bytes are written as they are."""
    path.write_bytes(
        b"".join(r if isinstance(r, bytes) else json.dumps(r).encode() + b"\n" for r in rows)
    )
    return path


# --- JSON lines --------------------------------------------------------------------------------
def test_good_lines_between_bad_ones_are_stored(mesh, tmp_path):
    file = lines(
        tmp_path / "f.jsonl",
        b'\xef\xbb\xbf{"device": "van", "text": "first, after a byte-order mark"}\n',
        b'{"device": "van", "text": "half\n',
        b"\n",
        {"device": "van", "text": "cut\0short"},
        {"device": "van", "text": "broken \ud83d emoji"},
        b'{"device": "van", "text": "\xff"}\n',
        b'{"device": "van", "text": "a", "text": "b"}\n',
        b'{"device": "van", "text": NaN}\n',
        b"[1]\n",
        b"[" * 100_000 + b"\n",
        {"device": "van", "text": 7},
        {"device": "van", "text": {"deep": []}},
        {"device": None, "text": "whose?"},
        {"device": "van", "text": "rated", "score": 1},
        b'{"device": "van", "text": "last, without an end of line \\ud83d\\ude00"}',
    )
    out, err = load(mesh, file, "--answers", str(tmp_path / "a.json"), code=3)
    assert out == "stored 2, duplicate 0, refused 12\n"
    assert texts(mesh) == ["first, after a byte-order mark", "last, without an end of line 😀"]
    answers = json.loads((tmp_path / "a.json").read_text("utf-8"))
    assert [a["row"] for a in answers] == list(range(14))
    reasons = [a["reason"] or "" for a in answers]
    for reason, part in zip(
        reasons,
        ["", "not JSON", "NUL", "half a character", "not UTF-8", "twice", "NaN", "not a JSON",
         "nested", "wanted text", "wanted text", "device is blank", "unknown column(s)", ""],
        strict=True,
    ):  # fmt: skip
        assert part in reason
    assert "refused: row 1 (line 2): is not JSON" in err
    assert "refused: row 2 (line 4): text holds a NUL" in err


@pytest.mark.parametrize("blank", BLANKS)
def test_blank_text_is_refused_at_this_door_too(mesh, tmp_path, blank):
    file = lines(
        tmp_path / "f.jsonl", {"device": "van", "text": blank}, {"device": "van", "text": "x"}
    )
    out, err = load(mesh, file, code=3)
    assert out == "stored 1, duplicate 0, refused 1\n"
    assert "text is blank" in err


def test_a_long_fact_keeps_its_tail(mesh, tmp_path):
    short = [{"device": "van", "text": f"short {i}"} for i in range(4)]
    load(mesh, lines(tmp_path / "f.jsonl", *short, {"device": "van", "text": LONG}))
    result = CliRunner().invoke(app, ["search", str(mesh), "kestrel-9", "-f", "json"])
    assert json.loads(result.stdout)["hits"][0]["text"] == LONG
    table = CliRunner().invoke(app, ["search", str(mesh), "kestrel-9"]).stdout
    assert len(table) < 5000


def test_a_second_load_stores_nothing_twice(mesh, tmp_path):
    file = lines(
        tmp_path / "f.ndjson", {"device": "van", "text": "a"}, {"device": "van", "text": "b"}
    )
    assert load(mesh, file)[0] == "stored 2, duplicate 0, refused 0\n"
    assert load(mesh, file)[0] == "stored 0, duplicate 2, refused 0\n"


def test_reasons_are_told_for_twenty_rows(mesh, tmp_path):
    rows = [{"device": "van", "text": ""}] * 25
    _, err = load(mesh, lines(tmp_path / "f.jsonl", *rows), code=3)
    assert err.count("refused: ") == 20
    assert "and 5 more" in err


def test_a_file_of_another_shape_stores_nothing(mesh, tmp_path):
    file = lines(tmp_path / "f.jsonl", *[{"device": "van", "body": "a", "id": "f1", "x": 1}] * 2)
    _, err = load(mesh, file, code=1)
    assert "nothing was stored" in err
    assert "Missing column(s) ['text']" in err
    assert texts(mesh) == []
    args = ["--rename", "body=text", "--rename", "id=fact_id"]
    _, err = load(mesh, file, *args, code=1)
    assert "Unknown column(s) ['x']" in err
    assert load(mesh, file, *args, "--ignore-extra")[0] == "stored 1, duplicate 1, refused 0\n"


def test_an_empty_file_stores_nothing(mesh, tmp_path):
    assert load(mesh, lines(tmp_path / "f.jsonl"))[0] == "stored 0, duplicate 0, refused 0\n"
    (tmp_path / "f.csv").write_text("device,text\n", encoding="utf-8")
    assert load(mesh, tmp_path / "f.csv")[0] == "stored 0, duplicate 0, refused 0\n"


@given(st.binary(max_size=300))
def test_any_bytes_are_read_row_by_row(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "any.jsonl"
    path.write_bytes(data)
    rows = read_file(path)
    assert sorted([*rows.at, *rows.bad]) == list(range(len(rows.lines)))


# --- csv ---------------------------------------------------------------------------------------
def test_csv_is_text_as_it_stands(mesh, tmp_path):
    (tmp_path / "f.csv").write_bytes(
        b"\xef\xbb\xbfdevice,text,subject,valid_from\r\n"
        b'van,"007, ""quoted""\nover two lines",,2031-01-05T08:00:00+01:00\r\n'
        b"van,1e3,2031,\r\n"
        b"\r\n"
        b"van, spaces stay ,,\r\n"
    )
    load(mesh, tmp_path / "f.csv")
    assert texts(mesh) == [" spaces stay ", '007, "quoted"\nover two lines', "1e3"]
    with ml.Mesh.open(mesh, read_only=True) as opened:
        rows = {row["text"]: row for row in opened.facts().to_dicts()}
    assert (rows["1e3"]["subject"], rows[" spaces stay "]["subject"]) == ("2031", None)
    assert (
        rows['007, "quoted"\nover two lines']["valid_from"].isoformat()
        == "2031-01-05T07:00:00+00:00"
    )


def test_bad_rows_of_a_csv_are_refused_one_by_one(mesh, tmp_path):
    (tmp_path / "f.csv").write_bytes(
        b"device,text,valid_from\nvan,good,\nvan,too few\nvan,too,many,fields\n"
        b'van,"bad"quote,\nvan,bad byte \xff,\nvan,,\nvan,naive,2031-01-05T08:00:00\nvan,fine,\n'
    )
    out, err = load(mesh, tmp_path / "f.csv", code=3)
    assert out == "stored 2, duplicate 0, refused 6\n"
    assert texts(mesh) == ["fine", "good"]
    parts = ["2 fields", "4 fields", "is not csv", "half a character", "blank", "RFC 3339"]
    for line, (part, told) in enumerate(zip(parts, err.splitlines(), strict=True), 3):
        assert f"(line {line})" in told
        assert part in told


def test_a_long_field_of_a_csv_is_read(mesh, tmp_path):
    (tmp_path / "f.csv").write_text(f"device,text\nvan,{LONG}\n", encoding="utf-8")
    assert load(mesh, tmp_path / "f.csv")[0] == "stored 1, duplicate 0, refused 0\n"
    assert texts(mesh) == [LONG]


@pytest.mark.parametrize(
    ("content", "why"), [("", "empty"), ("text,device,text\na,b,c\n", "appears twice")]
)
def test_a_csv_without_a_usable_first_line_is_an_error(mesh, tmp_path, content, why):
    (tmp_path / "f.csv").write_text(content, encoding="utf-8")
    assert why in load(mesh, tmp_path / "f.csv", code=1)[1]


# --- Parquet -----------------------------------------------------------------------------------
def test_facts_travel_to_another_mesh_as_parquet(mesh, tmp_path):
    load(mesh, lines(tmp_path / "f.jsonl", {"device": "van", "text": "a", "namespace": "n"}))
    CliRunner().invoke(app, ["facts", str(mesh), "-o", str(tmp_path / "f.parquet")])
    frame = pl.read_parquet(tmp_path / "f.parquet").with_columns(device=pl.lit("van"))
    frame.write_parquet(tmp_path / "f.parquet")
    other = tmp_path / "other"
    ml.Mesh.open(other, encoder="hash").close()
    assert "Unknown column(s)" in load(other, tmp_path / "f.parquet", code=1)[1]
    load(other, tmp_path / "f.parquet", "--ignore-extra")
    with ml.Mesh.open(other, read_only=True) as opened:
        assert opened.facts().row(0)[0] == frame["fact_id"][0]


def test_refused_rows_of_parquet_are_counted_from_0(mesh, tmp_path):
    pl.DataFrame({"device": ["van", "van"], "text": ["a", " "]}).write_parquet(tmp_path / "f.pq")
    assert load(mesh, tmp_path / "f.pq", code=3)[1] == "refused: row 1: text is blank\n"


# --- which file --------------------------------------------------------------------------------
def test_the_ending_says_what_a_file_holds_unless_forced(mesh, tmp_path):
    assert kind_of(Path("A.CSV"), None) is Kind.CSV
    assert kind_of(Path("a.csv"), Kind.JSONL) is Kind.JSONL
    with pytest.raises(InputError, match="--format-in"):
        kind_of(Path("a.xlsx"), None)
    file = lines(tmp_path / "f.txt", {"device": "van", "text": "a"})
    assert "--format-in" in load(mesh, file, code=1)[1]
    assert load(mesh, file, "--format-in", "jsonl")[0].startswith("stored 1")


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_a_file_that_cannot_be_read_is_an_error(mesh, tmp_path, ending):
    assert "cannot be read" in load(mesh, tmp_path / f"none.{ending}", code=1)[1]
    (tmp_path / f"folder.{ending}").mkdir()
    assert "cannot be read" in load(mesh, tmp_path / f"folder.{ending}", code=1)[1]


def test_parquet_that_is_none_is_an_error(mesh, tmp_path):
    (tmp_path / "f.parquet").write_bytes(b"PAR1 no")
    assert "not Parquet" in load(mesh, tmp_path / "f.parquet", code=1)[1]


# --- renaming ----------------------------------------------------------------------------------
@pytest.mark.parametrize("text", ["", "a", "=b", "a="])
def test_a_mapping_has_two_sides(mesh, tmp_path, text):
    with pytest.raises(ValueError, match="old=new"):
        pairs([text])
    load(mesh, tmp_path / "f.csv", "--rename", text, code=2)


def test_renaming_never_hides_a_column(tmp_path):
    with pytest.raises(ValueError, match="twice"):
        pairs(["a=b", "a=c"])
    for name in ("f.jsonl", "f.parquet"):
        path = tmp_path / name
        frame = pl.DataFrame({"text": ["x"], "body": ["y"]})
        (frame.write_ndjson if name.endswith("jsonl") else frame.write_parquet)(path)
        with pytest.raises(SchemaError, match="one name"):
            read_file(path).rename({"body": "text"})
        with pytest.raises(SchemaError, match="No column"):
            read_file(path).rename({"title": "text"})
        rows = read_file(path)
        rows.rename({"body": "text", "text": "body"})  # exchanging two names hides neither
        rows.keep(LOADED)
        assert rows.columns() == ["text"]
