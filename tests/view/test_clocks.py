"""The picture of two clocks shows every version where it holds, and texts as they are."""

from __future__ import annotations

import builtins
from typing import Any

import polars as pl
import pytest

from mnemes_lab import LabClock, schemas
from mnemes_lab.errors import InstantError, MissingExtraError, SchemaError
from mnemes_lab.store.asof import AsOf
from mnemes_lab.view import charts, clocks
from mnemes_lab.view.clocks import plot_two_clocks
from mnemes_lab.view.versions import Versions

FIRST = "#0b6e99"  # the colour of version 1
DAY = "2031-04-{:02d}T09:00:00Z".format
SERVICE = {
    "fact_id": ["a", "a", "b", "b", "c"],
    "version": [1, 2, 1, 2, 1],
    "text": [*["booked for 14 April"] * 2, *["booked for 16 April"] * 2, "on 23 April"],
    "status": [*["superseded"] * 4, "active"],
    "valid_from": [None, None, DAY(9), DAY(9), DAY(15)],
    "valid_to": [None, DAY(9), None, DAY(15), DAY(24)],
    "recorded_at": [DAY(10), DAY(11), DAY(11), DAY(13), DAY(13)],
    "closed_at": [DAY(11), None, DAY(13), None, None],
    "remainder": [False, True, False, True, False],
}


def layers(*rows: tuple[str, int | None, int | None, int, int | None]) -> pl.DataFrame:
    """A history from fact, valid from and to, recorded and closed on which days of April.

    The rows of a fact but for its first are remainders.
    """
    told: list[dict[str, Any]] = []
    for fact_id, *days in rows:
        n = 1 + sum(row["fact_id"] == fact_id for row in told)
        names = ("valid_from", "valid_to", "recorded_at", "closed_at")
        times = {name: day and DAY(day) for name, day in zip(names, days, strict=True)}
        text = {"fact_id": fact_id, "version": n, "text": f"text of {fact_id}", "status": "active"}
        told.append({**text, **times, "remainder": n > 1})
    return pl.DataFrame(told)


def one(text: str = "t", status: str = "active", **instants: str) -> Any:
    """A history of one version."""
    row = {"fact_id": "f", "version": 1, "text": text, "status": status, "recorded_at": DAY(1)}
    return pl.DataFrame([{**row, **instants}])


def pieces(ax: Any) -> list[tuple[str, float, float, float, float]]:
    """Every rectangle: its version, left, right, low and high, in steps of the axes."""
    return [
        (p.get_gid(), p.get_x(), p.get_x() + p.get_width(), p.get_y(), p.get_y() + p.get_height())
        for p in ax.patches
    ]


def lines(ax: Any, colour: str) -> set[tuple[tuple[float, ...], tuple[float, ...]]]:
    """The sides that are drawn in a colour: from and to, across and up."""
    drawn = [line for line in ax.lines if line.get_marker() == "None"]
    return {tuple(map(tuple, line.get_data())) for line in drawn if line.get_color() == colour}


def heads(ax: Any) -> list[str]:
    """The arrowheads at open ends."""
    return sorted(line.get_marker() for line in ax.lines if line.get_marker() in ("^", "<", ">"))


def written(ax: Any) -> str:
    """Everything that is written in the picture but for the ticks."""
    return "\n".join([ax.get_title(loc="left"), *(text.get_text() for text in ax.texts)])


def test_each_version_is_drawn_where_it_holds(frame_kind: Any):
    ax = plot_two_clocks(frame_kind.make_frame(SERVICE))
    left, right, top = 0, 4, 4  # days 9, 15 and 24 stand at 1, 2, 3; so do the 10th, 11th, 13th
    assert pieces(ax) == [
        ("version 1", left, right, 1, 2),
        ("version 1", left, 1, 2, top),
        ("version 2", 1, right, 2, 3),
        ("version 2", 1, 2, 3, top),
        ("version 3", 2, 3, 3, top),
    ]
    assert ax.get_xlim() == (left, right) and ax.get_ylim()[1] == top
    assert ax.get_title(loc="left") == "3 versions, 3 still hold, each for its own time"
    labels = [text.get_text() for text in ax.texts[:3]]
    assert [label.split("\n")[0][:9] for label in labels] == ["1  booked", "2  booked", "3  on 23 "]


def test_open_ends_have_arrowheads_and_closed_ends_lines(frame_kind: Any):
    ax = plot_two_clocks(frame_kind.make_frame(SERVICE))
    assert heads(ax) == ["<", "<", ">", ">", "^", "^", "^"]
    closed = one(valid_from=DAY(2), valid_to=DAY(3), closed_at=DAY(4))
    ax = plot_two_clocks(closed)
    assert heads(ax) == []
    assert lines(ax, FIRST) == {
        ((1, 2), (1, 1)),
        ((1, 2), (2, 2)),
        ((1, 1), (1, 2)),
        ((2, 2), (1, 2)),
    }


def test_the_two_pieces_of_an_l_have_no_line_between_them():
    ax = plot_two_clocks(pl.DataFrame(SERVICE)[:2])
    assert lines(ax, FIRST) == {((0, 2), (1, 1)), ((1, 2), (2, 2)), ((1, 1), (2, 3))}


def test_two_remainders_leave_a_line_only_where_the_replacement_holds():
    u = [("a", 5, None, 9, 10), ("a", 5, 12, 10, None), ("a", 25, None, 10, None)]
    ax = plot_two_clocks(layers(*u, ("b", 12, 25, 10, None)))
    # days 5, 12, 25 stand at 1, 2, 3 and the end at 4; told on days 9, 10 at 1, 2 up to 3
    outside = {((1, 4), (1, 1)), ((1, 1), (1, 2)), ((1, 1), (2, 3))}
    inside = {((2, 3), (2, 2)), ((2, 2), (2, 3)), ((3, 3), (2, 3))}
    assert lines(ax, FIRST) == outside | inside
    assert heads(ax) == [">", ">", "^", "^", "^"]


def test_remainders_that_follow_one_another_have_no_line_where_both_hold():
    told = [
        ("a", 5, None, 9, 10),
        ("a", 5, 12, 10, None),
        ("a", 25, None, 10, 17),  # until the end of b was moved
        ("a", 20, None, 17, None),
        ("b", 12, 25, 10, 17),
        ("c", 12, 20, 17, None),
    ]
    ax = plot_two_clocks(layers(*told))
    # days 5, 12, 20, 25 stand at 1 to 4, the end at 5; told on days 9, 10, 17 at 1 to 3, up to 4
    assert {side for side in lines(ax, FIRST) if side[1][0] == side[1][1]} == {
        ((1, 5), (1, 1)),
        ((2, 4), (2, 2)),
        ((3, 4), (3, 3)),
    }
    labels = [text.get_text().partition(" ")[0] for text in ax.texts]
    assert [label for label in labels if label] == ["1", "2", "3"]


def test_what_comes_back_bears_its_number_again():
    back = [("a", 5, None, 9, 10), ("a", 5, 15, 12, None)]  # all covered in between
    ax = plot_two_clocks(layers(*back, ("b", None, None, 10, 12), ("c", 15, None, 12, None)))
    again = [text for text in ax.texts if text.get_text() == "1"]
    [(_, left, _, low, high)] = [p for p in pieces(ax) if p[0] == "version 1" and p[3] > 1]
    assert [text.xy[0] for text in again] == [left]
    assert all(low < text.xy[1] <= high for text in again)
    assert ((1, 2), (3, 3)) in lines(ax, FIRST)  # it lies on another version


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_every_history_of_a_mesh_is_drawn_without_a_line_inside_a_version(
    open_mesh: Any, steps: int
):
    clock = LabClock(DAY(9))
    mesh = open_mesh(clock=clock)
    fact = mesh.agent("desk").remember("gate B2")
    spans = [(DAY(12), DAY(20)), (DAY(15), None), (DAY(1), DAY(13))]
    for n, (start, end) in enumerate(spans[:steps]):
        fact = mesh.supersede(fact, f"gate {n}", valid_from=start, valid_to=end)
    mesh.update(fact, valid_from=DAY(14), valid_to=DAY(18))
    versions = Versions.of(mesh.history(fact))
    ax = plot_two_clocks(mesh.history(fact))
    for row, colour in enumerate(clocks._COLOURS[: len(versions.rows)]):
        boxes = [piece[1:] for piece in pieces(ax) if piece[0] == f"version {row + 1}"]

        def inside(across: float, up: float, boxes: Any = boxes) -> bool:
            return any(le < across < ri and lo < up < hi for le, ri, lo, hi in boxes)

        for (x0, x1), (y0, y1) in lines(ax, colour):
            for n in range(1, 40):  # along the line, a little to either side
                at = x0 + (x1 - x0) * n / 40.5, y0 + (y1 - y0) * n / 40.5
                off = (0.01, 0) if x0 == x1 else (0, 0.01)
                sides = [inside(at[0] + s * off[0], at[1] + s * off[1]) for s in (1, -1)]
                assert sides.count(True) == 1


def test_what_expires_ends_there():
    row = one(expires_at=DAY(5)).row(0, named=True)
    rest = {**row, "version": 2, "recorded_at": DAY(9), "remainder": True}
    whole = one(closed_at=DAY(9), expires_at=DAY(5))
    ax = plot_two_clocks(pl.concat([whole, pl.DataFrame([rest])], how="diagonal"))
    assert [piece[3:] for piece in pieces(ax)] == [(1, 2)]
    assert [tick.get_text() for tick in ax.get_yticklabels()] == [
        "1 Apr 2031  09:00",
        "5 Apr 2031  09:00",
    ]


@pytest.mark.parametrize(
    ("at", "answer", "where"),
    [
        ((DAY(12), DAY(12)), "2 “booked for 16 April” holds on 12 Apr 2031 09:00", (1.4, 2.4)),
        (AsOf(DAY(8), DAY(12)), "1 “booked for 14 April” holds on 8 Apr 2031 09:00", (0.4, 2.4)),
        (AsOf(DAY(9), DAY(11)), "2 “booked for 16 April” holds on 9 Apr 2031 09:00", (1.4, 2.4)),
        (AsOf(DAY(24), None), "no version holds on 24 Apr 2031 09:00", (3.4, 3.4)),
    ],
)
def test_a_cross_marks_the_point_and_the_caption_says_what_holds(
    at: Any, answer: str, where: tuple[float, float]
):
    ax = plot_two_clocks(pl.DataFrame(SERVICE), at=at)
    [cross] = [line for line in ax.lines if line.get_marker() == "x"]
    assert tuple(float(v[0]) for v in cross.get_data()) == pytest.approx(where)
    assert answer in written(ax).replace("\n", " ")


def test_a_point_without_a_valid_time_is_a_line():
    ax = plot_two_clocks(pl.DataFrame(SERVICE), at=(None, DAY(20)))
    assert not [line for line in ax.lines if line.get_marker() == "x"]
    assert list(ax.lines[-1].get_ydata()) == pytest.approx([3.4, 3.4])
    assert "3 “on 23 April” holds at any time of the world" in written(ax).replace("\n", " ")


def test_now_is_a_ring_and_the_title_says_what_holds():
    ax = plot_two_clocks(pl.DataFrame(SERVICE), now=DAY(18))
    assert ax.get_title(loc="left") == "3 versions; now holds 3 “on 23 April”"
    [ring] = [line for line in ax.lines if line.get_marker() == "o"]
    assert [float(v[0]) for v in ring.get_data()] == pytest.approx([2.4, 3.4])


def test_what_holds_nowhere_is_listed_and_not_drawn():
    ax = plot_two_clocks(one("empty", valid_from=DAY(4), valid_to=DAY(4)))
    assert pieces(ax) == []
    assert "Holds nowhere: 1 “empty”" in written(ax)


def test_a_redacted_version_is_hatched_and_its_text_is_nowhere():
    ax = plot_two_clocks(one("secret", "redacted"), now=DAY(9), at=(DAY(9), DAY(9)))
    [patch] = ax.patches
    assert patch.get_hatch()
    assert "secret" not in written(ax) and "redacted" in written(ax)
    assert not plot_two_clocks(one()).patches[0].get_hatch()


HOSTILE = [
    "$x^",
    r"$\frac{1}{2}$",
    "<b>日本語</b> 👩‍👧" * 90,
    "\x1b[31m\n\u202e",
    "x" * 5000,
    " ",
    "",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_a_text_is_drawn_as_it_is_and_in_its_rectangle(text: str):
    ax = plot_two_clocks(one(text, valid_from=DAY(2)), now=DAY(9), at=(DAY(9), DAY(9)))
    assert charts.png(ax).startswith(b"\x89PNG")
    assert "\x1b" not in written(ax) and "\u202e" not in written(ax)
    assert len(ax.texts[0].get_text()) < 260
    box, piece = ax.texts[0].get_clip_box(), ax.patches[0].get_window_extent()
    assert box.bounds == pytest.approx(piece.bounds)


def test_the_bytes_are_the_same_every_time():
    history = pl.DataFrame(SERVICE)
    pictures = {
        charts.png(plot_two_clocks(frame, now=DAY(18), at=(DAY(12), DAY(12))))
        for frame in (history, history.reverse(), history.to_pandas())
    }
    assert len(pictures) == 1


def test_many_versions_have_room_and_few_ticks():
    row = {"fact_id": "f", "status": "active"}
    history = pl.DataFrame(
        [
            {**row, "version": n, "text": f"at {n} litres", "recorded_at": DAY(n),
             "valid_from": DAY(n), "closed_at": DAY(n + 1)}
            for n in range(1, 30)
        ]
    )  # fmt: skip
    ax = plot_two_clocks(history)
    assert ax.figure.get_figheight() > 7
    assert len(ax.get_xticks()) <= 8
    assert len({text.get_text() for text in ax.texts[:29]}) == 29


def test_a_day_is_written_once():
    ax = plot_two_clocks(one(closed_at="2031-04-01T09:00:00.250Z"))
    labels = [tick.get_text() for tick in ax.get_yticklabels()]
    assert labels == ["1 Apr 2031  09:00", "09:00:00.250"]


def test_the_ends_of_time_are_drawn():
    far = one(valid_from="0001-01-01T00:00:00Z", valid_to="9999-12-31T23:59:59.999999Z")
    assert charts.png(plot_two_clocks(far)).startswith(b"\x89PNG")


def test_nothing_is_drawn_from_nothing():
    ax = plot_two_clocks(schemas.empty(schemas.FactHistory), now=DAY(1), at=(DAY(1), None))
    assert ax.get_title(loc="left") == "No version on record"
    assert pieces(ax) == [] and charts.png(ax).startswith(b"\x89PNG")


def test_it_draws_where_it_is_told():
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3))
    ax = figure.subplots(1, 2)[1]
    assert plot_two_clocks(one(), ax=ax) is ax
    assert list(figure.get_size_inches()) == [9, 3]


def test_a_notebook_shows_the_axes_unless_they_came_from_elsewhere():
    from matplotlib.figure import Figure

    ax = plot_two_clocks(one())
    assert ax._repr_png_() == charts.png(ax)
    elsewhere = Figure().subplots()
    plot_two_clocks(one(), ax=elsewhere)
    assert not hasattr(elsewhere, "_repr_png_")  # pyplot shows its figures itself


def test_what_cannot_be_read_is_refused():
    with pytest.raises(SchemaError, match="DataFrame"):
        plot_two_clocks([{"text": "t"}])
    with pytest.raises(InstantError, match="now"):
        plot_two_clocks(one(), now="2031-04-01T09:00:00")
    with pytest.raises(InstantError, match="valid_at"):
        plot_two_clocks(one(), at=("tomorrow", None))


def test_without_matplotlib_the_extra_is_named(monkeypatch: pytest.MonkeyPatch):
    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtraError, match=r"mnemes-lab\[lab\]"):
        plot_two_clocks(one())
