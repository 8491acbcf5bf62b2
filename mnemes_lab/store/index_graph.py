"""A walk over the edges of all devices, as pooled.db indexes them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import polars as pl
from sqlalchemy import Connection

from mnemes_lab.store import tables as t
from mnemes_lab.store.evidence import edges_of
from mnemes_lab.store.lineage import Adjacent, Step, Walk

_SHALLOW = 32  # deeper walks look at each item once and count the steps afterwards
_SLIM = "e.row_key, e.source, e.target, e.recorded_at"
_WHOLE = ", ".join([_SLIM, *(f"e.{name}" for name in t.EDGE_COLUMNS)])
_ON_RECORD = "e.recorded_at <= :recorded"
_HOLDS = (
    " AND (e.valid_from IS NULL OR e.valid_from <= :valid)"
    " AND (e.valid_to IS NULL OR e.valid_to > :valid)"
)
_UNREPLACED = " AND NOT EXISTS (SELECT 1 FROM edges s WHERE s.supersedes_edge_id = e.edge_id AND "
_PASSES = (
    " AND (r.item = :root OR substr(r.item, 1, instr(r.item, ':') - 1) NOT IN"
    " (SELECT value FROM json_each(:stop)))"
)


class IndexGraph:
    """Edges of all devices, in the index; one transaction, so one state and one record time."""

    def __init__(self, conn: Connection, valid: int | None, recorded: int) -> None:
        """Look from one point on the two time axes."""
        self.cursor = conn.connection.cursor()
        self.points = {"valid": valid, "recorded": recorded}
        self.rule = _ON_RECORD + (_HOLDS if valid is not None else "")
        replacing = "SELECT 1 FROM edges WHERE supersedes_edge_id IS NOT NULL LIMIT 1"
        if self._rows(replacing):  # asked of every edge, so only where it can matter
            self.rule += _UNREPLACED + self.rule.replace("e.", "s.") + ")"

    def _rows(self, sql: str, **values: Any) -> list[Any]:
        return list(self.cursor.execute(sql, {**self.points, **values}))

    def reach(self, root: str, walk: Walk, most: int) -> tuple[dict[str, int], bool]:
        """One recursive query; without a bound on depth, distances follow from its edges."""
        bounded = walk.depth is not None and walk.depth <= _SHALLOW
        column, start = (", r.depth + 1", ", 0 AS depth") if bounded else ("", "")
        passes = (" AND r.depth < :depth" if bounded else "") + (_PASSES if walk.stop_at else "")
        ways = {"outgoing": ("source", "target"), "incoming": ("target", "source")}
        terms = [
            f"SELECT e.{there}{column} FROM reach r JOIN edges e ON e.{here} = r.item"
            f" WHERE {self.rule}{passes}"
            for way, (here, there) in ways.items()
            if walk.direction in ("both", way)
        ]
        found = self._rows(
            f"WITH RECURSIVE reach(item{', depth' if bounded else ''}) AS (SELECT :root{start}"
            f" UNION {' UNION '.join(terms)} LIMIT :most) SELECT * FROM reach",
            root=root, depth=walk.depth if bounded else 0, stop=json.dumps(walk.stop_at),
            most=most * ((walk.depth or 0) + 1 if bounded else 1),
        )  # fmt: skip
        cut = not bounded and len(found) >= most
        if not bounded:
            items = [key for (key,) in found if walk.goes_on(key, root)]
            return Adjacent(self.touching(items, walk.direction)).reach(root, walk, most)[0], cut
        far: dict[str, int] = {}
        for key, depth in found:
            far[key] = min(depth, far.get(key, depth))
        return far, len(far) >= most

    def touching(self, items: Sequence[str], direction: str) -> Iterator[Step]:
        """From the two indexes that hold all a walk needs."""
        return self._joined(items, direction, _SLIM)

    def whole(self, items: Sequence[str], direction: str) -> Iterator[Step]:
        """From the table."""
        return self._joined(items, direction, _WHOLE)

    def _joined(self, items: Sequence[str], direction: str, columns: str) -> Iterator[Step]:
        for end, way in (("source", "outgoing"), ("target", "incoming")):
            if items and direction in ("both", way):
                sql = (
                    f"SELECT {columns} FROM json_each(:items) j JOIN edges e ON e.{end} = j.value"
                    f" WHERE {self.rule}"
                )
                values = {**self.points, "items": json.dumps(items)}
                yield from self.cursor.connection.execute(sql, values)

    def first(self, steps: list[Step], far: Sequence[int], limit: int) -> list[Step]:
        """Names and rows are looked up in the table."""
        names = dict(self._fetch("e.row_key, e.edge_id", [step[0] for step in steps]))
        ranked = sorted((d, s[3], names[s[0]], s[0]) for d, s in zip(far, steps, strict=True))
        return self._fetch(_WHOLE, [key for *_, key in ranked[:limit]])

    def frame(self, steps: Sequence[Step]) -> pl.DataFrame:
        """From what was fetched."""
        return edges_of([step[4:] for step in steps])

    def _fetch(self, columns: str, keys: Sequence[int]) -> list[Any]:
        return self._rows(
            f"SELECT {columns} FROM json_each(:keys) j JOIN edges e ON e.row_key = j.value",
            keys=json.dumps(sorted(keys)),
        )
