"""How fast a mesh answers, against one monolithic index over all facts.

The monolith is what somebody without devices would build: one FAISS flat index and one bm25s
index over all texts, fused by reciprocal rank. Both sides encode the question, search with one
thread, and make a frame of hits; the mesh also writes its receipt. Every question is asked once,
so no cache answers for anybody.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from mnemes_lab import schemas
from mnemes_lab.bench.report import BenchReport, median, peak_rss_mb
from mnemes_lab.bench.workload import make_workload
from mnemes_lab.errors import MissingExtraError
from mnemes_lab.mesh.mesh import Mesh
from mnemes_lab.router.merge import fuse, pool_size
from mnemes_lab.text.encode import Encoder

_K = 10


def run(
    *,
    devices: int = 100,
    facts_per_device: int = 1000,
    queries: int = 40,
    batch: int = 100,
    budget: int = 10,
    encoder: str = "hash",
    progress: bool = False,
) -> BenchReport:
    """Measure exhaustive and budgeted search over ``devices x facts_per_device`` facts.

    Returns:
        `exhaustive_one_ms`, `exhaustive_batch_ms`, `budget_ms`, `budget_batch_ms` (ratios: mesh
        over monolith, median of questions or batches asked in turn) and `peak_rss_mb` of the mesh
        searched exhaustively.

    Raises:
        MissingExtraError: bm25s is not installed.
    """
    rounds = 3
    made = make_workload(
        "campus",
        devices=devices,
        facts_per_device=facts_per_device,
        questions=min(2 * queries + rounds * batch, devices * facts_per_device // 4),
    )
    texts = made.queries["text"].to_list()
    single, budgeted = texts[:queries], texts[queries : 2 * queries]
    batches = [
        texts[2 * queries + i * batch : 2 * queries + (i + 1) * batch] for i in range(rounds)
    ]
    batches = [part for part in batches if part]
    report = BenchReport("search")
    cells: dict[str, Any] = {
        "devices": devices,
        "facts": devices * facts_per_device,
        "encoder": encoder,
    }
    with (
        tempfile.TemporaryDirectory(prefix="mnemes-bench-") as folder,
        one_thread(),
        Mesh.open(Path(folder) / "mesh", encoder=encoder, threads=1) as mesh,
    ):
        mesh.load(made.facts, progress=progress)
        mesh.search("warm up the mesh", exhaustive=True)
        peak = peak_rss_mb()
        monolith = Monolith(mesh.encoder, made.facts, mesh.cache)
        monolith.search(["warm up the monolith"])

        def ours(part: Sequence[str], **how: Any) -> None:
            ids = [f"q{i}" for i in range(len(part))]
            asked = pl.DataFrame({"query_id": ids, "text": list(part)})
            mesh.search(part[0] if len(part) == 1 else asked, k=_K, **how)

        for measure, work, how in (
            ("exhaustive_one_ms", [[q] for q in single], {"exhaustive": True}),
            ("exhaustive_batch_ms", batches, {"exhaustive": True}),
            ("budget_ms", [[q] for q in budgeted], {"budget": budget}),
            ("budget_batch_ms", batches[::-1], {"budget": budget}),
        ):
            mine, theirs = in_turn(work, partial(ours, **how), monolith.search)
            ms, peer = 1e3 * median(mine), 1e3 * median(theirs)
            report.add(measure, ms, "ms", against="monolith", ratio=ms / peer, **cells)
            report.add(f"monolith_for_{measure}", peer, "ms", **cells)
        report.add("peak_rss_mb", peak, "MB", **cells)
    return report


def in_turn(
    work: Sequence[Any],
    ours: Callable[[Any], Any],
    theirs: Callable[[Any], Any],
    *,
    stretch: int = 5,
) -> tuple[list[float], list[float]]:
    """Seconds of both sides on each piece of work.

    The sides take turns every `stretch` pieces, so that both meet the same state of the machine
    and neither begins each piece with the caches full of the other's data.
    """
    seconds: tuple[list[float], list[float]] = ([], [])
    for turn, first in enumerate(range(0, len(work), stretch)):
        for side in (0, 1) if turn % 2 else (1, 0):
            for piece in work[first : first + stretch]:
                start = time.perf_counter()
                (ours, theirs)[side](piece)
                seconds[side].append(time.perf_counter() - start)
    return seconds


class one_thread:
    """Hold FAISS and BLAS to one thread, and give them back."""

    def __enter__(self) -> None:
        """Limit."""
        import faiss
        from threadpoolctl import threadpool_limits

        self._faiss, self._before = faiss, faiss.omp_get_max_threads()
        self._limits = threadpool_limits(1)
        faiss.omp_set_num_threads(1)

    def __exit__(self, *_: object) -> None:
        """Restore."""
        self._faiss.omp_set_num_threads(self._before)
        self._limits.restore_original_limits()


class Monolith:
    """One flat vector index and one BM25 index over every fact."""

    def __init__(self, encoder: Encoder, facts: pl.DataFrame, cache: Any) -> None:
        """Index all facts; their vectors come from the mesh's cache."""
        try:
            import bm25s
        except ImportError:
            raise MissingExtraError.of("The monolith of this benchmark", "bm25s", "dev") from None
        import faiss

        from mnemes_lab.text.cache import encode_cached

        self._bm25s, self.encoder = bm25s, encoder
        self.ids, self.texts = facts["fact_id"].to_list(), facts["text"].to_list()
        self.devices = facts["device"].to_list()
        self.flat = faiss.IndexFlatIP(encoder.dim)
        self.flat.add(encode_cached(encoder, self.texts, cache))
        self.words = bm25s.BM25(k1=0.9, b=0.4)
        tokens = bm25s.tokenize(self.texts, stopwords=None, show_progress=False)
        self.words.index(tokens, show_progress=False)

    def search(self, questions: Sequence[str]) -> pl.DataFrame:
        """The `hits` frame of some questions."""
        pool = min(pool_size(_K), len(self.ids))
        vectors = np.asarray(self.encoder.encode(list(questions)), np.float32)
        cosine, near = self.flat.search(vectors, pool)
        tokens = self._bm25s.tokenize(
            list(questions), stopwords=None, show_progress=False, return_ids=False
        )
        found, scores = self.words.retrieve(tokens, k=pool, show_progress=False, n_threads=0)
        rows = []
        for q in range(len(questions)):
            lexical = [
                (int(i), float(s))
                for i, s in zip(found[q].tolist(), scores[q].tolist(), strict=True)
                if s > 0
            ]
            vector = list(zip(near[q].tolist(), cosine[q].tolist(), strict=True))
            for rank, hit in enumerate(fuse(lexical, vector, self.ids.__getitem__, _K), 1):
                key = hit.key
                rows.append(
                    (
                        f"q{q}",
                        rank,
                        self.devices[key],
                        self.ids[key],
                        hit.score,
                        hit.lexical[1] if hit.lexical else None,
                        hit.vector[1] if hit.vector else None,
                        hit.lexical[0] if hit.lexical else None,
                        hit.vector[0] if hit.vector else None,
                        self.texts[key],
                    )
                )
        return pl.DataFrame(rows, schema=schemas.dtypes(schemas.Hits), orient="row")
