"""What the mesh knows of the items that edges name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Column

from mnemes_lab.errors import InvalidProvenanceError
from mnemes_lab.ids import unique
from mnemes_lab.store import tables as t
from mnemes_lab.store.evidence import operations_frame
from mnemes_lab.store.operations import item
from mnemes_lab.store.store import Store
from mnemes_lab.store.trail import owners, rows_in

# Kinds of items that the mesh keeps itself, and where.
_KEPT: dict[str, Column[Any]] = {
    "fact": t.fact_index.c.fact_id,
    "operation": t.pooled_operations.c.operation_id,
    "actor": t.actors.c.actor_id,
    "device": t.devices.c.device_id,
    "receipt": t.receipts.c.receipt_id,
}


class Known(NamedTuple):
    """What the mesh knows of everything a batch of edges names: rows by kind and id, and edges."""

    items: dict[str, dict[str, Any]]
    edges: dict[str, Any]

    def device_of(self, fact_id: str) -> str | None:
        """The device that holds a fact."""
        row = self.items["fact"].get(fact_id)
        return None if row is None else str(row["device_id"])

    def need(self, key: str, what: str) -> None:
        """Refuse an item of a kind the mesh keeps itself and does not hold."""
        kind, _, id = key.partition(":")
        if kind in self.items and id not in self.items[kind]:
            raise InvalidProvenanceError(
                f"The {what} is not there.",
                found=key,
                hint=f"no {kind} of this mesh has this id",
            )


def look_up(store: Store, rows: Sequence[Mapping[str, Any]]) -> Known:
    """All that rows of edges name, looked up kind by kind."""
    named: dict[str, set[str]] = {}
    held: dict[str, dict[str, Any]] = {}
    for row in rows:
        for end in ("source", "target"):
            kind, _, id = row[end].partition(":")
            named.setdefault(kind, set()).add(id)
        if row["operation_id"]:
            named.setdefault("operation", set()).add(row["operation_id"])
    for kind, column in _KEPT.items():
        ids = sorted(named.get(kind, ()))
        held[kind] = {row[column.name]: row for row in rows_in(store, column, ids)}
    if store.read_only and named.get("operation"):  # nobody brings the index up
        frame = operations_frame(store, {"operation_id": sorted(named["operation"])})
        held["operation"] = {row["operation_id"]: row for row in frame.to_dicts()}
    replaced = sorted({row["supersedes_edge_id"] for row in rows if row["supersedes_edge_id"]})
    edges = rows_in(store, t.pooled_edges.c.edge_id, replaced)
    return Known(held, {row["edge_id"]: row for row in edges})


def need_sources(store: Store, named: Sequence[str]) -> list[str]:
    """Items that a new fact is derived from, as keys; a plain fact id is read as a fact.

    Raises:
        InvalidProvenanceError: no list, no item, or one the mesh keeps itself and does not hold.
    """
    if isinstance(named, str) or not isinstance(named, Iterable):
        raise InvalidProvenanceError(
            "derived_from takes a list of facts or items.", found=named, hint=f"[{named!r}]"
        )
    given = list(named)
    plain = [n for n in given if isinstance(n, str) and n.isprintable()]
    bare = owners(store, plain) if plain else {}
    lost = [n for n in plain if n not in bare and ":" not in n]
    if lost:
        raise InvalidProvenanceError(
            "The source is not there.", found=lost[0], hint="no fact of this mesh has this id"
        )
    keys = [f"fact:{n}" if n in bare else item(n, "source") for n in given]
    need_items(store, keys, "source")
    return unique(keys)


def edges_under(store: Store, rows: Sequence[Mapping[str, Any]]) -> dict[tuple[Any, ...], Any]:
    """Edges already recorded under the operations that rows name."""
    wanted = sorted({row["operation_id"] for row in rows if row["operation_id"]})
    return {
        (row["operation_id"], row["edge_type"], row["source"], row["target"]): row
        for row in rows_in(store, t.pooled_edges.c.operation_id, wanted)
    }


def need_items(store: Store, keys: Sequence[str], what: str = "item") -> None:
    """Refuse items of a kind the mesh keeps itself and does not hold.

    Raises:
        InvalidProvenanceError
    """
    row = {"operation_id": None, "supersedes_edge_id": None}
    known = look_up(store, [{**row, "source": key, "target": key} for key in keys])
    for key in keys:
        known.need(key, what)
