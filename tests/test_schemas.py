"""The frames keep the promises of their names."""

from __future__ import annotations

import inspect

import dataframely as dy
import polars as pl
import pytest

from mnemes_lab import schemas

ALL = [
    c
    for c in vars(schemas).values()
    if inspect.isclass(c) and issubclass(c, dy.Schema) and c is not dy.Schema
]
COLUMNS = [
    pytest.param(name, column, id=f"{frame}.{name}")
    for frame, schema in schemas.PUBLIC.items()
    for name, column in schema.columns().items()
]


def test_every_schema_is_public_under_one_name():
    assert sorted(s.__name__ for s in ALL) == sorted(s.__name__ for s in schemas.PUBLIC.values())
    assert len(set(schemas.PUBLIC.values())) == len(schemas.PUBLIC)


@pytest.mark.parametrize("schema", ALL, ids=lambda s: s.__name__)
def test_every_schema_has_a_key_and_says_what_it_is(schema):
    assert inspect.getdoc(schema)
    keys = schema.primary_key()
    assert keys
    assert not any(schema.columns()[key].nullable for key in keys)


@pytest.mark.parametrize(("name", "column"), COLUMNS)
def test_every_column_says_what_it_means(name, column):
    assert column.description
    assert "\n" not in column.description


@pytest.mark.parametrize(("name", "column"), COLUMNS)
def test_names_and_types_agree(name, column):
    instant = column.dtype == pl.Datetime("us", "UTC")
    time_words = ("valid_from", "valid_to", "valid_time")
    assert instant == (name.endswith("_at") or name in time_words)
    if name.endswith("_id"):
        assert column.dtype == pl.String
    if name.endswith(("_ms", "score")):
        assert column.dtype == pl.Float64
    if name == "rank" or name.endswith("_rank"):
        assert column.dtype == pl.Int64
        assert column.min == 1
    if name.endswith("digest") or name == "sha256":
        length = 71 if "sha256:" in column.description else 64
        assert (column.min_length, column.max_length) == (length, length)


@pytest.mark.parametrize(("name", "column"), COLUMNS)
def test_numbers_are_finite(name, column):
    if column.dtype.is_float():
        assert not (column.allow_nan or column.allow_inf)


@pytest.mark.parametrize("frame", schemas.PUBLIC)
def test_an_empty_frame_is_valid(frame):
    schema = schemas.PUBLIC[frame]
    empty = schemas.empty(schema)
    assert schema.is_valid(empty)
    assert empty.schema == schemas.dtypes(schema)


@pytest.mark.parametrize("frame", schemas.PUBLIC)
def test_description_covers_the_schema(frame):
    schema = schemas.PUBLIC[frame]
    described = schemas.describe(schema)
    assert described["column"].to_list() == list(schema.columns())
    assert described.filter("key")["column"].to_list() == schema.primary_key()


@pytest.mark.parametrize(
    ("frame", "key"),
    [
        ("devices", ["device_id"]),
        ("actors", ["actor_id"]),
        ("facts", ["fact_id"]),
        ("catalogue", ["device_id"]),
        ("queries", ["query_id"]),
        ("relevance", ["query_id", "fact_id"]),
        ("ranking", ["router", "query_id", "device_id"]),
        ("hits", ["query_id", "rank"]),
        ("trace", ["query_id", "device_id"]),
    ],
)
def test_keys_promised_to_users(frame, key):
    assert schemas.PUBLIC[frame].primary_key() == key


def test_enumerations_hold_no_value_twice():
    for values in (schemas.STATUSES, schemas.FACT_STATUSES, schemas.KINDS, schemas.REASONS):
        assert len(set(values)) == len(values)
