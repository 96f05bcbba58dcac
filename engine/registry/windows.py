"""Hours of the day in a time zone: when a rollout may begin with a wave, when an owner is not disturbed. Pure."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Sequence
from zoneinfo import ZoneInfo

from engine.registry.settings import Window

_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


def is_open(windows: Sequence[Window], now: datetime.datetime) -> bool:
    """Whether `now` lies in one of `windows`; no windows at all are always open."""
    return not windows or any(start <= now < end for start, end in _around(windows, now))


def next_opening(windows: Sequence[Window], now: datetime.datetime) -> datetime.datetime:
    """When the next window opens, in UTC; `now` where one is open."""
    if is_open(windows, now):
        return now
    # Two weeks and a day hold every day of every window, whatever its zone, and with a changed clock between them.
    return min(start for start, _ in _around(windows, now) if start > now)


def _around(windows: Iterable[Window], now: datetime.datetime) -> Iterator[tuple[datetime.datetime, datetime.datetime]]:
    """Every beginning and end of a window from yesterday to fifteen days from now, in UTC.

    A window that the clock skips when summer time begins is none on that day.
    """
    for window in windows:
        zone = ZoneInfo(window.time_zone)
        today = now.astimezone(zone).date()
        for offset in range(-2, 16):
            day = today + datetime.timedelta(days=offset)
            start, end = _bounds(window, day, zone)
            if _DAYS[day.weekday()] in window.days and start < end:
                yield start, end


def _bounds(window: Window, day: datetime.date, zone: ZoneInfo) -> tuple[datetime.datetime, datetime.datetime]:
    start, end = datetime.time.fromisoformat(window.start), datetime.time.fromisoformat(window.end)
    last = day if end > start else day + datetime.timedelta(days=1)
    return (
        datetime.datetime.combine(day, start, zone).astimezone(datetime.UTC),
        datetime.datetime.combine(last, end, zone).astimezone(datetime.UTC),
    )
