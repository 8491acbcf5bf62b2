"""``demo``: a scenario from end to end, and a page about it."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Annotated

import polars as pl
import typer

from mnemes_lab.bench.demo import Demo, run_demo
from mnemes_lab.cli.base import app, examples
from mnemes_lab.cli.output import Format, Target, note, say
from mnemes_lab.errors import InputError, MissingExtraError
from mnemes_lab.view import charts
from mnemes_lab.view.report import MARK, Section, page

_SHOWN = 6  # questions in the terminal; the page has all
_PAGE, _PICTURE = "report.html", "recall.png"


@app.command(
    "demo",
    epilog=examples(
        "mnemes-lab demo",
        "mnemes-lab demo --scenario supply --out supply-demo",
        "mnemes-lab demo --encoder hash --mesh demo-mesh",
    ),
)
def demo_command(
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder of the report.")] = Path(
        "mnemes-demo"
    ),
    scenario: Annotated[str, typer.Option(help="health, home, news, supply or travel.")] = "travel",
    encoder: Annotated[
        str | None,
        typer.Option(help="hash, minilm or a model's folder. Default: minilm where installed."),
    ] = None,
    mesh: Annotated[
        Path | None,
        typer.Option("--mesh", metavar="DIR", help="Keep the mesh here; else it is temporary."),
    ] = None,
) -> None:
    """Run an invented world from end to end and write a page about it. Needs no network."""
    _check_free(out)
    if mesh is not None:
        demo = run_demo(mesh, scenario, encoder)
    else:
        with tempfile.TemporaryDirectory(prefix="mnemes-demo-") as scratch:
            demo = run_demo(Path(scratch) / "mesh", scenario, encoder)
    if demo.notice:
        note(f"notice: {demo.notice}")
    _tell(demo)
    _write(demo, out)
    say(f"report: {out / _PAGE}")


def _tell(demo: Demo) -> None:
    table = Target(Format.TABLE)
    say(f"{demo.title} (encoder {demo.encoder})")
    say(demo.story)
    for heading, frame in (
        ("Devices", demo.devices),
        (
            f"Questions, with two devices asked (first {_SHOWN} of {demo.questions.height})",
            demo.questions.head(_SHOWN).select("question", "asked", "top_device", "top_hit"),
        ),
        ("Known answers among the first ten hits", _shares(demo.recall)),
        (f"Trace: {demo.example}", demo.trace),
        (f"Receipt {demo.receipt_id}", demo.receipt),
    ):
        say("")
        table.write(frame, title=heading)
    say("")


def _shares(recall: pl.DataFrame) -> pl.DataFrame:
    """Recall as people read it."""
    return recall.select(
        devices_asked=pl.format("{} of {}", "budget", "eligible"),
        recall_at_10=pl.format("{} %", (100 * pl.col("recall_at_10")).round().cast(pl.Int64)),
    )


# --- the report ------------------------------------------------------------------------------
def _check_free(out: Path) -> None:
    """Refuse a folder that holds anything but an earlier report.

    Raises:
        InputError: it is a file, or holds something else.
    """
    if out.exists() and not out.is_dir():
        raise InputError("The report needs a folder.", found=str(out), hint="give --out DIR")
    if not out.exists() or not any(out.iterdir()):
        return
    earlier = out / _PAGE
    known = {_PAGE, _PICTURE, *(f".{name}.new" for name in (_PAGE, _PICTURE))}
    if {path.name for path in out.iterdir()} <= known and earlier.is_file():
        with earlier.open(encoding="utf-8", errors="replace") as file:
            if MARK in file.read(2000):
                return
    raise InputError(
        "The folder is not empty and holds no earlier report.",
        found=str(out),
        hint="give a new folder with --out DIR",
    )


def _write(demo: Demo, out: Path) -> None:
    """Write the page and the picture, each whole or not at all."""
    pictures = _pictures(demo)
    out.mkdir(parents=True, exist_ok=True)
    if pictures is None:
        (out / _PICTURE).unlink(missing_ok=True)  # it would belong to another run
    else:
        _replace(out / _PICTURE, pictures[0])
    _replace(out / _PAGE, report(demo, pictures).encode("utf-8"))


def _replace(path: Path, content: bytes) -> None:
    fresh = path.with_name(f".{path.name}.new")
    fresh.write_bytes(content)
    os.replace(fresh, path)


def _pictures(demo: Demo) -> tuple[bytes, bytes] | None:
    """Recall by budget, and the devices; None, with a notice, where they cannot be drawn."""
    try:
        return (
            charts.png(charts.plot_budget(demo.recall)),
            charts.png(charts.plot_devices(demo.devices)),
        )
    except MissingExtraError as error:
        note(f"notice: the report has no pictures. {error}")
        return None


def report(demo: Demo, pictures: tuple[bytes, bytes] | None) -> str:
    """The page about a run."""
    recall, devices = pictures or (None, None)
    right = demo.questions["right"].drop_nulls()
    sections = [
        Section(
            "Devices",
            "Each device owns its memory. A router knows only the terms of a device's facts.",
            demo.devices,
            devices,
            "Facts and terms of each device",
        ),
        Section(
            "How much a budget finds",
            "Every question was asked three times: to the one device that the router puts first, "
            "to two, and to all. The share of the known answers that are among the first ten hits:",
            _shares(demo.recall),
            recall,
            "Known answers found, by devices asked",
        ),
        Section(
            "Questions",
            f"Asked with two devices each, as one batch. The first hit answers {right.sum()} of "
            f"the {right.len()} questions whose answer is known; the others have no answer here.",
            demo.questions.drop("query_id"),
        ),
        Section(f"One question: {demo.example}", "Its first hits:", demo.hits.head(5)),
        Section(
            "Its trace",
            "Every device that could have been asked, which were, and why.",
            demo.trace,
        ),
        Section(
            "Its receipt",
            f"Receipt {demo.receipt_id} was on record before the answer was given. It proves what "
            "was asked and what came back to whoever holds the mesh's key.",
            demo.receipt,
        ),
    ]
    foot = (
        f"Encoder: {demo.encoder}. Seeded, so that a run can be repeated; the persons, places and "
        "facts are invented."
    )
    return page(demo.title, sections, lead=demo.story, foot=foot)
