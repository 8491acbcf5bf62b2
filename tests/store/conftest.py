"""Fixtures for the store tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mnemes_lab.store import creation, engine
from mnemes_lab.store import store as store_module
from mnemes_lab.store.store import Store


@pytest.fixture
def open_store(tmp_path: Path) -> Iterator[Callable[..., Store]]:
    """Opens a store in a folder of the test by name; every one is closed afterwards."""
    opened: list[Store] = []

    def opener(name: str = "mesh", **options: Any) -> Store:
        opened.append(Store.open(tmp_path / name, **options))
        return opened[-1]

    yield opener
    for store in opened:
        store.close()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> float:
    """Every wait for another writer lasts a fraction of a second; answers which."""
    wait = 0.2
    for module in (engine, store_module, creation):
        monkeypatch.setattr(module, "BUSY_SECONDS", wait)
    for name in ("_RW", "_RO"):
        pragmas = getattr(engine, name)
        assert pragmas[0] == "PRAGMA busy_timeout=5000"
        monkeypatch.setattr(engine, name, ("PRAGMA busy_timeout=200", *pragmas[1:]))
    return wait
