"""Run notebooks in place so that a second run leaves the same bytes.

Use:
    python notebooks/run.py                 every notebook beside this file
    python notebooks/run.py A.ipynb B.ipynb these
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

HERE = Path(__file__).resolve().parent
# The same environment as the tests (conftest.py in the folder above).
ENVIRONMENT = {
    "PYTHONHASHSEED": "0",
    "MNEMES_STATIC": "1",
    "TQDM_DISABLE": "1",
    "TZ": "UTC",
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
KERNEL = {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"}


def clean(notebook: nbformat.NotebookNode) -> None:
    """Drop what changes from run to run: timings, widget state, the exact Python version."""
    notebook.metadata = nbformat.from_dict(
        {"kernelspec": KERNEL, "language_info": {"name": "python"}}
    )
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)


def run(path: Path, *, timeout: int = 120) -> None:
    """Execute one notebook from top to bottom and write it back."""
    notebook = nbformat.read(path, as_version=4)
    clean(notebook)
    NotebookClient(
        notebook,
        timeout=timeout,
        kernel_name="python3",
        record_timing=False,
        store_widget_state=False,
        resources={"metadata": {"path": str(path.parent)}},
    ).execute()
    clean(notebook)
    nbformat.write(notebook, path)


def main(arguments: list[str]) -> int:
    """Run the notebooks named, or all of them; say the size of each."""
    os.environ.update(ENVIRONMENT)
    paths = [Path(a).resolve() for a in arguments] or sorted(HERE.glob("*.ipynb"))
    for path in paths:
        run(path)
        print(f"{path.stat().st_size / 1000:6.0f} kB  {path.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
