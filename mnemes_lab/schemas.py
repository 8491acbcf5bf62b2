"""Every frame that flows through the lab, as a dataframely schema with one line per column.

Frames are long and tidy. Keys end in ``_id``, instants in ``_at`` (``Datetime[us, UTC]``), units
are in the name. ``Schema.validate`` reports every problem at once. Frames that come from outside
are read by :mod:`mnemes_lab.frames`; frames the lab builds are right by construction.

Example:
    >>> from mnemes_lab import schemas
    >>> schemas.Hits.primary_key()
    ['query_id', 'rank']
    >>> schemas.describe(schemas.Relevance)["column"].to_list()
    ['query_id', 'fact_id', 'gain']
"""

from __future__ import annotations

from functools import cache

import dataframely as dy
import polars as pl

from mnemes_lab import columns as c
from mnemes_lab.columns import (
    CERTIFICATES,
    CHECKS,
    EDGE_TYPES,
    FACT_STATUSES,
    KINDS,
    OPERATION_KINDS,
    OUTCOMES,
    REASONS,
    SENSITIVITIES,
    STATUSES,
    TOOL_PROFILES,
)


class Devices(dy.Schema):
    """One row per device of the mesh."""

    device_id = c.key("version 4 UUID")
    label = c.text("what people call it")
    platform = c.text("operating system or kind of machine, may be empty")
    hostname = c.text("network name, may be empty")
    status = c.enum(STATUSES, "may it answer and write")
    first_seen_at = c.instant("registration")
    last_seen_at = c.instant("last sign of life of the device itself")
    status_changed_at = c.instant("when the status was set")
    clock_ahead_ms = c.real("most that its own times ran ahead of the mesh's; 0 is never seen")


class Actors(dy.Schema):
    """Who acts through a device."""

    actor_id = c.key("version 4 UUID")
    device_id = c.text("the device it acts through")
    name = c.text("what people call it; an agent's name is its namespace", nullable=True)
    kind = c.text("human, agent, service, or any other kind, verbatim")
    tool_profile = c.enum(TOOL_PROFILES, "operator may change other devices")
    provider_model = c.text("model behind the actor", nullable=True)
    granted_by = c.text("actor or rule that granted the profile", nullable=True)
    recorded_at = c.instant("registration")


class Facts(dy.Schema):
    """One row per fact, as of one record time."""

    fact_id = c.key("identity, unique in the mesh")
    device_id = c.text("the device that owns it")
    namespace = c.text("group of facts on the device; an agent's name")
    text = c.text("the statement")
    subject = c.text("what it is about", nullable=True)
    predicate = c.text("what it says of the subject", nullable=True)
    object = c.text("the value it gives", nullable=True)
    source = c.text("where it came from, the caller's words", nullable=True)
    kind = c.enum(KINDS, "what sort of memory it is")
    sensitivity = c.enum(SENSITIVITIES, "how widely it may be shown")
    status = c.enum(FACT_STATUSES, "current, replaced, withdrawn or past its time")
    content_digest = dy.String(
        min_length=64, max_length=64, description="hex SHA-256 of the text's UTF-8 bytes"
    )
    observed_at = c.instant("when somebody saw it", nullable=True)
    valid_from = c.instant("start of validity, inclusive", nullable=True)
    valid_to = c.instant("end of validity, exclusive", nullable=True)
    recorded_at = c.instant("when the mesh accepted this version")
    expires_at = c.instant("when it stops being current", nullable=True)
    superseded_by = c.text("the fact that replaced it", nullable=True)
    version = c.count("1, and one more for every update")
    closed_at = c.instant("when this version stopped being on record", nullable=True)


class FactHistory(dy.Schema):
    """Every version of some facts, oldest first."""

    fact_id = c.key("identity of the fact")
    version = c.count("1, and one more for every update", key=True)
    text = c.text("the statement in this version")
    status = c.enum(FACT_STATUSES, "what became of this version")
    valid_from = c.instant("start of validity, inclusive", nullable=True)
    valid_to = c.instant("end of validity, exclusive", nullable=True)
    recorded_at = c.instant("when this version was accepted")
    expires_at = c.instant("when it stops being current", nullable=True)
    closed_at = c.instant("when it stopped being on record", nullable=True)
    remainder = dy.Bool(
        nullable=True, description="what is left of it where its replacement does not hold"
    )
    superseded_by = c.text("the fact that replaced it", nullable=True)
    reason = c.text("why it was closed", nullable=True)


class Answers(dy.Schema):
    """What became of each row of a load: one row per input row, in input order."""

    row = c.count("position in the input, from 0", key=True)
    outcome = c.enum(OUTCOMES, "stored, duplicate of a fact already held, or refused")
    fact_id = c.text("the fact that now holds the content", nullable=True)
    device_id = c.text("the device it belongs to", nullable=True)
    reason = c.text("why it was refused or what it repeats", nullable=True)


class Operations(dy.Schema):
    """Who asked for which change of state, once per change, oldest first."""

    operation_id = c.key("version 4 UUID")
    idempotency_key = c.text("the caller's; unique per requesting device", nullable=True)
    requesting_device_id = c.text("who asked; the mesh's own id for its owner")
    requesting_actor_id = c.text("the actor who asked", nullable=True)
    recording_device_id = c.text("whose shard keeps it; null if none or several", nullable=True)
    recording_server_id = c.text("the mesh that accepted it")
    operation_kind = c.enum(OPERATION_KINDS, "what sort of change")
    target_kind = c.text("kind of what it changes")
    target_id = c.text("id of what it changes")
    content_digest = c.digest("sha256: and the hex digest of the content")
    observed_at = c.instant("when somebody saw it", nullable=True)
    valid_time = c.instant("when it holds in the world", nullable=True)
    recorded_at = c.instant("when the mesh accepted it")
    receipt_id = c.text("op-receipt: and the operation's id")


class Edges(dy.Schema):
    """Provenance: which item stands to which other in what relation, oldest first."""

    edge_id = c.key("version 4 UUID")
    edge_type = c.enum(EDGE_TYPES, "the source <type> the target")
    source_kind = c.text("kind of the item the edge leaves")
    source_id = c.text("id of the item the edge leaves")
    target_kind = c.text("kind of the item the edge enters")
    target_id = c.text("id of the item the edge enters")
    operation_id = c.text("the operation that recorded it")
    actor_id = c.text("the operation's actor", nullable=True)
    device_id = c.text("a device of the operation", nullable=True)
    valid_from = c.instant("start of validity, inclusive", nullable=True)
    valid_to = c.instant("end of validity, exclusive", nullable=True)
    observed_at = c.instant("when somebody saw it", nullable=True)
    recorded_at = c.instant("when the mesh accepted it")
    content_digest = c.digest("sha256: and the hex digest of the evidence", nullable=True)
    metadata = c.text("canonical JSON", nullable=True)
    supersedes_edge_id = c.text("the edge it replaces", nullable=True)


class EdgeAnswers(dy.Schema):
    """What became of each edge that was to be recorded, in input order."""

    row = c.count("position in the input, from 0", key=True)
    outcome = c.enum(OUTCOMES, "stored, duplicate of an edge already held, or refused")
    edge_id = c.text("the edge that says so", nullable=True)
    reason = c.text("why it was refused", nullable=True)


class Items(dy.Schema):
    """What a lineage reached."""

    item_kind = c.key("fact, operation, actor, device or any other kind")
    item_id = c.key("id within the kind")
    depth = c.count("steps from the root; null without one", nullable=True)
    label = c.text("words for people; null when the mesh does not know the item", nullable=True)
    device = c.text("label of the device it belongs to", nullable=True)
    recorded_at = c.instant("when the mesh first knew it", nullable=True)


class Catalogue(dy.Schema):
    """The content-free table of shards."""

    device_id = c.key("owner of the shard")
    state = c.enum(STATUSES, "the device's status")
    generation = c.count("grows with every accepted write")
    facts = c.count("accepted facts, replaced ones included")
    terms = c.count("distinct terms of the summary")
    namespaces = c.count("distinct namespaces")
    searches = c.count("how often it was searched")
    ewma_latency_ms = dy.Float64(min=0, description="moving average of search latency")
    refreshed_at = c.instant("when the summary was last made", nullable=True)


class Summaries(dy.Schema):
    """What a router may know about a shard."""

    device_id = c.key("owner of the shard")
    router = c.key("which router reads it")
    generation = c.count("the shard's generation it describes")
    terms = dy.List(dy.String(), description="what the router compares with the query")
    bytes = c.count("size as kept")
    text_leaves = dy.Bool(description="whether words of the device's texts are in it")
    sha256 = dy.String(min_length=64, max_length=64, description="digest of its bytes")


class Queries(dy.Schema):
    """Questions to search for."""

    query_id = c.key("identity within the frame")
    text = c.text("the question; blank matches nothing")
    device_id = c.text("who asks", nullable=True)


class Relevance(dy.Schema):
    """Which facts answer which question."""

    query_id = c.key("the question")
    fact_id = c.key("the fact")
    gain = dy.Float64(min=0, description="how much it helps")


class Ranking(dy.Schema):
    """Shards in the order a router would ask them."""

    router = c.key("the router's registered name")
    query_id = c.key("the question")
    device_id = c.key("the shard")
    rank = dy.Int64(min=1, description="1 is asked first")
    score = c.real("the router's own score")


class Hits(dy.Schema):
    """Facts found, best first."""

    query_id = c.key("the question")
    rank = dy.Int64(min=1, primary_key=True, description="1 is best")
    device_id = c.text("who holds the fact")
    fact_id = c.text("the fact")
    score = c.real("reciprocal-rank fusion of the two lists")
    lexical_score = c.real("BM25 with statistics of all eligible shards", nullable=True)
    vector_score = c.real("cosine of question and fact", nullable=True)
    lexical_rank = dy.Int64(min=1, nullable=True, description="place in the lexical list")
    vector_rank = dy.Int64(min=1, nullable=True, description="place in the vector list")
    text = c.text("the statement")


class Candidates(dy.Schema):
    """Scored facts of one or more shards, before they are merged."""

    query_id = c.key("the question")
    device_id = c.key("who holds the fact")
    fact_id = c.key("the fact")
    lexical_score = c.real("score of the lexical list; null if not in it", nullable=True)
    vector_score = c.real("score of the vector list; null if not in it", nullable=True)
    text = c.text("the statement")


class Trace(dy.Schema):
    """Which shards a search asked, which it left out, and why."""

    query_id = c.key("the question")
    device_id = c.key("an eligible shard")
    step = dy.Int64(min=1, description="place in the router's ranking")
    score = c.real("the router's score")
    selected = dy.Bool(description="whether it was searched")
    reason = c.enum(REASONS, "why it was or was not searched")
    results = c.count("returned hits that it holds")
    latency_ms = c.real("time spent in it; null if not searched", nullable=True)
    generation = c.count("the shard's generation that was searched", nullable=True)
    error = c.text("what failed", nullable=True)
    certificate = c.enum(CERTIFICATES, "what is proved about the answer")
    receipt_id = c.text("the receipt of this question")


class ItemConflicts(dy.Schema):
    """Facts that two shards hold under one id with different content; kept out of answers."""

    fact_id = c.key("the shared id")
    device_id = c.key("a shard that holds it")
    content_digest = dy.String(min_length=64, max_length=64, description="digest of its text")
    recorded_at = c.instant("when a search first met it")


class Receipts(dy.Schema):
    """Receipts on record, without their secret."""

    receipt_id = c.key("version 4 UUID")
    version = dy.Int64(min=1, description="byte format")
    key_id = c.text("which key authenticates it")
    requester_device_id = c.text("who asked")
    exhaustive = dy.Bool(description="whether every eligible shard was asked for")
    selected = c.count("shards searched")
    eligible = c.count("shards that could have been")
    results = c.count("hits returned")
    recorded_at = c.instant("when it was written")


class Report(dy.Schema):
    """What `check` found, one row per thing looked at."""

    item = c.key("the file, index or table")
    check = c.key("what was looked at")
    outcome = c.enum(CHECKS, "ok, pending (will heal by itself) or broken")
    detail = c.text("what is wrong", nullable=True)


class Measures(dy.Schema):
    """Results of a benchmark."""

    measure = c.key("what was measured")
    value = c.real("the figure")
    unit = c.text("its unit")
    against = c.text("the peer measured in the same run", nullable=True)
    ratio = c.real("value over the peer's, in the sense the measure's name says", nullable=True)


PUBLIC: dict[str, type[dy.Schema]] = {
    "devices": Devices,
    "actors": Actors,
    "facts": Facts,
    "history": FactHistory,
    "answers": Answers,
    "operations": Operations,
    "edges": Edges,
    "edge_answers": EdgeAnswers,
    "items": Items,
    "catalogue": Catalogue,
    "summaries": Summaries,
    "queries": Queries,
    "relevance": Relevance,
    "ranking": Ranking,
    "candidates": Candidates,
    "hits": Hits,
    "trace": Trace,
    "item_conflicts": ItemConflicts,
    "receipts": Receipts,
    "report": Report,
    "measures": Measures,
}


def empty(schema: type[dy.Schema]) -> pl.DataFrame:
    """A frame of `schema` without rows."""
    return pl.DataFrame(schema=dtypes(schema))


def dtypes(schema: type[dy.Schema]) -> dict[str, pl.DataType]:
    """Column names and polars types of a schema, in order."""
    return dict(_dtypes(schema))


@cache
def _dtypes(schema: type[dy.Schema]) -> dict[str, pl.DataType]:
    return {name: column.dtype for name, column in schema.columns().items()}


def describe(schema: type[dy.Schema]) -> pl.DataFrame:
    """The columns of a schema as a frame: column, dtype, nullable, key, meaning."""
    keys = schema.primary_key()
    return pl.DataFrame(
        [
            {
                "column": name,
                "dtype": str(column.dtype),
                "nullable": bool(column.nullable),
                "key": name in keys,
                "meaning": column.description or "",
            }
            for name, column in schema.columns().items()
        ]
    )
