"""``export``: evidence for other tools, as W3C PROV, Parquet or a graph.

An export is written whole or not at all, never into the folder of the mesh, and over nothing
without ``--force``, which replaces files and earlier exports only.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import polars as pl
import typer

from mnemes_lab.cli.base import (
    Folder,
    RecordedAt,
    ValidAt,
    app,
    as_of,
    examples,
    existing,
    opened,
)
from mnemes_lab.cli.evidence import ALL_EDGES, Depth, counted, item_of, steps
from mnemes_lab.cli.output import note, say
from mnemes_lab.errors import InputError
from mnemes_lab.mesh.mesh import Mesh
from mnemes_lab.store.asof import AsOf
from mnemes_lab.store.evidence import Evidence
from mnemes_lab.store.lineage import Lineage

_PICTURES, _ENDINGS = (".html", ".svg"), (".html", ".svg", ".graphml", ".json")
_TAKEN = "There is something here already."

export = typer.Typer(
    help="Write evidence for other tools: W3C PROV, Parquet, or a graph.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    epilog=examples(
        "mnemes-lab export prov my-mesh evidence.json",
        "mnemes-lab export graph my-mesh lineage.html --item fact:1111… --depth 4",
    ),
)
app.add_typer(export, name="export")

About = Annotated[
    str | None,
    typer.Option("--item", metavar="ITEM", help="Only the lineage of kind:id, or of a fact's id."),
]
Force = Annotated[
    bool, typer.Option("--force", help="Replace a file, or a folder that an export made.")
]


@export.command(
    "prov",
    epilog=examples(
        "mnemes-lab export prov my-mesh evidence.json",
        "mnemes-lab export prov my-mesh part.json --item fact:1111… --depth all --force",
    ),
)
def prov_command(
    folder: Folder,
    out: Annotated[Path, typer.Argument(metavar="OUT.json", help="File to write.")],
    item: About = None,
    depth: Depth = "6",
    valid: ValidAt = None,
    recorded: RecordedAt = None,
    force: Force = False,
) -> None:
    """Write facts, who said them, operations and edges as one W3C PROV-JSON document."""
    from mnemes_lab.view.prov import prov_json

    place = _free_file(folder, out, force)
    evidence = _evidence(folder, item, steps(depth), as_of(valid, recorded))
    _write(place, prov_json(evidence).encode(), force)
    _tell(out, evidence)


@export.command(
    "parquet",
    epilog=examples(
        "mnemes-lab export parquet my-mesh evidence",
        "mnemes-lab export parquet my-mesh then --as-of-recorded 2031-06-11T09:30:00Z",
    ),
)
def parquet_command(
    folder: Folder,
    out: Annotated[Path, typer.Argument(metavar="OUT_DIR", help="Folder to make.")],
    item: About = None,
    depth: Depth = "6",
    valid: ValidAt = None,
    recorded: RecordedAt = None,
    force: Force = False,
) -> None:
    """Write a folder of Parquet files whose manifest lets anybody check them without the mesh.

    With --item it holds a part of the mesh, which its manifest does not tell.
    """
    from mnemes_lab.view.parquet import write_parquet

    place, earlier = _free_folder(folder, out, force)
    evidence = _evidence(folder, item, steps(depth), as_of(valid, recorded))
    write = _replace_folder if earlier else write_parquet
    manifest = write(evidence, place)
    _tell(out, evidence)
    say(f"manifest digest {manifest['digest']}")


@export.command(
    "graph",
    epilog=examples(
        "mnemes-lab export graph my-mesh lineage.html --item fact:1111… --depth 4",
        "mnemes-lab export graph my-mesh everything.graphml",
    ),
)
def graph_command(
    folder: Folder,
    out: Annotated[
        Path,
        typer.Argument(metavar="OUT", help="File to write: .html, .svg, .graphml or .json."),
    ],
    item: About = None,
    depth: Depth = "6",
    valid: ValidAt = None,
    recorded: RecordedAt = None,
    force: Force = False,
) -> None:
    """Write items and the edges between them.

    html is interactive and svg still, both for people and for at most 300 items; graphml and json
    (node-link, as networkx and D3 read it) have no bound. What was superseded stays in.
    """
    ending = out.suffix.lower()
    if ending not in _ENDINGS:
        raise typer.BadParameter(f"the ending is one of {', '.join(_ENDINGS)}", param_hint="OUT")
    place, point = _free_file(folder, out, force), as_of(valid, recorded)
    with opened(folder, read_only=True) as mesh:
        if item is None:
            edges = mesh.edges(as_of=point, include_superseded=True)
            drawn: _Whole | Lineage = _Whole(edges, mesh.items(edges, as_of=point))
        else:
            drawn = _lineage(mesh, item, steps(depth), point)
        text = _picture(drawn, ending) if ending in _PICTURES else _graph(drawn, ending)
        told = counted(item=drawn.items.height, edge=drawn.edges.height)
    _write(place, text.encode(), force)
    say(f"wrote {out}: {told}")


# --- what is exported ------------------------------------------------------------------------
class _Whole(NamedTuple):
    """Everything, in the shape of a lineage."""

    edges: pl.DataFrame
    items: pl.DataFrame
    root: str | None = None
    truncated: bool = False


def _lineage(mesh: Mesh, item: str, depth: int | None, point: AsOf | None) -> Lineage:
    found = mesh.lineage(item_of(item).key, depth=depth, limit=ALL_EDGES, as_of=point)
    if found.truncated:
        note(f"truncated: more lies beyond depth {depth}; --depth all goes all the way")
    return found


def _evidence(folder: Path, item: str | None, depth: int | None, point: AsOf | None) -> Evidence:
    """All evidence of a mesh, or that of a lineage: its items and who stands behind them."""
    with opened(folder, read_only=True) as mesh:
        if item is None:
            return mesh.evidence(point)
        found, whole = _lineage(mesh, item, depth, point), mesh.evidence(point)
        reached = found.items.group_by("item_kind").agg("item_id")
        named = {kind: set(ids) for kind, ids in reached.iter_rows()}
        operations = found.operations
    facts = _with_ids(whole.facts, "fact_id", named.get("fact", set()))
    asking = set(operations["requesting_actor_id"])
    actors = _with_ids(whole.actors, "actor_id", named.get("actor", set()) | asking)
    owners = {*facts["device_id"], *actors["device_id"], *operations["requesting_device_id"]}
    owners |= {*operations["recording_device_id"], *named.get("device", set())}
    devices = _with_ids(whole.devices, "device_id", owners)
    return Evidence(whole.mesh_id, point, devices, actors, facts, operations, found.edges)


def _with_ids(frame: pl.DataFrame, column: str, ids: set[Any]) -> pl.DataFrame:
    wanted = pl.Series(sorted(id for id in ids if id is not None), dtype=pl.String)
    return frame.filter(pl.col(column).is_in(wanted.implode()))


def _picture(drawn: _Whole | Lineage, ending: str) -> str:
    from mnemes_lab.view.graph import ProvenanceGraph

    graph = ProvenanceGraph.of(drawn)
    return graph.page() if ending == ".html" else graph.svg() + "\n"


def _graph(drawn: _Whole | Lineage, ending: str) -> str:
    from mnemes_lab.view.export import graph_json, graphml, to_networkx

    graph = to_networkx(drawn.edges, drawn.items)
    return graphml(graph) if ending == ".graphml" else graph_json(graph) + "\n"


# --- where it goes ---------------------------------------------------------------------------
def _free_file(folder: Path, out: Path, force: bool) -> Path:
    """The path of a file that may be written.

    Raises:
        InputError: it is taken, or lies in the mesh; folders, links and devices are never replaced.
    """
    place = _outside(folder, out)
    if place.is_dir():
        raise InputError("A file is needed, and this is a folder.", found=str(out))
    if os.path.lexists(place):
        if out.is_symlink() or not place.is_file():
            raise InputError("This is no file that can be replaced.", found=str(out))
        if not force:
            raise InputError(_TAKEN, found=str(out), hint="--force replaces it")
    return place


def _free_folder(folder: Path, out: Path, force: bool) -> tuple[Path, bool]:
    """The path of a folder that may be written, and whether an earlier export is in it.

    Raises:
        InputError: something else is there, or it lies in the mesh.
    """
    place = _outside(folder, out)
    if not os.path.lexists(place) or (place.is_dir() and not any(place.iterdir())):
        return place, False
    if not _is_export(place):
        hint = "give a new name or an empty folder"
        raise InputError("Something that is no export is here.", found=str(out), hint=hint)
    if not force:
        raise InputError(_TAKEN, found=str(out), hint="--force replaces it")
    return place, True


def _outside(folder: Path, out: Path) -> Path:
    mesh, place = (Path(os.path.realpath(path)) for path in (existing(folder), out))
    if place.is_relative_to(mesh):
        hint = "give a place of its own"
        raise InputError("An export never goes into the mesh's folder.", found=str(out), hint=hint)
    return place


def _is_export(place: Path) -> bool:
    from mnemes_lab.view.export import FRAMES
    from mnemes_lab.view.parquet import FORMAT

    known = {"manifest.json", *(f"{name}.parquet" for name in FRAMES)}
    try:
        manifest = json.loads((place / "manifest.json").read_bytes())
        return manifest["format"] == FORMAT and {path.name for path in place.iterdir()} <= known
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return False


def _write(place: Path, content: bytes, force: bool) -> None:
    """Write a file, whole or not at all."""
    fresh = place.with_name(f".{place.name}.new") if force else place
    with fresh.open("wb" if force else "xb") as file:  # x: the name may be taken by now
        try:
            file.write(content)
            file.flush()
        except OSError:
            fresh.unlink()
            raise
    if force:
        os.replace(fresh, place)


def _replace_folder(evidence: Evidence, place: Path) -> dict[str, Any]:
    """Put new evidence where an earlier export is; that one stays until the new one is whole."""
    from mnemes_lab.view.parquet import write_parquet

    with tempfile.TemporaryDirectory(dir=place.parent, prefix=".export-") as scratch:
        fresh = Path(scratch) / "new"
        manifest = write_parquet(evidence, fresh)
        os.rename(place, Path(scratch) / "old")
        os.rename(fresh, place)
    return manifest


def _tell(out: Path, evidence: Evidence) -> None:
    told = counted(
        device=evidence.devices.height,
        actor=evidence.actors.height,
        fact=evidence.facts.height,
        operation=evidence.operations.height,
        edge=evidence.edges.height,
    )
    say(f"wrote {out}: {told}")
