"""Frames out: nothing in them acts, and nothing is lost."""

from __future__ import annotations

import csv
import io
import json
import re
from datetime import UTC, datetime

import polars as pl
import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from mnemes_lab.cli.output import MAX_CELL, Format, Target, csv_text, table_text
from mnemes_lab.view.plain import json_text, records, visible

TEXTS = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=30), max_size=5)
ACTS = set(map(chr, [*range(32), *range(127, 160), 0x202E, 0x2066, 0x2028])) - {"\n"}


class Screen(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        return True


@given(TEXTS)
def test_json_reads_back_the_same_and_acts_on_no_terminal(texts):
    out = json_text(records(pl.DataFrame({"text": texts}, schema={"text": pl.String})), indent=1)
    assert [row["text"] for row in json.loads(out)] == texts
    assert not ACTS & set(out)


@given(TEXTS)
def test_csv_reads_back_the_same_but_for_the_guard(texts):
    out = csv_text(
        pl.DataFrame({"text": texts, "n": range(len(texts))}, schema_overrides={"text": pl.String})
    )
    rows = list(csv.reader(io.StringIO(out, newline="")))[1:]
    assert len(rows) == len(texts)
    for (shown, _), text in zip(rows, texts, strict=True):
        guarded = text[:1] in ("=", "+", "-", "@", "\t", "\r") and text != ""
        assert shown == ("'" + text if guarded else text)
        assert shown[:1] not in ("=", "+", "-", "@")


@given(TEXTS)
def test_a_table_acts_on_no_terminal(texts):
    stream = io.StringIO()
    table_text(
        stream, pl.DataFrame({"text": texts}, schema={"text": pl.String}), title="\x1b[2J[b]"
    )
    assert not ACTS & set(stream.getvalue())
    assert "[b]" in stream.getvalue()


def test_csv_on_a_terminal_shows_what_would_act(monkeypatch):
    frame = pl.DataFrame({"text": ["\x1b[31mred", "two\nlines"]})
    screen, pipe = Screen(), io.StringIO()
    for stream in (screen, pipe):
        monkeypatch.setattr("sys.stdout", stream)
        Target(Format.CSV).write(frame)
    assert screen.getvalue() == 'text\n\\x1b[31mred\n"two\nlines"\n'
    assert pipe.getvalue() == 'text\n\x1b[31mred\n"two\nlines"\n'


def test_numbers_keep_their_sign_and_lists_become_json():
    frame = pl.DataFrame({"n": [-1.5], "terms": [["=a", "b"]], "none": [None]})
    assert csv_text(frame) == 'n,terms,none\n-1.5,"[""=a"", ""b""]",\n'


def test_instants_are_rfc_3339_in_csv_and_json():
    frame = pl.DataFrame({"at": [datetime(2031, 6, 11, 9, 30, 0, 500_000, tzinfo=UTC)]})
    assert csv_text(frame) == "at\n2031-06-11T09:30:00.500+00:00\n"
    assert records(frame) == [{"at": "2031-06-11T09:30:00.500+00:00"}]


def test_a_table_cuts_long_texts_and_leaves_out_empty_columns():
    stream = io.StringIO()
    frame = pl.DataFrame(
        {"a": ["x" * 10_000], "b": [None], "c": [None]}, schema_overrides={"c": pl.Int64}
    )
    table_text(stream, frame)
    head, _, row = stream.getvalue().splitlines()
    assert head.strip() == "a"
    assert row == "x" * MAX_CELL + "…"


def test_a_table_fits_its_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    screen = Screen()
    table_text(screen, pl.DataFrame({"a": ["word " * 40], "b": ["z" * 60]}))
    shown = re.sub("\x1b\\[[0-9;]*m", "", screen.getvalue())
    assert max(map(len, shown.splitlines())) == 40
    assert shown.count("z") == 60


@pytest.mark.parametrize(
    ("format", "name", "chosen"),
    [
        (None, None, Format.TABLE),
        (None, "a.csv", Format.CSV),
        (None, "a.JSON", Format.JSON),
        (None, "a.txt", Format.TABLE),
        (Format.JSON, "a.csv", Format.JSON),
        (Format.PARQUET, "a", Format.PARQUET),
    ],
)
def test_the_format_is_the_users_or_the_endings(tmp_path, format, name, chosen):
    assert Target.of(format, tmp_path / name if name else None).format is chosen


def test_binary_needs_a_file():
    with pytest.raises(typer.BadParameter):
        Target.of(Format.PARQUET, None)


@pytest.mark.parametrize("char", sorted(ACTS | {"\n", "\ud83d"}))
def test_what_acts_is_shown_as_an_escape(char):
    shown = visible(f"a{char}b")
    assert char not in shown
    assert shown.encode().decode("unicode_escape") == f"a{char}b"


@pytest.mark.parametrize("text", ["naïve", "日本語", "👩‍👩‍👧", "עברית", "[b]", "a\\n"])
def test_other_text_is_shown_as_it_is(text):
    assert visible(text) == text
