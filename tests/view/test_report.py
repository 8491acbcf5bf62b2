"""A page stands alone, runs nothing and shows text as text."""

from __future__ import annotations

import base64
import re
from html.parser import HTMLParser

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from mnemes_lab.view.report import MARK, Section, page

POLICY = "default-src 'none'; img-src data: 'self'; style-src 'unsafe-inline'"
VOID = {"meta", "img", "br"}
EVIL = '<script>alert("1")</script><img src=http://x onerror=y>&amp;\'\x1b[31m\u202e'


class Reader(HTMLParser):
    """Tags, attributes and texts of a page; refuses tags that do not close in order."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def read(text: str) -> Reader:
    reader = Reader()
    reader.feed(text)
    reader.close()
    assert reader.open == []
    return reader


def evil_page(text: str) -> str:
    frame = pl.DataFrame({"question": [text], "n": [1], text or "x": ["v"]})
    section = Section(text, text, frame, b"\x89PNG", text)
    return page(text, [section], lead=text, foot=text)


def test_text_stays_text():
    out = evil_page(EVIL)
    reader = read(out)
    assert "script" not in reader.tags
    assert reader.tags.count("img") == 1
    assert not [name for name, _ in reader.attributes if name.startswith("on")]
    shown = EVIL.replace("\x1b", "\\x1b").replace("\u202e", "\\u202e")
    assert reader.texts.count(shown) >= 5  # title, heading, text, cell, lead
    assert not set("\x1b\u202e") & set(out)


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
def test_no_text_opens_a_tag(text):
    kinds = set(read(evil_page(text)).tags)
    assert kinds <= set(read(evil_page("plain")).tags)


def test_nothing_is_fetched_and_nothing_runs():
    out = page("A page", [Section("Picture", picture=b"\x89PNG", picture_text="bars")])
    reader = read(out)
    assert ("http-equiv", "Content-Security-Policy") in reader.attributes
    assert ("content", POLICY) in reader.attributes
    assert not re.search(r"https?:", out)
    assert {"script", "link", "iframe", "object", "form"} & set(reader.tags) == set()
    sources = [value for name, value in reader.attributes if name in ("src", "href")]
    assert sources == ["data:image/png;base64," + base64.b64encode(b"\x89PNG").decode()]
    assert not re.search(r"@import|url\(", out)


def test_a_page_says_what_it_is():
    out = page("A page", [])
    assert out.startswith("<!DOCTYPE html>\n")
    assert MARK in out[:1000]
    assert '<meta charset="utf-8">' in out


def test_a_frame_becomes_a_table_with_numbers_to_the_right():
    frame = pl.DataFrame({"top_hit": ["a", None], "score": [0.123456, 2.0], "right": [True, None]})
    out = page("A page", [Section("Hits", frame=frame)])
    assert "<th>top hit</th>" in out
    assert '<tr><td>a</td><td class="number">0.1235</td><td>yes</td></tr>' in out
    assert '<tr><td></td><td class="number">2</td><td></td></tr>' in out


def test_the_same_input_gives_the_same_bytes():
    assert evil_page("again") == evil_page("again")
