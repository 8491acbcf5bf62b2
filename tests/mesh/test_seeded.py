"""One seed, one result: in any process, hash seed, time zone and number of threads."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import polars as pl
import pytest

from mnemes_lab import Mesh

STORY = """
from datetime import timedelta
import numpy as np
import polars as pl
from mnemes_lab import AsOf

class Lengths:
    "An encoder that takes no time to load."
    name, dim, fingerprint = "lengths", 4, "lengths:4"

    def encode(self, texts):
        return np.array([[len(t), t.count("a"), t.count("7"), 1] for t in texts], np.float32)

def table(part):
    names = ["kiosk", "planner", "depot", "Düse"]
    rows = [(names[i % 4], f"note {i} of part {part}: pump {i % 7} is {'off' if i % 2 else 'on'}")
            for i in range(24)]
    return pl.DataFrame(rows, schema=["device", "text"], orient="row")

def tell(mesh, part):
    "Do a bit of everything; answer everything that was answered."
    out = []
    def keep(frame):
        wide = frame.with_columns(pl.col(pl.Enum).cast(pl.String))
        out.append(json.loads(wide.write_json()))
    keep(mesh.load(table(part)))
    agent = mesh.agent(f"agent {part}")
    first = agent.remember(f"valve {part} leaks", ttl=timedelta(days=3))
    out.append(first)
    out.append(mesh.update(first, text=f"valve {part} is sealed"))
    second = agent.supersede(first, f"valve {part} was replaced")
    mesh.retract(second, reason="wrong")
    questions = pl.DataFrame({"query_id": ["x", "y"], "text": ["pump 3 off", "valve leaks"]})
    for options in ({"exhaustive": True}, {"budget": 1}, {"budget": 1, "expand": True, "k": 30}):
        found = mesh.search(questions, asker=agent, **options)
        keep(found.hits)
        keep(found.trace)
        out += [receipt.to_json() for receipt in found.receipts]
    return out

def everything(mesh):
    frames = [mesh.devices(), mesh.actors(), mesh.facts(), mesh.catalogue(), mesh.receipts()]
    plain = [f.with_columns(pl.col(pl.Enum).cast(pl.String)) for f in [*frames, mesh.summaries()]]
    return [json.loads(f.write_json()) for f in plain]
"""
WHOLE = f"""
import json, sys
{STORY}
from mnemes_lab import Mesh

with Mesh.open(sys.argv[1], seed=11, encoder=Lengths(), threads=int(sys.argv[2])) as mesh:
    told = [tell(mesh, 1), tell(mesh, 2), everything(mesh)]
print(json.dumps(told, ensure_ascii=True))
"""
story: dict[str, Any] = {"json": json}
exec(STORY, story)
tell, everything, table = story["tell"], story["everything"], story["table"]
Lengths = story["Lengths"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> list:
    """The story, told in one go in this process."""
    folder = tmp_path_factory.mktemp("whole")
    with Mesh.open(folder / "mesh", seed=11, encoder=Lengths(), threads=1) as mesh:
        told = [tell(mesh, 1), tell(mesh, 2), everything(mesh)]
    return json.loads(json.dumps(told))


@pytest.mark.parametrize(
    ("hash_seed", "zone", "threads"), [("1", "Asia/Kathmandu", 1), ("4242", "America/Lima", 4)]
)
def test_the_same_seed_tells_the_same_in_another_process(whole, tmp_path, hash_seed, zone, threads):
    env = {**os.environ, "PYTHONHASHSEED": hash_seed, "TZ": zone}
    done = subprocess.run(
        [sys.executable, "-c", WHOLE, str(tmp_path / "elsewhere"), str(threads)],
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == whole


def test_a_reopened_mesh_continues_its_streams(whole, open_mesh):
    told = []
    for part in (1, 2):
        mesh = open_mesh(seed=11 if part == 1 else None, encoder=Lengths())
        told.append(tell(mesh, part))
        if part == 1:
            mesh.close()
    told.append(everything(mesh))
    assert json.loads(json.dumps(told)) == whole


def test_looking_at_frames_changes_nothing_that_follows(whole, open_mesh):
    """Reading is not part of the story, however often it is done and wherever it stops."""
    mesh = open_mesh(seed=11, encoder=Lengths())
    told = [tell(mesh, 1)]
    for _ in range(3):
        mesh.facts(), mesh.devices(), mesh.check(), mesh.catalogue()
        mesh.history(mesh.facts()["fact_id"][0])
    mesh.close()
    mesh = open_mesh(seed=None, encoder=Lengths())
    mesh.facts()
    told += [tell(mesh, 2), everything(mesh)]
    assert json.loads(json.dumps(told)) == whole


def test_another_seed_tells_other_ids_and_the_same_texts(open_mesh):
    seen = []
    for seed in (1, 2):
        mesh = open_mesh(f"seed-{seed}", seed=seed, encoder="hash:16")
        mesh.load(table(1), encode=False)
        seen.append(mesh.facts())
    assert not set(seen[0]["fact_id"]) & set(seen[1]["fact_id"])
    assert sorted(seen[0]["text"]) == sorted(seen[1]["text"])


def test_without_a_seed_nothing_repeats(open_mesh):
    ids = []
    for name in ("a", "b"):
        mesh = open_mesh(name, seed=None, encoder="hash:16")
        mesh.load(table(1), encode=False)
        ids.append(set(mesh.facts()["fact_id"]) | {mesh.store.mesh_id})
    assert not ids[0] & ids[1]


def test_facts_of_a_twin_do_not_collide_with_ids_to_come(open_mesh):
    """A mesh of the same seed would have made the very ids that are brought to it."""
    twin, mesh = open_mesh("twin", encoder="hash:16"), open_mesh(encoder="hash:16")
    twin.load(table(1), encode=False)
    labels = dict(twin.devices().select("device_id", "label").iter_rows())
    brought = twin.facts().select(
        pl.col("device_id").replace_strict(labels).alias("device"), "fact_id", "text"
    )
    assert set(mesh.load(brought, encode=False)["outcome"]) == {"stored"}
    answers = mesh.load(table(2), encode=False)
    assert set(answers["outcome"]) == {"stored"}
    fact_id = mesh.agent("a").remember("valve leaks")
    mesh.supersede(fact_id, "valve is sealed")
    assert set(mesh.load(brought, encode=False)["outcome"]) == {"duplicate"}
    assert mesh.facts()["fact_id"].is_unique().all()
    assert mesh.facts().height == 24 + 24 + 2
    assert mesh.check().filter(pl.col("outcome") == "broken").is_empty()


def test_new_ids_skip_those_brought_in_the_same_load(open_mesh):
    twin, mesh = open_mesh("twin", encoder="hash:16"), open_mesh(encoder="hash:16")
    twin.load(table(1), encode=False)
    ids = twin.facts()["fact_id"].to_list()
    frame = pl.concat(
        [
            table(1).with_columns(fact_id=pl.Series([*ids[:12], *[None] * 12], dtype=pl.String)),
            table(2).with_columns(fact_id=pl.Series([*[None] * 12, *ids[12:]], dtype=pl.String)),
        ]
    )
    assert set(mesh.load(frame, encode=False)["outcome"]) == {"stored"}
    assert mesh.facts()["fact_id"].n_unique() == 48


def test_a_seeded_mesh_measures_with_the_labs_clock(open_mesh):
    mesh = open_mesh(encoder="hash:16")
    mesh.load(table(1))
    trace = mesh.search("pump", exhaustive=True).trace
    assert set(trace["latency_ms"]) == {1.0}
    assert mesh.facts()["recorded_at"].dt.year().unique().to_list() == [2031]
