"""Instants: what is read, what is refused, how it is written; clocks that never run backwards."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mnemes_lab.clock import LabClock, SystemClock, from_us, rfc3339, to_us
from mnemes_lab.errors import InstantError

NOON = 1_939_896_000_000_000  # 2031-06-22T12:00:00Z


@pytest.mark.parametrize(
    "text",
    [
        "2031-06-22T12:00:00Z",
        "2031-06-22t12:00:00z",
        "2031-06-22 12:00:00Z",
        "2031-06-22T12:00:00+00:00",
        "2031-06-22T12:00:00-00:00",
        "2031-06-23T02:00:00+14:00",
        "2031-06-22T00:00:00-12:00",
        "2031-06-22T17:30:00+05:30",
        "2031-06-22T12:00:00.000Z",
        "2031-06-22T12:00:00.000000999Z",
        "  2031-06-22T12:00:00Z\n",
    ],
)
def test_rfc3339_is_read_in_any_offset_and_case(text):
    assert to_us(text) == NOON


@pytest.mark.parametrize(
    "text",
    [
        "2031-03-30T02:30",  # no offset; does not exist in Berlin
        "2031-10-26T02:30:00",  # no offset; exists twice in Berlin
        "2031-06-22",
        "2031-W05-1",
        "2031-W05-1T10:00:00Z",
        "2031-173T12:00:00Z",
        "20310622T120000Z",
        "30/03/2031",
        "30/03/2031 10:00:00Z",
        "1939896000",
        "1",
        "now",
        "",
        "   ",
        "2031-06-22T12:00Z",
        "2031-06-22T12:00:00",
        "2031-06-22T12:00:00,5Z",
        "2031-06-22T12:00:00.Z",
        "2031-06-22T12:00:00 Z",
        "2031-06-22T12:00:00+2",
        "2031-06-22T12:00:00+0200",
        "2031-06-22T12:00:00 Europe/Berlin",
        "２０３１-06-22T12:00:00Z",
        "2031-06-22T12:00:00Z; DROP TABLE facts",
    ],
)
def test_other_forms_are_refused_with_a_hint(text):
    with pytest.raises(InstantError, match="Hint: give an RFC 3339 time with an offset"):
        to_us(text)


@pytest.mark.parametrize(
    "text",
    [
        "2031-02-29T12:00:00Z",
        "2031-13-01T12:00:00Z",
        "2031-06-31T12:00:00Z",
        "2031-06-22T24:00:00Z",
        "2031-06-22T25:00:00Z",
        "2031-06-22T12:60:00Z",
        "2031-06-22T23:59:60Z",
        "2031-06-22T12:00:00+24:00",
        "2031-06-22T12:00:00+05:99",
        "0000-01-01T00:00:00Z",
    ],
)
def test_impossible_instants_are_refused(text):
    with pytest.raises(InstantError):
        to_us(text)


@pytest.mark.parametrize("text", ["9999-12-31T23:59:59-14:00", "0001-01-01T00:00:00+14:00"])
def test_instants_that_leave_the_calendar_in_utc_are_refused(text):
    with pytest.raises(InstantError, match="years 1 to 9999"):
        to_us(text)


@pytest.mark.parametrize("text", ["9999-12-31T23:59:59.999999Z", "0001-01-01T00:00:00Z"])
def test_the_ends_of_the_calendar_are_read(text):
    assert to_us(rfc3339(to_us(text))) == to_us(text)


@pytest.mark.parametrize(
    "value",
    [1, 1.5, True, None, b"2031-06-22T12:00:00Z", date(2031, 6, 22), timedelta(1), [], pd.NaT],
    ids=repr,
)
def test_other_types_are_refused_never_converted(value):
    with pytest.raises(InstantError, match="expires_at"):
        to_us(value, what="expires_at")


def test_naive_datetimes_are_refused_aware_ones_read():
    wall = datetime(2031, 6, 22, 14)
    with pytest.raises(InstantError, match="no offset"):
        to_us(wall)
    assert to_us(wall.replace(tzinfo=ZoneInfo("Europe/Berlin"))) == NOON
    assert to_us(wall.replace(tzinfo=timezone(timedelta(hours=2)))) == NOON
    assert to_us(datetime(2031, 6, 22, 12, tzinfo=UTC)) == NOON


def test_the_hour_that_exists_twice_is_told_apart_by_its_offset():
    twice = datetime(2031, 10, 26, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"))
    assert to_us(twice.replace(fold=1)) - to_us(twice) == 3_600_000_000


def test_nanoseconds_are_cut_toward_the_past():
    stamp = pd.Timestamp("2031-06-22T12:00:00.000000999Z")
    assert to_us(stamp) == NOON
    assert to_us(pd.Timestamp(-1, unit="ns", tz="UTC")) == -1
    assert type(to_us(stamp)) is int


@pytest.mark.parametrize(
    ("us", "text"),
    [
        (0, "1970-01-01T00:00:00+00:00"),
        (NOON, "2031-06-22T12:00:00+00:00"),
        (NOON + 500_000, "2031-06-22T12:00:00.500+00:00"),
        (NOON + 500, "2031-06-22T12:00:00.000500+00:00"),
        (NOON + 1, "2031-06-22T12:00:00.000001+00:00"),
        (-1, "1969-12-31T23:59:59.999999+00:00"),
        (to_us("0005-01-01T00:00:00Z"), "0005-01-01T00:00:00+00:00"),
    ],
)
def test_written_form(us, text):
    assert rfc3339(us) == text


INSTANTS = st.integers(to_us("0001-01-01T00:00:00Z"), to_us("9999-12-31T23:59:59.999999Z"))


@given(INSTANTS)
def test_an_instant_survives_text_and_datetime(us):
    assert to_us(rfc3339(us)) == us
    assert to_us(from_us(us)) == us
    assert from_us(us).utcoffset() == timedelta(0)


@given(INSTANTS, INSTANTS)
def test_text_without_a_fraction_sorts_as_the_instants_do(a, b):
    a, b = a // 1_000_000 * 1_000_000, b // 1_000_000 * 1_000_000
    assert (rfc3339(a) < rfc3339(b)) == (a < b)


@given(
    st.datetimes(
        timezones=st.timezones(), min_value=datetime(1901, 1, 1), max_value=datetime(9998, 1, 1)
    )
)
def test_the_zone_of_a_datetime_does_not_matter(value):
    assert to_us(value) == to_us(value.astimezone(UTC))


def test_lab_clock_starts_fixed_and_moves_by_its_step():
    clock = LabClock("2031-06-22T12:00:00Z", step_ms=250)
    assert [clock.now() for _ in range(3)] == [NOON, NOON + 250_000, NOON + 500_000]
    assert LabClock().now() == LabClock().now()


def test_lab_clock_durations_are_its_latency():
    clock = LabClock(latency_ms=2.5)
    elapsed = clock.stopwatch()
    clock.now()
    assert elapsed() == 2.5


@pytest.mark.parametrize("step_ms", [0, -1])
def test_a_clock_that_stands_or_runs_backwards_is_refused(step_ms):
    with pytest.raises(InstantError, match="step_ms"):
        LabClock(step_ms=step_ms)


def test_a_clock_cannot_start_at_a_naive_time():
    with pytest.raises(InstantError):
        LabClock(datetime(2031, 1, 1))


@pytest.mark.parametrize("make", [LabClock, SystemClock])
def test_readings_always_grow(make):
    clock = make()
    readings = [clock.now() for _ in range(1000)]
    assert readings == sorted(set(readings))


@pytest.mark.parametrize("make", [LabClock, SystemClock])
def test_a_clock_continues_after_what_is_on_record(make):
    clock = make()
    far = to_us("2099-01-01T00:00:00Z")
    clock.forward_to(far)
    assert clock.now() > far


@pytest.mark.parametrize("make", [LabClock, SystemClock])
def test_forwarding_to_the_past_changes_nothing(make):
    clock = make()
    before = clock.now()
    clock.forward_to(0)
    assert clock.now() > before


def test_system_clock_survives_being_set_back(monkeypatch):
    times = iter([5_000_000, 1_000_000, 1_000_000, 9_000_000])
    monkeypatch.setattr("mnemes_lab.clock.time.time_ns", lambda: next(times))
    clock = SystemClock()
    assert [clock.now() for _ in range(4)] == [5000, 5001, 5002, 9000]


def test_system_stopwatch_never_runs_backwards():
    elapsed = SystemClock().stopwatch()
    first = elapsed()
    assert 0 <= first <= elapsed()
