"""What a mesh shows of its trail: operations, edges, lineage, evidence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

import polars as pl

from mnemes_lab import frames, schemas
from mnemes_lab.clock import from_us, to_us
from mnemes_lab.errors import InputError, OperationNotFoundError
from mnemes_lab.mesh.agent import Device
from mnemes_lab.mesh.labels import describe, words_of
from mnemes_lab.store import control, reading
from mnemes_lab.store.asof import AsOf, as_of, checked_as_of
from mnemes_lab.store.engine import transaction
from mnemes_lab.store.evidence import (
    Evidence,
    catch_up,
    edges_frame,
    item_keys,
    operations_frame,
    rebuild,
)
from mnemes_lab.store.index_graph import IndexGraph
from mnemes_lab.store.known import need_items
from mnemes_lab.store.lineage import (
    FrameGraph,
    Graph,
    Lineage,
    checked_walk,
    follow,
    items_of,
)
from mnemes_lab.store.operations import item
from mnemes_lab.store.store import Store

_MADE = ("recording_device_id", "recording_server_id", "receipt_id")


class MeshEvidence:
    """The part of :class:`mnemes_lab.mesh.mesh.Mesh` that shows operations and provenance."""

    store: Store

    # --- frames ------------------------------------------------------------------------------
    def current(self) -> AsOf:
        """Both axes at now. No later write changes what this point shows."""
        now = from_us(self.store.present())
        return AsOf(now, now)

    def operations(
        self, *, device: Device | str | None = None, as_of: AsOf | None = None, **where: Any
    ) -> pl.DataFrame:
        """The `operations` frame, oldest first.

        Args:
            device: Only those this device asked for.
            as_of: Only those on record at its record time.
            **where: Columns and the value or list of values wanted, such as
                ``operation_kind="redact"``.
        """
        columns = schemas.dtypes(schemas.Operations)
        if device is not None:
            where["requesting_device_id"] = self._device_id(device)
        unknown = sorted(set(where) - set(columns))
        if unknown:
            raise InputError(f"Operations have no column {unknown}.", hint=f"one of {[*columns]}")
        kept, later = {}, []
        for name, value in where.items():
            if isinstance(columns[name], pl.Datetime):
                later.append(pl.col(name) == from_us(to_us(value, what=name)))
                continue
            words = schemas.OPERATION_KINDS if name == "operation_kind" else None
            texts = _texts(value, name, words)
            if name in _MADE:  # when rows become a frame
                later.append(pl.col(name).is_in(texts))
            else:
                kept[name] = texts
        frame = operations_frame(self.store, kept)
        frame = frame.filter(*later) if later else frame
        point = self._recorded(as_of)
        return frame if point is None else frame.filter(pl.col("recorded_at") <= from_us(point))

    def edges(
        self,
        *,
        source: str | None = None,
        target: str | None = None,
        types: Sequence[str] | None = None,
        operation_id: str | None = None,
        device: Device | str | None = None,
        as_of: AsOf | None = None,
        include_superseded: bool | None = None,
    ) -> pl.DataFrame:
        """The `edges` frame, oldest first.

        Args:
            source: Only edges that leave this item, ``kind:id``.
            target: Only edges that enter this item.
            types: Only edges of these types.
            operation_id: Only edges recorded by this operation.
            device: Only edges in this device's shard, as it answers for itself.
            as_of: Only edges on record and valid at this point.
            include_superseded: Keep what other edges replace or supersede, see
                :func:`mnemes_lab.as_of`. Unless said, everything is shown without an `AsOf`, and
                nothing superseded with one.
        """
        everything = as_of is None and include_superseded is not False
        where: dict[str, Any] = {}
        for name, key in (("source", source), ("target", target)):
            if key is not None:
                where[name] = item(key, name)
        if types is not None:
            where["edge_type"] = _texts(types, "types", schemas.EDGE_TYPES)
        if operation_id is not None:
            where["operation_id"] = _texts(operation_id, "operation_id")
        chosen = None if device is None else self._device_id(device)
        if everything or include_superseded:
            frame = edges_frame(self.store, where, chosen)
            return frame if everything else _visible(frame, self._point(as_of), keep=True)
        frame = _visible(edges_frame(self.store, None, chosen), self._point(as_of), keep=False)
        for name, value in where.items():  # only now: what hides an edge may lie elsewhere
            if name in ("source", "target"):
                kind, _, id = value.partition(":")
                frame = frame.filter(pl.col(f"{name}_kind") == kind, pl.col(f"{name}_id") == id)
            else:
                frame = frame.filter(pl.col(name).is_in(value))
        return frame

    def lineage(
        self,
        root: str,
        *,
        direction: str = "both",
        depth: int | None = 6,
        limit: int = 10_000,
        as_of: AsOf | None = None,
        stop_at: Sequence[str] = (),
    ) -> Lineage:
        """What an item came from and what came of it; see :func:`mnemes_lab.lineage`.

        Raises:
            InvalidProvenanceError: the root is no item, or one the mesh should hold and does not.

        Cost: one recursive query and three look-ups; labels only when `items` is looked at.
        """
        key, walk = item(root, "root"), checked_walk(direction, depth, limit, stop_at)
        point = self._point(as_of)
        valid, recorded = point.micros(0)
        if not self.store.read_only:
            catch_up(self.store)
        need_items(self.store, [key], "root")
        if self.store.read_only:
            graph: Graph = FrameGraph(_visible(edges_frame(self.store), point, keep=True))
            found = follow(graph, key, walk)
        else:
            with transaction(self.store.reader, self.store.path, reading=True) as conn:
                found = follow(IndexGraph(conn, valid, recorded), key, walk)
        told = partial(describe, self.store, recorded=recorded)
        return replace(found, as_of=as_of, _describe=told)

    def items(self, edges: Any, *, as_of: AsOf | None = None) -> pl.DataFrame:
        """The `items` frame of what edges connect, by kind and id, in words for people.

        Args:
            edges: An `edges` frame, pandas or polars.
            as_of: Facts bear the words that were on record then; None is now.
        """
        table, recorded = frames.read(edges, schemas.Edges), self._point(as_of).micros(0)[1]
        if not self.store.read_only:
            catch_up(self.store)
        keys = dict.fromkeys(item_keys(table))
        return items_of(keys, words_of(self.store, keys, recorded)[0])

    def operation(
        self, operation_id: str, *, as_of: AsOf | None = None
    ) -> tuple[dict[str, Any], pl.DataFrame]:
        """One operation and the edges it recorded.

        Raises:
            OperationNotFoundError: none has this id, or none had at that record time.
        """
        found = self.operations(operation_id=str(operation_id), as_of=as_of)
        if not found.height:
            raise OperationNotFoundError(
                "No such operation.", found=operation_id, hint="mesh.operations() lists them"
            )
        edges = self.edges(operation_id=operation_id, as_of=as_of, include_superseded=True)
        return found.row(0, named=True), edges

    def evidence(self, as_of: AsOf | None = None) -> Evidence:
        """Everything the mesh can show for what it holds, for drawing and for export.

        Args:
            as_of: Facts, edges, operations, actors and devices as they were; None is everything.
        """
        store = self.store
        as_of = None if as_of is None else self._point(as_of)  # one now for all frames
        point = self._recorded(as_of)
        devices, actors = reading.devices_frame(store), reading.actors_frame(store)
        if point is not None:
            at = from_us(point)
            devices = devices.filter(pl.col("first_seen_at") <= at)
            actors = actors.filter(pl.col("recorded_at") <= at)
        facts = reading.facts_frame(store, None, as_of)
        edges = self.edges(as_of=as_of, include_superseded=True)
        operations = self.operations(as_of=as_of)
        return Evidence(store.mesh_id, as_of, devices, actors, facts, operations, edges)

    def rebuild_evidence(self) -> None:
        """Make the index of operations and edges across devices again from the shards."""
        rebuild(self.store)

    def _device_id(self, device: Device | str) -> str:
        chosen = device if isinstance(device, str) else device.device_id
        return str(control.find_device(self.store, chosen)["device_id"])

    def _point(self, as_of: AsOf | None) -> AsOf:
        """An `AsOf` whose record time is said."""
        chosen = checked_as_of(as_of) or AsOf()
        if chosen.recorded_at is None:
            chosen = AsOf(chosen.valid_at, from_us(self.store.present()))
        return chosen

    def _recorded(self, as_of: AsOf | None) -> int | None:
        return None if as_of is None else self._point(as_of).micros(0)[1]


def _texts(value: Any, what: str, words: list[str] | None = None) -> list[str]:
    """One text or several, each one of `words` where these are all there is."""
    several = [value] if isinstance(value, str) else value
    if not isinstance(several, (list, tuple, set, frozenset)) or not all(
        isinstance(text, str) for text in several
    ):
        raise InputError(f"{what} must be a text or a list of texts.", found=value)
    for text in several:
        if words is not None and text not in words:
            raise InputError(f"No such {what}.", found=text, hint=f"one of {words}")
    return sorted(frames.whole_text(text) for text in several)


def _visible(edges: pl.DataFrame, point: AsOf, *, keep: bool) -> pl.DataFrame:
    """The edges of a point; `keep` those that others supersede."""
    return cast(pl.DataFrame, as_of(edges, point, include_superseded=keep))
