"""The command itself: its options, what all commands share, and how errors are told.

Exit codes: 0 done, 1 an error (one line on standard error), 2 wrong usage, 3 some rows of a load
were refused, 4 a receipt does not verify, 5 a check found something broken.
"""

from __future__ import annotations

import errno
import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

from mnemes_lab.cli.output import Format, note
from mnemes_lab.errors import MnemesError, NotAMeshError
from mnemes_lab.mesh.mesh import Mesh
from mnemes_lab.store.asof import AsOf

ERROR, REFUSED_ROWS, NOT_VERIFIED, BROKEN = 1, 3, 4, 5
_ORDER = (
    "demo",
    "init",
    "load",
    "search",
    "facts",
    "receipt",
    "lineage",
    "operations",
    "edges",
    "redact",
    "export",
    "devices",
    "actors",
    "check",
    "reencode",
    "bench",
    "lab",
)

Folder = Annotated[
    Path, typer.Argument(metavar="DIR", help="Folder of the mesh.", show_default=False)
]
Formatted = Annotated[
    Format | None,
    typer.Option(
        "--format", "-f", help="How to write it. Default: the ending of FILE, else a table."
    ),
]
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FILE", help="Write to a file; parquet needs one."),
]
ValidAt = Annotated[
    str | None,
    typer.Option(
        "--as-of-valid",
        metavar="TIME",
        help="Only what holds in the world then, such as 2031-06-11T09:30:00+02:00.",
    ),
]
RecordedAt = Annotated[
    str | None,
    typer.Option("--as-of-recorded", metavar="TIME", help="As the mesh knew it then."),
]


class Commands(TyperGroup):
    """The group: commands in reading order, errors as one line."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Commands in the order a newcomer needs them."""
        return sorted(super().list_commands(ctx), key=_ORDER.index)

    def invoke(self, ctx: Any) -> Any:
        """Run; an error of the package or of a file becomes a line and exit code 1."""
        try:
            return super().invoke(ctx)
        except MnemesError as error:
            if ctx.params.get("debug"):
                raise
            fail(error)
        except OSError as error:
            if ctx.params.get("debug") or error.errno == errno.EPIPE:
                raise  # a reader that went away is no error
            fail(error)


class Question(TyperCommand):
    """A command whose argument may start with a dash: says how, when it was taken for an option."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse; name the way out where an option is unknown."""
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            if hasattr(error, "option_name") and hasattr(error, "possibilities"):
                hint = "A question that starts with a dash goes after -- at the end."
                error.message = f"{getattr(error, 'message', error)}. {hint}"  # type: ignore[attr-defined]
            raise


app = typer.Typer(
    name="mnemes-lab",
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="A laboratory for shared agent memory: frames in, frames out, answers with receipts.",
    epilog="Start with: mnemes-lab demo",
)


def examples(*lines: str) -> str:
    """The examples of a command, one to a line, for the end of its help."""
    return "\n\n".join(["Examples:", *lines])


def _version(asked: bool) -> None:
    if asked:
        package = importlib.import_module("mnemes_lab")
        typer.echo(f"mnemes-lab {package.__version__}")
        raise typer.Exit


@app.callback()
def root(
    debug: Annotated[bool, typer.Option("--debug", help="Show where an error comes from.")] = False,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Options before the command."""


def fail(error: BaseException, code: int = ERROR) -> NoReturn:
    """Tell an error in one line and leave."""
    note(f"error: {' '.join(str(error).split())}")
    raise typer.Exit(code)


@contextmanager
def opened(folder: Path, *, read_only: bool = False) -> Iterator[Mesh]:
    """An existing mesh; a wrong path never makes a new one.

    Raises:
        NotAMeshError: there is none.
    """
    with Mesh.open(existing(folder), read_only=read_only) as mesh:
        yield mesh


def existing(folder: Path) -> Path:
    """A folder that holds a mesh.

    Raises:
        NotAMeshError: it does not.
    """
    if not (folder / "pooled.db").is_file():
        raise NotAMeshError(
            "There is no mesh here.", found=str(folder), hint="mnemes-lab init makes one"
        )
    return folder


def as_of(valid: str | None, recorded: str | None) -> AsOf | None:
    """Points on the two time axes; None where neither is given."""
    return None if valid is None and recorded is None else AsOf(valid, recorded)


def main() -> None:
    """Run the command line and leave with its exit code."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure: Callable[..., None] | None = getattr(stream, "reconfigure", None)
        if reconfigure is not None:  # texts may hold what the terminal's encoding does not
            reconfigure(encoding="utf-8", errors="backslashreplace")
    try:
        app()
    except Exception as error:
        if "--debug" in sys.argv:
            raise
        kind = type(error).__name__
        note(f"error: {kind}: {' '.join(str(error).split())} Hint: --debug shows where")
        sys.exit(ERROR)
