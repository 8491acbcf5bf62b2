"""One scenario from end to end: loaded, asked with different budgets, proved.

Everything is seeded, so with the same encoder every run gives the same frames.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import polars as pl

from mnemes_lab import schemas
from mnemes_lab.errors import ReceiptError
from mnemes_lab.mesh.found import Found, Receipt
from mnemes_lab.mesh.mesh import Mesh
from mnemes_lab.mesh.scenario import Scenario, load_scenario
from mnemes_lab.store.asof import AsOf
from mnemes_lab.store.receipts import from_json, verify
from mnemes_lab.text.encode import Encoder, default_encoder

SEED = 7
K = 10
_ANYTIME = AsOf()  # the scenarios play on different days; validity is not what is shown here


@dataclass(frozen=True, eq=False)
class Demo:
    """What a run of a scenario showed.

    Attributes:
        title: Of the scenario.
        story: Of the scenario.
        encoder: Name of the encoder.
        notice: What is missing here, in words; None when nothing is.
        devices: label, platform, facts, terms.
        questions: query_id, question, asker, asked (labels), top_hit, top_device, right; right is
            null where the scenario knows no answer.
        recall: budget (devices asked per question), eligible, recall_at_10.
        example: The question of `hits`, `trace` and `receipt`.
        hits: rank, device, score, text of that question.
        trace: step, device, score, selected, reason, results of that question.
        receipt: check and outcome: the receipt of that question as written and with a byte changed.
        receipt_id: Of that receipt.
    """

    title: str
    story: str
    encoder: str
    notice: str | None
    devices: pl.DataFrame
    questions: pl.DataFrame
    recall: pl.DataFrame
    example: str
    hits: pl.DataFrame
    trace: pl.DataFrame
    receipt: pl.DataFrame
    receipt_id: str


def run_demo(folder: Path, scenario: str = "travel", encoder: Encoder | str | None = None) -> Demo:
    """Load a scenario into a seeded mesh and ask its questions as batches.

    Args:
        folder: Of the mesh; new or empty, or that of an earlier run.
        scenario: A name of `scenario_names`.
        encoder: As `Mesh.open` takes it; None is the sentence encoder where it is installed.

    Raises:
        ScenarioError: no such scenario.
        StoreError: the folder holds something else.

    Cost: a few seconds with hashed words, about 20 s with the sentence encoder.
    """
    world = load_scenario(scenario)
    notice = default_encoder()[1] if encoder is None else None
    with Mesh.open(folder, seed=SEED, encoder=encoder) as mesh:
        for label, platform in world.devices.select("label", "platform").iter_rows():
            mesh.device(label, platform=platform)
        mesh.load(world.facts)
        labels = mesh.devices().select("device_id", device="label")
        queries = _queries(world, labels)
        eligible = labels.height
        answers = {
            budget: mesh.search(queries, k=K, budget=budget, as_of=_ANYTIME)
            for budget in sorted({1, 2} & set(range(1, eligible)))
        }
        answers[eligible] = mesh.search(queries, k=K, exhaustive=True, as_of=_ANYTIME)
        usual = answers[min(2, eligible)]
        at = _example(queries, world.relevance)
        query_id, text = queries.select("query_id", "text").row(at)
        chosen = usual.receipts[at]
        return Demo(
            title=world.title,
            story=world.story,
            encoder=mesh.encoder.name,
            notice=notice,
            devices=_devices(mesh, world),
            questions=_questions(world, queries, labels, usual),
            recall=_recall(answers, eligible, world.relevance),
            example=text,
            hits=_of(usual.hits, query_id, labels).select("rank", "device", "score", "text"),
            trace=_of(usual.trace, query_id, labels).select(
                "step", "device", "score", "selected", "reason", "results"
            ),
            receipt=_receipt_checks(mesh, chosen, text, queries["text"][at - 1]),
            receipt_id=chosen.receipt_id,
        )


def _queries(world: Scenario, labels: pl.DataFrame) -> pl.DataFrame:
    """The scenario's questions, each asked by its own device."""
    asked = world.queries.drop("device_id").join(
        labels, left_on="asker", right_on="device", how="left", maintain_order="left"
    )
    return asked.select(list(schemas.dtypes(schemas.Queries)))


def _example(queries: pl.DataFrame, relevance: pl.DataFrame) -> int:
    """Position of the first question whose answer the scenario knows."""
    known = queries["query_id"].is_in(relevance["query_id"].to_list())
    return int(known.arg_max() or 0)


def _devices(mesh: Mesh, world: Scenario) -> pl.DataFrame:
    counts = mesh.catalogue().join(mesh.devices().select("device_id", "label"), on="device_id")
    joined = world.devices.join(counts, on="label", maintain_order="left")
    return joined.select("label", "platform", "facts", "terms")


def _of(frame: pl.DataFrame, query_id: str, labels: pl.DataFrame) -> pl.DataFrame:
    mine = frame.filter(pl.col("query_id") == query_id)
    return mine.join(labels, on="device_id", maintain_order="left")


def _questions(
    world: Scenario, queries: pl.DataFrame, labels: pl.DataFrame, found: Found
) -> pl.DataFrame:
    selected = found.trace.filter("selected").sort("query_id", "step")
    asked = (
        selected.join(labels, on="device_id", maintain_order="left")
        .group_by("query_id", maintain_order=True)
        .agg(pl.col("device").str.join(", ").alias("asked"))
    )
    gold = world.relevance.select("query_id", "fact_id", right=pl.lit(True))
    top = (
        found.hits.filter(pl.col("rank") == 1)
        .join(labels, on="device_id", how="left")
        .join(gold, on=["query_id", "fact_id"], how="left")
        .select("query_id", "right", top_hit="text", top_device="device")
    )
    known = pl.col("query_id").is_in(world.relevance["query_id"].unique().to_list())
    return (
        world.queries.select("query_id", "asker", question="text")
        .join(asked, on="query_id", how="left")
        .join(top, on="query_id", how="left")
        .with_columns(pl.when(known).then(pl.col("right").fill_null(False)).alias("right"))
        .select("query_id", "question", "asker", "asked", "top_hit", "top_device", "right")
        .sort("query_id")
    )


def _recall(answers: dict[int, Found], eligible: int, relevance: pl.DataFrame) -> pl.DataFrame:
    """Mean share of the known answers that are among the first ten hits, by budget."""
    wanted = relevance.group_by("query_id").agg(pl.len().clip(upper_bound=K).alias("wanted"))
    rows = []
    for budget, found in sorted(answers.items()):
        got = (
            found.hits.filter(pl.col("rank") <= K)
            .join(relevance, on=["query_id", "fact_id"])
            .group_by("query_id")
            .agg(pl.len().alias("got"))
        )
        share = wanted.join(got, on="query_id", how="left").select(
            pl.col("got").fill_null(0) / pl.col("wanted")
        )
        rows.append((budget, eligible, sum(share.to_series().sort().to_list()) / share.height))
    schema = {"budget": pl.Int64, "eligible": pl.Int64, "recall_at_10": pl.Float64}
    return pl.DataFrame(rows, schema=schema, orient="row")


def _receipt_checks(mesh: Mesh, receipt: Receipt, text: str, other: str) -> pl.DataFrame:
    """What the receipt proves, and what becomes of it when one byte is changed."""
    kept = mesh.receipt(receipt.receipt_id)
    checks = [
        ("read back and verified", "yes" if kept.verify() else "no"),
        ("made for this question", "yes" if kept.is_for(text) else "no"),
        ("made for another question", "yes" if kept.is_for(other) else "no"),
        ("with one byte changed", _verdict(mesh, changed_byte(kept.to_json()))),
    ]
    return pl.DataFrame(checks, schema={"check": pl.String, "outcome": pl.String}, orient="row")


def changed_byte(receipt: str) -> str:
    """The text of a receipt with one hex digit of its first hit's digest turned into another.

    Example:
        >>> changed_byte('{"hits":[["fact:a","d","00ff","3f"]]}')
        '{"hits":[["fact:a","d","10ff","3f"]]}'
    """
    before, mark, rest = receipt.partition('"hits":[[')
    at = len(before) + len(mark) + _third_text(rest) if mark else receipt.index('"mac":"') + 7
    digit = "0" if receipt[at] != "0" else "1"
    return receipt[:at] + digit + receipt[at + 1 :]


def _third_text(row: str) -> int:
    """Where the third text of a JSON list of plain ids begins."""
    at = 0
    for _ in range(2):
        at = row.index('","', at) + 3
    return at


def _verdict(mesh: Mesh, text: str) -> str:
    try:
        verify(from_json(text), mesh.ring)
    except ReceiptError as error:
        return f"refused: {error}"
    return "accepted"
