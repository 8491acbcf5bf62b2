"""The door: pandas or polars in, polars inside, the caller's kind out.

Rules at the door (one place, both kinds, same answer):

* The index of a pandas frame carries no meaning and is ignored.
* Columns are matched by name; a missing optional column reads as null, an unknown one is an error.
* Text columns may be text, categorical or enum; anything else is a wrong dtype, never converted.
* Instants may be aware datetimes of one zone, or text and objects that
  :func:`mnemes_lab.clock.to_us` reads one by one. A column of naive datetimes is refused whole.
* A value that cannot be read is refused by row where the function answers per row
  (:func:`read_rows`), and refuses the frame elsewhere (:func:`read`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar, cast

import dataframely as dy
import narwhals as nw
import polars as pl

from mnemes_lab.clock import to_us
from mnemes_lab.errors import InstantError, MissingColumnError, SchemaError
from mnemes_lab.schemas import dtypes

FrameT = TypeVar("FrameT")
Kind = Literal["polars", "pandas"]
_TEXT = (pl.String, pl.Categorical, pl.Enum)


def kind_of(frame: Any) -> Kind:
    """Whether a frame is polars or pandas.

    Raises:
        SchemaError: it is neither.
    """
    native = nw.from_native(frame, eager_only=True, pass_through=True)
    if isinstance(native, nw.DataFrame):
        if native.implementation.is_polars():
            return "polars"
        if native.implementation.is_pandas():
            return "pandas"
    raise SchemaError(
        f"Expected a polars or pandas DataFrame, got {type(frame).__name__}.",
        hint="wrap it: polars.DataFrame(...)",
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
        try:
            return cast(pl.DataFrame, schema.validate(table, cast=True))
        except (dy.exc.ValidationError, dy.exc.SchemaError) as error:
            problems = [line.strip(" -*") for line in str(error).splitlines()[1:] if line.strip()]
            problems = problems or [str(error)]
    raise SchemaError(f"This is not a {schema.__name__.lower()} frame.", problems=problems[:20])


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


def _plain(dtype: pl.DataType) -> Any:
    return pl.String if isinstance(dtype, (pl.Enum, pl.Categorical)) else dtype


def _check_columns(
    have: list[str], columns: Mapping[str, Any], required: list[str], extra: str
) -> None:
    missing = sorted(set(required) - set(have))
    if missing:
        raise MissingColumnError(
            f"Missing column(s) {missing}.",
            problems=[f"found {sorted(map(str, have))}"],
            hint=f"known columns are {sorted(columns)}",
        )
    unknown = sorted(set(map(str, have)) - set(columns))
    if unknown and extra == "refuse":
        raise SchemaError(
            f"Unknown column(s) {unknown}.", hint=f"known columns are {sorted(columns)}"
        )


def _column(series: nw.Series[Any], name: str, dtype: pl.DataType, bad: dict[int, str]) -> pl.Series:
    """One column as polars, recording the rows it could not read."""
    if isinstance(dtype, pl.Datetime):
        return _instants(series, name, bad)
    if _plain(dtype) == pl.String:
        return _texts(series, name, bad)
    return _numbers(series, name, dtype)


def _wrong(name: str, found: object, wanted: str) -> SchemaError:
    return SchemaError(
        f"Column {name!r} has a wrong kind.", problems=[f"{name}: found {found}, wanted {wanted}"]
    )


def _is_null(value: object) -> bool:
    """None, NaN, NaT and pandas.NA, without importing pandas."""
    if value is None:
        return True
    different = value != value  # noqa: PLR0124 - NaN and NaT differ from themselves
    return different is True or type(value).__name__ in ("NAType", "NaTType")


def _each(
    series: nw.Series[Any], name: str, bad: dict[int, str], read: Callable[[Any], Any]
) -> list[Any]:
    """Read values one by one; a failing one becomes null and a reason."""
    out: list[Any] = []
    for row, value in enumerate(series.to_list()):
        if _is_null(value):
            out.append(None)
            continue
        try:
            out.append(read(value))
        except (ValueError, TypeError) as error:
            bad.setdefault(row, f"{name}: {error}")
            out.append(None)
    return out


def _texts(series: nw.Series[Any], name: str, bad: dict[int, str]) -> pl.Series:
    dtype = series.dtype
    native = series.to_native()
    if isinstance(native, pl.Series):
        if native.dtype == pl.Null:
            return native.cast(pl.String).alias(name)
        if not isinstance(native.dtype, _TEXT):
            raise _wrong(name, native.dtype, "text")
        return native.cast(pl.String).alias(name)
    if dtype not in (nw.String, nw.Object, nw.Categorical, nw.Enum):
        if series.null_count() == len(series):
            return pl.Series(name, [None] * len(series), dtype=pl.String)
        raise _wrong(name, dtype, "text")
    return pl.Series(name, _each(series, name, bad, _whole_text), dtype=pl.String)


def _whole_text(value: object) -> str:
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
    target = pl.Datetime("us", "UTC")
    dtype = series.dtype
    if isinstance(dtype, nw.Datetime):
        if dtype.time_zone is None:
            raise SchemaError(
                f"Column {name!r} holds times without an offset.",
                problems=[
                    f"{name}: naive datetimes name no instant. "
                    "Hint: attach a zone, for example .dt.replace_time_zone('UTC')"
                ],
            )
        native = series.to_native()
        if not isinstance(native, pl.Series):
            native = pl.from_pandas(native)
        return native.dt.convert_time_zone("UTC").cast(target).alias(name)
    if series.null_count() == len(series):
        return pl.Series(name, [None] * len(series), dtype=target)
    if dtype not in (nw.String, nw.Object, nw.Categorical):
        raise _wrong(name, dtype, "aware datetimes or RFC 3339 text")
    us = _each(series, name, bad, lambda value: to_us(value, what=name))
    return pl.Series(name, us, dtype=pl.Int64).cast(target)


def _numbers(series: nw.Series[Any], name: str, dtype: pl.DataType) -> pl.Series:
    native = series.to_native()
    column = native if isinstance(native, pl.Series) else pl.from_pandas(native)
    if column.dtype == pl.Null:
        return column.cast(dtype).alias(name)
    wanted_int = dtype.is_integer()
    fits = column.dtype.is_integer() or (dtype.is_float() and column.dtype.is_float())
    if dtype == pl.Boolean:
        fits = column.dtype == pl.Boolean
    if not fits:
        raise _wrong(name, column.dtype, "whole numbers" if wanted_int else str(dtype))
    return column.cast(dtype).alias(name)


__all__ = ["InstantError", "Kind", "give_back", "kind_of", "read", "read_rows"]
