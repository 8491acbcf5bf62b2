"""A laboratory for shared memory of AI agents on many devices: frames in, frames out.

Example:
    >>> import tempfile, mnemes_lab as ml
    >>> mesh = ml.Mesh.open(tempfile.mkdtemp(), seed=7, encoder="hash")
    >>> planner, assistant = mesh.agent("planner"), mesh.agent("assistant")
    >>> _ = planner.remember("Flight AA1234 to Las Vegas now departs at 8:00 PM")
    >>> _ = assistant.remember("Flight AA1234 to Las Vegas departs at 5:00 PM")
    >>> found = mesh.search("when does AA1234 leave?", asker=planner, k=5, budget=1)
    >>> found.hits["text"].to_list(), found.receipt.verify()
    (['Flight AA1234 to Las Vegas now departs at 8:00 PM'], True)
    >>> mesh.close()
"""

from mnemes_lab import errors, schemas
from mnemes_lab.bench.workload import Workload, make_workload
from mnemes_lab.clock import LabClock
from mnemes_lab.mesh.agent import Agent, Device
from mnemes_lab.mesh.found import Found, Receipt
from mnemes_lab.mesh.mesh import Mesh
from mnemes_lab.mesh.scenario import Scenario, load_scenario, scenario_names
from mnemes_lab.router.merge import merge_hits
from mnemes_lab.router.rankers import rank_shards
from mnemes_lab.store.asof import AsOf, as_of
from mnemes_lab.store.lineage import Lineage, lineage
from mnemes_lab.text.encode import Encoder, HashEncoder, SentenceEncoder

__version__ = "0.1.0"

__all__ = [
    "Agent",
    "AsOf",
    "Device",
    "Encoder",
    "Found",
    "HashEncoder",
    "LabClock",
    "Lineage",
    "Mesh",
    "Receipt",
    "Scenario",
    "SentenceEncoder",
    "Workload",
    "as_of",
    "errors",
    "lineage",
    "load_scenario",
    "make_workload",
    "merge_hits",
    "rank_shards",
    "scenario_names",
    "schemas",
]
