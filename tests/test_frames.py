"""The door: the same answer from pandas and polars, and nothing converted in silence."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from mnemes_lab import schemas
from mnemes_lab.errors import MissingColumnError, SchemaError
from mnemes_lab.frames import give_back, kind_of, read, read_records, read_rows

UTC_US = pl.Datetime("us", "UTC")
COLUMNS = {
    "fact_id": pl.String(),
    "text": pl.String(),
    "kind": pl.Enum(schemas.KINDS),
    "observed_at": UTC_US,
    "n": pl.Int64(),
    "gain": pl.Float64(),
    "flag": pl.Boolean(),
}
NOON = datetime(2031, 6, 22, 12, tzinfo=UTC)
BIG = 9_007_199_254_740_993  # 2**53 + 1: the first whole number a float cannot hold


def rows(frame, required=()):
    return read_rows(frame, COLUMNS, required=list(required))


def only(frame, name):
    """The values of one column, which must all have been readable."""
    table, bad = rows(frame)
    assert bad == {}
    return table[name].to_list()


# --- kinds ---------------------------------------------------------------------------------------
def test_kind_is_known_and_given_back(frame_kind):
    frame = frame_kind.make_frame({"a": [1, 2], "s": ["x", None]})
    assert kind_of(frame) == frame_kind.name
    back = give_back(pl.DataFrame({"a": [1, 2], "s": ["x", None]}), kind_of(frame))
    assert frame_kind.column(back, "s") == ["x", None]


@pytest.mark.parametrize(
    "thing",
    [
        None,
        {"text": ["a"]},
        [{"text": "a"}],
        "facts.csv",
        pl.Series(["a"]),
        pd.Series(["a"]),
        pl.LazyFrame({"text": ["a"]}),
        pa.table({"text": ["a"]}),
        np.zeros((2, 2)),
    ],
    ids=lambda thing: type(thing).__name__,
)
def test_anything_but_the_two_frames_is_refused(thing):
    with pytest.raises(SchemaError, match="Expected a polars or pandas DataFrame"):
        kind_of(thing)


# --- columns -------------------------------------------------------------------------------------
def test_columns_come_back_in_order_and_absent_ones_are_null(frame_kind):
    table, bad = rows(frame_kind.make_frame({"text": ["a", "b"], "fact_id": ["1", "2"]}))
    assert table.schema == {**COLUMNS, "kind": pl.String()}
    assert table["observed_at"].null_count() == 2
    assert bad == {}


def test_the_index_means_nothing(frame_kind):
    assert only(frame_kind.make_frame({"text": ["a", "b"]}), "text") == ["a", "b"]


def test_every_missing_and_unknown_column_is_named_at_once(frame_kind):
    frame = frame_kind.make_frame({"txt": ["a"], "gain": [1.0], "agent": ["x"]})
    with pytest.raises(MissingColumnError) as caught:
        rows(frame, required=["text", "fact_id"])
    message = str(caught.value)
    assert "Missing column(s) ['fact_id', 'text']" in message
    assert "unknown column(s) ['agent', 'txt']" in message
    assert "found ['agent', 'gain', 'txt']" in message
    assert "Hint: known columns are" in message


def test_unknown_columns_are_refused_or_dropped_as_asked(frame_kind):
    frame = frame_kind.make_frame({"text": ["a"], "colour": ["red"]})
    with pytest.raises(SchemaError, match=r"Unknown column\(s\) \['colour'\]"):
        rows(frame)
    table, _ = read_rows(frame, COLUMNS, required=["text"], extra="drop")
    assert "colour" not in table.columns


@pytest.mark.parametrize(
    "columns", [["text", 3], pd.MultiIndex.from_tuples([("text", "a"), ("text", "b")])]
)
def test_column_names_that_are_not_text_are_unknown(columns):
    with pytest.raises(SchemaError, match="Unknown column"):
        rows(pd.DataFrame([["a", "b"]], columns=columns))


def test_a_name_that_appears_twice_is_refused():
    with pytest.raises(SchemaError, match="appears twice.*'text' 2 times"):
        rows(pd.DataFrame([["a", "b"]], columns=["text", "text"]))


def test_a_frame_without_rows_is_read(frame_kind):
    table, bad = rows(frame_kind.make_frame({"text": [], "n": []}), required=["text"])
    assert (table.height, bad) == (0, {})
    assert table.schema["n"] == pl.Int64


def test_all_wrong_columns_are_named_at_once(frame_kind):
    frame = frame_kind.make_frame({"text": [1], "n": ["x"], "observed_at": [5], "flag": [1]})
    with pytest.raises(SchemaError) as caught:
        rows(frame)
    assert [p.split(":")[0] for p in caught.value.problems] == ["text", "observed_at", "n", "flag"]


@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_without_any_value_reads_as_null(frame_kind, name):
    assert only(frame_kind.make_frame({name: [None, None]}), name) == [None, None]


def test_an_empty_column_may_have_any_dtype():
    assert only(pd.DataFrame({"text": [np.nan, np.nan]}), "text") == [None, None]
    assert only(pl.DataFrame({"text": pl.Series([None], dtype=pl.Int64)}), "text") == [None]
    assert only(pd.DataFrame({"observed_at": [pd.NaT, pd.NaT]}), "observed_at") == [None, None]


# --- text ----------------------------------------------------------------------------------------
def test_text_is_kept_to_the_character(frame_kind):
    texts = ["plain", "مؤمن", "de\u0301po\u0302t", "👩🏽‍🔧", " a ", "a\0b", "", "line\nline", None]
    assert only(frame_kind.make_frame({"text": texts}), "text") == texts


@pytest.mark.parametrize("values", [[1, 2], [1.5, 2.5], [True, False], [NOON, NOON]], ids=repr)
def test_a_column_that_is_not_text_is_refused_never_converted(frame_kind, values):
    with pytest.raises(SchemaError, match="text: found .*, wanted text"):
        rows(frame_kind.make_frame({"text": values}))


def test_large_ids_with_a_gap_are_refused_not_rounded(frame_kind):
    # In pandas the gap has already turned the id into another number; text is the only safe form.
    with pytest.raises(SchemaError, match="fact_id: found .*, wanted text"):
        rows(frame_kind.make_frame({"fact_id": [BIG, None]}))
    assert only(frame_kind.make_frame({"fact_id": [str(BIG), None]}), "fact_id") == [str(BIG), None]


def test_objects_are_read_one_by_one(frame_kind):
    frame = frame_kind.objects(
        "text", ["good", 5, None, b"bytes", "Bad \ud83d tail", ["x"], "fine"]
    )
    table, bad = rows(frame)
    assert table["text"].to_list() == ["good", None, None, None, None, None, "fine"]
    assert sorted(bad) == [1, 3, 4, 5]
    assert "wanted text" in bad[1]
    assert "lone surrogate" in bad[4]


def test_one_bad_row_never_hides_another_columns_rows(frame_kind):
    frame = frame_kind.make_frame({"text": ["a", "b", "c"], "observed_at": ["never", None, "z"]})
    table, bad = rows(frame)
    assert table["text"].to_list() == ["a", "b", "c"]
    assert sorted(bad) == [0, 2]


@pytest.mark.parametrize("gap", [None, float("nan"), np.float64("nan"), pd.NA, pd.NaT], ids=repr)
def test_every_spelling_of_missing_is_null(gap):
    frame = pd.DataFrame({"text": pd.Series(["a", gap], dtype=object)})
    assert only(frame, "text") == ["a", None]


@pytest.mark.parametrize("dtype", ["str", "string", "object", "category"])
def test_pandas_text_dtypes_agree(dtype):
    assert only(pd.DataFrame({"text": pd.Series(["a", None, "b"], dtype=dtype)}), "text") == [
        "a",
        None,
        "b",
    ]


def test_an_unused_category_adds_nothing(frame_kind):
    if frame_kind.name == "pandas":
        column = pd.Categorical(["ada", "bo", "ada"], categories=["zed", "bo", "ada"])
    else:
        column = pl.Series(["ada", "bo", "ada"], dtype=pl.Enum(["zed", "bo", "ada"]))
    assert only(frame_kind.make_frame({"text": column}), "text") == ["ada", "bo", "ada"]


def test_categories_that_are_not_text_are_refused_by_row():
    table, bad = rows(pd.DataFrame({"text": pd.Categorical([1, 2])}))
    assert table["text"].null_count() == 2
    assert sorted(bad) == [0, 1]


def test_an_enum_is_read_as_text_so_that_a_row_can_be_refused(frame_kind):
    assert only(frame_kind.make_frame({"kind": ["preference", "bogus"]}), "kind") == [
        "preference",
        "bogus",
    ]


# --- instants ------------------------------------------------------------------------------------
def test_naive_columns_are_refused_whole_with_a_hint(frame_kind):
    with pytest.raises(SchemaError, match="naive datetimes name no instant. Hint: attach a zone"):
        rows(frame_kind.make_frame({"observed_at": [datetime(2031, 6, 22, 12), None]}))


def test_aware_columns_are_shown_in_utc(frame_kind):
    tokyo = NOON.astimezone(ZoneInfo("Asia/Tokyo"))
    assert only(frame_kind.make_frame({"observed_at": [tokyo, None]}), "observed_at") == [
        NOON,
        None,
    ]


@pytest.mark.parametrize("minutes", [-570, 120, 330, 345, 840])
def test_bare_offsets_are_read(frame_kind, minutes):
    there = NOON.astimezone(timezone(timedelta(minutes=minutes)))
    assert only(frame_kind.make_frame({"observed_at": [there, there]}), "observed_at") == [NOON] * 2


def test_text_instants_are_read_one_by_one(frame_kind):
    values = [
        "2031-06-22T12:00:00Z",
        "2031-06-22t14:00:00+02:00",
        "2031-06-22T12:00:00",
        None,
        "1",
        "2031-W05-1",
    ]
    table, bad = rows(frame_kind.make_frame({"observed_at": values}))
    assert table["observed_at"].to_list() == [NOON, NOON, None, None, None, None]
    assert sorted(bad) == [2, 4, 5]
    assert all(why.startswith("observed_at") for why in bad.values())


def test_zones_mixed_in_one_column_are_each_read_and_naive_ones_refused(frame_kind):
    noon = datetime(2031, 6, 22, 12)
    values = [
        noon.replace(tzinfo=ZoneInfo("Asia/Tokyo")),
        noon.replace(tzinfo=ZoneInfo("America/Lima")),
        noon,
        "2031-06-22T12:00:00Z",
        1,
    ]
    table, bad = rows(frame_kind.objects("observed_at", values))
    assert table["observed_at"].to_list() == [
        datetime(2031, 6, 22, 3, tzinfo=UTC),
        datetime(2031, 6, 22, 17, tzinfo=UTC),
        None,
        NOON,
        None,
    ]
    assert sorted(bad) == [2, 4]
    assert "no offset" in bad[2]


@pytest.mark.parametrize("values", [[1, 2], [1.0, 2.0], [True, False], [date(2031, 1, 1)] * 2])
def test_numbers_and_days_are_no_instants(frame_kind, values):
    frame = frame_kind.make_frame({"observed_at": values})
    try:
        _, bad = rows(frame)
    except SchemaError as error:
        assert "observed_at" in str(error)
    else:  # pandas keeps days as objects, so they are refused row by row
        assert sorted(bad) == [0, 1]


def test_finer_and_coarser_units_agree_with_the_clock(frame_kind):
    past = [-1, 1_500]
    if frame_kind.name == "pandas":
        column = pd.to_datetime(past, unit="ns", utc=True)
    else:
        column = pl.Series(past, dtype=pl.Int64).cast(pl.Datetime("ns", "UTC"))
    table, _ = rows(frame_kind.make_frame({"observed_at": column}))
    assert table["observed_at"].to_physical().to_list() == [-1, 1]


# --- numbers -------------------------------------------------------------------------------------
def test_whole_numbers_are_exact(frame_kind):
    assert only(frame_kind.make_frame({"n": [BIG, -BIG]}), "n") == [BIG, -BIG]


def test_whole_numbers_with_a_gap_are_exact_or_refused():
    assert only(pl.DataFrame({"n": [BIG, None]}), "n") == [BIG, None]
    assert only(pd.DataFrame({"n": pd.array([BIG, None], dtype="Int64")}), "n") == [BIG, None]
    assert only(pd.DataFrame({"n": pd.Series([BIG, None], dtype=object)}), "n") == [BIG, None]
    with pytest.raises(SchemaError, match="n: found Float64, wanted whole numbers"):
        rows(pd.DataFrame({"n": [BIG, None]}))


@pytest.mark.parametrize("values", [[1.0], ["1"], [True], [2**64 - 1], [NOON]], ids=repr)
def test_what_is_not_a_whole_number_is_refused(frame_kind, values):
    with pytest.raises(SchemaError, match="wanted whole numbers"):
        rows(frame_kind.make_frame({"n": values}))


def test_mixed_objects_are_no_numbers(frame_kind):
    with pytest.raises(SchemaError, match="n: found Object, wanted whole numbers"):
        rows(frame_kind.objects("n", [1, "x"]))


def test_reals_take_whole_numbers_but_not_text(frame_kind):
    assert only(frame_kind.make_frame({"gain": [1, 2]}), "gain") == [1.0, 2.0]
    with pytest.raises(SchemaError, match="gain: found"):
        rows(frame_kind.make_frame({"gain": ["0.8"]}))


def test_flags_are_flags(frame_kind):
    assert only(frame_kind.make_frame({"flag": [True, False]}), "flag") == [True, False]
    with pytest.raises(SchemaError, match="flag: found"):
        rows(frame_kind.make_frame({"flag": [1, 0]}))


def test_lists_are_read_whole_or_refused(frame_kind):
    columns = {"terms": pl.List(pl.String)}
    lists = [["b", "a"], [], None]
    table, bad = read_rows(frame_kind.make_frame({"terms": lists}), columns, required=["terms"])
    assert (table["terms"].to_list(), bad) == (lists, {})
    empty, _ = read_rows(frame_kind.make_frame({"terms": [[], []]}), columns, required=["terms"])
    assert empty.schema == columns
    for wrong in ([[1, 2]], ["ab"], [1]):
        with pytest.raises(SchemaError, match="terms: found"):
            read_rows(frame_kind.make_frame({"terms": wrong}), columns, required=["terms"])


def test_scores_assigned_from_another_index_are_refused_not_stored():
    frame = pd.DataFrame({"query_id": ["q1", "q2"], "fact_id": ["a", "b"]})
    frame["gain"] = pd.Series([1.0, 2.0], index=[10, 11])  # pandas aligns: all NaN
    with pytest.raises(SchemaError, match="gain: missing in 2 rows"):
        read(frame, schemas.Relevance)


# --- whole frames --------------------------------------------------------------------------------
def test_a_good_frame_is_read_as_its_schema(frame_kind):
    frame = frame_kind.make_frame({"query_id": ["q1", "q2"], "text": ["a", ""], "note": [1, 2]})
    table = read(frame, schemas.Queries)
    assert table.schema == schemas.dtypes(schemas.Queries)
    assert table.rows() == [("q1", "a", None), ("q2", "", None)]


def test_every_broken_rule_is_named_in_words(frame_kind):
    frame = frame_kind.make_frame(
        {
            "query_id": ["q", "q", "", "r"],
            "fact_id": ["a", "a", "b", None],
            "gain": [-1.0, 1.0, float("inf"), 1.0],
        }
    )
    with pytest.raises(SchemaError) as caught:
        read(frame, schemas.Relevance)
    assert caught.value.problems == [
        "fact_id: missing in 1 row",
        "gain: not finite in 1 row",
        "gain: too small in 1 row",
        "key ['query_id', 'fact_id']: repeated in 2 rows",
        "query_id: too short in 1 row",
    ]


@pytest.mark.parametrize("gain", [float("nan"), float("inf"), -float("inf"), None])
def test_scores_must_be_finite(frame_kind, gain):
    frame = frame_kind.make_frame(
        {"query_id": ["q", "r"], "fact_id": ["a"] * 2, "gain": [1.0, gain]}
    )
    with pytest.raises(SchemaError, match="gain"):
        read(frame, schemas.Relevance)


def test_an_unknown_enum_value_shows_the_known_ones(frame_kind):
    good = {name: [1] for name in ("generation", "facts", "terms", "namespaces", "searches")}
    frame = frame_kind.make_frame(
        {"device_id": ["d"], "state": ["asleep"], "ewma_latency_ms": [1.0], **good}
    )
    with pytest.raises(SchemaError, match="state: not one of .*'quarantined'.* in 1 row"):
        read(frame, schemas.Catalogue)


def test_unreadable_rows_refuse_a_frame_and_long_lists_are_counted(frame_kind):
    frame = frame_kind.objects("query_id", list(range(30)))
    with pytest.raises(SchemaError) as caught:
        read(frame, schemas.Queries, optional=("text",))
    problems = caught.value.problems
    assert problems[0].startswith("row 0: query_id: found int 0")
    assert (len(problems), problems[-1]) == (21, "and 10 more")


def test_reading_does_not_change_the_callers_frame(frame_kind):
    data = {"query_id": ["b", "a"], "text": ["x", "y"]}
    frame, untouched = frame_kind.make_frame(data), frame_kind.make_frame(data)
    read(frame, schemas.Queries)
    assert frame.equals(untouched)


TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
INSTANT = st.datetimes(
    datetime(1700, 1, 1), datetime(2200, 1, 1), timezones=st.just(ZoneInfo("UTC"))
)


def values_of(column):
    """Values a column of a schema may hold."""
    if isinstance(column.dtype, pl.Enum):
        values = st.sampled_from(column.dtype.categories.to_list())
    elif column.dtype == UTC_US:
        values = INSTANT
    elif column.dtype.is_integer():
        values = st.integers(1, 2**62)
    elif column.dtype.is_float():
        values = st.floats(0, 1)
    elif column.dtype == pl.Boolean:
        values = st.booleans()
    elif column.dtype == pl.List(pl.String):
        values = st.lists(TEXT, max_size=3)
    else:
        values = TEXT
        length = getattr(column, "min_length", None)
        if length in (64, 71):  # a digest, plain or with its algorithm
            values = st.text("0123456789abcdef", min_size=64, max_size=64)
            values = values.map(lambda digits: "sha256:"[: length - 64] + digits)
    return values | st.none() if column.nullable else values


@pytest.mark.parametrize("kind", ["polars", "pandas"])
@pytest.mark.parametrize("name", schemas.PUBLIC)
@settings(max_examples=12)
@given(data=st.data())
def test_every_frame_comes_back_unchanged_from_either_kind(name, kind, data):
    schema = schemas.PUBLIC[name]
    columns = schema.columns()
    row = st.fixed_dictionaries({c: values_of(column) for c, column in columns.items()})
    drawn = data.draw(
        st.lists(row, max_size=4, unique_by=lambda r: tuple(r[k] for k in schema.primary_key()))
    )
    frame = pl.DataFrame(drawn, schema=schemas.dtypes(schema), orient="row")
    assert_frame_equal(read(give_back(frame, kind), schema), frame)


# --- going out -----------------------------------------------------------------------------------
def test_pandas_gets_whole_numbers_text_and_utc():
    frame = pl.DataFrame(
        {
            "n": [BIG, None],
            "rank": [1, 2],
            "kind": pl.Series(["preference", None], dtype=pl.Enum(schemas.KINDS)),
            "observed_at": pl.Series([NOON, None], dtype=UTC_US),
        }
    )
    out = give_back(frame, "pandas")
    assert str(out["n"].dtype) == "Int64"
    assert out["n"][0] == BIG
    assert str(out["rank"].dtype) == "int64"
    assert out["kind"][0] == "preference"
    assert not isinstance(out["kind"].dtype, pd.CategoricalDtype)
    assert str(out["observed_at"].dtype) == "datetime64[us, UTC]"
    assert out.index.equals(pd.RangeIndex(2))


def test_an_empty_frame_goes_out_with_its_columns(frame_kind):
    out = give_back(schemas.empty(schemas.Hits), frame_kind.name)
    frame_kind.check(out)
    assert list(out.columns) == list(schemas.Hits.columns())
    assert len(out) == 0


# --- records -------------------------------------------------------------------------------------
def test_records_follow_the_rules_of_frames():
    table, bad = read_records(
        [
            {"text": "a", "observed_at": "2031-06-22T12:00:00Z"},
            {"text": 5},
            {"text": "b", "observed_at": 1},
            {"observed_at": None, "n": 3},
        ],
        COLUMNS,
        required=["text"],
    )
    assert table["text"].to_list() == ["a", None, "b", None]
    assert table["observed_at"].to_list() == [NOON, None, None, None]
    assert table["n"].to_list() == [None, None, None, 3]
    assert sorted(bad) == [1, 2]
    assert table.schema == {**COLUMNS, "kind": pl.String()}


def test_records_with_unknown_or_no_columns():
    with pytest.raises(SchemaError, match=r"Unknown column\(s\) \['txt'\]"):
        read_records([{"text": "a", "txt": "b"}], COLUMNS, required=["text"])
    with pytest.raises(MissingColumnError, match="'text'"):
        read_records([{"n": 1}], COLUMNS, required=["text"])
    table, bad = read_records([], COLUMNS, required=["text"])
    assert (table.height, bad) == (0, {})
