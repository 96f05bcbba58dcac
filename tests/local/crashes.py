"""Processes that die at a chosen change of the file system, as a killed process or a lost machine would."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

CHANGES = ("rename", "mkdir", "unlink", "rmdir", "symlink", "chown", "fchown", "chmod", "fchmod", "utime", "fsync")
DIED = 77


def dies_at(change: int, work: Callable[[], Any]) -> bool:
    """Run `work` in a child that ends without a word instead of its `change`-th change; whether it came that far."""
    child = os.fork()
    if child == 0:
        _count_down(change)
        try:
            work()
        except BaseException:
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    assert code in (0, DIED), f"the work ended with {code}"
    return code == DIED


def _count_down(change: int) -> None:
    left = [change]

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def instead(*arguments: Any, **more: Any) -> Any:
            left[0] -= 1
            if left[0] == 0:
                os._exit(DIED)
            return call(*arguments, **more)

        return instead

    for name in CHANGES:
        setattr(os, name, counted(getattr(os, name)))
