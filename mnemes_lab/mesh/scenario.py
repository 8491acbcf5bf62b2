"""Scenarios: small invented worlds with devices, facts, questions and judged pairs.

A scenario is read from files that ship with the package. Every file is compared with the digest
in ``MANIFEST.json`` before it is used, so a result never rests on data that was changed unnoticed.
Nothing here writes.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from mnemes_lab.digest import sha256_hex
from mnemes_lab.errors import ScenarioError
from mnemes_lab.frames import read_rows
from mnemes_lab.schemas import Facts, Queries, Relevance, dtypes

MANIFEST = "MANIFEST.json"
FILES = ("scenario.json", "facts.jsonl", "queries.jsonl", "relevance.jsonl", "pairs.jsonl")
_TEXT: Any = pl.String()
_FACT_COLUMNS = {
    name: _TEXT if name == "device" else dtypes(Facts)[name]
    for name in (
        "fact_id",
        "device",
        "namespace",
        "text",
        "subject",
        "predicate",
        "object",
        "source",
        "kind",
        "sensitivity",
        "observed_at",
        "valid_from",
        "valid_to",
    )
}
_QUERY_COLUMNS = {**dtypes(Queries), "asker": _TEXT}
_PAIR_COLUMNS = {
    "existing_id": _TEXT,
    "incoming_id": _TEXT,
    "label": pl.Enum(["contradiction", "look_alike"]),
    "why": _TEXT,
}
_DEVICE_COLUMNS = {"label": _TEXT, "platform": _TEXT, "owner_kind": _TEXT}


@dataclass(frozen=True, eq=False)
class Scenario:
    """One invented world.

    Attributes:
        name: What it is loaded by.
        title: One line.
        story: Two to four sentences.
        devices: label, platform, owner_kind; sorted by label.
        facts: fact_id, device (a label), namespace, text, subject, predicate, object, source, kind,
            sensitivity, observed_at, valid_from, valid_to; sorted by fact_id.
        queries: as `schemas.Queries` with device_id null, and asker (a label or null); sorted by
            query_id.
        relevance: `schemas.Relevance`; a query without a row has no answer in the scenario.
        pairs: existing_id, incoming_id, label (contradiction or look_alike) and why; every
            contradiction of the scenario is listed, look-alikes are a selection.
    """

    name: str
    title: str
    story: str
    devices: pl.DataFrame
    facts: pl.DataFrame
    queries: pl.DataFrame
    relevance: pl.DataFrame
    pairs: pl.DataFrame


def data_folder() -> Path:
    """Where the data files are: inside an installed package, or beside it in a checkout.

    Raises:
        ScenarioError: neither place has a manifest.
    """
    package = Path(__file__).resolve().parents[1]
    places = (package / "_data", package.parent / "data")
    for place in places:
        if (place / MANIFEST).is_file():
            return place
    raise ScenarioError(
        "The data files of mnemes_lab are missing.",
        found=[str(place) for place in places],
        hint="install mnemes-lab again; a checkout needs its data folder beside the package",
    )


def scenario_names() -> list[str]:
    """Names that `load_scenario` knows, sorted.

    Example:
        >>> scenario_names()
        ['health', 'home', 'news', 'supply', 'travel']
    """
    paths = [path.split("/") for path in _digests(data_folder())]
    return sorted({parts[1] for parts in paths if parts[0] == "scenarios" and len(parts) == 3})


def load_scenario(name: str) -> Scenario:
    """Read a scenario and check every file against the manifest. Takes some milliseconds.

    Args:
        name: One of `scenario_names`.

    Raises:
        ScenarioError: no such scenario, or one of its files is missing, changed or unreadable.

    Example:
        >>> travel = load_scenario("travel")
        >>> travel.devices["label"].to_list()
        ['assistant', 'family-phone', 'planner']
        >>> travel.facts.filter(pl.col("subject") == "AA1287", pl.col("predicate") == "flies on")[
        ...     "object"
        ... ].to_list()
        ['24 June', '23 June']
    """
    names = scenario_names()
    if name not in names:
        close = difflib.get_close_matches(str(name), names, n=1, cutoff=0.0)
        raise ScenarioError(
            "There is no such scenario.",
            found=name,
            hint=f"did you mean {close[0]!r}? Known are {names}" if close else "none is installed",
        )
    folder = data_folder()
    digests = _digests(folder)
    text = {file: _checked(folder, f"scenarios/{name}/{file}", digests) for file in FILES}
    card = json.loads(text["scenario.json"])
    return Scenario(
        name=card["name"],
        title=card["title"],
        story=card["story"],
        devices=_frame(card["devices"], _DEVICE_COLUMNS, keys=["label"]),
        facts=_frame(_rows(text["facts.jsonl"]), _FACT_COLUMNS, keys=["fact_id"]),
        queries=_frame(_rows(text["queries.jsonl"]), _QUERY_COLUMNS, keys=["query_id"]),
        relevance=_frame(
            _rows(text["relevance.jsonl"]), dtypes(Relevance), keys=["query_id", "fact_id"]
        ),
        pairs=_frame(
            _rows(text["pairs.jsonl"]), _PAIR_COLUMNS, keys=["existing_id", "incoming_id"]
        ),
    )


def _digests(folder: Path) -> dict[str, str]:
    """Path and expected SHA-256 of every shipped file."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text("utf-8"))
        return {row["path"]: row["sha256"] for row in manifest["files"]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ScenarioError(
            "The manifest of the data files cannot be read.",
            found=str(error),
            hint="install mnemes-lab again",
        ) from None


def _checked(folder: Path, path: str, digests: Mapping[str, str]) -> str:
    """The text of a file whose bytes are the ones the manifest names."""
    try:
        raw = (folder / path).read_bytes()
    except OSError as error:
        raise ScenarioError(
            f"The file {path} cannot be read.",
            found=error.strerror,
            hint="install mnemes-lab again",
        ) from None
    digest, expected = sha256_hex(raw), digests.get(path)
    if digest != expected:
        raise ScenarioError(
            f"The file {path} is not the one the manifest describes"
            f" (SHA-256 {expected or 'not listed'}).",
            found=digest,
            hint="install mnemes-lab again, or copy the file to a name of your own to change it",
        )
    return raw.decode("utf-8")


def _rows(text: str) -> list[dict[str, Any]]:
    # Not splitlines(), which also breaks at characters that a JSON string may hold.
    return [json.loads(line) for line in text.split("\n") if line]


def _frame(
    rows: list[dict[str, Any]], columns: Mapping[str, Any], *, keys: list[str]
) -> pl.DataFrame:
    """Rows as a frame with exactly `columns`, sorted by `keys`."""
    loose = pl.DataFrame(
        {
            name: pl.Series(
                [row.get(name) for row in rows],
                dtype=dtype if dtype.is_numeric() else pl.String,
            )
            for name, dtype in columns.items()
        }
    )
    table, bad = read_rows(loose, columns, required=keys)
    if bad:
        row, why = min(bad.items())
        raise ScenarioError(f"Row {row} of a scenario file cannot be read: {why}")
    return table.cast(pl.Schema(columns)).sort(keys)
