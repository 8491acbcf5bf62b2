"""Evidence of a mesh as frames: what is exported, drawn and taught with."""

from __future__ import annotations

from typing import NamedTuple

import polars as pl

from mnemes_lab.store.asof import AsOf


class Evidence(NamedTuple):
    """Everything a mesh can show for what it holds, at one point on the two time axes."""

    mesh_id: str
    as_of: AsOf | None
    devices: pl.DataFrame
    actors: pl.DataFrame
    facts: pl.DataFrame
    operations: pl.DataFrame
    edges: pl.DataFrame
