"""Fixtures for the mesh tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from mnemes_lab import Mesh


@pytest.fixture
def open_mesh(tmp_path: Path) -> Iterator[Callable[..., Mesh]]:
    """Opens a mesh in a folder of the test by name; every one is closed afterwards."""
    with ExitStack() as stack:

        def opener(name: str = "mesh", **options: Any) -> Mesh:
            options = {"seed": 7, "encoder": "hash:64", **options}
            return stack.enter_context(Mesh.open(tmp_path / name, **options))

        yield opener
