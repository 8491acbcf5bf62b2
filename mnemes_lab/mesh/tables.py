"""Frames out: what a mesh shows of itself."""

from __future__ import annotations

import polars as pl
from sqlalchemy import select

from mnemes_lab import schemas
from mnemes_lab.errors import ReceiptNotFoundError
from mnemes_lab.mesh.agent import Device
from mnemes_lab.mesh.eligible import ShardView
from mnemes_lab.mesh.found import Receipt
from mnemes_lab.router.summary import summaries_frame
from mnemes_lab.store import control, reading
from mnemes_lab.store import tables as t
from mnemes_lab.store.asof import AsOf
from mnemes_lab.store.keys import KeyRing
from mnemes_lab.store.receipts import from_json, verify
from mnemes_lab.store.store import Store


class MeshTables:
    """The reading half of :class:`mnemes_lab.mesh.mesh.Mesh`."""

    store: Store
    view: ShardView
    ring: KeyRing

    def devices(self) -> pl.DataFrame:
        """The `devices` frame."""
        return reading.devices_frame(self.store)

    def actors(self) -> pl.DataFrame:
        """The `actors` frame."""
        return reading.actors_frame(self.store)

    def catalogue(self) -> pl.DataFrame:
        """The `catalogue` frame, summaries brought up to date first."""
        if not self.store.read_only:
            self.view.now()
        return reading.catalogue_frame(self.store)

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
        """The `history` frame: all versions of a fact and of those before and after it."""
        return reading.history_frame(self.store, fact_id)

    def receipts(self) -> pl.DataFrame:
        """The `receipts` frame, oldest first."""
        query = select(t.receipts).order_by(t.receipts.c.recorded_at, t.receipts.c.receipt_id)
        return reading.table_frame(self.store, query, schemas.Receipts)

    def item_conflicts(self) -> pl.DataFrame:
        """The `item_conflicts` frame: facts that searches kept out of answers."""
        query = select(t.item_conflicts).order_by(
            t.item_conflicts.c.fact_id, t.item_conflicts.c.device_id
        )
        return reading.table_frame(self.store, query, schemas.ItemConflicts)

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
        return self.verify_receipt(rows[0]["body"])

    def verify_receipt(self, text: str) -> Receipt:
        """Read a receipt from its text, as `Receipt.to_json` gives it, and verify it.

        Raises:
            ReceiptError: it is not the text of a receipt of this mesh, or was changed.
        """
        body = from_json(text)
        verify(body, self.ring)
        return Receipt(body, self.ring)
