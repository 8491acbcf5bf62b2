"""Words, BM25 and postings."""

from __future__ import annotations

import io
import math
import unicodedata

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mnemes_lab.errors import CorruptStoreError, InputError
from mnemes_lab.text import words
from mnemes_lab.text.lexicon import (
    K1,
    B,
    Postings,
    ascii_tokens,
    bm25_weight,
    idf,
    routing_tokens,
    tokens,
)

ANY_TEXT = st.text(alphabet=st.characters())  # all of Unicode, halves of surrogate pairs too
VALID_TEXT = st.text()
SHORT = st.lists(st.text(alphabet="ab-é泵 ", max_size=12), max_size=8)
NORMAL_FORMS = ("NFC", "NFD", "NFKC", "NFKD")


# --- one spelling ----------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("مؤمن", "مؤمن"),
        ("dépôt", "depot"),
        ("İzmir depot", "izmir depot"),
        ("STRASSE", "straße"),
        ("ﬁlter", "filter"),
        ("العَمَلُ", "العمل"),
        ("العـــمل", "العمل"),
        ("O’Malley’s", "o'malley's"),
        ("KX\u201177", "kx-77"),
        ("KX\u00ad-77", "KX-77"),
        ("ＫＸ－７７", "kx-77"),
        ("pier ٤", "pier 4"),
        ("ﾊﾟﾝ屋", "パン屋"),
        ("Ωμέγας", "ΩΜΕΓΑΣ"),
    ],
)
def test_spellings_readers_take_for_equal_give_equal_terms(one: str, other: str) -> None:
    assert tokens(one)
    for form in NORMAL_FORMS:
        assert tokens(unicodedata.normalize(form, one)) == tokens(other)
        assert tokens(unicodedata.normalize(form, other)) == tokens(one)


@pytest.mark.parametrize(
    ("one", "other"),
    [("हिन्दी", "हनद"), ("か", "が"), ("มา", "มี"), ("KX-77", "KX-78"), ("09:15", "09:16")],
)
def test_marks_and_digits_that_carry_meaning_stay(one: str, other: str) -> None:
    assert tokens(one) != tokens(other)


@given(ANY_TEXT)
def test_any_text_has_terms_without_space_or_control(text: str) -> None:
    for term in tokens(text):
        assert term
        assert not any(c.isspace() or unicodedata.category(c).startswith("C") for c in term)
        term.encode()  # valid Unicode


@given(VALID_TEXT)
def test_every_normal_form_gives_the_same_terms(text: str) -> None:
    assert tokens(unicodedata.normalize("NFC", text)) == tokens(unicodedata.normalize("NFD", text))


@given(st.text(alphabet=st.characters(max_codepoint=127)))
def test_the_short_way_for_ascii_gives_the_same_terms(text: str) -> None:
    folded = words._fold(text)
    assert folded == text.lower()
    assert words._terms(folded) == words._ascii_terms(folded) == tokens(text)


@given(ANY_TEXT, ANY_TEXT)
def test_white_space_always_separates(left: str, right: str) -> None:
    assert tokens(f"{left} {right}") == tokens(left) + tokens(right)


# --- words and codes -------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Job KX-77 finished", ["job", "kx", "77", "kx-77", "finished"]),
        ("09:15.", ["09", "15", "09:15"]),
        ("v2.10 (beta)", ["v2", "10", "v2.10", "beta"]),
        ("C++ or C#", ["c", "c++", "or", "c", "c#"]),
        ("50% done", ["50", "50%", "done"]),
        ("state=AND", ["state", "and", "state=and"]),
        (r"C:\data", ["c", "data", r"c:\data"]),
        (
            "@kelp/feed-web",
            ["kelp", "feed", "web", "kelp/feed", "feed-web", "kelp/feed-web"],
        ),
        ("Ruiz-Diaz", ["ruiz", "diaz", "ruiz-diaz"]),
        (
            "O'Malley's",
            ["o", "malley", "s", "o'malley", "malley's", "o'malley's"],
        ),
        ("__init__ - a....b", ["init", "a", "b"]),
        ("泵站今晚关闭", ["泵站", "站今", "今晚", "晚关", "关闭"]),
        ("第3号泵", ["第", "3", "号泵"]),
        ("KX-77号", ["kx", "77", "kx-77", "号"]),
        ("x² a≠b", ["x2", "a", "b"]),
    ],
)
def test_words_and_codes(text: str, expected: list[str]) -> None:
    assert tokens(text) == expected


@pytest.mark.parametrize("text", ["", " ", "!!!", '"', "*", "^", "(){}", "\x00", "\ud800", "🙂"])
def test_text_without_words_has_no_terms(text: str) -> None:
    assert tokens(text) == routing_tokens(text) == []


@pytest.mark.parametrize(
    ("query", "stored", "rival"),
    [
        ("KX-77", "pump=KX-77's seal", "pump=KX-78's seal 77"),
        ("VX-4103", "valve VX-4103 shut", "valve VX-4108 shut"),
        ("09:15", "from 09:15-10:30", "from 15:09-10:30"),
        ("@kelp/feed-web", "uses @kelp/feed-web now", "uses @kelp/feed-worker now"),
        ("Ana Ruiz-Diaz", "Ana Ruiz-Diaz left", "Ana Ruiz left"),
        ("关闭进水", "泵站今晚关闭进水阀门", "泵站今晚打开排水阀门"),
    ],
)
def test_a_code_shares_more_with_itself_than_with_its_neighbour(
    query: str, stored: str, rival: str
) -> None:
    asked = set(tokens(query))
    assert asked <= set(tokens(stored))
    assert not asked <= set(tokens(rival))


@given(st.text(alphabet="ab泵진 ", max_size=30), st.integers(0, 30), st.integers(2, 6))
def test_any_piece_of_a_run_without_spaces_is_found(text: str, start: int, size: int) -> None:
    stored = text.replace(" ", "水")
    piece = stored[start : start + size]
    if len(piece) > 1 and set(piece) <= set("泵水"):
        assert set(tokens(piece)) <= set(tokens(stored))


@given(ANY_TEXT)
def test_routing_terms_are_the_distinct_terms_in_order(text: str) -> None:
    found = routing_tokens(text)
    assert found == sorted(found) and set(found) == set(tokens(text))
    assert len(found) == len(set(found))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Borrow checker, OWNERSHIP borrow", ["borrow", "checker", "ownership"]),
        ("café au lait", ["au", "caf", "lait"]),
        ("日本語", []),
        ("  ", []),
        ("273 \u212a b_c", ["273", "b", "c"]),  # the Kelvin sign is no ASCII letter
    ],
)
def test_ascii_terms_of_the_source_system(text: str, expected: list[str]) -> None:
    assert ascii_tokens(text) == expected


@given(ANY_TEXT)
def test_ascii_terms_follow_their_definition(text: str) -> None:
    kept = "".join(c if c.isascii() and c.isalnum() else " " for c in text)
    assert ascii_tokens(text) == sorted(set(kept.lower().split()))


# --- BM25 ------------------------------------------------------------------------------------
def test_bm25_is_its_formula() -> None:
    weight = idf(7, 2) * 3 * (K1 + 1) / (3 + K1 * (1 - B + B * 11 / 8.5))
    assert float(bm25_weight(3, 11, idf(7, 2), 8.5)) == pytest.approx(float(weight), rel=1e-15)
    assert float(idf(7, 2)) == math.log(1 + 5.5 / 2.5)
    assert (K1, B) == (0.9, 0.4)


@given(
    st.lists(
        st.tuples(st.integers(0, 50), st.integers(1, 500), st.integers(0, 1000)),
        min_size=1,
        max_size=40,
    ),
    st.just(0.0) | st.floats(0.01, 400),
)
def test_bm25_bits_do_not_depend_on_the_shape(
    cells: list[tuple[int, int, int]], average: float
) -> None:
    tf, length, df = np.array(cells).T
    together = bm25_weight(tf, length, idf(1000, df), average)
    assert np.isfinite(together).all() and (together >= 0).all()
    for i, (one_tf, one_length, one_df) in enumerate(cells):
        alone = bm25_weight(one_tf, one_length, idf(1000, one_df), average)
        assert alone.tobytes() == together[i].tobytes()
    column = bm25_weight(tf[:, None], length[:, None], idf(1000, df[:, None]), average)
    assert column.tobytes() == together.tobytes()


def test_bm25_of_empty_facts_is_finite() -> None:
    assert bm25_weight([0, 1], [0, 1], 1.0, 0.0).tolist() == [0.0, 1.0]


@pytest.mark.parametrize("df", [-1, 8, [1, 9]])
def test_an_impossible_document_frequency_is_refused(df: object) -> None:
    with pytest.raises(InputError, match="between 0 and 7"):
        idf(7, df)  # type: ignore[arg-type]


# --- postings --------------------------------------------------------------------------------
@given(SHORT)
def test_postings_count_what_the_texts_hold(texts: list[str]) -> None:
    postings = Postings.build(texts)
    per_row = [tokens(text) for text in texts]
    assert postings.terms == sorted({term for row in per_row for term in row})
    assert postings.lengths.tolist() == [len(row) for row in per_row]
    for term in postings.terms:
        found = postings.get(term)
        assert found is not None
        expected = [(i, row.count(term)) for i, row in enumerate(per_row) if term in row]
        assert list(zip(found[0].tolist(), found[1].tolist(), strict=True)) == expected
    assert postings.get("absent") is None
    kinds = [str(array.dtype) for array in (postings.indptr, postings.rows, postings.tf)]
    assert kinds == ["int64", "int32", "int32"]


@given(SHORT, SHORT)
def test_appending_equals_building_at_once(old: list[str], new: list[str]) -> None:
    before = Postings.build(old)
    untouched = Postings.build(old)
    after = before.append(new)
    assert after == Postings.build(old + new)
    assert before == untouched
    for name, array in after.to_arrays().items():
        assert array.dtype == Postings.build(old + new).to_arrays()[name].dtype


def test_appending_does_not_read_the_old_texts_again(monkeypatch: pytest.MonkeyPatch) -> None:
    before = Postings.build(["pump off", "valve"])
    seen: list[str] = []

    def spy(text: str) -> list[str]:
        seen.append(text)
        return tokens(text)

    monkeypatch.setattr("mnemes_lab.text.lexicon.tokens", spy)
    before.append(["pump on"])
    assert seen == ["pump on"]


@given(SHORT)
def test_postings_survive_a_file_without_pickle(texts: list[str]) -> None:
    postings = Postings.build(texts)
    file = io.BytesIO()
    np.savez(file, **postings.to_arrays())
    file.seek(0)
    with np.load(file, allow_pickle=False) as arrays:
        assert Postings.from_arrays(arrays) == postings


@pytest.mark.parametrize(
    "damage",
    [
        {"terms": np.frombuffer(b"\xff", np.uint8)},
        {"terms": np.frombuffer(b"pump", np.uint8)},
        {"rows": np.array([0, 1, 9], np.int32)},
        {"rows": np.array([0, 1, -1], np.int32)},
        {"tf": np.array([1], np.int32)},
        {"indptr": np.array([0, 2, 1, 3])},
        {"lengths": np.zeros((2, 2), np.int32)},
    ],
)
def test_damaged_postings_are_refused(damage: dict[str, np.ndarray]) -> None:
    arrays = Postings.build(["off pump", "valve"]).to_arrays()
    assert Postings.from_arrays(arrays).terms == ["off", "pump", "valve"]
    with pytest.raises(CorruptStoreError):
        Postings.from_arrays({**arrays, **damage})
    arrays.pop(next(iter(damage)))
    with pytest.raises(CorruptStoreError):
        Postings.from_arrays(arrays)


def test_postings_differ_when_a_count_differs() -> None:
    assert Postings.build(["a b"]) != Postings.build(["a b b"])
    assert Postings.build(["a"]) != "a"


def test_the_size_counts_arrays_and_terms() -> None:
    small, large = Postings.build(["pump"]), Postings.build(["pump valve", "gate"])
    assert 0 < small.nbytes < large.nbytes
    arrays = (large.indptr, large.rows, large.tf, large.lengths)
    assert large.nbytes > sum(array.nbytes for array in arrays)
