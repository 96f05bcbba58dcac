"""Maintenance windows."""

from __future__ import annotations

import datetime

from hypothesis import given
from hypothesis import strategies as st

from engine.registry.settings import Window
from engine.registry.windows import is_open, next_opening


def at(text: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(f"{text}+00:00")


NIGHT = Window("22:30", "04:00", days=("fri",), time_zone="Europe/Berlin")


def test_no_windows_are_always_open() -> None:
    assert is_open((), at("2026-11-29T12:00"))


def test_a_window_over_midnight_belongs_to_the_day_it_begins() -> None:
    assert not is_open((NIGHT,), at("2026-11-27T21:29"))
    assert is_open((NIGHT,), at("2026-11-27T21:30"))
    assert is_open((NIGHT,), at("2026-11-28T02:59"))
    assert not is_open((NIGHT,), at("2026-11-28T03:00"))


def test_the_zone_decides_in_summer_and_in_winter() -> None:
    assert is_open((NIGHT,), at("2026-07-31T20:30"))
    assert not is_open((NIGHT,), at("2026-07-31T20:29"))


def test_the_next_opening_is_the_first_of_any_window() -> None:
    windows = (NIGHT, Window("12:00", "13:00", days=("wed",)))
    assert next_opening(windows, at("2026-11-29T12:00")) == at("2026-12-02T12:00")
    assert next_opening(windows, at("2026-12-02T12:59")) == at("2026-12-02T12:59")
    assert next_opening(windows, at("2026-12-02T13:00")) == at("2026-12-04T21:30")


def test_a_window_that_the_change_to_summer_time_skips_is_none_that_day() -> None:
    windows = (Window("02:30", "03:15", days=("sun",), time_zone="Europe/Berlin"),)
    # On 2027-03-28 it is 03:00 in Berlin right after 02:00.
    assert next_opening(windows, at("2027-03-22T12:00")) == at("2027-04-04T00:30")
    assert not is_open(windows, at("2027-03-28T01:20"))


@given(st.datetimes(datetime.datetime(2026, 1, 1), datetime.datetime(2027, 1, 1), timezones=st.just(datetime.UTC)))
def test_a_window_is_open_when_it_opens(now: datetime.datetime) -> None:
    opening = next_opening((NIGHT,), now)
    assert opening >= now
    assert is_open((NIGHT,), opening)
