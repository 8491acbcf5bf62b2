"""``check``, ``reencode`` and ``lab``: keeping a mesh, and working with it."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import polars as pl
import typer

from mnemes_lab.cli.base import (
    BROKEN,
    Folder,
    Formatted,
    Output,
    app,
    examples,
    existing,
    fail,
    opened,
)
from mnemes_lab.cli.output import Target, note, say
from mnemes_lab.errors import CorruptStoreError, InputError, MissingExtraError, ReceiptKeyError
from mnemes_lab.mesh.mesh import Mesh


@app.command(
    "check",
    epilog=examples(
        "mnemes-lab check my-mesh",
        "mnemes-lab check my-mesh --format json",
    ),
)
def check_command(folder: Folder, format: Formatted = None, output: Output = None) -> None:
    """Look at every file, table, index and receipt of a mesh.

    What is pending heals by itself. Leaves with 5 when anything is broken.
    """
    target = Target.of(format, output)
    try:
        with opened(folder, read_only=True) as mesh:
            report = mesh.check()
    except (CorruptStoreError, ReceiptKeyError) as error:
        fail(error, BROKEN)
    target.write(report)
    broken = report.filter(pl.col("outcome") == "broken").height
    if target.for_people:
        say(f"{report.height} checks, {broken} broken")
    if broken:
        if not target.for_people:
            note(f"{broken} of {report.height} checks found something broken")
        raise typer.Exit(BROKEN)


@app.command(
    "reencode",
    epilog=examples(
        "mnemes-lab reencode my-mesh --encoder minilm",
        "mnemes-lab reencode my-mesh --encoder hash:256",
    ),
)
def reencode_command(
    folder: Folder,
    encoder: Annotated[
        str,
        typer.Option(
            help="hash, hash:256, minilm, or the folder of a sentence model.", show_default=False
        ),
    ],
) -> None:
    """Encode every fact with another encoder and use it from now on.

    Interrupted, it has changed nothing, and a second run continues.
    """
    # Opened with the new encoder: the old one may no longer be installed.
    with Mesh.open(existing(folder), encoder=encoder, reencode=True) as mesh:
        mesh.refresh(progress=sys.stderr.isatty())
        facts = mesh.catalogue()["facts"].sum()
        say(f"{facts} facts are encoded by {mesh.encoder.name} ({mesh.encoder.fingerprint})")


@app.command(
    "lab",
    epilog=examples(
        "mnemes-lab lab",
        "mnemes-lab lab --folder my-notebooks -- --no-browser --port 8890",
    ),
)
def lab_command(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="[-- ARGS]", help="Passed on to JupyterLab."),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder of notebooks. Default: the laboratory's own."),
    ] = None,
) -> None:
    """Start JupyterLab on the notebooks."""
    if importlib.util.find_spec("jupyterlab") is None:
        raise MissingExtraError.of("The laboratory", "JupyterLab", "lab")
    chosen = notebooks() if folder is None else folder
    if not chosen.is_dir():
        raise InputError("There is no such folder.", found=str(chosen))
    command = [sys.executable, "-m", "jupyterlab", *(arguments or []), str(chosen)]
    raise typer.Exit(subprocess.run(command, check=False).returncode)


def notebooks() -> Path:
    """The notebooks of a checkout where there are some, else the folder one is in."""
    checkout = Path(__file__).resolve().parents[2] / "notebooks"
    places = (Path("notebooks"), checkout)
    return next((place for place in places if place.is_dir()), Path())
