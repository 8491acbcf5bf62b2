"""The mesh: the only thing that acts.

A mesh is a folder. It joins the store, the encoder, the indexes and the routers, and offers them
as a handful of verbs that take and give frames.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

import polars as pl
from sqlalchemy import select, update

from mnemes_lab import frames, schemas
from mnemes_lab.clock import Clock
from mnemes_lab.errors import MnemesError, ReadOnlyError
from mnemes_lab.ids import check_name
from mnemes_lab.mesh.agent import Agent, Device, find_or_make_actor, find_or_register
from mnemes_lab.mesh.changing import MeshChanges
from mnemes_lab.mesh.eligible import Eligible, ShardView
from mnemes_lab.mesh.evidence import MeshEvidence
from mnemes_lab.mesh.found import Found
from mnemes_lab.mesh.loading import LOADED, REMEMBERED, load_table
from mnemes_lab.mesh.options import Options, at_least_1, checked_folder
from mnemes_lab.mesh.questions import QuestionVectors
from mnemes_lab.mesh.searching import Searcher
from mnemes_lab.mesh.tables import MeshTables
from mnemes_lab.store import control, facts, redaction
from mnemes_lab.store import tables as t
from mnemes_lab.store.asof import AsOf
from mnemes_lab.store.indexes import Indexes
from mnemes_lab.store.integrity import check_mesh
from mnemes_lab.store.keys import KeyRing, derive_key
from mnemes_lab.store.operations import By, noted
from mnemes_lab.store.reencode import reencode as change_encoder
from mnemes_lab.store.reencode import settle_encoder
from mnemes_lab.store.rules import INPUT
from mnemes_lab.store.store import Store
from mnemes_lab.text.cache import VectorCache
from mnemes_lab.text.encode import Encoder, encoder_from

Asker = Agent | Device | str | None


class Mesh(MeshChanges, MeshEvidence, MeshTables):
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
        self.questions = QuestionVectors(encoder, self.cache, self.ring)
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
            path_or_url: The folder; a leading `~` is the user's own.
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
            InputError: an argument that cannot be used; nothing was made.
            NotAMeshError, SchemaAheadError, ReadOnlyError, StoreBusyError: about the folder.
            EncoderMismatchError: the mesh was encoded by another model or size.
            ReceiptKeyError: a key that receipts on record need is missing.
        """
        folder = checked_folder(path_or_url)
        seed = None if seed is None else frames.whole_number(seed, "seed")
        handles = at_least_1(handles, "handles")
        index_bytes = at_least_1(index_bytes, "index_bytes")
        machine = min(4, os.cpu_count() or 1)
        workers = machine if threads is None else at_least_1(threads, "threads")
        store = Store.open(folder, seed=seed, clock=clock, read_only=read_only, handles=handles)
        try:
            chosen = settle_encoder(store, encoder, change=reencode)
            mesh = cls(store, chosen, threads=workers, index_bytes=index_bytes)
            if not read_only and redaction.waiting(store):
                mesh.scrub()
            if reencode:
                mesh.refresh()
            return mesh
        except BaseException:
            store.close()
            raise

    def close(self) -> None:
        """Keep new indexes and close every file. Safe to call twice."""
        if not self.store.closed:
            self.indexes.close()
            self.questions.file()
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
        return Agent(self, name, find_or_make_actor(self, on, name, provider_model), on)

    def bootstrap(self, label: str, **details: str) -> control.Bootstrap:
        """Make the first device and its operator on an empty registry; shows the credential."""
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
        table, bad = frames.read_rows(frame, LOADED, required=["device", "text"])
        return frames.give_back(self._load(table, bad, encode, progress), kind)

    def load_records(
        self, records: Sequence[Mapping[str, Any]], *, encode: bool = True, progress: bool = False
    ) -> pl.DataFrame:
        """Store plain records, such as parsed JSON lines; see :meth:`load`.

        What is not a mapping of columns to values is a refused row.
        """
        table, bad = frames.read_records(records, LOADED, required=["device", "text"])
        return self._load(table, bad, encode, progress)

    def _load(
        self, table: pl.DataFrame, bad: dict[int, str], encode: bool, progress: bool
    ) -> pl.DataFrame:
        answers = load_table(self.store, table, bad)
        if encode and answers.height:
            self._summarise(progress)
        return answers

    def _add_record(self, record: dict[str, Any], by: By, **options: Any) -> pl.DataFrame:
        table, bad = frames.read_records([record], REMEMBERED, required=["text"])
        rows = table.with_columns(pl.lit(by.device_id).alias("device_id")).select(list(INPUT))
        return facts.add_facts(self.store, rows, bad, by=by, **options)

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
            A :class:`Found`; its receipts are on record before it returns. A shard that fails is
            named in its trace and makes it incomplete.

        Raises:
            DeviceNotFoundError, DeviceNotActiveError: about the asker.
            BudgetError, InputError, SchemaError: about the request.
        """
        options = Options(
            k, budget, max_shards, expand, exhaustive, router, as_of,
            None if namespaces is None else namespaces,  # type: ignore[arg-type]
        )  # fmt: skip
        if self.store.read_only:
            raise ReadOnlyError(
                "A search writes its receipt, and this mesh was opened for reading only.",
                hint="open it without read_only",
            )
        kind: frames.Kind = "polars"
        if isinstance(queries, str):
            ids, texts = ["q0"], [frames.whole_text(queries)]
            own: list[str | None] = [None]
        else:
            kind = frames.kind_of(
                queries,
                "one text, or a frame with query_id and text",
                'polars.DataFrame({"query_id": ["q0"], "text": ["when?"]})',
            )
            table = frames.read(queries, schemas.Queries, optional=("device_id",))
            ids, texts, own = (table[c].to_list() for c in ("query_id", "text", "device_id"))
        asker_id = self._asker_id(asker)
        active = {d: control.active_device(self.store, d) for d in sorted({d for d in own if d})}
        askers = [active[d] if d else asker_id for d in own]
        searcher = Searcher(self.store, self.indexes, self.view, self.ring, self.threads)
        asked = list(zip(ids, texts, (a or self.store.mesh_id for a in askers), strict=True))
        vectors, notice = self.questions.of(texts)
        answer = searcher.search(asked, vectors, options, askers)
        if not answer.complete:
            failed = "a shard failed; see the trace's error column"
            notice = "; ".join(filter(None, [failed, notice]))
        return Found(
            frames.give_back(answer.hits, kind),
            frames.give_back(answer.conflicts, kind),
            answer.receipts,
            answer.complete,
            notice,
            _columns=answer.trace,
            _kind=kind,
        )

    def _asker_id(self, asker: Asker) -> str | None:
        if isinstance(asker, Agent):
            asker = asker.device
        if isinstance(asker, Device):
            asker = asker.device_id
        return None if asker is None else control.active_device(self.store, asker)

    def rotate_receipt_key(self) -> str:
        """Sign with a new key from now on; old receipts still verify. Answers the key's id."""
        with self.store.writing():
            key_id = self.ring.rotate()
            with self.store.pooled() as conn:
                conn.execute(update(t.mesh).values(receipt_key_id=key_id))
                noted(
                    conn, self.store, "supersede", "receipt_key:current", key_id, self.store.now()
                )
        return key_id

    # --- upkeep ------------------------------------------------------------------------------
    def refresh(self, *, progress: bool = False) -> None:
        """Bring every active shard's index and summary up to date, encoding what is new."""
        eligible = self._summarise(progress)
        for device_id, generation in eligible.generations.items():
            with contextlib.suppress(MnemesError, OSError):  # a search or `check` tells
                self.indexes.get(device_id, generation)

    def _summarise(self, progress: bool) -> Eligible:
        """Summaries of all active shards; those that changed are indexed for it."""
        self.indexes.progress = progress
        try:
            return self.view.now()
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
        self.questions = QuestionVectors(chosen, self.cache, self.ring)
        self.refresh(progress=progress)
        return self
