"""A kernel lock that also covers the commands started under it."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

POLL_SECONDS = 0.05


@contextmanager
def held(path: Path, waiting: Callable[[], None]) -> Iterator[int]:
    """Hold the lock file `path`, waiting for whoever has it; yields the descriptor.

    Commands inherit the descriptor (see `Commands`), so that the lock outlives a killed holder until
    its last command has ended, and the next holder never meets a half-done one. `waiting` is called
    once if the lock is not free.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _acquire(descriptor, waiting)
        yield descriptor
    finally:
        # Closing, not unlocking: an unlock would also free it for commands that are still running.
        os.close(descriptor)


def _acquire(descriptor: int, waiting: Callable[[], None]) -> None:
    told = False
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if not told:
                waiting()
                told = True
            time.sleep(POLL_SECONDS)
