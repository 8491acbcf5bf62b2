"""Evidence as a W3C PROV document.

* Facts are entities with their text as ``prov:value``, operations are activities that start and
  end when they were recorded, actors and devices are agents; an actor acts on behalf of its
  device, an operation is associated with the actor who asked or, without one, with the device or
  the mesh. Items that no frame describes are agents (kinds actor, agent, device, mesh), activities
  (operation) or entities (any other kind).
* Edges become the relations of `PROV-DM <https://www.w3.org/TR/prov-dm/>`_ below, where their ends
  are of the kinds that the relation takes, and ``wasInfluencedBy`` otherwise.

==============================  =====================================================
edge                            relation
==============================  =====================================================
observed_by, recorded_by        source ``wasAttributedTo`` an agent
observed_by, recorded_by        source ``wasGeneratedBy`` an operation
derived_from                    source ``wasDerivedFrom`` target
supersedes                      the same, of type ``prov:Revision``
retrieved_from                  the same, of type ``prov:PrimarySource``
supports, contradicts           target ``wasInfluencedBy`` source, of that type
==============================  =====================================================

Every column of a row is an attribute ``mnemes:<column>``, raw ids included; a null leaves none. A
redacted fact keeps its digest, times and owner, and none of its words. Names are made of kind and
id, percent-encoded, in a namespace of the mesh: two items, or two meshes, never share one. What is
written reads back equal, and the same evidence gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import date, datetime
from typing import Any
from urllib.parse import quote

from mnemes_lab import schemas
from mnemes_lab.errors import MissingExtraError
from mnemes_lab.ids import ItemRef
from mnemes_lab.store.evidence import Evidence
from mnemes_lab.view.export import as_of_texts, checked, ends_of, rows

_URI = "urn:mnemes-lab"
_WORDS = ("text", "subject", "predicate", "object", "source")  # what a redaction is about
_ROLES = dict.fromkeys(("actor", "agent", "device", "mesh"), "agent") | {"operation": "activity"}
_MADE_BY = ("observed_by", "recorded_by")
_DERIVED = {"derived_from": None, "supersedes": "Revision", "retrieved_from": "PrimarySource"}
_EVIDENCE_FOR = ("supports", "contradicts")  # the source is what influenced the target


def to_prov(evidence: Evidence) -> Any:
    """Evidence as a ``prov.model.ProvDocument``, by the mapping above.

    Raises:
        MissingExtraError: the package prov is not installed.
        InputError: not evidence.
        SchemaError: a frame of another shape, or an extra column with a value that cannot be
            written, such as a list; the column is named.

    Example:
        >>> from mnemes_lab.view.export import FRAMES
        >>> evidence = Evidence("m-1", None, *(schemas.empty(s) for s in FRAMES.values()))
        >>> print(to_prov(evidence).get_provn())
        document
          prefix mnemes <urn:mnemes-lab:terms:>
          prefix mesh <urn:mnemes-lab:mesh:m-1:>
        <BLANKLINE>
          entity(mesh:evidence, [mnemes:mesh_id="m-1"])
        endDocument
    """
    out = _Document(checked(evidence).mesh_id)
    out.head(as_of_texts(evidence.as_of) or {})
    for device in rows(evidence.devices, schemas.Devices):
        out.describe(ItemRef("device", device["device_id"]), device, label=device["label"])
    for actor in rows(evidence.actors, schemas.Actors):
        out.describe(ItemRef("actor", actor["actor_id"]), actor, label=actor.get("name"))
        out.acts_for(actor)
    for fact in rows(evidence.facts, schemas.Facts):
        out.describe(ItemRef("fact", fact["fact_id"]), fact)
    for operation in rows(evidence.operations, schemas.Operations):
        out.describe(ItemRef("operation", operation["operation_id"]), operation)
        out.asked_by(operation)
    for edge in rows(evidence.edges, schemas.Edges):
        out.relate(edge)
    return out.finish()


def prov_json(evidence: Evidence) -> str:
    """Evidence as W3C PROV-JSON: ASCII, one line, the same bytes every time.

    Raises:
        MissingExtraError, InputError, SchemaError: as for :func:`to_prov`.

    Example:
        >>> import json
        >>> from mnemes_lab.view.export import FRAMES
        >>> evidence = Evidence("m-1", None, *(schemas.empty(s) for s in FRAMES.values()))
        >>> json.loads(prov_json(evidence))["entity"]
        {'mesh:evidence': {'mnemes:mesh_id': 'm-1'}}
    """
    return str(to_prov(evidence).serialize(format="json"))


class _Document:
    """A PROV document being written."""

    def __init__(self, mesh_id: str) -> None:
        try:
            from prov.constants import PROV, PROV_LABEL, PROV_TYPE, PROV_VALUE, XSD
            from prov.model import Literal, ProvDocument
        except ImportError:
            raise MissingExtraError.of("A PROV document", "prov", "prov") from None
        self.prov, self.xsd, self.literal = PROV, XSD, Literal
        self.type, self.value, self.label = PROV_TYPE, PROV_VALUE, PROV_LABEL
        self.document = ProvDocument()
        self.terms = self.document.add_namespace("mnemes", f"{_URI}:terms:")
        self.names = self.document.add_namespace("mesh", f"{_URI}:mesh:{_name(mesh_id)}:")
        self.mesh_id = mesh_id
        self.mentioned: dict[ItemRef, Any] = {}
        self.described: set[ItemRef] = set()
        self.columns: dict[str, Any] = {}

    def head(self, as_of: Mapping[str, Any]) -> None:
        """What the document is about, and as of when."""
        attributes = self._attributes({"mesh_id": self.mesh_id, **as_of})
        self.document.entity(self.names["evidence"], attributes)

    def describe(self, ref: ItemRef, row: Mapping[str, Any], *, label: str | None = None) -> None:
        """An item as entity, activity or agent, with the columns of its row."""
        self.described.add(ref)
        name = self._mention(ref)
        attributes: dict[Any, Any] = {self.type: self.terms[_name(ref.kind)]}
        if label is not None:
            attributes[self.label] = label
        if ref.kind == "fact" and "text" in row and row.get("status") != "redacted":
            attributes[self.value] = row["text"]
        hidden = _WORDS if row.get("status") == "redacted" else ("text",)
        attributes |= self._attributes(row, hidden if ref.kind == "fact" else ())
        if _role(ref) == "activity":
            at = row.get("recorded_at")
            self.document.activity(name, at, at, attributes)
        else:
            make = self.document.agent if _role(ref) == "agent" else self.document.entity
            make(name, attributes)

    def acts_for(self, actor: Mapping[str, Any]) -> None:
        """An actor acts on behalf of its device."""
        self.document.delegation(
            self._mention(ItemRef("actor", actor["actor_id"])),
            self._mention(ItemRef("device", actor["device_id"])),
            None,
            self.names[f"acts/{_name(actor['actor_id'])}"],
        )

    def asked_by(self, operation: Mapping[str, Any]) -> None:
        """An operation is associated with who asked for it, as exactly as is known."""
        device = operation["requesting_device_id"]
        ref = ItemRef("mesh" if device == self.mesh_id else "device", device)
        if "requesting_actor_id" in operation:
            ref = ItemRef("actor", operation["requesting_actor_id"])
        self.document.association(
            self._mention(ItemRef("operation", operation["operation_id"])),
            self._mention(ref),
            None,
            self.names[f"asked/{_name(operation['operation_id'])}"],
        )

    def relate(self, edge: Mapping[str, Any]) -> None:
        """An edge as the relation that fits its ends, or as an influence."""
        ends, edge_type = ends_of(edge), edge["edge_type"]
        source, target = map(self._mention, ends)
        name = self.names[f"edge/{_name(edge['edge_id'])}"]
        attributes = self._attributes(edge)
        roles = tuple(map(_role, ends))
        if edge_type in _MADE_BY and roles == ("entity", "agent"):
            self.document.attribution(source, target, name, attributes)
        elif edge_type in _MADE_BY and roles == ("entity", "activity"):
            self.document.generation(source, target, None, name, attributes)
        elif edge_type in _DERIVED and roles == ("entity", "entity"):
            if special := _DERIVED[edge_type]:
                attributes[self.type] = self.prov[special]
            self.document.derivation(source, target, None, None, None, name, attributes)
        else:
            attributes[self.type] = self.terms[edge_type]
            if edge_type in _EVIDENCE_FOR:
                source, target = target, source
            self.document.influence(source, target, name, attributes)

    def finish(self) -> Any:
        """The document, with the items that were only mentioned."""
        for ref in sorted(self.mentioned.keys() - self.described):
            self.describe(ref, {"item_kind": ref.kind, "item_id": ref.id})
        return self.document

    def _mention(self, ref: ItemRef) -> Any:
        if ref not in self.mentioned:
            name = f"item/{_name(ref.kind)}/{_name(ref.id)}"
            self.mentioned[ref] = self.names[name]
        return self.mentioned[ref]

    def _attributes(self, row: Mapping[str, Any], hidden: Collection[str] = ()) -> dict[Any, Any]:
        out = {}
        for column, value in row.items():
            if column not in hidden and value is not None:
                # PROV-JSON of a bare date does not end; a typed literal of it does.
                dated = isinstance(value, date) and not isinstance(value, datetime)
                typed = self.literal(value.isoformat(), self.xsd["date"]) if dated else value
                out[self._term(column)] = typed
        return out

    def _term(self, column: str) -> Any:
        if column not in self.columns:  # a few names, met in every row
            self.columns[column] = self.terms[_name(column)]
        return self.columns[column]


def _name(text: str) -> str:
    """Text as a part of a qualified name: ASCII, without a character that means something."""
    return quote(text, safe="")


def _role(ref: ItemRef) -> str:
    return _ROLES.get(ref.kind, "entity")


__all__ = ["prov_json", "to_prov"]
