"""Write MANIFEST.json anew: path, digest, rows, licence, maker and purpose of every scenario file.

Run it from anywhere after a scenario file has changed::

    python data/make_manifest.py

Entries under ``made`` (data that a function makes from a seed) are kept as they are, and so are
entries of files outside ``scenarios/``.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

ABOUT = {
    "scenario.json": "name, title, story and devices of the scenario {name}",
    "facts.jsonl": "what the devices of the scenario {name} remember",
    "queries.jsonl": "questions to the devices of the scenario {name}, some without an answer",
    "relevance.jsonl": "which facts answer which question of the scenario {name}",
    "pairs.jsonl": "contradicting and merely similar pairs of facts of the scenario {name}",
}


def entry(path: Path, data: Path) -> dict[str, Any]:
    """The manifest entry of one scenario file."""
    raw = path.read_bytes()
    card = json.loads((path.parent / "scenario.json").read_text("utf-8"))
    return {
        "path": path.relative_to(data).as_posix(),
        "sha256": hashlib.sha256(raw).hexdigest(),
        "rows": raw.count(b"\n") if path.suffix == ".jsonl" else 1,
        "licence": card["licence"],
        "maker": card["maker"],
        "about": ABOUT[path.name].format(name=card["name"]),
    }


def build(data: Path) -> dict[str, Any]:
    """The manifest of a data folder, without writing it."""
    target = data / "MANIFEST.json"
    old = json.loads(target.read_text("utf-8")) if target.exists() else {}
    kept = [row for row in old.get("files", []) if not row["path"].startswith("scenarios/")]
    found = [
        entry(path, data)
        for folder in (data / "scenarios").iterdir()
        for path in folder.iterdir()
        if path.name in ABOUT
    ]
    files = sorted(kept + found, key=lambda row: row["path"])
    return {**old, "files": files, "made": old.get("made", [])}


if __name__ == "__main__":
    here = Path(__file__).resolve().parent
    text = json.dumps(build(here), ensure_ascii=False, indent=2) + "\n"
    (here / "MANIFEST.json").write_text(text, "utf-8", newline="\n")
