r"""Rows of evidence as plain values, and edges as graphs that other tools read.

A graph has the items that some edges touch as nodes, named ``kind:id``, and those edges between
them. PROV documents are made in :mod:`mnemes_lab.view.prov`, folders of Parquet files in
:mod:`mnemes_lab.view.parquet`.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Mapping
from datetime import date, datetime
from typing import Any

import dataframely as dy
import numpy as np

from mnemes_lab import frames, schemas
from mnemes_lab.clock import from_us, rfc3339, to_us
from mnemes_lab.errors import InputError, SchemaError
from mnemes_lab.ids import ItemRef
from mnemes_lab.store.asof import AsOf, checked_as_of
from mnemes_lab.store.evidence import Evidence
from mnemes_lab.view.plain import json_text

FRAMES: dict[str, type[dy.Schema]] = {
    "devices": schemas.Devices,
    "actors": schemas.Actors,
    "facts": schemas.Facts,
    "operations": schemas.Operations,
    "edges": schemas.Edges,
}
_OF_ITEMS = ("depth", "label", "device", "recorded_at")  # what a node shows of its item
_LINK_NAMES = {"source", "target", "key"}  # what node-link JSON calls the ends and the id
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_HINT = "drop the column, or give text, flags, finite numbers of 64 bits, dates or instants"


# --- evidence as plain values --------------------------------------------------------------------
def checked(evidence: Any) -> Evidence:
    """The evidence itself, if it is some.

    Raises:
        InputError: it is something else.

    Example:
        >>> checked([])
        Traceback (most recent call last):
        ...
        mnemes_lab.errors.InputError: This is no evidence. Found 'list'. Hint: ...
    """
    if not isinstance(evidence, Evidence):
        hint = "mesh.evidence() gives it"
        raise InputError("This is no evidence.", found=type(evidence).__name__, hint=hint)
    if not isinstance(evidence.mesh_id, str) or not evidence.mesh_id.strip():
        raise InputError("Evidence names the mesh it comes from.", found=evidence.mesh_id)
    frames.whole_text(evidence.mesh_id)
    checked_as_of(evidence.as_of)
    return evidence


def as_of_texts(as_of: AsOf | None) -> dict[str, str | None] | None:
    """Both points in time as RFC 3339 text; None for an open axis.

    Raises:
        InstantError: a time that cannot be read.

    Example:
        >>> as_of_texts(AsOf(recorded_at="2031-06-11T09:30:00Z"))
        {'valid_at': None, 'recorded_at': '2031-06-11T09:30:00+00:00'}
    """
    if as_of is None:
        return None
    return {
        axis: None if at is None else rfc3339(to_us(at, what=axis))
        for axis, at in as_of._asdict().items()
    }


def rows(frame: Any, schema: type[dy.Schema]) -> list[dict[str, Any]]:
    """The rows of a pandas or polars frame, sorted by key, as plain values without nulls.

    Columns beyond the schema are kept.

    Raises:
        SchemaError: not a frame of this schema, or a value that cannot be written; its column is
            named.
        InstantError: an extra column of datetimes without an offset.

    Example:
        >>> import polars as pl
        >>> frame = pl.DataFrame({"item_kind": ["fact"], "item_id": ["f-1"], "depth": [0]})
        >>> rows(frame.with_columns(score=0.5, note=None), schemas.Items)
        [{'item_kind': 'fact', 'item_id': 'f-1', 'depth': 0, 'score': 0.5}]
    """
    table, what = frames.read(frame, schema), schema.__name__.lower()
    columns = {name: _values(table[name], f"{what}.{name}") for name in table.columns}
    for name in frame.columns:
        if name not in columns:
            column = f"{what}.{_column_name(name, what)}"
            columns[name] = [plain(value, column) for value in _values(frame[name], column)]
    out = [
        {name: value for name, value in zip(columns, row, strict=True) if value is not None}
        for row in zip(*columns.values(), strict=True)
    ]
    key = schema.primary_key()
    return sorted(out, key=lambda row: [row[name] for name in key])


def _column_name(name: Any, what: str) -> str:
    if not isinstance(name, str):
        raise SchemaError(f"A column of {what} has a name that is no text.", problems=[repr(name)])
    return _whole(name, f"A column name of {what}")


def _whole(text: str, what: str) -> str:
    try:
        return frames.whole_text(text)
    except SchemaError as error:
        raise SchemaError(f"{what} {error}") from None


def _values(series: Any, what: str) -> list[Any]:
    try:
        values: list[Any] = series.to_list()
    except (OverflowError, ValueError):  # dates that Python cannot hold
        raise SchemaError(f"{what} holds a time outside the years 1 to 9999.") from None
    return values


def plain(value: Any, what: str) -> Any:
    """A value as text, flag, number, date or aware datetime; None for what means missing.

    Raises:
        SchemaError: any other kind of value, half a character, or a number that is not finite or
            needs more than 64 bits.
        InstantError: a datetime without an offset.

    Example:
        >>> plain(float("nan"), "score"), plain("pump", "note")
        (None, 'pump')
    """
    if isinstance(value, (np.bool_, np.integer, np.floating)):
        value = value.item()
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return None
    if isinstance(value, str):
        return str.__str__(_whole(value, what))  # what a subclass calls itself is not its text
    if isinstance(value, bool):
        return value
    if isinstance(value, int) and -(2**63) <= value < 2**64:
        return int(value)
    if isinstance(value, float) and not math.isinf(value):
        return None if math.isnan(value) else float(value)
    if isinstance(value, datetime):
        return from_us(to_us(value, what=what))
    if isinstance(value, date):
        return date.fromordinal(value.toordinal())
    kind = type(value).__name__
    raise SchemaError(f"{what} holds a value that cannot be written.", problems=[kind], hint=_HINT)


# --- graphs --------------------------------------------------------------------------------------
def to_networkx(edges: Any, items: Any = None) -> Any:
    """Edges of provenance as a ``networkx.MultiDiGraph``, nodes and edges sorted by their keys.

    Args:
        edges: Frame `Edges`, pandas or polars. Each row is an edge whose key is its edge_id and
            whose attributes are all its columns; a null leaves no attribute.
        items: Frame `Items`, or None. Gives nodes their depth, label, device and recorded_at, and
            adds the items that no edge touches.

    Returns:
        The graph. Nodes are keys ``kind:id`` with the attributes kind and id, and what `items`
        knows of them.

    Raises:
        SchemaError: not such frames, or an extra column that cannot be written.
        IdError: an item without an id, or with a colon in its kind.

    Example:
        >>> import polars as pl
        >>> edges = pl.DataFrame({
        ...     "edge_id": ["e-1"], "edge_type": ["derived_from"], "operation_id": ["o-1"],
        ...     "source_kind": ["fact"], "source_id": ["new"],
        ...     "target_kind": ["fact"], "target_id": ["old"],
        ...     "recorded_at": ["2031-06-11T09:30:00Z"],
        ... })
        >>> graph = to_networkx(edges)
        >>> list(graph.nodes), graph.edges["fact:new", "fact:old", "e-1"]["edge_type"]
        (['fact:new', 'fact:old'], 'derived_from')
    """
    import networkx as nx

    nodes: dict[str, dict[str, Any]] = {}
    links = []
    for edge in rows(edges, schemas.Edges):
        ends = ends_of(edge)
        nodes.update({ref.key: ref._asdict() for ref in ends})
        links.append((*(ref.key for ref in ends), edge["edge_id"], edge))
    for item in [] if items is None else rows(items, schemas.Items):
        ref = ItemRef.of(item["item_kind"], item["item_id"])
        known = {name: item[name] for name in _OF_ITEMS if name in item}
        nodes[ref.key] = {**ref._asdict(), **known}
    graph = nx.MultiDiGraph()
    graph.add_nodes_from(sorted(nodes.items()))
    graph.add_edges_from(links)
    return graph


def ends_of(edge: Mapping[str, Any]) -> tuple[ItemRef, ItemRef]:
    """Source and target of a row of `Edges`.

    Raises:
        IdError: a blank part, or a colon in a kind.

    Example:
        >>> edge = dict(source_kind="fact", source_id="f", target_kind="actor", target_id="a")
        >>> [end.key for end in ends_of(edge)]
        ['fact:f', 'actor:a']
    """
    return (
        ItemRef.of(edge["source_kind"], edge["source_id"]),
        ItemRef.of(edge["target_kind"], edge["target_id"]),
    )


def graph_json(graph: Any) -> str:
    """A graph of :func:`to_networkx` as node-link JSON, instants as RFC 3339 text.

    ``networkx.node_link_graph(json.loads(text), name="key", edges="edges")`` reads it; in D3 it is
    ``forceLink(edges).id(node => node.key)``.

    Raises:
        SchemaError: an attribute that cannot be written, or whose name is taken.

    Example:
        >>> import json, networkx
        >>> graph = networkx.MultiDiGraph()
        >>> graph.add_node("fact:f-1", kind="fact")
        >>> json.loads(graph_json(graph))["nodes"]
        [{'kind': 'fact', 'key': 'fact:f-1'}]
    """
    import networkx as nx

    taken = {name for *_, data in graph.edges(data=True) for name in data} & _LINK_NAMES
    if taken:
        what = f"JSON of a graph has its own use for {sorted(taken)}."
        raise SchemaError(what, hint="rename the column")
    return json_text(nx.node_link_data(_respelt(graph), name="key", edges="edges"), indent=1)


def graphml(graph: Any) -> str:
    r"""A graph of :func:`to_networkx` as GraphML, instants as RFC 3339 text.

    A character that XML cannot hold is spelt ``\u`` and its four digits; so that no two nodes or
    edges become one, their ids spell a backslash as two. ``networkx.parse_graphml(text,
    edge_key_type=str, force_multigraph=True)`` reads it.

    Raises:
        SchemaError: an attribute that cannot be written.

    Example:
        >>> import networkx
        >>> graph = networkx.MultiDiGraph()
        >>> graph.add_node("fact:a\x0b", kind="fact")
        >>> print(*networkx.parse_graphml(graphml(graph)))
        fact:a\u000b
    """
    import networkx as nx

    def text(raw: str) -> str:
        return _NOT_XML.sub(lambda match: f"\\u{ord(match[0]):04x}", raw)

    out = io.BytesIO()
    # Not generate_graphml, which splits lines inside texts; not write_graphml, whose bytes depend
    # on whether lxml is installed.
    nx.write_graphml_xml(_respelt(graph, text, lambda raw: text(raw.replace("\\", "\\\\"))), out)
    return out.getvalue().decode().replace("\r", "&#13;")  # a bare one reads back as a line feed


def _respelt(graph: Any, text: Callable[[str], str] = str, key: Callable[[str], str] = str) -> Any:
    """A copy whose attributes are text, flags and numbers only."""
    import networkx as nx

    def spell(value: Any) -> Any:
        if isinstance(value, datetime):
            return rfc3339(to_us(value))
        return text(str(value)) if isinstance(value, (str, date)) else value

    def all_of(data: Mapping[str, Any]) -> dict[str, Any]:
        found = {text(name): spell(plain(value, name)) for name, value in data.items()}
        return {name: value for name, value in found.items() if value is not None}

    out = nx.MultiDiGraph()
    out.add_nodes_from((key(node), all_of(data)) for node, data in graph.nodes(data=True))
    out.add_edges_from(
        (key(source), key(target), key(name), all_of(data))
        for source, target, name, data in graph.edges(keys=True, data=True)
    )
    return out


__all__ = ["graph_json", "graphml", "to_networkx"]
