"""What the mesh knows of the items that edges name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import select

from mnemes_lab.errors import InvalidProvenanceError
from mnemes_lab.ids import is_uuid4, unique
from mnemes_lab.store import tables as t
from mnemes_lab.store.operations import item
from mnemes_lab.store.store import Store
from mnemes_lab.store.trail import chunks, owners


class Known(NamedTuple):
    """What the mesh knows of everything a batch of edges names."""

    facts: dict[str, str]
    operations: dict[str, Mapping[str, Any]]  # with their home
    edges: dict[str, Mapping[str, Any]]
    actors: set[str]
    devices: set[str]
    receipts: set[str]

    def need(self, key: str, what: str) -> None:
        """Refuse an item of a kind the mesh keeps itself and does not hold."""
        kind, _, id = key.partition(":")
        held: Any = {
            "fact": self.facts,
            "operation": self.operations,
            "actor": self.actors,
            "device": self.devices,
            "receipt": self.receipts,
        }.get(kind)
        if held is not None and id not in held:
            raise InvalidProvenanceError(
                f"The {what} is not there.",
                found=key,
                hint=f"no {kind} of this mesh has this id",
            )


def look_up(store: Store, rows: Sequence[Mapping[str, Any]]) -> Known:
    """All that rows of edges name, looked up kind by kind."""
    named: dict[str, set[str]] = {}
    for row in rows:
        for end in ("source", "target"):
            kind, _, id = row[end].partition(":")
            named.setdefault(kind, set()).add(id)
        if row["operation_id"]:
            named.setdefault("operation", set()).add(row["operation_id"])
    p, e = t.pooled_operations, t.pooled_edges
    operations = _find(store, p, p.c.operation_id, named.get("operation", ()))
    replaced = {row["supersedes_edge_id"] for row in rows if row["supersedes_edge_id"]}
    return Known(
        owners(store, sorted(named.get("fact", ()))),
        {row["operation_id"]: row for row in operations},
        {row["edge_id"]: row for row in _find(store, e, e.c.edge_id, replaced)},
        {
            r["actor_id"]
            for r in _find(store, t.actors, t.actors.c.actor_id, named.get("actor", ()))
        },
        {
            r["device_id"]
            for r in _find(store, t.devices, t.devices.c.device_id, named.get("device", ()))
        },
        {
            r["receipt_id"]
            for r in _find(store, t.receipts, t.receipts.c.receipt_id, named.get("receipt", ()))
        },
    )


def _find(store: Store, table: Any, column: Any, values: Any) -> list[Any]:
    found: list[Any] = []
    for part in chunks(sorted(values)):
        found += store.rows(select(table).where(column.in_(part)))
    return found


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


def edges_under(
    store: Store, rows: Sequence[Mapping[str, Any]]
) -> dict[tuple[Any, ...], Mapping[str, Any]]:
    """Edges already recorded under the operations that rows name."""
    e = t.pooled_edges
    wanted = {row["operation_id"] for row in rows if row["operation_id"]}
    return {
        (row["operation_id"], row["edge_type"], row["source"], row["target"]): row
        for row in _find(store, e, e.c.operation_id, [w for w in wanted if is_uuid4(w)])
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
