"""Charts say what the frames say, the same way every time."""

from __future__ import annotations

import builtins
from typing import Any

import pandas as pd
import polars as pl
import pytest

from mnemes_lab.errors import MissingExtraError
from mnemes_lab.view import charts

RECALL = {"budget": [2, 1, 4], "eligible": [4, 4, 4], "recall_at_10": [0.6, 0.4, 0.75]}
DEVICES = {"label": ["van", "kitchen"], "facts": [3, 5], "terms": [9, 12]}


@pytest.mark.parametrize("make", [pl.DataFrame, pd.DataFrame])
def test_bars_stand_for_the_budgets_in_order(make: Any):
    ax = charts.plot_budget(make(RECALL))
    assert [round(bar.get_height()) for bar in ax.patches] == [40, 60, 75]
    assert [label.get_text() for label in ax.get_xticklabels()] == ["1", "2", "all 4"]
    assert ax.get_title(loc="left") == "2 of 4 devices find 80 % of what all find"


@pytest.mark.parametrize(
    ("recall", "title"),
    [
        ([0.4, 0.8], "1 of 3 devices finds 50 % of what all find"),
        ([0.0, 0.0], "What asking devices finds"),
    ],
)
def test_the_title_is_the_finding(recall: list[float], title: str):
    frame = pl.DataFrame({"budget": [1, 3], "eligible": [3, 3], "recall_at_10": recall})
    assert charts.plot_budget(frame).get_title(loc="left") == title


@pytest.mark.parametrize("make", [pl.DataFrame, pd.DataFrame])
def test_each_device_has_its_bar(make: Any):
    ax = charts.plot_devices(make(DEVICES))
    assert [bar.get_width() for bar in ax.patches] == [3, 5]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["van", "kitchen"]
    assert [text.get_text() for text in ax.texts] == ["3 facts, 9 terms", "5 facts, 12 terms"]


def test_charts_draw_where_they_are_told():
    from matplotlib.figure import Figure

    left, right = Figure().subplots(1, 2)
    assert charts.plot_budget(pl.DataFrame(RECALL), ax=left) is left
    assert charts.plot_devices(pl.DataFrame(DEVICES), ax=right) is right


def test_nothing_is_drawn_from_nothing():
    none = pl.DataFrame(schema=dict.fromkeys(RECALL, pl.Float64))
    assert charts.png(charts.plot_budget(none)).startswith(b"\x89PNG")
    none = pl.DataFrame(schema={"label": pl.String, "facts": pl.Int64, "terms": pl.Int64})
    assert charts.plot_devices(none).get_title(loc="left") == "0 facts on 0 devices"


def test_the_bytes_are_the_same_every_time():
    pictures = {charts.png(charts.plot_budget(pl.DataFrame(RECALL))) for _ in range(2)}
    assert len(pictures) == 1
    [picture] = pictures
    assert picture.startswith(b"\x89PNG")
    assert b"Software" not in picture and b"tIME" not in picture


@pytest.mark.parametrize("label", ["$x^", r"$\frac{1}{2}$", "日本語 👩‍👧", "\x1b[31m\n", "x" * 500])
def test_a_label_is_drawn_and_never_read_as_a_formula(label: str):
    frame = pl.DataFrame({"label": [label], "facts": [1], "terms": [1]})
    assert charts.png(charts.plot_devices(frame)).startswith(b"\x89PNG")


def test_without_matplotlib_the_extra_is_named(monkeypatch: pytest.MonkeyPatch):
    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtraError, match=r"mnemes-lab\[lab\]"):
        charts.plot_budget(pl.DataFrame(RECALL))
