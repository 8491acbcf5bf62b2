"""Bulk loads: batches, and device labels turned into devices."""

from __future__ import annotations

import polars as pl
from sqlalchemy import select

from mnemes_lab import schemas
from mnemes_lab.errors import InputError
from mnemes_lab.ids import check_name, parse_uuid4
from mnemes_lab.store import control, facts
from mnemes_lab.store import tables as t
from mnemes_lab.store.rules import INPUT
from mnemes_lab.store.store import Store

LOAD_BATCH = 100_000  # rows of a load that are stored, or undone, together
REMEMBERED = {name: dtype for name, dtype in INPUT.items() if name != "device_id"}
LOADED = {"device": pl.String(), **REMEMBERED}


def load_table(store: Store, table: pl.DataFrame, bad: dict[int, str]) -> pl.DataFrame:
    """Store a table of `LOADED` columns; `answers` frame, one row per input row.

    Args:
        store: The open store.
        table: What to store.
        bad: Why some rows are refused already, by position.
    """
    answers = []
    for start in range(0, table.height, LOAD_BATCH):
        part = table.slice(start, LOAD_BATCH)
        refused = {r - start: w for r, w in bad.items() if start <= r < start + part.height}
        answers.append(_load_batch(store, part, refused, start))
    if not answers:
        return schemas.empty(schemas.Answers)
    return pl.concat(answers)


def _load_batch(
    store: Store, part: pl.DataFrame, refused: dict[int, str], start: int
) -> pl.DataFrame:
    with store.writing():
        ids, refused = _resolve(store, part["device"].to_list(), refused)
        rows = part.with_columns(pl.Series("device_id", ids, dtype=pl.String))
        out = facts.add_facts(store, rows.select(list(INPUT)), refused)
    return out.with_columns(pl.col("row") + start)


def _resolve(
    store: Store, devices: list[str | None], refused: dict[int, str]
) -> tuple[list[str | None], dict[int, str]]:
    """Device ids of labels or ids, registering new labels of acceptable rows in one go."""
    refused = dict(refused)
    known = {d: i for d, i in _labels(store).items()}
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
        made = control.register_devices(store, [(d, "", "", None) for d in wanted])
        known |= {label: device_id for label, (device_id, _) in zip(wanted, made, strict=True)}
    ids: list[str | None] = []
    for row, device in enumerate(devices):
        device_id = known.get(device) if row not in refused and device is not None else None
        if device_id == "":
            refused[row], device_id = "several devices share this label. Hint: use its id", None
        ids.append(device_id)
    return ids, refused


def _labels(store: Store) -> dict[str, str]:
    """Device ids by id and by label; an empty id marks a label that several devices share."""
    known: dict[str, str] = {}
    for row in store.rows(select(t.devices.c.device_id, t.devices.c.label)):
        known[row["label"]] = "" if row["label"] in known else row["device_id"]
    ids = store.rows(select(t.devices.c.device_id))
    return known | {row["device_id"]: row["device_id"] for row in ids}


def _label_problem(label: str) -> str | None:
    try:
        check_name(label, what="device label")
    except InputError as error:
        return str(error)
    return None
