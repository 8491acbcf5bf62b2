"""The door: pandas or polars in, polars inside, the caller's kind out.

Rules at the door (one place, both kinds, same answer):

* The index of a pandas frame carries no meaning and is ignored.
* Columns are matched by name; a missing optional column reads as null, an unknown one is an error.
* A column without any value reads as null whatever its dtype: it says nothing.
* Text columns may be text, categorical or enum; anything else is a wrong dtype, never converted.
* Instants may be aware datetimes of one zone, or text and objects that
  :func:`mnemes_lab.clock.to_us` reads one by one. A column of naive datetimes is refused whole.
* A value that cannot be read is refused by row where the function answers per row
  (:func:`read_rows`), and refuses the frame elsewhere (:func:`read`).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, TypeVar, cast

import dataframely as dy
import narwhals as nw
import polars as pl

from mnemes_lab.clock import to_us
from mnemes_lab.errors import InputError, MissingColumnError, SchemaError
from mnemes_lab.schemas import dtypes

FrameT = TypeVar("FrameT")
Kind = Literal["polars", "pandas"]
_TEXT = (nw.String, nw.Object, nw.Categorical, nw.Enum)
_BROKEN = {
    "nullability": "missing",
    "nan": "not a number",
    "inf": "not finite",
    "min": "too small",
    "min_length": "too short",
    "max_length": "too long",
}
_MANY = 20  # problems listed one by one
_MAX_BITS = 4096  # of a whole number; what is longer is no count and no seed


def kind_of(
    frame: Any,
    wanted: str = "a polars or pandas DataFrame",
    hint: str = "wrap it: polars.DataFrame(...)",
) -> Kind:
    """Whether a frame is polars or pandas.

    Args:
        frame: What was given.
        wanted: What the caller's function takes, in words.
        hint: What to do when it is neither.

    Raises:
        SchemaError: it is neither.
    """
    try:
        native = nw.from_native(frame, eager_only=True, pass_through=True)
    except nw.exceptions.DuplicateError as error:  # only pandas allows it
        raise SchemaError(
            "A column name appears twice.", problems=[" ".join(str(error).split())]
        ) from None
    if isinstance(native, nw.DataFrame):
        if native.implementation.is_polars():
            return "polars"
        if native.implementation.is_pandas():
            return "pandas"
    raise SchemaError(
        f"Expected {wanted}, got {type(frame).__name__}.",
        hint="call .collect() first" if isinstance(frame, pl.LazyFrame) else hint,
    )


def give_back(frame: pl.DataFrame, kind: Kind) -> Any:
    """Hand a polars frame out as the kind the caller uses.

    pandas gets nullable integers (``Int64``) where a column has gaps, so no integer turns into a
    float, and plain strings for enumerations.
    """
    if kind == "polars":
        return frame
    plain = frame.with_columns(pl.col(pl.Enum, pl.Categorical).cast(pl.String))
    out = plain.to_pandas()
    for name, column in plain.to_dict(as_series=True).items():
        if column.dtype.is_integer() and column.null_count():
            out[name] = _masked(column)
    return out


def _masked(column: pl.Series) -> Any:
    import pandas as pd

    return pd.array(column.to_list(), dtype="Int64")


def read(frame: Any, schema: type[dy.Schema], *, optional: tuple[str, ...] = ()) -> pl.DataFrame:
    """Read a frame from outside as `schema`, or refuse it with every problem named.

    Args:
        frame: pandas or polars; extra columns are dropped.
        schema: What it must be.
        optional: Columns that may be absent and then read as null.

    Raises:
        MissingColumnError, SchemaError: with all problems listed.
    """
    table, bad = read_rows(
        frame, dict(dtypes(schema).items()), required=_required(schema, optional), extra="drop"
    )
    problems = [f"row {row}: {why}" for row, why in sorted(bad.items())]
    if not problems:
        good, failures = schema.filter(table, cast=True)
        if not len(failures):
            return cast(pl.DataFrame, good)
        problems = [_explain(schema, rule, n) for rule, n in sorted(failures.counts().items())]
    if len(problems) > _MANY:
        problems[_MANY:] = [f"and {len(problems) - _MANY} more"]
    raise SchemaError(f"This is not a {schema.__name__.lower()} frame.", problems=problems)


def _explain(schema: type[dy.Schema], rule: str, rows: int) -> str:
    """A broken rule of a schema in words."""
    name, _, check = rule.partition("|")
    count = "1 row" if rows == 1 else f"{rows} rows"
    if not check:
        return f"key {schema.primary_key()}: repeated in {count}"
    dtype = schema.columns()[name].dtype
    if check == "dtype" and isinstance(dtype, pl.Enum):
        return f"{name}: not one of {dtype.categories.to_list()} in {count}"
    return f"{name}: {_BROKEN.get(check, check)} in {count}"


def _required(schema: type[dy.Schema], optional: tuple[str, ...]) -> list[str]:
    return [
        name
        for name, column in schema.columns().items()
        if name not in optional and not column.nullable
    ]


def read_rows(
    frame: Any,
    columns: Mapping[str, pl.DataType],
    *,
    required: list[str],
    extra: Literal["drop", "refuse"] = "refuse",
) -> tuple[pl.DataFrame, dict[int, str]]:
    """Read a frame row by row: the table, and why each unreadable row is refused.

    Args:
        frame: pandas or polars.
        columns: Wanted columns and their polars types (text, instants, integers, reals, enums;
            enums are read as text, so that an unknown value can be refused by row).
        required: Columns that must be present.
        extra: What to do with columns that are not in `columns`.

    Returns:
        A polars frame with exactly `columns` in order (unreadable values are null), and a reason
        for each row that had one.

    Raises:
        MissingColumnError: a required column is absent.
        SchemaError: a column has a wrong dtype, is not known, or appears twice.
    """
    kind_of(frame)
    source = nw.from_native(frame, eager_only=True)
    _check_columns(list(source.columns), columns, required, extra)
    bad: dict[int, str] = {}
    out: dict[str, pl.Series] = {}
    problems: list[str] = []
    for name, dtype in columns.items():
        if name not in source.columns:
            out[name] = pl.Series(name, [None] * len(source), dtype=_plain(dtype))
            continue
        try:
            out[name] = _column(source[name], name, dtype, bad)
        except SchemaError as error:
            problems += error.problems
    if problems:
        raise SchemaError("The frame has columns of a wrong kind.", problems=problems)
    return pl.DataFrame(out), bad


def read_some(frame: Any, instants: Sequence[str], others: Sequence[str]) -> pl.DataFrame:
    """Those of some columns that a frame has, instants read by the rules of the door.

    Raises:
        MissingColumnError: the first of `instants` is absent.
        SchemaError: instants that cannot be read.
    """
    kind_of(frame)
    source = nw.from_native(frame, eager_only=True)
    have = [str(name) for name in source.columns]
    _check_columns(have, {}, [instants[0]], "drop")
    bad: dict[int, str] = {}
    table = [_column(source[n], n, pl.Datetime("us", "UTC"), bad) for n in instants if n in have]
    if bad:
        raise SchemaError("Some instants cannot be read.", problems=list(bad.values())[:_MANY])
    return pl.DataFrame(table + [_polars(source[n]).alias(n) for n in others if n in have])


def read_records(
    records: Sequence[Mapping[str, Any]], columns: Mapping[str, pl.DataType], *, required: list[str]
) -> tuple[pl.DataFrame, dict[int, str]]:
    """Read plain records (parsed JSON lines, keyword arguments) by the rules of `read_rows`.

    What is not a mapping is refused as a row of its own.

    Raises:
        MissingColumnError: no record has a required column.
        SchemaError: a record has a column that is not known.
        InputError: these are not several records.
    """
    one = isinstance(records, (str, bytes, Mapping)) or hasattr(records, "columns")
    if one or not isinstance(records, Iterable):
        raise InputError(
            f"Records must be a list of mappings, got {type(records).__name__}.",
            hint='give [{"text": ...}, ...]; mesh.load takes frames',
        )
    rows = [record if isinstance(record, Mapping) else None for record in records]
    bad = {at: "not a record" for at, row in enumerate(rows) if row is None}
    held = [row for row in rows if row is not None]
    have = list(dict.fromkeys(key for row in held for key in row))
    _check_columns(have, columns, required if held else [], "refuse")
    out = {}
    for name, dtype in columns.items():
        values = [None if row is None else row.get(name) for row in rows]
        if isinstance(dtype, pl.Datetime):
            us = _each(values, name, bad, partial(to_us, what=name))
            out[name] = pl.Series(name, us, dtype=pl.Int64).cast(dtype)
        elif _plain(dtype) == pl.String:
            out[name] = pl.Series(name, _each(values, name, bad, whole_text), dtype=pl.String)
        else:
            out[name] = pl.Series(name, values, dtype=dtype)
    return pl.DataFrame(out), bad


def _plain(dtype: pl.DataType) -> Any:
    return pl.String if isinstance(dtype, (pl.Enum, pl.Categorical)) else dtype


def _check_columns(
    have: list[str], columns: Mapping[str, Any], required: list[str], extra: str
) -> None:
    missing = sorted(set(required) - set(have))
    unknown = sorted(set(map(str, have)) - set(columns)) if extra == "refuse" else []
    hint = f"known columns are {sorted(columns)}"
    if missing:
        problems = [f"found {sorted(map(str, have))}"]
        problems += [f"unknown column(s) {unknown}"] if unknown else []
        raise MissingColumnError(f"Missing column(s) {missing}.", problems=problems, hint=hint)
    if unknown:
        raise SchemaError(f"Unknown column(s) {unknown}.", hint=hint)


def _column(
    series: nw.Series[Any], name: str, dtype: pl.DataType, bad: dict[int, str]
) -> pl.Series:
    """One column as polars, recording the rows it could not read."""
    if series.null_count() == len(series):
        return pl.Series(name, [None] * len(series), dtype=_plain(dtype))
    if isinstance(dtype, pl.Datetime):
        return _instants(series, name, bad)
    if _plain(dtype) == pl.String:
        return _texts(series, name, bad)
    return _typed(series, name, dtype)


def _wrong(name: str, found: object, wanted: str) -> SchemaError:
    return SchemaError(
        f"Column {name!r} has a wrong kind.", problems=[f"{name}: found {found}, wanted {wanted}"]
    )


def _is_null(value: object) -> bool:
    """None, NaN, NaT and pandas.NA, without importing pandas."""
    if value is None:
        return True
    try:
        return bool(value != value)  # every NaN and NaT differs from itself
    except (TypeError, ValueError):  # pandas.NA has no truth value, and neither have arrays
        return type(value).__name__ == "NAType"


def _each(
    values: Sequence[Any], name: str, bad: dict[int, str], read: Callable[[Any], Any]
) -> list[Any]:
    """Read values one by one; a failing one becomes null and a reason."""
    out: list[Any] = []
    for row, value in enumerate(values):
        if _is_null(value):
            out.append(None)
            continue
        try:
            out.append(read(value))
        except (ValueError, TypeError) as error:
            told = str(error).removesuffix(".")  # a reason is a part of a sentence
            bad.setdefault(row, told if told.startswith(name) else f"{name}: {told}")
            out.append(None)
    return out


def _texts(series: nw.Series[Any], name: str, bad: dict[int, str]) -> pl.Series:
    if series.dtype not in _TEXT:
        raise _wrong(name, series.dtype, "text")
    native = series.to_native()
    if isinstance(native, pl.Series) and native.dtype != pl.Object:
        return native.cast(pl.String).alias(name)
    return pl.Series(name, _each(series.to_list(), name, bad, whole_text), dtype=pl.String)


def _polars(series: nw.Series[Any]) -> pl.Series:
    native = series.to_native()
    return native if isinstance(native, pl.Series) else cast(pl.Series, pl.from_pandas(native))


def whole_number(
    value: Any, what: str, error: type[InputError] = InputError, hint: str = "give an int"
) -> int:
    """A whole number of any library as an int; a flag is none.

    Raises:
        InputError: anything else; the class is `error`.
    """
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None:
        raise error(f"{what} must be a whole number.", found=value, hint=hint)
    if number.bit_length() > _MAX_BITS:  # too long to be shown
        raise error(f"{what} is too large.", hint=f"at most {_MAX_BITS} bits")
    return number


def whole_text(value: object) -> str:
    """A value as text that can be written as UTF-8."""
    if not isinstance(value, str):
        raise SchemaError(f"found {type(value).__name__} {value!r}, wanted text.")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise SchemaError(
            "holds half a character (a lone surrogate).", hint="repair the text's encoding"
        ) from None
    return value


def _instants(series: nw.Series[Any], name: str, bad: dict[int, str]) -> pl.Series:
    target, dtype = pl.Datetime("us", "UTC"), series.dtype
    native = series.to_native()
    if isinstance(native, pl.Series) and native.dtype == target:
        return native.alias(name)
    if isinstance(dtype, nw.Datetime):
        if dtype.time_zone is None:
            raise SchemaError(
                f"Column {name!r} holds times without an offset.",
                problems=[
                    f"{name}: naive datetimes name no instant. "
                    "Hint: attach a zone, for example .dt.replace_time_zone('UTC')"
                ],
            )
        # Converted first: pandas knows zones that polars does not, such as a bare +05:30.
        return _polars(series.dt.convert_time_zone("UTC")).cast(target).alias(name)
    if dtype not in _TEXT:
        raise _wrong(name, dtype, "aware datetimes or RFC 3339 text")
    us = _each(series.to_list(), name, bad, partial(to_us, what=name))
    return pl.Series(name, us, dtype=pl.Int64).cast(target)


def _fits(have: Any, wanted: Any) -> bool:
    """Whether a polars type may be cast to another without changing what it says."""
    if isinstance(wanted, pl.List):
        return isinstance(have, pl.List) and (
            have.inner == pl.Null or _fits(have.inner, wanted.inner)
        )
    if wanted.is_float():
        return bool(have.is_numeric())
    return bool(have.is_integer()) if wanted.is_integer() else bool(have == wanted)


def _typed(series: nw.Series[Any], name: str, dtype: pl.DataType) -> pl.Series:
    """Numbers, flags and lists: whole columns of one type."""
    wanted = "whole numbers" if dtype.is_integer() else str(dtype)
    try:
        column = _polars(series)
        if _fits(column.dtype, dtype):
            return column.cast(dtype).alias(name)
    except (ValueError, TypeError, pl.exceptions.PolarsError):  # mixed objects, or out of range
        pass
    raise _wrong(name, series.dtype, wanted)
