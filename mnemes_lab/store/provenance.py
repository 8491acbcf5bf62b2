"""Provenance edges: append-only, checked, each under an operation.

An edge says that its source stands to its target in one of seven relations, read in that order:
a fact is *observed_by* an actor or device, *recorded_by* an operation, *derived_from* or
*retrieved_from* what it was made of; evidence *supports* or *contradicts* a claim; what is newer
*supersedes* what was there before.

An edge lies with its operation. Without one of the caller's, a new one is recorded with it: in the
shard of the fact it leaves (or else enters), as far as whoever asks may write there, and in
pooled.db otherwise. Nothing is changed or deleted; a wrong edge is replaced by one of the same type
between the same items that names it in `supersedes_edge_id`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import polars as pl
from sqlalchemy import Connection

from mnemes_lab import schemas
from mnemes_lab.digest import canonical_json
from mnemes_lab.errors import (
    AuthorizationDeniedError,
    EdgeNotFoundError,
    IdempotencyConflictError,
    InputError,
    InvalidAsOfError,
    InvalidProvenanceError,
    MnemesError,
    OperationNotFoundError,
)
from mnemes_lab.store import tables as t
from mnemes_lab.store.evidence import catch_up
from mnemes_lab.store.known import Known, edges_under, look_up
from mnemes_lab.store.operations import (
    By,
    Envelope,
    checked_digest,
    evidence_ids,
    first_answer,
    item,
)
from mnemes_lab.store.store import Store
from mnemes_lab.store.writing import Part, commit, put_evidence

_INSTANT = pl.Datetime("us", "UTC")
EDGE_INPUT: dict[str, pl.DataType] = {
    "edge_type": pl.String(),
    "source": pl.String(),
    "target": pl.String(),
    "operation_id": pl.String(),
    "valid_from": _INSTANT,
    "valid_to": _INSTANT,
    "observed_at": _INSTANT,
    "content_digest": pl.String(),
    "metadata": pl.String(),
    "supersedes_edge_id": pl.String(),
}
_MAX_METADATA = 65_536
_IMPLIED = {"observed_by": "observe", "supersedes": "supersede"}
_SAME = (  # what a repeated edge must agree in
    "actor_id", "device_id", "valid_from", "valid_to", "observed_at", "content_digest",
    "metadata", "supersedes_edge_id",
)  # fmt: skip


def add_edges(
    store: Store, table: pl.DataFrame, refused: Mapping[int, str], by: By
) -> tuple[pl.DataFrame, list[MnemesError | None]]:
    """Record edges; answer every row.

    Args:
        store: The open store.
        table: Columns of `EDGE_INPUT`.
        refused: Why some rows are refused already, by position.
        by: Who asks. With a key, a repeated request is answered as the first time.

    Returns:
        `edge_answers` frame in input order (stored, duplicate or refused), and the error of each
        refused row.

    Notes:
        All that is stored is stored together. One bad row refuses itself only.
    """
    batch = _Batch(store, table, refused, by)
    with store.writing():
        if by.key is not None:
            known = first_answer(store, by, batch.request)
            if known is not None:
                batch.replay(json.loads(known["answer"]))
                return batch.answers(), batch.errors
        catch_up(store)
        batch.sort_out()
        batch.write()
    return batch.answers(), batch.errors


class _Batch:
    def __init__(
        self, store: Store, table: pl.DataFrame, refused: Mapping[int, str], by: By
    ) -> None:
        self.store, self.by = store, by
        instants = [n for n, dtype in EDGE_INPUT.items() if isinstance(dtype, pl.Datetime)]
        self.rows = table.with_columns(pl.col(instants).cast(pl.Int64)).to_dicts()
        self.n = len(self.rows)
        self.errors: list[MnemesError | None] = [None] * self.n
        for i, why in refused.items():
            self.errors[i] = InputError(f"The edge was refused: {why}.")
        self.outcome = ["refused"] * self.n
        self.ids: list[str | None] = [None] * self.n
        self.homes: dict[str, list[int]] = {}
        told = [[by.device_id, by.actor_id]]
        told += [[None if r[c] is None else str(r[c]) for c in EDGE_INPUT] for r in self.rows]
        self.request = hashlib.sha256(canonical_json(told)).hexdigest()

    def replay(self, answer: list[Any]) -> None:
        """Answer a repeated request as the first time."""
        self.outcome, self.ids = answer
        for i, outcome in enumerate(self.outcome):
            if outcome == "refused":
                self.errors[i] = InputError("The edge was refused the first time.")

    def sort_out(self) -> None:
        """Check every row, and decide where it goes."""
        for i, row in enumerate(self.rows):
            if self.errors[i] is None:
                self._attempt(i, lambda row=row: _in_form(row))
        live = [row for i, row in enumerate(self.rows) if self.errors[i] is None]
        known = look_up(self.store, live)
        held = edges_under(self.store, live)
        seen: dict[tuple[Any, ...], int] = {}
        for i, row in enumerate(self.rows):
            if self.errors[i] is None:
                self._attempt(i, lambda i=i, row=row: self._place(i, row, known, held, seen))

    def _attempt(self, i: int, check: Any) -> None:
        try:
            check()
        except MnemesError as error:
            self.errors[i] = error

    def _place(
        self,
        i: int,
        row: dict[str, Any],
        known: Known,
        held: Mapping[tuple[Any, ...], Mapping[str, Any]],
        seen: dict[tuple[Any, ...], int],
    ) -> None:
        for end in ("source", "target"):
            known.need(row[end], f"{end} of the edge")
        home = self._under(row, known) if row["operation_id"] else self._home(row, known)
        self._check_claim(row, known)
        row["device_id"] = home or (self.by.device_id if self.by.actor_id else None)
        _check_replaced(row, known)
        key = tuple(row[c] for c in ("operation_id", "edge_type", "source", "target"))
        before = held.get(key) or (self.rows[seen[key]] if key in seen else None)
        if before is None:
            seen[key] = i
            self.outcome[i] = "stored"
            self.homes.setdefault(home, []).append(i)
            return
        differ = [c for c in _SAME if row[c] != before[c]]
        if differ:
            raise IdempotencyConflictError(
                f"The operation has this edge already, with another {', '.join(differ)}.",
                hint="record the change under an operation of its own, with supersedes_edge_id",
            )
        self.outcome[i] = "duplicate"
        if "edge_id" in before:
            self.ids[i] = before["edge_id"]
        else:
            row["twin"] = seen[key]

    def _under(self, row: dict[str, Any], known: Known) -> str:
        """Where the caller's operation lies, after checking that the edge may go under it."""
        found = known.items["operation"].get(row["operation_id"])
        if found is None:
            raise OperationNotFoundError(
                "No such operation.", found=row["operation_id"], hint="mesh.operations() lists them"
            )
        if self.by.actor_id is not None and found["requesting_actor_id"] != self.by.actor_id:
            raise InvalidProvenanceError(
                "The edge's actor is not the one who requested its operation.",
                found=self.by.actor_id,
                hint="record the edge under an operation of the same actor",
            )
        row["actor_id"] = found["requesting_actor_id"]
        _check_observed(row, found["operation_kind"])
        return str(found["home"])

    def _check_claim(self, row: Mapping[str, Any], known: Known) -> None:
        """An actor speaks for itself, and of facts that its device may replace."""
        kind, _, id = row["target"].partition(":")
        said = row["edge_type"] in ("observed_by", "recorded_by") and kind == "actor"
        if said and row["actor_id"] not in (None, id):
            raise InvalidProvenanceError(
                "The edge names another actor than the one who requested its operation.",
                found=row["target"],
                hint="each actor records what it observed itself",
            )
        mine = self.by.actor_id is None or known.device_of(id) == self.by.device_id
        if row["edge_type"] == "supersedes" and kind == "fact" and not mine:
            raise AuthorizationDeniedError(
                "The fact to be superseded is held by another device.",
                found=id,
                hint="an agent supersedes facts of its own device, with agent.supersede",
            )

    def _home(self, row: dict[str, Any], known: Known) -> str:
        row["actor_id"] = self.by.actor_id
        for end in ("source", "target"):
            kind, _, id = row[end].partition(":")
            device = known.device_of(id) if kind == "fact" else None
            if device and (self.by.actor_id is None or device == self.by.device_id):
                return device
        return ""

    def write(self) -> None:
        """Write what is to be stored, each home's part in its own file, together."""
        stored = sorted(i for rows in self.homes.values() for i in rows)
        if not stored and (self.by.key is None or "duplicate" not in self.outcome):
            return
        now = self.store.now()
        operation_id, *fresh = evidence_ids(self.store, now, 1 + len(stored))
        for i, edge_id in zip(stored, fresh, strict=True):
            self.ids[i] = edge_id
        for i, row in enumerate(self.rows):
            if "twin" in row:
                self.ids[i] = self.ids[row["twin"]]
        homes = self.homes or {"": []}
        keeper = min(homes)  # the file whose operation carries the key

        def part(home: str) -> Part:
            rows, keeps = homes[home], home == keeper and self.by.key is not None
            bare = keeps or not all(self.rows[i]["operation_id"] for i in rows)

            def write(conn: Connection, generation: int) -> None:
                edges = [self._tuple(i, operation_id, now, generation) for i in rows]
                told = self._envelope(keeps=keeps)
                row = told.row(operation_id, home, now, generation, self.request)
                put_evidence(conn, home, [row] if bare else [], edges)

            return Part(write)

        keys = [(self.by.device_id, self.by.key, keeper)] if self.by.key else []
        commit(self.store, {home: part(home) for home in homes}, now, keys=keys)

    def _envelope(self, *, keeps: bool) -> Envelope:
        """The operation recorded with edges that have none of the caller's."""
        bare = [row for i, row in enumerate(self.rows) if self.ids[i] and not row["operation_id"]]
        kinds = {_IMPLIED.get(row["edge_type"], "assert") for row in bare}
        kind = "observe" if "observe" in kinds else min(kinds) if len(kinds) == 1 else "assert"
        return Envelope(
            self.by if keeps else self.by._replace(key=None),
            kind,
            self.rows[0]["source"] if self.n == 1 else f"batch:{self.request[:32]}",
            f"sha256:{self.request}",
            answer=json.dumps([self.outcome, self.ids]) if keeps else None,
        )

    def _tuple(self, i: int, operation_id: str, now: int, generation: int) -> tuple[Any, ...]:
        row = self.rows[i]
        made = {
            "edge_id": self.ids[i],
            "operation_id": row["operation_id"] or operation_id,
            "recorded_at": now,
            "generation": generation,
        }
        return tuple(made.get(c, row.get(c)) for c in t.EDGE_COLUMNS)

    def answers(self) -> pl.DataFrame:
        """The `edge_answers` frame."""
        reasons = [None if e is None else str(e) for e in self.errors]
        return pl.DataFrame(
            {
                "row": range(self.n),
                "outcome": self.outcome,
                "edge_id": self.ids,
                "reason": reasons,
            },
            schema=schemas.dtypes(schemas.EdgeAnswers),
        )


# --- checks ----------------------------------------------------------------------------------
def _in_form(row: dict[str, Any]) -> None:
    """Check what needs no look at the mesh; leaves items and metadata in canonical form."""
    if row["edge_type"] not in schemas.EDGE_TYPES:
        raise InvalidProvenanceError(
            "No such type of edge.", found=row["edge_type"], hint=f"one of {schemas.EDGE_TYPES}"
        )
    for end in ("source", "target"):
        row[end] = item(row[end], end)
    if row["source"] == row["target"]:
        raise InvalidProvenanceError(
            "An edge cannot lead from an item to itself.", found=row["source"]
        )
    start, end_ = row["valid_from"], row["valid_to"]
    if start is not None and end_ is not None and end_ < start:
        raise InvalidAsOfError("valid_to lies before valid_from.", hint="swap them")
    if row["content_digest"] is not None:
        checked_digest(row["content_digest"])
    if row["metadata"] is not None:
        row["metadata"] = _metadata(row["metadata"])


def _metadata(text: str) -> str:
    try:
        raw = canonical_json(json.loads(text))
    except (ValueError, RecursionError) as error:
        told = str(error).partition(" Hint:")[0]
        raise InvalidProvenanceError(
            f"The metadata is not JSON: {told}", hint="give a mapping, or its JSON text"
        ) from None
    if len(raw) > _MAX_METADATA:
        raise InvalidProvenanceError(
            f"The metadata is longer than {_MAX_METADATA} bytes.", found=len(raw)
        )
    return raw.decode()


def _check_observed(row: Mapping[str, Any], kind: str) -> None:
    if row["edge_type"] == "observed_by" and kind != "observe":
        raise InvalidProvenanceError(
            "An observed_by edge needs an operation of kind observe.",
            found=kind,
            hint="leave the operation out and one is recorded",
        )


def _check_replaced(row: Mapping[str, Any], known: Known) -> None:
    """An edge may only replace one of the same type between the same items."""
    old_id = row["supersedes_edge_id"]
    if old_id is None:
        return
    old = known.edges.get(old_id)
    if old is None:
        raise EdgeNotFoundError("The edge to replace is not there.", found=old_id)
    if any(old[c] != row[c] for c in ("edge_type", "source", "target")):
        raise InvalidProvenanceError(
            "An edge replaces only one of the same type between the same items.",
            found=(old["edge_type"], old["source"], old["target"]),
        )
