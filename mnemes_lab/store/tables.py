"""The tables: `pooled.db` for the control plane, `memory.db` for each device's shard.

Only SQLAlchemy Core and portable types. Instants are integer microseconds UTC. On SQLite all
tables are STRICT, so no value changes its type on the way in.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import (
    DDL,
    BigInteger,
    CheckConstraint,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Subquery,
    Table,
    Text,
    UniqueConstraint,
    case,
    event,
    select,
)
from sqlalchemy.types import REAL

from mnemes_lab.schemas import EDGE_TYPES, OPERATION_KINDS

POOLED_ID = 0x4D4E5031  # "MNP1"
SHARD_ID = 0x4D4E5331  # "MNS1"
GENERATION = 2

_NAMES = {
    "ix": "ix_%(table_name)s_%(column_0_name)s",
    "uq": "uq_%(table_name)s_%(column_0_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s",
    "pk": "pk_%(table_name)s",
}
pooled = MetaData(naming_convention=_NAMES)
shard = MetaData(naming_convention=_NAMES)

INT = BigInteger().with_variant(Integer(), "sqlite")
FLOAT: Any = Double().with_variant(REAL(), "sqlite")


def _table(name: str, meta: MetaData, *parts: Any, rowid: bool = True) -> Table:
    return Table(name, meta, *parts, sqlite_strict=True, sqlite_with_rowid=rowid)


def _col(name: str, kind: Any, *args: Any, null: bool = False, **kw: Any) -> Column[Any]:
    return Column(name, kind, *args, nullable=null, **kw)


def _one_of(column: str, values: Sequence[str]) -> CheckConstraint:
    return CheckConstraint(f"{column} IN {tuple(values)}", name=column)


def _operations(meta: MetaData, *home: Column[Any]) -> Table:
    """Who asked for which change; in pooled.db also the index of what the shards hold."""
    return _table(
        "operations",
        meta,
        *home,
        _col("operation_id", Text, primary_key=True),
        _col("idempotency_key", Text, null=True),
        _col("request_digest", Text),
        _col("requesting_device_id", Text),
        _col("requesting_actor_id", Text, null=True),
        _col("recording_device_id", Text, null=True),
        _col("operation_kind", Text),
        _col("target_kind", Text),
        _col("target_id", Text),
        _col("content_digest", Text),
        _col("observed_at", INT, null=True),
        _col("valid_time", INT, null=True),
        _col("recorded_at", INT),
        _col("answer", Text, null=True),  # what a retry with the same key is told again
        _col("generation", INT),
        UniqueConstraint("requesting_device_id", "idempotency_key"),
        _one_of("operation_kind", OPERATION_KINDS),
        CheckConstraint("content_digest GLOB 'sha256:*' AND length(content_digest) = 71", "digest"),
    )


def _edges(meta: MetaData, *home: Any) -> Table:
    """Provenance edges between items spelled ``kind:id``; append-only."""
    return _table(
        "edges",
        meta,
        *home,
        _col("row_key", INT, primary_key=True, autoincrement=True),
        _col("edge_id", Text),
        _col("edge_type", Text),
        _col("source", Text),
        _col("target", Text),
        _col("operation_id", Text),
        _col("actor_id", Text, null=True),
        _col("device_id", Text, null=True),
        _col("valid_from", INT, null=True),
        _col("valid_to", INT, null=True),
        _col("observed_at", INT, null=True),
        _col("recorded_at", INT),
        _col("content_digest", Text, null=True),
        _col("metadata", Text, null=True),
        _col("supersedes_edge_id", Text, null=True),
        _col("generation", INT),
        UniqueConstraint("edge_id"),
        UniqueConstraint("operation_id", "edge_type", "source", "target"),
        _one_of("edge_type", EDGE_TYPES),
        CheckConstraint("source <> target", "self"),
        CheckConstraint(
            "valid_to IS NULL OR valid_from IS NULL OR valid_to >= valid_from", "interval"
        ),
    )


def _append_only(table: Table, kept: str, keys: Sequence[str], own: str = "") -> None:
    """Let the database itself refuse to change a row, or to delete one that `kept` describes.

    A REPLACE deletes without asking, so it is refused where a row of the same key is there.
    """
    equal = [" AND ".join(f"{c} = NEW.{c}" for c in key.split()) for key in keys]
    same = " OR ".join(f"EXISTS (SELECT 1 FROM {table.name} WHERE {e}{own})" for e in equal)
    for verb, when in (("UPDATE", ""), ("DELETE", f"WHEN {kept} "), ("INSERT", f"WHEN {same} ")):
        name = f"{table.name}_{verb.lower()}"
        sql = (
            f"CREATE TRIGGER {name} BEFORE {verb} ON {table.name} {when}"
            f"BEGIN SELECT RAISE(ABORT, '{table.name} are append-only'); END"
        )
        event.listen(table, "after_create", DDL(sql).execute_if(dialect="sqlite"))


# --- pooled.db -------------------------------------------------------------------------------
mesh = _table(
    "mesh",
    pooled,
    _col("only", INT, CheckConstraint('"only" = 1', name="only"), primary_key=True),
    _col("mesh_id", Text),
    _col("created_at", INT),
    _col("seed", Text, null=True),  # text, since a seed may be any integer
    _col("ids_position", INT),
    _col("last_instant", INT),
    _col("encoder", Text, null=True),
    _col("encoder_name", Text, null=True),
    _col("encoder_dim", INT, null=True),
    _col("receipt_key_id", Text, null=True),
    _col("changes", INT),  # grows whenever devices or shards change
)
devices = _table(
    "devices",
    pooled,
    _col("device_id", Text, primary_key=True),
    _col("label", Text),
    _col("platform", Text),
    _col("hostname", Text),
    _col("credential_fingerprint", Text, null=True),
    _col("credential_generation", INT),
    _col("status", Text),
    _col("first_seen_at", INT),
    _col("last_seen_at", INT),
    _col("status_changed_at", INT),
    _col("clock_ahead_us", INT, server_default="0"),  # most its own times ran ahead of ours
    _one_of("status", ("active", "quarantined", "revoked")),
    Index("ix_devices_label", "label"),
)
actors = _table(
    "actors",
    pooled,
    _col("actor_id", Text, primary_key=True),
    _col("device_id", Text, ForeignKey("devices.device_id"), index=True),
    _col("name", Text, null=True),
    _col("kind", Text),
    _col("tool_profile", Text),
    _col("provider_model", Text, null=True),
    _col("granted_by", Text, null=True),
    _col("recorded_at", INT),
    _one_of("tool_profile", ("agent", "operator")),
)
catalogue = _table(
    "catalogue",
    pooled,
    _col("device_id", Text, ForeignKey("devices.device_id"), primary_key=True),
    _col("generation", INT),
    _col("facts", INT),
    _col("terms", INT),
    _col("namespaces", INT),
    _col("searches", INT),
    _col("ewma_latency_ms", FLOAT),
    _col("refreshed_at", INT, null=True),
    _col("evidence_generation", INT, server_default="0"),  # of the shard, as indexed below
    _col("evidence_row", INT, server_default="0"),
)
summaries = _table(
    "summaries",
    pooled,
    _col("device_id", Text, ForeignKey("devices.device_id"), primary_key=True),
    _col("router", Text, primary_key=True),
    _col("generation", INT),
    _col("terms", INT),
    _col("text_leaves", INT),
    _col("sha256", Text),
    _col("payload", LargeBinary),
)
fact_index = _table(
    "fact_index",
    pooled,
    _col("fact_id", Text, primary_key=True),
    _col("device_id", Text),
    _col("generation", INT),
    rowid=False,
)
pending_writes = _table(
    "pending_writes",
    pooled,
    _col("device_id", Text, primary_key=True),
    _col("base_generation", INT),
    _col("on_crash", Text),
    _col("written_at", INT, server_default="0"),  # record time of the write; 0: not known
    _one_of("on_crash", ("keep", "undo")),
)
receipts = _table(
    "receipts",
    pooled,
    _col("receipt_id", Text, primary_key=True),
    _col("version", INT),
    _col("key_id", Text),
    _col("requester_device_id", Text),  # the mesh's own id when no device is named
    _col("exhaustive", INT),
    _col("selected", INT),
    _col("eligible", INT),
    _col("results", INT),
    _col("recorded_at", INT),
    _col("body", Text),
    Index("ix_receipts_requester", "requester_device_id", "recorded_at"),
)
item_conflicts = _table(
    "item_conflicts",
    pooled,
    _col("fact_id", Text, primary_key=True),
    _col("device_id", Text, primary_key=True),
    _col("content_digest", Text),
    _col("recorded_at", INT),
)
operation_keys = _table(
    "operation_keys",
    pooled,
    _col("requesting_device_id", Text, primary_key=True),
    _col("idempotency_key", Text, primary_key=True),
    _col("home", Text),
    _col("generation", INT),
    rowid=False,
)
scrubs = _table(
    "scrubs",
    pooled,
    _col("device_id", Text, primary_key=True),  # its files still hold traces of redacted text
)
# Rows of home "" are kept here and nowhere else; those of a device are an index of its shard.
pooled_operations = _operations(pooled, _col("home", Text, primary_key=True))
pooled_edges = _edges(pooled, _col("home", Text))
Index(
    "ix_edges_out",
    *(pooled_edges.c[n] for n in ("source", "recorded_at", "valid_from", "valid_to", "target")),
)
Index(
    "ix_edges_in",
    *(pooled_edges.c[n] for n in ("target", "recorded_at", "valid_from", "valid_to", "source")),
)
Index(
    "ix_edges_replacing",
    pooled_edges.c.supersedes_edge_id,
    sqlite_where=pooled_edges.c.supersedes_edge_id.is_not(None),
    postgresql_where=pooled_edges.c.supersedes_edge_id.is_not(None),
)
_OPERATION_KEYS = ["operation_id", "requesting_device_id idempotency_key"]
_EDGE_KEYS = ["edge_id", "operation_id edge_type source target"]
_BY_HOME = ["operation_id home", _OPERATION_KEYS[1]]
_append_only(pooled_operations, "OLD.home = ''", _BY_HOME, " AND home = ''")
_append_only(pooled_edges, "OLD.home = ''", _EDGE_KEYS, " AND home = ''")

# --- memory.db -------------------------------------------------------------------------------
shard_state = _table(
    "shard_state",
    shard,
    _col("only", INT, CheckConstraint('"only" = 1', name="only"), primary_key=True),
    _col("mesh_id", Text),
    _col("device_id", Text),
    _col("generation", INT),
    _col("facts", INT),
    _col("last_recorded_at", INT),
    _col("encoder", Text, null=True),
    _col("redacted_generation", INT, server_default="0"),  # of the last redaction
)
facts = _table(
    "facts",
    shard,
    _col("row_key", INT, primary_key=True, autoincrement=True),
    _col("fact_id", Text),
    _col("version", INT),
    _col("namespace", Text),
    _col("text", Text),
    _col("subject", Text, null=True),
    _col("predicate", Text, null=True),
    _col("object", Text, null=True),
    _col("source", Text, null=True),
    _col("kind", Text),
    _col("sensitivity", Text),
    _col("content_digest", LargeBinary),
    _col("observed_at", INT, null=True),
    _col("valid_from", INT, null=True),
    _col("valid_to", INT, null=True),
    _col("recorded_at", INT),
    _col("expires_at", INT, null=True),
    _col("closed_at", INT, null=True),
    _col("closed_as", Text, null=True),
    _col("close_reason", Text, null=True),
    _col("superseded_by", Text, null=True),
    _col("closed_generation", INT, null=True),  # of the write that closed it
    _col("dedupe_key", LargeBinary, null=True),  # null: expired, or its id came from the caller
    _col("generation", INT),
    _col("redacted", INT, server_default="0"),  # its text is gone, in every version
    _col(
        "remainder", INT, server_default="0"
    ),  # of a superseded one, where the new one does not hold
    UniqueConstraint("fact_id", "version"),
    CheckConstraint("valid_to IS NULL OR valid_from IS NULL OR valid_to >= valid_from", "interval"),
    CheckConstraint("length(content_digest) = 32", "digest"),
    CheckConstraint("closed_as IN ('superseded', 'retracted', 'updated', 'redacted')", "closed_as"),
)
_HELD = facts.c.closed_at.is_(None)
Index(  # one open fact per content
    "uq_facts_dedupe_key", facts.c.dedupe_key, unique=True, sqlite_where=_HELD,
    postgresql_where=_HELD,
)  # fmt: skip
Index(
    "ix_facts_expiring",
    facts.c.expires_at,
    sqlite_where=facts.c.expires_at.is_not(None) & facts.c.dedupe_key.is_not(None),
    postgresql_where=facts.c.expires_at.is_not(None) & facts.c.dedupe_key.is_not(None),
)
operations = _operations(shard)
edges = _edges(shard)
# What was never published may be taken back; the shard's own generation is set back first.
_PUBLISHED = "OLD.generation <= (SELECT generation FROM shard_state)"
_append_only(operations, _PUBLISHED, _OPERATION_KEYS)
_append_only(edges, _PUBLISHED, _EDGE_KEYS)
CLOSING = ("closed_at", "closed_as", "close_reason", "superseded_by")


def facts_at(generation: int) -> Subquery:
    """The facts of a shard as the catalogue knows them at a generation.

    Neither the rows nor the closings of a later write show, as it may not be published yet.
    """
    later = facts.c.closed_generation > generation
    columns = [
        case((later, None), else_=c).label(c.name) if c.name in CLOSING else c for c in facts.c
    ]
    return select(*columns).where(facts.c.generation <= generation).subquery("published")


OPERATION_COLUMNS = [c.name for c in operations.columns]
EDGE_COLUMNS = [c.name for c in edges.columns if c.name != "row_key"]
FACT_COLUMNS = [c.name for c in facts.columns if c.name != "row_key"]
