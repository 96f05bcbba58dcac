"""Scripts have a process of their own on a host; tests that run them in theirs put back what they change of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def own_umask() -> Iterator[None]:
    """The umask of a new process, to be changed at will; the one of before is back afterwards."""
    before = os.umask(0o022)
    try:
        yield
    finally:
        os.umask(before)
