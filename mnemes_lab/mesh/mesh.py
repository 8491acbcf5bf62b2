"""The mesh: the only thing that acts.

A mesh is a folder. It joins the store, the encoder, the indexes and the routers, and offers them
as a handful of verbs that take and give frames.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import polars as pl
from sqlalchemy import select, update

from mnemes_lab import frames, schemas
from mnemes_lab.clock import Clock
from mnemes_lab.errors import (
    InputError,
    ReceiptNotFoundError,
    StoreError,
)
from mnemes_lab.ids import check_name, parse_uuid4
from mnemes_lab.mesh.agent import Agent, Device, find_or_register
from mnemes_lab.mesh.eligible import ShardView
from mnemes_lab.mesh.found import Found, Receipt
from mnemes_lab.mesh.searching import Options, Searcher
from mnemes_lab.router.summary import summaries_frame
from mnemes_lab.store import control, facts, reading
from mnemes_lab.store import tables as t
from mnemes_lab.store.asof import AsOf
from mnemes_lab.store.indexes import Indexes
from mnemes_lab.store.integrity import check_mesh
from mnemes_lab.store.keys import KeyRing, derive_key
from mnemes_lab.store.receipts import from_json, verify
from mnemes_lab.store.reencode import reencode as change_encoder
from mnemes_lab.store.reencode import settle_encoder
from mnemes_lab.store.rules import INPUT
from mnemes_lab.store.store import Store
from mnemes_lab.text.cache import VectorCache, encode_cached
from mnemes_lab.text.encode import Encoder, encoder_from

LOAD_BATCH = 100_000  # rows of a load that are stored, or undone, together
_LOADED = {"device": pl.String(), **{n: d for n, d in INPUT.items() if n != "device_id"}}
Asker = Agent | Device | str | None


class Mesh:
    """An open mesh. Use as a context manager, or close it.

    Example:
        >>> import tempfile
        >>> with Mesh.open(tempfile.mkdtemp(), seed=7, encoder="hash") as mesh:
        ...     planner = mesh.agent("planner")
        ...     _ = planner.remember("Flight AA1234 to Las Vegas now departs at 8:00 PM")
        ...     found = mesh.search("when does AA1234 leave?", asker=planner, k=5, budget=1)
        ...     found.texts(), found.receipt.verify()
        (['Flight AA1234 to Las Vegas now departs at 8:00 PM'], True)
    """

    def __init__(self, store: Store, encoder: Encoder, *, threads: int, index_bytes: int) -> None:
        """Use :meth:`open`."""
        self.store, self.encoder = store, encoder
        state = store.state()
        seed = store.seed
        self.ring = KeyRing.open(
            store.folder,
            current=state["receipt_key_id"],
            required=self._needed_keys(store),
            make=None if seed is None else lambda n: derive_key(seed, "receipts", n),
            read_only=store.read_only,
        )
        self.cache = VectorCache(None if store.read_only else store.folder / "vectors.db")
        self.indexes = Indexes(store, encoder, self.cache, byte_budget=index_bytes)
        self.view = ShardView(store, self.indexes)
        self.threads = threads
        if not store.read_only and state["receipt_key_id"] is None:
            with store.pooled() as conn:
                conn.execute(update(t.mesh).values(receipt_key_id=self.ring.current_id))

    @staticmethod
    def _needed_keys(store: Store) -> list[str]:
        used = store.rows(select(t.receipts.c.key_id).distinct())
        return sorted(row["key_id"] for row in used)

    # --- opening -----------------------------------------------------------------------------
    @classmethod
    def open(
        cls,
        path_or_url: str | os.PathLike[str],
        *,
        seed: int | None = None,
        encoder: Encoder | str | None = None,
        clock: Clock | None = None,
        reencode: bool = False,
        read_only: bool = False,
        threads: int | None = None,
        handles: int = 4,
        index_bytes: int = 1 << 30,
    ) -> Mesh:
        """Open a mesh's folder, making it when it does not exist or is empty.

        Args:
            path_or_url: The folder.
            seed: Makes ids, instants and keys repeatable; for experiments, not for secrets. A mesh
                keeps its seed; a reopened one continues its streams. One process at a time.
            encoder: `"minilm"`, `"hash"`, `"hash:256"`, a model's folder or name, or an object
                with name, dim, fingerprint and encode(texts). None: what the mesh was made with,
                or for a new one the sentence encoder where installed, else hashed words.
            reencode: Change to `encoder` when the mesh was made with another one.
            clock: Where instants come from; None is the machine's, or a `LabClock` when seeded.
            read_only: Look at frames only; nothing is written, so nothing is searched.
            threads: Workers that search shards; None is up to 4.
            handles: Most SQLite files of shards kept open.
            index_bytes: Most memory of loaded indexes kept.

        Raises:
            NotAMeshError, SchemaAheadError, ReadOnlyError, StoreBusyError: about the folder.
            EncoderMismatchError: the mesh was encoded by another model or size.
            ReceiptKeyError: a key that receipts on record need is missing.
        """
        if "://" in str(path_or_url):
            raise InputError(
                "A mesh lives in a folder.", found=str(path_or_url), hint="give a path"
            )
        store = Store.open(
            Path(path_or_url), seed=seed, clock=clock, read_only=read_only, handles=handles
        )
        try:
            chosen = settle_encoder(store, encoder, change=reencode)
            workers = threads or min(4, os.cpu_count() or 1)
            return cls(store, chosen, threads=workers, index_bytes=index_bytes)
        except BaseException:
            store.close()
            raise

    def close(self) -> None:
        """Keep new indexes and close every file. Safe to call twice."""
        if not self.store.closed:
            self.indexes.close()
            self.cache.close()
            self.store.close()

    def __enter__(self) -> Mesh:
        """The mesh itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close."""
        self.close()

    def __repr__(self) -> str:
        """Folder name, encoder and seed."""
        seed = "" if self.store.seed is None else f", seed={self.store.seed}"
        return f"Mesh({self.store.folder.name!r}, encoder={self.encoder.name!r}{seed})"

    # --- who is there ------------------------------------------------------------------------
    def device(self, label: str, *, platform: str = "", hostname: str = "") -> Device:
        """The device with this label or id; a new label is registered.

        Raises:
            DeviceNotFoundError: an id that no device has.
            ConflictError: several devices share the label.
        """
        details = {"platform": platform, "hostname": hostname}
        return Device(self, *find_or_register(self, label, details))

    def agent(
        self, name: str, *, device: Device | str | None = None, provider_model: str | None = None
    ) -> Agent:
        """The agent with this name, on its own device unless one is given; made when new."""
        check_name(name, what="agent name")
        on = device if isinstance(device, Device) else self.device(device or name)
        query = select(t.actors).where(
            t.actors.c.device_id == on.device_id,
            t.actors.c.kind == "agent",
            t.actors.c.name == name,
        )
        found = self.store.rows(query)
        actor_id = (
            found[0]["actor_id"]
            if found
            else control.register_actor(
                self.store, on.device_id, "agent", name=name, provider_model=provider_model
            )
        )
        return Agent(self, name, actor_id, on)

    def bootstrap(self, label: str, **details: str) -> control.Bootstrap:
        """Make the first device and its operator on an empty registry; shows the credential once."""
        return control.bootstrap(self.store, label, **details)

    def authenticate(self, token: str, actor_id: str | None = None) -> Device:
        """The device a credential opens.

        Raises:
            InvalidCredentialError, DeviceNotActiveError, AuthorizationDeniedError
        """
        return self.device(control.authenticate(self.store, token, actor_id))

    # --- facts in ----------------------------------------------------------------------------
    def load(self, frame: Any, *, encode: bool = True, progress: bool = False) -> Any:
        """Store a table of facts.

        Args:
            frame: pandas or polars. Reads `device` (label or id; new labels are registered),
                `text`, and any other column of the `facts` frame a caller may set: fact_id,
                namespace, subject, predicate, object, source, kind, sensitivity, observed_at,
                valid_from, valid_to, expires_at.
            encode: Bring the indexes up at once; otherwise the next search does.
            progress: Show a bar while encoding.

        Returns:
            `answers` frame, one row per input row in order: stored, duplicate or refused and why.
            The same kind of frame as `frame`.

        Raises:
            MissingColumnError, SchemaError: nothing was stored.
            StoreBusyError, ReadOnlyError: nothing of the current batch was stored.

        Notes:
            Batches of 100,000 rows are each stored whole or not at all, also over devices.
        """
        kind = frames.kind_of(frame)
        table, bad = frames.read_rows(frame, _LOADED, required=["device", "text"])
        return frames.give_back(self._load_table(table, bad, encode, progress), kind)

    def load_records(
        self, records: Sequence[Mapping[str, Any]], *, encode: bool = True, progress: bool = False
    ) -> pl.DataFrame:
        """Store plain records, such as parsed JSON lines; see :meth:`load`."""
        table, bad = frames.read_records(records, _LOADED, required=["device", "text"])
        return self._load_table(table, bad, encode, progress)

    def _load_table(
        self, table: pl.DataFrame, bad: dict[int, str], encode: bool, progress: bool
    ) -> pl.DataFrame:
        answers = []
        for start in range(0, table.height, LOAD_BATCH):
            part = table.slice(start, LOAD_BATCH)
            refused = {r - start: w for r, w in bad.items() if start <= r < start + part.height}
            answers.append(self._load_batch(part, refused, start))
        if not answers:
            return schemas.empty(schemas.Answers)
        if encode:
            self.refresh(progress=progress)
        return pl.concat(answers)

    def _load_batch(self, part: pl.DataFrame, refused: dict[int, str], start: int) -> pl.DataFrame:
        with self.store.writing():
            ids, refused = self._resolve(part["device"].to_list(), refused)
            rows = part.with_columns(pl.Series("device_id", ids, dtype=pl.String))
            out = facts.add_facts(self.store, rows.select(list(INPUT)), refused)
        return out.with_columns(pl.col("row") + start)

    def _resolve(
        self, devices: list[str | None], refused: dict[int, str]
    ) -> tuple[list[str | None], dict[int, str]]:
        """Device ids of labels or ids, registering new labels of acceptable rows in one go."""
        refused = dict(refused)
        known = {d: i for d, i in self._labels().items()}
        fresh: list[str] = []
        for row, device in enumerate(devices):
            if row in refused or device in known:
                continue
            if device is None or not device.strip():
                refused[row] = "device is blank"
            elif control.looks_like_id(device):
                if held := known.get(parse_uuid4(device)):
                    known[device] = held  # another spelling of an id
                else:
                    refused[row] = "unknown device id. Hint: use a label, or register the device"
            elif problem := _label_problem(device):
                refused[row] = problem
            else:
                fresh.append(device)
        wanted = list(dict.fromkeys(fresh))
        if wanted:
            made = control.register_devices(self.store, [(d, "", "", None) for d in wanted])
            known |= {label: device_id for label, (device_id, _) in zip(wanted, made, strict=True)}
        ids: list[str | None] = []
        for row, device in enumerate(devices):
            device_id = known.get(device) if row not in refused and device is not None else None
            if device_id == "":
                refused[row], device_id = "several devices share this label. Hint: use its id", None
            ids.append(device_id)
        return ids, refused

    def _labels(self) -> dict[str, str]:
        """Device ids by id and by label; an empty id marks a label that several devices share."""
        known: dict[str, str] = {}
        for row in self.store.rows(select(t.devices.c.device_id, t.devices.c.label)):
            known[row["label"]] = "" if row["label"] in known else row["device_id"]
        ids = self.store.rows(select(t.devices.c.device_id))
        return known | {row["device_id"]: row["device_id"] for row in ids}

    def _add_records(self, records: list[dict[str, Any]], device_id: str) -> pl.DataFrame:
        table, bad = frames.read_records(
            records, {n: d for n, d in INPUT.items() if n != "device_id"}, required=["text"]
        )
        rows = table.with_columns(pl.lit(device_id).alias("device_id")).select(list(INPUT))
        return facts.add_facts(self.store, rows, bad)

    def supersede(
        self, fact_id: str, text: str, *, reason: str | None = None, **columns: Any
    ) -> str:
        """Replace a current fact by a new one on its device; answers the new id.

        Raises:
            FactNotFoundError: no such fact.
            ConflictError: it was replaced or withdrawn already; the current one is named.
        """
        return facts.supersede(self.store, fact_id, {**columns, "text": text}, reason=reason)

    def update(self, fact_id: str, **changes: Any) -> int:
        """Change a current fact under the same id; answers the new version's number."""
        return facts.update_fact(self.store, fact_id, changes)

    def retract(self, fact_id: str, *, reason: str | None = None) -> None:
        """Withdraw a current fact; it stays in the history."""
        facts.retract(self.store, fact_id, reason=reason)

    # --- search ------------------------------------------------------------------------------
    def search(
        self,
        queries: Any,
        *,
        asker: Asker = None,
        k: int = 10,
        budget: int | None = None,
        router: str = "overlap",
        exhaustive: bool = False,
        as_of: AsOf | None = None,
        namespaces: Sequence[str] | None = None,
        expand: bool = False,
        max_shards: int | None = None,
    ) -> Found:
        """Ask the few shards a router chooses, merge their answers, and prove what was done.

        Args:
            queries: One question, or a `queries` frame (query_id, text, and device_id where a row
                has its own asker) searched as one batch.
            asker: Who asks: an agent, a device, or a device's label or id. None: the mesh itself.
            k: Hits per question, at least 1, capped at 1,000.
            budget: Most shards per question, a hard cap; None is min(2, eligible).
            router: `overlap` or `overlap:ascii`.
            exhaustive: Ask every eligible shard.
            as_of: Points on the two time axes; None is what is current now.
            namespaces: Only these; an empty list finds nothing.
            expand: Go on past the budget, one shard at a time, while fewer than k are found.
            max_shards: How far `expand` may go.

        Returns:
            A :class:`Found`; its receipts are on record before it returns.

        Raises:
            DeviceNotFoundError, DeviceNotActiveError: about the asker.
            BudgetError, InputError, SchemaError: about the request.

        Notes:
            A shard that fails is named in the trace and makes the answer incomplete.
        """
        options = Options(
            k, budget, max_shards, expand, exhaustive, router, as_of,
            None if namespaces is None else namespaces,  # type: ignore[arg-type]
        )  # fmt: skip
        if self.store.read_only:
            raise StoreError(
                "A search writes its receipt, and this mesh was opened for reading only.",
                hint="open it without read_only",
            )
        kind: frames.Kind = "polars"
        if isinstance(queries, str):
            table, bad = frames.read_records(
                [{"query_id": "q0", "text": queries}],
                schemas.dtypes(schemas.Queries),
                required=["text"],
            )
            if bad:
                raise InputError(f"The question cannot be read: {bad[0]}")
        else:
            kind = frames.kind_of(queries)
            table = frames.read(queries, schemas.Queries, optional=("device_id",))
        answer = self._search(table, self._asker_id(asker), options)
        return Found(
            frames.give_back(answer.hits, kind),
            frames.give_back(answer.trace, kind),
            frames.give_back(answer.conflicts, kind),
            answer.receipts,
            answer.complete,
            None if answer.complete else "a shard failed; see the trace's error column",
        )

    def _search(self, table: pl.DataFrame, asker: str | None, options: Options) -> Any:
        texts = table["text"].to_list()
        own = table["device_id"].to_list()
        active = {d: control.active_device(self.store, d) for d in sorted({d for d in own if d})}
        askers = [active[d] if d else asker for d in own]
        asked = [
            (query_id, text, who or self.store.mesh_id)
            for query_id, text, who in zip(table["query_id"].to_list(), texts, askers, strict=True)
        ]
        searcher = Searcher(self.store, self.indexes, self.view, self.ring, self.threads)
        return searcher.search(asked, self._question_vectors(texts), options, askers)

    def _question_vectors(self, texts: list[str]) -> Any:
        """Vectors of questions; blank ones are zero, so they match nothing.

        They are cached under a keyed digest: nobody without the mesh's key can test a guess.
        """
        out = np.zeros((len(texts), self.encoder.dim), np.float32)
        asked = [i for i, text in enumerate(texts) if not _is_blank(text)]
        if asked:
            secret = self.ring.subkey(self.ring.ids()[0], "mnemes-lab/question-cache/v1")
            out[asked] = encode_cached(
                self.encoder,
                [texts[i] for i in asked],
                self.cache,
                key=lambda text: hmac.digest(secret, text.encode(), "sha256"),
            )
        return out

    def _asker_id(self, asker: Asker) -> str | None:
        if isinstance(asker, Agent):
            asker = asker.device
        if isinstance(asker, Device):
            asker = asker.device_id
        return None if asker is None else control.active_device(self.store, asker)

    def receipt(self, receipt_id: str) -> Receipt:
        """Read a receipt back, verified.

        Raises:
            ReceiptNotFoundError: none has this id.
            ReceiptError: it was changed.
        """
        rows = self.store.rows(select(t.receipts).where(t.receipts.c.receipt_id == receipt_id))
        if not rows:
            raise ReceiptNotFoundError(
                "No such receipt.", found=receipt_id, hint="mesh.receipts() lists them"
            )
        body = from_json(rows[0]["body"])
        verify(body, self.ring)
        return Receipt(body, self.ring)

    def rotate_receipt_key(self) -> str:
        """Sign with a new key from now on; old receipts still verify. Answers the key's id."""
        with self.store.writing():
            key_id = self.ring.rotate()
            with self.store.pooled() as conn:
                conn.execute(update(t.mesh).values(receipt_key_id=key_id))
        return key_id

    # --- frames out --------------------------------------------------------------------------
    def devices(self) -> pl.DataFrame:
        """The `devices` frame."""
        return control.devices_frame(self.store)

    def actors(self) -> pl.DataFrame:
        """The `actors` frame."""
        return control.actors_frame(self.store)

    def catalogue(self) -> pl.DataFrame:
        """The `catalogue` frame, summaries brought up to date first."""
        if not self.store.read_only:
            self.view.now()
        return control.catalogue_frame(self.store)

    def summaries(self) -> pl.DataFrame:
        """The `summaries` frame: what each active shard reveals to the overlap router."""
        return summaries_frame(self.view.now().summaries.values())

    def facts(
        self, *, device: Device | str | None = None, as_of: AsOf | None = None
    ) -> pl.DataFrame:
        """The `facts` frame: every fact with its status, or what an `AsOf` shows.

        Args:
            device: Only this device's.
            as_of: Only what was on record, current and valid at these points.
        """
        chosen = None
        if device is not None:
            chosen = device if isinstance(device, str) else device.device_id
            chosen = str(control.find_device(self.store, chosen)["device_id"])
        return reading.facts_frame(self.store, chosen, as_of)

    def history(self, fact_id: str) -> pl.DataFrame:
        """The `history` frame of a fact: every version of it and of the facts before and after it."""
        return reading.history_frame(self.store, fact_id)

    def receipts(self) -> pl.DataFrame:
        """The `receipts` frame, oldest first."""
        query = select(t.receipts).order_by(t.receipts.c.recorded_at, t.receipts.c.receipt_id)
        return control.table_frame(self.store, query, schemas.Receipts)

    def item_conflicts(self) -> pl.DataFrame:
        """The `item_conflicts` frame: facts that searches kept out of answers."""
        query = select(t.item_conflicts).order_by(
            t.item_conflicts.c.fact_id, t.item_conflicts.c.device_id
        )
        return control.table_frame(self.store, query, schemas.ItemConflicts)

    # --- upkeep ------------------------------------------------------------------------------
    def refresh(self, *, progress: bool = False) -> None:
        """Bring every active shard's index and summary up to date, encoding what is new."""
        self.indexes.progress = progress
        try:
            self.view.now()
        finally:
            self.indexes.progress = False

    def check(self) -> pl.DataFrame:
        """The `report` frame: every file, table and index, and what is wrong with it."""
        return check_mesh(self.store, self.indexes, self.ring)

    def reencode(self, encoder: Encoder | str | None = None, *, progress: bool = False) -> Mesh:
        """Encode all facts with another encoder and use it from now on; answers the mesh.

        The new vectors are made first, beside the old ones; one transaction then changes the
        mesh's encoder. Interrupted before that, nothing has changed and a rerun continues.
        """
        chosen = encoder_from(encoder)
        change_encoder(self.store, chosen, self.cache, progress=progress)
        self.indexes.forget()
        self.encoder = self.indexes.encoder = chosen
        self.view = ShardView(self.store, self.indexes)
        self.refresh(progress=progress)
        return self


def _label_problem(label: str) -> str | None:
    try:
        check_name(label, what="device label")
    except InputError as error:
        return str(error)
    return None


def _is_blank(text: str) -> bool:
    return not any(c.isprintable() and not c.isspace() for c in text)
