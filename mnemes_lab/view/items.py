"""What edges connect, in words: the items that a picture or an export of edges names."""

from __future__ import annotations

from typing import Any

import polars as pl

from mnemes_lab.clock import from_us
from mnemes_lab.store.asof import AsOf


def item_keys(edges: pl.DataFrame) -> pl.DataFrame:
    """The items that edges connect, once each, by kind and id.

    Example:
        >>> ends = {"source_kind": ["fact"], "source_id": ["f"], "target_id": ["a"]}
        >>> item_keys(pl.DataFrame(ends | {"target_kind": ["actor"]})).rows()
        [('actor', 'a'), ('fact', 'f')]
    """
    ends = [
        edges.select(item_kind=f"{end}_kind", item_id=f"{end}_id") for end in ("source", "target")
    ]
    return pl.concat(ends).unique().sort("item_kind", "item_id")


def named_items(mesh: Any, edges: pl.DataFrame, point: AsOf | None = None) -> pl.DataFrame:
    """The items that edges connect, in words for people as far as the mesh knew some by then.

    Args:
        mesh: An open mesh.
        edges: `edges` frame, as the mesh answers it.
        point: Its record time is the one to know words by; None is now.

    Returns:
        item_kind, item_id, label, device, device_id and recorded_at, by kind and id; null where
        nothing is known. A fact that was replaced has words too, a redacted one says that it is.
    """
    facts, devices = mesh.facts(), mesh.devices().select("device_id", device="label")
    if point is not None and point.recorded_at is not None:
        facts = facts.filter(pl.col("recorded_at") <= from_us(point.micros(0)[1]))
    redacted = pl.col("status") == "redacted"
    words = {
        "fact": facts.select(
            "device_id",
            item_id="fact_id",
            label=pl.when(redacted).then(pl.lit("(redacted)")).otherwise("text"),
            # a later version tells nothing of when the fact came
            recorded_at=pl.when(pl.col("version") == 1).then("recorded_at"),
        ),
        "operation": mesh.operations().select(
            "recorded_at",
            item_id="operation_id",
            device_id="recording_device_id",
            label=pl.format("{} {}", pl.col("operation_kind").cast(pl.String), "target_kind"),
        ),
        "actor": mesh.actors().select(
            "device_id", "recorded_at", item_id="actor_id", label=pl.coalesce("name", "kind")
        ),
        "device": devices.select("device_id", item_id="device_id", label="device"),
    }
    known = pl.concat(
        [part.with_columns(item_kind=pl.lit(kind)) for kind, part in words.items()], how="diagonal"
    ).join(devices, on="device_id", how="left")
    keys = ["item_kind", "item_id"]
    wanted = [*keys, "label", "device", "device_id", "recorded_at"]
    met = item_keys(edges).join(known, on=keys, how="left", maintain_order="left")
    return met.select(wanted)
