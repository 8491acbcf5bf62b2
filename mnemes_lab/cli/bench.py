"""``bench``: how fast a mesh is, measured against a peer in the same run."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from mnemes_lab.cli.base import app, examples
from mnemes_lab.cli.output import Format, Target

bench = typer.Typer(
    help="Measure a mesh against a peer in the same run: only the ratios compare machines.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    epilog=examples("mnemes-lab bench ingest", "mnemes-lab bench search --json"),
)
app.add_typer(bench, name="bench")

Devices = Annotated[int, typer.Option(min=1, help="Devices of the mesh.")]
Facts = Annotated[int, typer.Option(min=1, help="Facts on all of them together.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object: bench, results, env.")]


@bench.command("ingest", epilog=examples("mnemes-lab bench ingest --devices 10 --facts 10000"))
def ingest_command(devices: Devices = 100, facts: Facts = 100_000, json: Json = False) -> None:
    """Measure how fast facts are stored, against bare SQLite writing the same rows."""
    from mnemes_lab.bench import ingest

    _tell(ingest.run(devices=devices, facts=facts), json)


@bench.command("search", epilog=examples("mnemes-lab bench search --devices 10 --facts 1000"))
def search_command(devices: Devices = 100, facts: Facts = 100_000, json: Json = False) -> None:
    """Measure how fast questions are answered, against one index over all facts."""
    from mnemes_lab.bench import search

    _tell(search.run(devices=devices, facts_per_device=max(1, facts // devices)), json)


@bench.command("evidence", epilog=examples("mnemes-lab bench evidence --edges 100000"))
def evidence_command(
    edges: Annotated[int, typer.Option(min=10_000, help="Provenance edges.")] = 1_000_000,
    json: Json = False,
) -> None:
    """Measure as-of filters and lineage, against the same written by hand."""
    from mnemes_lab.bench import evidence

    _tell(evidence.run(edges=edges), json)


def _tell(report: Any, json: bool) -> None:
    if json:
        typer.echo(report.to_json())
    else:
        Target(Format.TABLE).write(report.frame())
