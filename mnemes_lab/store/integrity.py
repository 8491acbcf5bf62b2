"""`check`: look at every file, table and index of a mesh and name what is wrong.

A check that cannot run is itself a finding. What heals by itself (an index not made yet) is
`pending`; only what needs somebody is `broken`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
from sqlalchemy import func, select

from mnemes_lab import schemas
from mnemes_lab.errors import MnemesError
from mnemes_lab.store import redaction
from mnemes_lab.store import tables as t
from mnemes_lab.store.indexes import Indexes
from mnemes_lab.store.keys import KeyRing
from mnemes_lab.store.receipts import from_json, row_v2, verify
from mnemes_lab.store.shard import state_of
from mnemes_lab.store.store import Store

CLOCK_TOLERANCE_US = 60_000_000  # a minute: what a badly kept clock may be off
Finding = tuple[str, str, str, str | None]


def check_mesh(store: Store, indexes: Indexes, ring: KeyRing) -> pl.DataFrame:
    """The `report` frame, one row per thing looked at."""
    findings = [
        *_guarded("pooled.db", "sqlite", lambda: _sqlite(store.rows_raw, "pooled.db")),
        *_guarded("pooled.db", "pending writes", lambda: _notes(store)),
        *_guarded("pooled.db", "receipts", lambda: _receipts(store, ring)),
        *_guarded("pooled.db", "redactions", lambda: _redactions(store)),
        *_guarded("pooled.db", "clocks", lambda: _clocks(store)),
    ]
    known = {}
    for row in store.rows(select(t.catalogue).order_by(t.catalogue.c.device_id)):
        device_id = row["device_id"]
        known[device_id] = row
        name = f"shards/{device_id}"
        if row["generation"] == 1 and not store.shard_path(device_id).exists():
            findings.append((name, "file", "ok", "nothing written yet"))
            continue
        file = _guarded(name, "file", partial(_shard, store, row))
        findings += file
        if all(check != "file" for _, check, *_ in file):  # it could be read
            findings += _guarded(name, "evidence", partial(_evidence, store, row))
        findings += _guarded(name, "index", partial(_index, indexes, device_id, row["generation"]))
    findings += _strays(store, set(known))
    return pl.DataFrame(findings, schema=schemas.dtypes(schemas.Report), orient="row")


def _guarded(item: str, check: str, look: Callable[[], Iterator[Finding]]) -> list[Finding]:
    try:
        return list(look())
    except (MnemesError, OSError, ValueError) as error:
        return [(item, check, "broken", f"{type(error).__name__}: {error}")]


def _sqlite(ask: Callable[[str], list[Any]], item: str) -> Iterator[Finding]:
    for check, pragma in (
        ("sqlite", "PRAGMA integrity_check"),
        ("links", "PRAGMA foreign_key_check"),
    ):
        found = [str(row) for row in ask(pragma)]
        fine = found in ([], ["('ok',)"])
        yield item, check, "ok" if fine else "broken", None if fine else "; ".join(found[:5])


def _notes(store: Store) -> Iterator[Finding]:
    found = store.rows(select(t.pending_writes))
    detail = f"{len(found)} shard(s) wait for a writer to finish or undo" if found else None
    yield "pooled.db", "pending writes", "pending" if found else "ok", detail


def _redactions(store: Store) -> Iterator[Finding]:
    left = redaction.waiting(store)
    detail = f"files of {left} still hold traces; mesh.scrub() tries again" if left else None
    yield "pooled.db", "redactions", "pending" if left else "ok", detail


def _clocks(store: Store) -> Iterator[Finding]:
    """Whose clock runs ahead; the mesh's own too, which then waits for the machine's to follow."""
    ahead = store.rows(
        select(t.devices.c.label)
        .where(t.devices.c.clock_ahead_us > CLOCK_TOLERANCE_US)
        .order_by(t.devices.c.label)
    )
    labels = [row["label"] for row in ahead]
    detail = f"times given by {labels} ran ahead of the mesh's" if labels else None
    machine = getattr(store.clock, "machine", store.present)
    early = store.state()["last_instant"] - machine()
    if early > CLOCK_TOLERANCE_US:
        told = f"the last record time lies {early / 1e6:.0f} s ahead of this machine's clock"
        yield "pooled.db", "clocks", "pending", "; ".join(filter(None, [told, detail]))
    else:
        yield "pooled.db", "clocks", "ok", detail


def _evidence(store: Store, row: Any) -> Iterator[Finding]:
    """Edges have their operations, and the index says what the shard says."""
    device_id = row["device_id"]
    reached = min(row["generation"], row["evidence_generation"])
    problems = []
    with store.shard(device_id).reading() as conn:
        e, o = t.edges, t.operations
        known = set(conn.execute(select(o.c.operation_id)).scalars())
        edges = conn.execute(select(*(e.c[n] for n in t.EDGE_COLUMNS))).all()
        operations = conn.execute(select(*(o.c[n] for n in t.OPERATION_COLUMNS))).all()
    if loose := sorted(r.edge_id for r in edges if r.operation_id not in known):
        problems.append(f"{len(loose)} edges have no operation: {loose[:3]}")
    for table, names, held in (
        (t.pooled_edges, t.EDGE_COLUMNS, edges),
        (t.pooled_operations, t.OPERATION_COLUMNS, operations),
    ):
        query = select(*(table.c[n] for n in names)).where(table.c.home == device_id)
        index = {tuple(r.values()) for r in store.rows(query.where(table.c.generation <= reached))}
        shard = {tuple(r) for r in held if r.generation <= reached}
        if index != shard:
            differ = len(index ^ shard)
            problems.append(f"the index differs in {differ} {table.name}; mesh.rebuild_evidence()")
    name = f"shards/{device_id}"
    yield name, "evidence", "broken" if problems else "ok", "; ".join(problems) or None


def _receipts(store: Store, ring: KeyRing) -> Iterator[Finding]:
    bad = []
    for row in store.rows(select(t.receipts).order_by(t.receipts.c.receipt_id)):
        try:
            body = from_json(row["body"])
            verify(body, ring)
            differ = [name for name, value in row_v2(body).items() if row[name] != value]
            if differ:
                bad.append(f"{row['receipt_id']}: {differ} differ from the receipt")
        except MnemesError as error:
            bad.append(f"{row['receipt_id']}: {error}")
    detail = f"{len(bad)} do not verify: {bad[:3]}" if bad else None
    yield "pooled.db", "receipts", "broken" if bad else "ok", detail


def _shard(store: Store, row: Any) -> Iterator[Finding]:
    device_id, name = row["device_id"], f"shards/{row['device_id']}"
    handle = store.shard(device_id)
    with handle.reading() as conn:
        yield from _sqlite(lambda sql: list(conn.exec_driver_sql(sql).all()), name)
        state = state_of(conn, device_id)
        count = conn.execute(select(func.count()).where(t.facts.c.remainder == 0)).scalar_one()
        told = (state["mesh_id"], state["device_id"], state["generation"], state["facts"])
        wanted = (store.mesh_id, device_id, row["generation"], row["facts"])
        fine = told == wanted and count == row["facts"]
        detail = f"shard says {told} with {count} rows, catalogue {wanted}"
        yield name, "catalogue", "ok" if fine else "broken", None if fine else detail
        rows = conn.execute(
            select(t.facts.c.fact_id, t.facts.c.text, t.facts.c.content_digest, t.facts.c.redacted)
        ).all()
    bad = [f for f, text, digest, gone in rows if not _as_digested(text, digest, gone)]
    yield (
        name,
        "content",
        "broken" if bad else "ok",
        f"{len(bad)} texts differ from their digest: {sorted(bad)[:3]}" if bad else None,
    )
    indexed = {
        r["fact_id"]
        for r in store.rows(
            select(t.fact_index.c.fact_id).where(t.fact_index.c.device_id == device_id)
        )
    }
    differ = sorted(indexed ^ {f for f, *_ in rows})
    yield (
        name,
        "fact index",
        "broken" if differ else "ok",
        f"{len(differ)} facts differ: {differ[:3]}" if differ else None,
    )


def _as_digested(text: str, digest: bytes, redacted: int) -> bool:
    """Whether a text is the one its digest was made of; a redacted fact has none."""
    if redacted:
        return not text
    return hashlib.sha256(text.encode()).digest() == digest


def _index(indexes: Indexes, device_id: str, generation: int) -> Iterator[Finding]:
    outcome, detail = indexes.verdict(device_id, generation)
    yield f"shards/{device_id}", "index", outcome, detail


def _strays(store: Store, known: set[str]) -> list[Finding]:
    folder = store.folder / "shards"
    names = sorted(p.name for p in folder.iterdir()) if folder.exists() else []
    return [
        (f"shards/{name}", "file", "broken", "belongs to no device of this mesh")
        for name in names
        if name not in known and not Path(name).suffix
    ]
