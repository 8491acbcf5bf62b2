"""Importing the package is cheap and loads nothing heavy."""

from __future__ import annotations

import json
import subprocess
import sys

HEAVY = [
    "torch",
    "faiss",
    "openai",
    "pyvis",
    "matplotlib",
    "jupyter",
    "jupyter_client",
    "jupyterlab",
    "IPython",
    "ipywidgets",
    "sentence_transformers",
    "sklearn",
    "scipy",
]
PEER = "import polars, pandas, dataframely, sqlalchemy"


def fresh(code: str) -> dict[str, object]:
    """Run code in a new interpreter; seconds it took, and the heavy modules it loaded."""
    script = (
        "import json, sys, time\n"
        "start = time.perf_counter()\n"
        f"{code}\n"
        "seconds = time.perf_counter() - start\n"
        f"loaded = [m for m in {HEAVY!r} if m in sys.modules]\n"
        "sys.stdout.write(json.dumps({'seconds': seconds, 'loaded': loaded}))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_importing_the_package_loads_nothing_heavy():
    assert fresh("import mnemes_lab")["loaded"] == []


def test_importing_the_command_line_loads_nothing_heavy():
    assert fresh("import mnemes_lab.cli")["loaded"] == []


def test_the_probe_sees_a_heavy_import():
    assert fresh("import scipy")["loaded"] == ["scipy"]


def test_the_package_costs_no_more_than_its_core_libraries():
    # Both are measured in turn, in the same minute on the same machine: only the ratio counts.
    runs = [(fresh("import mnemes_lab"), fresh(PEER)) for _ in range(3)]
    ours = min(float(a["seconds"]) for a, _ in runs)
    peer = min(float(b["seconds"]) for _, b in runs)
    print(
        f"import mnemes_lab {ours:.2f} s, its core libraries {peer:.2f} s, ratio {ours / peer:.2f}"
    )
    assert ours <= 1.5 * peer
