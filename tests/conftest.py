"""Fixtures for every test."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pytest
from hypothesis import settings

from mnemes_lab import Mesh

# A slow machine must not turn a law into a failure; CI must try the same cases every time.
settings.register_profile("dev", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, database=None)
settings.load_profile("ci" if os.environ.get("CI") else "dev")


@dataclass(frozen=True)
class FrameKind:
    """One of the two libraries a caller may use."""

    name: str

    def make_frame(self, data: Mapping[str, Any]) -> Any:
        """A native frame; pandas gets an index that means nothing, to see that it is ignored."""
        if self.name == "polars":
            return pl.DataFrame(data)
        frame = pd.DataFrame(data)
        frame.index = pd.Index(range(7, 7 + len(frame)))
        return frame

    def objects(self, name: str, values: list[Any]) -> Any:
        """A frame with one column of plain Python objects, which neither library converts."""
        if self.name == "polars":
            return pl.DataFrame({name: pl.Series(values, dtype=pl.Object)})
        return pd.DataFrame({name: pd.Series(values, dtype=object)})

    def check(self, frame: Any) -> None:
        """Refuse a frame of the other kind."""
        wanted = pl.DataFrame if self.name == "polars" else pd.DataFrame
        assert isinstance(frame, wanted), f"wanted {wanted}, got {type(frame)}"

    def column(self, frame: Any, name: str) -> list[Any]:
        """A column as Python values, with None for whatever means missing."""
        self.check(frame)
        values = frame[name].to_list()
        return [None if value is None or pd.isna(value) else value for value in values]


@pytest.fixture(params=["polars", "pandas"])
def frame_kind(request: pytest.FixtureRequest) -> FrameKind:
    """Runs a test once for each kind of frame."""
    return FrameKind(request.param)


@pytest.fixture
def open_mesh(tmp_path: Path) -> Iterator[Callable[..., Mesh]]:
    """Opens a mesh in a folder of the test by name; every one is closed afterwards."""
    with ExitStack() as stack:

        def opener(name: str = "mesh", **options: Any) -> Mesh:
            options = {"seed": 7, "encoder": "hash:64", **options}
            return stack.enter_context(Mesh.open(tmp_path / name, **options))

        yield opener
