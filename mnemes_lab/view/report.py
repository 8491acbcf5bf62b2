"""A page that stands alone: frames and pictures as one HTML file.

Nothing in it runs and nothing is fetched: no scripts, styles and pictures inside, and a policy in
the page that forbids the rest. Every text is escaped. The same input gives the same bytes.
"""

from __future__ import annotations

import base64
import html
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from mnemes_lab.view.plain import cell, visible

GENERATOR = "mnemes-lab"
MARK = f'<meta name="generator" content="{GENERATOR}">'
_POLICY = "default-src 'none'; img-src data: 'self'; style-src 'unsafe-inline'"
_MAX_CELL = 600
_STYLE = """
:root { color-scheme: light; --ink: #1f2933; --muted: #616e7c; --line: #e4e7eb; --zebra: #f5f7fa; }
* { box-sizing: border-box; }
body { margin: 0; color: var(--ink); background: #fff;
  font: 1rem/1.6 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif; }
main { max-width: 54rem; margin: 0 auto; padding: 3rem 1.25rem 4rem; }
h1 { font-size: 1.9rem; line-height: 1.2; letter-spacing: -0.015em; margin: 0 0 1rem; }
h2 { font-size: 1.2rem; margin: 2.75rem 0 0.5rem; }
p { margin: 0.5rem 0 1rem; max-width: 44rem; overflow-wrap: anywhere; }
p.lead { color: var(--muted); font-size: 1.05rem; }
.table { overflow-x: auto; margin: 0.75rem 0; }
table { border-collapse: collapse; width: 100%; font-size: 0.875rem; line-height: 1.45;
  font-variant-numeric: tabular-nums; }
th { text-align: left; font-weight: 600; color: var(--muted); border-bottom: 2px solid var(--line);
  white-space: nowrap; }
th, td { padding: 0.45rem 0.75rem; vertical-align: top; }
td { overflow-wrap: anywhere; min-width: 3rem; }
tbody tr:nth-child(odd) { background: var(--zebra); }
.number { text-align: right; }
img { display: block; max-width: 100%; height: auto; margin: 1rem 0; }
footer { margin-top: 3.5rem; padding-top: 1rem; border-top: 1px solid var(--line);
  color: var(--muted); font-size: 0.875rem; }
""".strip()


@dataclass(frozen=True)
class Section:
    """A part of a page.

    Attributes:
        heading: Its title.
        text: A paragraph before the rest.
        frame: A table.
        picture: A PNG.
        picture_text: What the picture shows, for those who cannot see it.
    """

    heading: str
    text: str = ""
    frame: pl.DataFrame | None = None
    picture: bytes | None = None
    picture_text: str = ""


def page(title: str, sections: Sequence[Section], *, lead: str = "", foot: str = "") -> str:
    """A whole page.

    Example:
        >>> text = page("Two & two", [Section("Sum", frame=pl.DataFrame({"sum": [4]}))])
        >>> "<h1>Two &amp; two</h1>" in text, '<td class="number">4</td>' in text
        (True, True)
    """
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        MARK,
        f"<title>{_safe(title)}</title>",
        f"<style>\n{_STYLE}\n</style>",
        "</head>",
        "<body>",
        "<main>",
        f"<h1>{_safe(title)}</h1>",
    ]
    if lead:
        parts.append(f'<p class="lead">{_safe(lead)}</p>')
    for section in sections:
        parts += _section(section)
    if foot:
        parts.append(f"<footer>{_safe(foot)}</footer>")
    parts += ["</main>", "</body>", "</html>"]
    return "\n".join(parts) + "\n"


def _section(section: Section) -> list[str]:
    out = ["<section>", f"<h2>{_safe(section.heading)}</h2>"]
    if section.text:
        out.append(f"<p>{_safe(section.text)}</p>")
    if section.picture is not None:
        data = base64.b64encode(section.picture).decode("ascii")
        alt = _safe(section.picture_text)
        out.append(f'<img alt="{alt}" src="data:image/png;base64,{data}">')
    if section.frame is not None:
        out += _table(section.frame)
    return [*out, "</section>"]


def _table(frame: pl.DataFrame) -> list[str]:
    kinds = [' class="number"' if dtype.is_numeric() else "" for dtype in frame.schema.values()]
    heads = "".join(
        f"<th{kind}>{_safe(name.replace('_', ' '))}</th>"
        for name, kind in zip(frame.columns, kinds, strict=True)
    )
    out = ['<div class="table"><table>', f"<thead><tr>{heads}</tr></thead>", "<tbody>"]
    for row in frame.iter_rows():
        cells = "".join(
            f"<td{kind}>{_cell(value)}</td>" for value, kind in zip(row, kinds, strict=True)
        )
        out.append(f"<tr>{cells}</tr>")
    return [*out, "</tbody>", "</table></div>"]


def _cell(value: Any) -> str:
    return html.escape(cell(value, limit=_MAX_CELL), quote=True)


def _safe(text: str) -> str:
    return html.escape(visible(text), quote=True)
