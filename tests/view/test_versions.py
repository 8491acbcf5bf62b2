"""Where versions hold agrees with what the store's predicate shows."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mnemes_lab import schemas
from mnemes_lab.clock import from_us
from mnemes_lab.errors import MissingColumnError
from mnemes_lab.store.asof import AsOf, as_of
from mnemes_lab.view.versions import Area, Versions, moment

SCHEMA = schemas.dtypes(schemas.FactHistory)
RAW = {n: pl.Int64 if isinstance(d, pl.Datetime) else d for n, d in SCHEMA.items()}
BLANK: dict[str, Any] = dict.fromkeys(RAW)


def history(*versions: dict[str, Any]) -> pl.DataFrame:
    """A history from what is special of each version; instants are small whole numbers."""
    rows = [
        {**BLANK, "fact_id": "f", "version": n, "text": f"t{n}", "status": "active", **version}
        for n, version in enumerate(versions, start=1)
    ]
    return pl.DataFrame(rows, schema=RAW).cast(pl.Schema(SCHEMA))


instants = st.integers(0, 6)
maybe = st.none() | instants
ENDS = ["valid_from", "valid_to", "closed_at", "expires_at"]


def closed_after(row: dict[str, Any]) -> dict[str, Any]:
    """The row, not closed before it was recorded."""
    closed = row["closed_at"]
    return row if closed is None else {**row, "closed_at": max(row["recorded_at"], closed)}


rows = st.fixed_dictionaries({"recorded_at": instants, **dict.fromkeys(ENDS, maybe)})
versions = st.lists(rows.map(closed_after), min_size=1, max_size=3).map(
    lambda found: sorted(found, key=lambda row: row["recorded_at"])
)
remainders = st.lists(rows.map(closed_after).map(lambda row: {**row, "remainder": True}))
# Up to three facts, each with its versions and any number of remainders of the last of them:
# open or closed ones, before, after and upon one another.
drawn_facts = st.lists(st.tuples(versions, remainders), max_size=3).map(
    lambda facts: [
        {**row, "fact_id": fact_id, "version": n}
        for fact_id, (whole, rest) in zip("fgh", facts, strict=False)
        for n, row in enumerate([*whole, *rest], start=1)
    ]
)


@given(drawn_facts, maybe, instants)
def test_a_point_lies_in_the_versions_that_the_store_shows(
    drawn: list[dict[str, Any]], valid: int | None, recorded: int
):
    frame = history(*drawn)
    shown = as_of(frame, AsOf(None if valid is None else from_us(valid), from_us(recorded)))
    if valid is None:  # the store does not look at validity then; the picture has no place for it
        shown = shown.filter(~(pl.col("valid_from") >= pl.col("valid_to")).fill_null(False))
    whole = frame.filter(~pl.col("remainder").fill_null(False))
    last = dict(whole.group_by("fact_id").agg(pl.col("version").max()).iter_rows())
    expected = {
        (row["fact_id"], last[row["fact_id"]] if row["remainder"] else row["version"])
        for row in shown.iter_rows(named=True)
    }
    found = Versions.of(frame)
    assert len(found.rows) == whole.height
    there = [found.rows[row] for row in found.there(valid, recorded)]
    assert len(there) == len(expected)
    assert {(version["fact_id"], version["version"]) for version in there} == expected


@pytest.mark.parametrize(
    ("versions", "finding"),
    [
        ([], "No version on record"),
        ([{"recorded_at": 1}], "1 version, and it still holds"),
        ([{"recorded_at": 1, "closed_at": 2}], "1 version, and it no longer holds"),
        ([{"recorded_at": 1, "closed_at": 2}, {"recorded_at": 2}], "2 versions, 1 still holds"),
        (
            [{"recorded_at": 1, "closed_at": 2}, {"recorded_at": 2, "closed_at": 3}],
            "2 versions, none still holds",
        ),
        (
            [
                {"recorded_at": 1, "closed_at": 2},
                {"recorded_at": 2, "valid_to": 5, "remainder": True},
                {"fact_id": "g", "recorded_at": 2, "valid_from": 5},
            ],
            "2 versions, 2 still hold, each for its own time",
        ),
        (
            [
                {"recorded_at": 1, "closed_at": 2},
                {"recorded_at": 2, "closed_at": 4, "valid_to": 5, "remainder": True},
                {"fact_id": "g", "recorded_at": 2, "valid_from": 5},
            ],
            "2 versions, 1 still holds",  # the remainder was closed after the last new version
        ),
    ],
)
def test_the_finding_counts_what_still_holds(versions: list[dict[str, Any]], finding: str):
    assert Versions.of(history(*versions)).finding() == finding


def test_remainders_are_areas_of_the_last_version_and_no_versions():
    whole = [{"recorded_at": 1, "closed_at": 2}, {"recorded_at": 2, "closed_at": 3}]
    rest = [
        {"recorded_at": 3, "valid_to": 4, "remainder": True},
        {"recorded_at": 3, "closed_at": 5, "valid_from": 6, "remainder": True},
        {"recorded_at": 5, "valid_from": 8, "remainder": True},
    ]
    versions = Versions.of(history(*whole, *rest))
    assert [row["version"] for row in versions.rows] == [1, 2]
    assert versions.areas == [
        Area(0, None, None, 1, 2),
        Area(1, None, None, 2, 3),
        Area(1, None, 4, 3, None, rest=True),
        Area(1, 6, None, 3, 5, rest=True),
        Area(1, 8, None, 5, None, rest=True),
    ]
    assert versions.last == 5
    assert versions.there(6, 4) == [1] and versions.there(6, 5) == []
    assert versions.there(None, 4) == []  # nobody asked for a valid time


def test_remainders_alone_are_versions():
    rest = [{"recorded_at": 3, "valid_to": n, "remainder": True} for n in (4, 6)]
    versions = Versions.of(history(*rest))
    assert [versions.name(row) for row in versions.there(5, 3)] == ["2 “t2”"]
    assert versions.finding() == "2 versions, 2 still hold, each for its own time"


def test_the_finding_names_what_holds_now():
    versions = Versions.of(
        history({"recorded_at": 1, "closed_at": 4}, {"recorded_at": 4, "valid_to": 9})
    )
    assert versions.finding(3) == "2 versions; now holds 1 “t1”"
    assert versions.finding(4) == "2 versions; now holds 2 “t2”"
    assert versions.finding(9) == "2 versions; none holds now"


def test_versions_are_counted_by_record_time_whatever_the_order_of_rows():
    frame = history({"recorded_at": 5}, {"recorded_at": 3, "closed_at": 5})
    assert Versions.of(frame) == Versions.of(frame.reverse())
    assert Versions.of(frame).name(0) == "1 “t2”"


def test_what_holds_nowhere_is_named():
    versions = Versions.of(
        history(
            {"recorded_at": 1, "valid_from": 4, "valid_to": 4, "closed_at": 2},
            {"recorded_at": 2, "closed_at": 2},
            {"recorded_at": 2, "expires_at": 1},
            {"recorded_at": 3},
        )
    )
    assert [area.row for area in versions.areas] == [3]
    assert versions.caption() == ["Holds nowhere: 1 “t1”, 2 “t2”, 3 “t3”"]


def test_the_caption_answers_for_a_point():
    versions = Versions.of(history({"recorded_at": 0, "closed_at": 60_000_000, "valid_to": 0}))
    assert versions.caption((None, 0)) == [
        "Told by 1 Jan 1970 00:00: 1 “t1” holds at any time of the world"
    ]
    assert versions.caption((0, 0)) == [
        "Told by 1 Jan 1970 00:00: no version holds on 1 Jan 1970 00:00"
    ]


def test_a_redacted_text_is_never_said():
    versions = Versions.of(history({"recorded_at": 1, "status": "redacted", "text": "secret"}))
    said = [versions.finding(5), *versions.caption((5, 5)), versions.name(0)]
    assert not any("secret" in line for line in said)
    assert versions.finding(5) == "1 version; now holds 1 (redacted)"
    assert "Hatched: redacted, its text is gone" in said


def test_a_hostile_text_is_shortened_and_acts_on_nothing():
    versions = Versions.of(history({"recorded_at": 1, "text": "\x1b[31m\n\u202e" + "x" * 500}))
    assert versions.name(0).startswith("1 “\\x1b[31m\\n\\u202ex")
    assert len(versions.name(0)) < 60


def test_the_ends_of_time_can_be_told():
    assert moment(-62135596800000000) == ("1 Jan 1", "00:00")
    assert moment(253402300799999999) == ("31 Dec 9999", "23:59:59.999999")


def test_another_frame_is_refused():
    with pytest.raises(MissingColumnError, match="recorded_at"):
        Versions.of(pl.DataFrame({"fact_id": ["f"], "version": [1], "text": ["t"]}))
