"""Waiting for a condition instead of for time."""

from __future__ import annotations

import time
from collections.abc import Callable

POLL_SECONDS = 0.05


def until(condition: Callable[[], bool], what: str, seconds: float = 30) -> None:
    """Return as soon as `condition` holds; fails the test naming `what` when it never does."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(POLL_SECONDS)
