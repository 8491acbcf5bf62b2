"""The command ``mnemes-lab``: what a mesh can do, from a shell."""

from mnemes_lab.cli import bench, demo, evidence, export, facts, people, search, upkeep
from mnemes_lab.cli.base import app, main

__all__ = [
    "app",
    "bench",
    "demo",
    "evidence",
    "export",
    "facts",
    "main",
    "people",
    "search",
    "upkeep",
]
