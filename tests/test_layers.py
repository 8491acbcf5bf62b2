"""The shape of the package, read from its syntax trees: directions, sizes, forbidden calls.

A room may import rooms of a lower tier only; rooms of one tier never import each other.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "mnemes_lab"
TIERS = [
    ["errors"],
    ["clock", "ids", "digest", "columns"],
    ["schemas"],
    ["frames"],
    ["text"],
    ["store"],
    ["router", "diff", "trust", "replica"],
    ["mesh"],
    ["bench", "view"],
    ["serve", "cli"],
]
RANK = {room: rank for rank, tier in enumerate(TIERS) for room in tier}
MAX_LINES = 400
# Slow to import or optional: loaded by the function that needs them.
HEAVY = {
    "IPython",
    "dateparser",
    "distributed",
    "faiss",
    "ipywidgets",
    "jupyter_client",
    "jupyterlab",
    "matplotlib",
    "mcp",
    "numba",
    "openai",
    "pandas",
    "pint",
    "prov",
    "psycopg",
    "pyvis",
    "scipy",
    "sentence_transformers",
    "sklearn",
    "starlette",
    "torch",
    "transformers",
    "uvicorn",
}
SEEDED_NUMPY = {"default_rng", "Generator", "SeedSequence", "BitGenerator", "PCG64", "Philox"}
# Calls that make a result depend on something other than its inputs, or run text as code.
FORBIDDEN = {
    "eval": "runs text as code",
    "exec": "runs text as code",
    "print": "a library gives back values; only the command line writes, through rich",
    "time.time": "use a Clock",
    "time.time_ns": "use a Clock",
    "datetime.now": "use a Clock",
    "datetime.utcnow": "use a Clock",
    "datetime.today": "use a Clock",
    "date.today": "use a Clock",
}
MAY_READ_THE_TIME = {"clock"}


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def modules() -> list[Path]:
    return sorted(path for path in PACKAGE.rglob("*.py") if "_data" not in path.parts)


def imported(node: ast.AST, package: tuple[str, ...]) -> list[str]:
    """Full names an import statement reaches; `package` is where the module stands."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        base = package[: len(package) - node.level + 1] if node.level else ()
        stem = ".".join([*base, *([node.module] if node.module else [])])
        return [f"{stem}.{alias.name}" for alias in node.names]
    return []


def at_import(tree: ast.AST) -> Iterator[ast.AST]:
    """Nodes that run when a module is imported: no function bodies, no type-only imports."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            continue
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        yield child
        yield from at_import(child)


def wrong_directions(source: str, room: str, package: tuple[str, ...]) -> list[str]:
    """Imports of one module that point to its own tier or upwards."""
    found = []
    for node in ast.walk(ast.parse(source)):
        for name in imported(node, package):
            head, _, rest = name.partition(".")
            other = rest.partition(".")[0]
            if head != "mnemes_lab" or other == room:
                continue
            if other not in RANK:  # `from mnemes_lab import x`: the package itself
                found.append(f"line {node.lineno}: {room} -> the package's own face ({name})")
            elif RANK[other] >= RANK[room]:
                found.append(f"line {node.lineno}: {room} -> {other}")
    return found


def heavy_imports(source: str) -> list[str]:
    """Heavy libraries that importing the module would load."""
    return [
        f"line {node.lineno}: {name}"
        for node in at_import(ast.parse(source))
        for name in imported(node, ())
        if name.partition(".")[0] in HEAVY
    ]


def forbidden_calls(source: str, room: str) -> list[str]:
    """Calls and imports that would break a law of the lab."""
    found = []
    for node in ast.walk(ast.parse(source)):
        for name in imported(node, ()):
            if name.partition(".")[0] in ("pickle", "cPickle", "dill", "marshal", "shelve"):
                found.append(f"line {node.lineno}: {name}: loading one runs code")
            if name in FORBIDDEN and room not in MAY_READ_THE_TIME:
                found.append(f"line {node.lineno}: {name}: {FORBIDDEN[name]}")
        if isinstance(node, ast.Attribute):
            full = ast.unparse(node)
            last = ".".join(full.split(".")[-2:])
            if last in FORBIDDEN and room not in MAY_READ_THE_TIME:
                found.append(f"line {node.lineno}: {last}: {FORBIDDEN[last]}")
            if full.startswith(("np.random.", "numpy.random.")) and node.attr not in SEEDED_NUMPY:
                found.append(f"line {node.lineno}: {full}: global random state")
            if full.startswith("random.") and node.attr != "Random":
                found.append(f"line {node.lineno}: {full}: global random state")
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            name = node.func.id
            if name in FORBIDDEN:
                found.append(f"line {node.lineno}: {name}: {FORBIDDEN[name]}")
        if isinstance(node, ast.keyword) and ast.unparse(node) == "allow_pickle=True":
            found.append(f"line {node.value.lineno}: allow_pickle: loading one runs code")
    return found


def package_of(path: Path) -> tuple[str, ...]:
    return ("mnemes_lab", *path.relative_to(PACKAGE).parts[:-1])


IDS = [str(path.relative_to(PACKAGE)) for path in modules()]


ROOMS = [path for path in modules() if path != PACKAGE / "__init__.py"]  # the face sees all


@pytest.mark.parametrize("path", ROOMS, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_down(path):
    room = room_of(path)
    assert room in RANK, f"{room} has no place in the house"
    assert wrong_directions(path.read_text(encoding="utf-8"), room, package_of(path)) == []


@pytest.mark.parametrize("path", modules(), ids=IDS)
def test_importing_a_module_loads_nothing_heavy(path):
    assert heavy_imports(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("path", modules(), ids=IDS)
def test_no_forbidden_calls(path):
    assert forbidden_calls(path.read_text(encoding="utf-8"), room_of(path)) == []


@pytest.mark.parametrize("path", modules(), ids=IDS)
def test_a_module_holds_one_idea(path):
    lines = path.read_text(encoding="utf-8").count("\n")
    assert lines <= MAX_LINES


# --- the checks themselves -----------------------------------------------------------------------
@pytest.mark.parametrize(
    "line",
    [
        "from mnemes_lab.mesh import Mesh",
        "from mnemes_lab.mesh.mesh import Mesh",
        "import mnemes_lab.mesh",
        "from mnemes_lab import mesh",
        "from ..mesh import Mesh",
        "from .. import mesh",
        "from mnemes_lab.router import rankers",
        "from ..trust.models import beta",
        "from mnemes_lab import Mesh",
        "def f():\n    from mnemes_lab.cli import main",
    ],
)
def test_a_wrong_direction_is_seen(line):
    assert wrong_directions(line, "diff", ("mnemes_lab", "diff"))


@pytest.mark.parametrize(
    "line",
    [
        "from mnemes_lab.store import facts",
        "from mnemes_lab.diff.snapshot import take",
        "from . import snapshot",
        "from .snapshot import take",
        "from .. import frames",
        "from ..text.encode import Encoder",
        "import polars",
    ],
)
def test_a_right_direction_passes(line):
    assert wrong_directions(line, "diff", ("mnemes_lab", "diff")) == []


@pytest.mark.parametrize(
    "source",
    [
        "import torch",
        "import scipy.sparse as sp",
        "from sklearn.linear_model import Ridge",
        "try:\n    import faiss\nexcept ImportError:\n    faiss = None",
        "class A:\n    import pandas",
        "if True:\n    import matplotlib.pyplot as plt",
    ],
)
def test_a_heavy_import_is_seen(source):
    assert heavy_imports(source)


@pytest.mark.parametrize(
    "source",
    [
        "def f():\n    import torch",
        "import polars, numpy, networkx",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import pandas",
        "class A:\n    def f(self):\n        from scipy import sparse",
    ],
)
def test_a_late_import_passes(source):
    assert heavy_imports(source) == []


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from pickle import loads",
        "eval(text)",
        "exec(text)",
        "print(1)",
        "import time\ntime.time()",
        "from time import time_ns",
        "datetime.now()",
        "dt.datetime.now(tz)",
        "datetime.datetime.utcnow()",
        "np.random.seed(1)",
        "numpy.random.rand()",
        "random.random()",
        "rng = random.choice",
        "np.load(path, allow_pickle=True)",
    ],
)
def test_a_forbidden_call_is_seen(source):
    assert forbidden_calls(source, "store")


@pytest.mark.parametrize(
    "source",
    [
        "connection.execute(query)",
        "connection.exec_driver_sql(query)",
        "np.random.default_rng(7)",
        "rng.random()",
        "console.print(table)",
        "now = clock.now()",
        'hint = "use uuid.uuid4()"',
        "np.load(path, allow_pickle=False)",
    ],
)
def test_other_calls_pass(source):
    assert forbidden_calls(source, "store") == []
