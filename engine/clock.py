"""Time and identity as parameters, so that decisions can be tested without waiting."""

from __future__ import annotations

import datetime
import secrets
import time
from typing import Protocol


class Clock(Protocol):
    """What the engine needs of time."""

    def now(self) -> datetime.datetime:
        """The wall clock, in UTC."""

    def monotonic(self) -> float:
        """Seconds that never go backwards."""

    def sleep(self, seconds: float) -> None:
        """Let `seconds` pass."""


class SystemClock:
    """The machine's own clock."""

    def now(self) -> datetime.datetime:
        return datetime.datetime.now(datetime.UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


def iso(moment: datetime.datetime) -> str:
    """`moment` as UTC ISO 8601 with seconds, the form of every time in a document or record."""
    return moment.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def moment_of(run: str) -> str:
    """The second in which the run of that id began, such as ``20261022T081500Z``; these sort by time."""
    return run.partition("-")[0]


def new_run_id(clock: Clock) -> str:
    """A run id that sorts by time and is unique across machines, such as ``20261022T081500Z-5f3a9c1e``."""
    return f"{clock.now():%Y%m%dT%H%M%SZ}-{secrets.token_hex(4)}"
