"""Two clocks: when a statement holds in the world, and when the mesh accepted it.

One predicate for facts, edges, searches and snapshots, on integers (microseconds UTC):

* on record at R: ``recorded_at <= R < closed_at``, and ``R < expires_at``;
* holds at V: ``valid_from <= V < valid_to``;
* where a fact *supersedes* another only for a part of its validity, what is left of the other one
  is on record as a row of its own, a `remainder`.

All intervals are half-open, open ends are null, an empty interval holds nowhere. With the valid
axis left open, validity is not looked at, and remainders are not shown.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

import polars as pl
from sqlalchemy import ColumnElement, and_, or_

from mnemes_lab import frames
from mnemes_lab.clock import to_us
from mnemes_lab.errors import InputError, InstantError, InvalidAsOfError

_ENDS = ("recorded_at", "closed_at", "expires_at", "valid_from", "valid_to")
_EDGE = (
    "edge_id", "edge_type", "source_kind", "source_id", "target_kind", "target_id",
    "supersedes_edge_id",
)  # fmt: skip


class AsOf(NamedTuple):
    """A point on both time axes; ``None`` leaves an axis open.

    ``valid_at=None`` does not look at validity; ``recorded_at=None`` means now. A search without
    an `AsOf` looks at what is current: both axes at now.

    Example:
        >>> AsOf(recorded_at="2031-06-11T00:00:00Z").micros(now=0)
        (None, 1938902400000000)
    """

    valid_at: datetime | str | None = None
    recorded_at: datetime | str | None = None

    def micros(self, now: int) -> tuple[int | None, int]:
        """Both points as microseconds, `now` standing in for an open record time.

        Raises:
            InvalidAsOfError: a time without an offset or one that cannot be read.
        """
        try:
            valid = None if self.valid_at is None else to_us(self.valid_at, what="valid_at")
            recorded = self.recorded_at
            return valid, now if recorded is None else to_us(recorded, what="recorded_at")
        except InstantError as error:
            raise InvalidAsOfError(*error.args) from None


def points(as_of: AsOf | None, now: int) -> tuple[int | None, int]:
    """The points a question looks at: both at `now` unless an `AsOf` says otherwise."""
    as_of = checked_as_of(as_of)
    return (now, now) if as_of is None else as_of.micros(now)


def checked_as_of(as_of: AsOf | None) -> AsOf | None:
    """An `AsOf` or None, and nothing that could be taken for a time on either axis.

    Raises:
        InputError: anything else.
    """
    if as_of is not None and not isinstance(as_of, AsOf):
        raise InputError(
            "as_of must be an AsOf or None.",
            found=as_of,
            hint='AsOf(valid_at="2031-06-11T09:30:00Z") names the axis of the time',
        )
    return as_of


def visible(c: Any, valid: int | None, recorded: int) -> ColumnElement[bool]:
    """The predicate in SQL, over whichever of the columns `c` has."""
    have = [name for name in _ENDS if name in c]
    rules: list[ColumnElement[bool]] = [c.recorded_at <= recorded]
    if "closed_at" in have:
        rules.append(or_(c.closed_at.is_(None), c.closed_at > recorded))
    if "expires_at" in have:
        rules.append(or_(c.expires_at.is_(None), c.expires_at > recorded))
    if valid is None and "remainder" in c:
        rules.append(c.remainder == 0)
    if valid is not None:
        rules.append(or_(c.valid_from.is_(None), c.valid_from <= valid))
        rules.append(or_(c.valid_to.is_(None), c.valid_to > valid))
    return and_(*rules)


def visible_expr(columns: list[str], valid: int | None, recorded: int) -> pl.Expr:
    """The predicate in polars, over whichever of the columns there are."""

    def at(us: int) -> pl.Expr:
        return pl.lit(us).cast(pl.Datetime("us", "UTC"))

    def beyond(name: str, us: int) -> pl.Expr:
        return pl.col(name).is_null() | (pl.col(name) > at(us))

    rule = pl.col("recorded_at") <= at(recorded)
    if "closed_at" in columns:
        rule &= beyond("closed_at", recorded)
    if "expires_at" in columns:
        rule &= beyond("expires_at", recorded)
    if valid is None and "remainder" in columns:
        rule &= ~pl.col("remainder").fill_null(False)
    if valid is not None:
        if "valid_from" in columns:
            rule &= pl.col("valid_from").is_null() | (pl.col("valid_from") <= at(valid))
        if "valid_to" in columns:
            rule &= beyond("valid_to", valid)
    return rule


def as_of(
    frame: Any,
    point: AsOf | None = None,
    *,
    valid_at: datetime | str | None = None,
    recorded_at: datetime | str | None = None,
    include_superseded: bool = False,
) -> Any:
    """The rows of a frame that were on record and hold at a point on the two time axes.

    Args:
        frame: `facts`, `history`, `edges`, `operations`, or any frame with `recorded_at`; reads
            closed_at, expires_at, valid_from, valid_to and remainder where there are any.
        point: The point; or give its axes by name.
        valid_at: When in the world; None does not look at validity.
        recorded_at: What was known by then; None is the last record time in the frame.
        include_superseded: Keep edges that another edge replaces, or whose source or target is
            superseded at that point. Edges of type `supersedes` stay, unless replaced.

    Returns:
        Some of the rows, in their order, of the same kind of frame.

    Raises:
        MissingColumnError, SchemaError: no recorded_at, or instants that are not instants.
        InvalidAsOfError: a time that names no instant.

    Cost: one pass; for edges one semi-join more where something was superseded.

    Example:
        >>> import polars as pl
        >>> at = pl.Series(["2031-06-01T00:00:00Z", "2031-06-09T00:00:00Z"]).str.to_datetime(
        ...     time_unit="us", time_zone="UTC")
        >>> as_of(pl.DataFrame({"text": ["gate B2", "gate B9"], "recorded_at": at}),
        ...       recorded_at="2031-06-05T00:00:00Z")["text"].to_list()
        ['gate B2']
    """
    if point is not None and (valid_at is not None or recorded_at is not None):
        raise InputError("Give either an AsOf or valid_at and recorded_at.", found=point)
    chosen = checked_as_of(point) or AsOf(valid_at, recorded_at)
    slim = frames.read_some(frame, _ENDS, (*_EDGE, "remainder"))
    known = [n for n in ("recorded_at", "closed_at") if n in slim.columns]
    valid, recorded = chosen.micros(max((_last(slim[n]) for n in known), default=0))
    keep = slim.select(visible_expr(slim.columns, valid, recorded)).to_series()
    if not include_superseded and set(_EDGE) <= set(slim.columns):
        hidden = superseded(slim.filter(keep))
        if hidden is not None:
            keep[keep.arg_true().filter(hidden)] = False
    if frames.kind_of(frame) == "polars":
        return frame.filter(keep)
    return frame.loc[keep.fill_null(False).to_numpy()].reset_index(drop=True)


def _last(instants: pl.Series) -> int:
    return int(instants.cast(pl.Int64).max() or 0)  # type: ignore[arg-type]


def superseded(edges: pl.DataFrame) -> pl.Series | None:
    """Which of some visible edges another of them hides; None when none is.

    An edge is hidden when a visible edge names it in `supersedes_edge_id`, or when its source or
    target is an item that a visible `supersedes` edge, itself not replaced, points at. An edge of
    type `supersedes` is only ever hidden by its replacement.
    """
    named = edges["supersedes_edge_id"].drop_nulls()
    replaced = edges["edge_id"].is_in(named.implode()) if len(named) else None
    over = edges["edge_type"] == "supersedes"
    at = over if replaced is None else over & ~replaced
    gone = edges.filter(at).select(kind="target_kind", id="target_id").unique()
    if not gone.height:
        return replaced
    ids, pairs = gone["id"].implode(), gone.select(pl.struct("kind", "id")).to_series().implode()
    hidden = pl.repeat(False, edges.height, dtype=pl.Boolean, eager=True)
    for end in ("source", "target"):
        near = edges[f"{end}_id"].is_in(ids)  # cheaper than looking at kinds too, and nearly right
        met = edges.filter(near).select(
            pl.struct(kind=pl.col(f"{end}_kind"), id=pl.col(f"{end}_id")).is_in(pairs)
        )
        hidden[near.arg_true()] = hidden.gather(near.arg_true()) | met.to_series()
    hidden &= ~over
    return hidden if replaced is None else hidden | replaced
