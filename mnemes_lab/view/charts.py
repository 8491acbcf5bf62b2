"""Charts of frames that other rooms computed.

Each function draws on the axes it is given, or on a figure of its own, and answers the axes.
Figures are made without pyplot, so nothing is kept globally and no window opens. Texts are drawn
as they are: a label is never read as a formula.

Example:
    >>> import polars as pl
    >>> recall = pl.DataFrame({"budget": [1, 3], "eligible": [3, 3], "recall_at_10": [0.4, 0.8]})
    >>> ax = plot_budget(recall)
    >>> ax.get_title(loc="left")
    '1 of 3 devices finds 50 % of what all find'
"""

from __future__ import annotations

import io
import warnings
from typing import Any

from mnemes_lab.errors import MissingExtraError
from mnemes_lab.view.plain import visible

INK, MUTED, ACCENT, PALE = "#1f2933", "#7b8794", "#0b6e99", "#c8dbe6"
_DPI = 150
_MAX_LABEL = 28


def plot_budget(results: Any, *, ax: Any = None) -> Any:
    """Answers found against devices asked.

    Args:
        results: budget (devices asked per question), eligible (devices there are) and
            recall_at_10, one row per budget; pandas or polars.
        ax: Where to draw; None makes a figure.

    Returns:
        The axes.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    ax = _axes() if ax is None else ax
    rows = sorted(
        zip(
            results["budget"].to_list(),
            results["eligible"].to_list(),
            results["recall_at_10"].to_list(),
            strict=True,
        )
    )
    names = [_budget_name(budget, eligible) for budget, eligible, _ in rows]
    heights = [100.0 * recall for _, _, recall in rows]
    colours = [ACCENT if budget == eligible else PALE for budget, eligible, _ in rows]
    bars = ax.bar(range(len(rows)), heights, width=0.62, color=colours)
    for bar, height in zip(bars, heights, strict=True):
        middle = bar.get_x() + bar.get_width() / 2
        ax.annotate(
            f"{height:.0f} %",
            (middle, height),
            xytext=(0, 4),
            textcoords="offset points",
            ha="center",
            color=INK,
        )
    ax.set_xticks(range(len(rows)), names)
    ax.set_ylim(0, 105)
    ax.set_ylabel("answers in the first 10 hits, %", color=MUTED)
    ax.set_xlabel("devices asked per question", color=MUTED)
    _title(ax, _finding(rows))
    return _tidy(ax, "y")


def _budget_name(budget: int, eligible: int) -> str:
    return f"all {eligible}" if budget == eligible else str(budget)


def _finding(rows: list[tuple[int, int, float]]) -> str:
    """The chart in a sentence: what the last budget below all finds, compared with all."""
    some = [row for row in rows if row[0] < row[1]]
    whole = [row for row in rows if row[0] == row[1]]
    if not some or not whole or whole[-1][2] <= 0:
        return "What asking devices finds"
    budget, eligible, recall = some[-1]
    verb = "finds" if budget == 1 else "find"
    share = f"{100 * recall / whole[-1][2]:.0f} %"
    return f"{budget} of {eligible} devices {verb} {share} of what all find"


def plot_devices(devices: Any, *, ax: Any = None) -> Any:
    """Facts and distinct terms of each device.

    Args:
        devices: label, facts and terms, one row per device, drawn in that order; pandas or polars.
        ax: Where to draw; None makes a figure.

    Returns:
        The axes.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    ax = _axes() if ax is None else ax
    labels = [visible(label, limit=_MAX_LABEL) for label in devices["label"].to_list()]
    facts, terms = devices["facts"].to_list(), devices["terms"].to_list()
    ax.barh(range(len(labels)), facts, height=0.6, color=ACCENT)
    for at, (n_facts, n_terms) in enumerate(zip(facts, terms, strict=True)):
        ax.annotate(
            f"{n_facts} facts, {n_terms} terms",
            (n_facts, at),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            color=INK,
        )
    ax.set_yticks(range(len(labels)), labels, parse_math=False)
    ax.invert_yaxis()
    ax.set_xlim(0, 1.45 * max([1, *facts]))
    ax.set_xlabel("facts", color=MUTED)
    _title(ax, f"{sum(facts)} facts on {len(labels)} devices")
    _tidy(ax, "x").grid(visible=False)  # each bar says its number
    return ax


def png(ax: Any) -> bytes:
    """The figure of some axes as PNG: the same bytes every time."""
    out = io.BytesIO()
    with warnings.catch_warnings():
        # A label in a script the font lacks is drawn as boxes; that is no reason to fail.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        ax.figure.savefig(out, format="png", dpi=_DPI, metadata={"Software": None})
    return out.getvalue()


def _axes() -> Any:
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError.of("A chart", "matplotlib", "lab") from None
    figure = Figure(figsize=(6.4, 3.6), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    return figure.subplots()


def _title(ax: Any, text: str) -> None:
    ax.set_title(text, loc="left", color=INK, fontweight="bold", parse_math=False)


def _tidy(ax: Any, values: str) -> Any:
    """Only what carries a value keeps ink: a light grid across it, no frame."""
    for side in ("top", "right", "left" if values == "y" else "bottom"):
        ax.spines[side].set_visible(False)
    ax.tick_params(colors=INK, length=0)
    ax.grid(axis=values, color="#e4e7eb", linewidth=0.8)
    ax.set_axisbelow(True)
    return ax
