"""Operators in processes of their own: many at once, and one that is stopped at a chosen point."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from engine.errors import EnvironmentRefused, TenantryError
from tests.local.environments.kills import counted_commits

ENDED, REFUSED, FENCED, BROKEN = 0, 3, 4, 70
PR_SET_PDEATHSIG = 1


def at_once(work: Callable[..., None], *arguments: tuple[Any, ...]) -> list[int | None]:
    """The exit codes of processes that do `work` on each of `arguments` at the same time.

    No pool, whose threads gevent would turn into one.
    """
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=work, args=each) for each in arguments]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    return [process.exitcode for process in processes]


@dataclass(frozen=True)
class Stopped:
    """A process that was stopped by SIGSTOP and can do nothing until it goes on."""

    pid: int

    def go_on(self) -> int:
        """Let it run to its end; the code that it ended with."""
        os.kill(self.pid, signal.SIGCONT)
        _, status = os.waitpid(self.pid, 0)
        return os.waitstatus_to_exitcode(status)

    def kill(self) -> None:
        """End it where it stands."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


def nth(number: int) -> Callable[[str], bool]:
    """Choose the point with that number, not counting those within a commit: who stops there holds up all others."""
    left = [number]

    def chosen(point: str) -> bool:
        left[0] -= point != "before commit"
        return left[0] == 0

    return chosen


def stopped_at(chosen: Callable[[str], bool], work: Callable[[Callable[[str], None]], Any]) -> Stopped | None:
    """Run `work` in a child that stops itself at the first point that is `chosen`; None if it ended before.

    `work` is given what to call at each point, and every commit of the journal is two points more; a number that it
    returns is its exit code.
    """
    child = os.fork()
    if child == 0:
        _run(chosen, work)
    # Not waitpid: gevent's own, where it is in its place, only ever tells of an end.
    seen = os.waitid(os.P_PID, child, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    if seen is not None and seen.si_code == os.CLD_STOPPED:
        return Stopped(child)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) in (ENDED, REFUSED)
    return None


def _run(chosen: Callable[[str], bool], work: Callable[[Callable[[str], None]], Any]) -> None:
    # A test that fails must leave nobody stopped for ever.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    stopped = False

    def reach(point: str) -> None:
        nonlocal stopped
        if not stopped and chosen(point):
            stopped = True
            os.kill(os.getpid(), signal.SIGSTOP)

    code = BROKEN
    try:
        with counted_commits(reach):
            ended = work(reach)
        code = ended if isinstance(ended, int) else ENDED
    except EnvironmentRefused as error:
        code = FENCED if error.word == "fenced" else REFUSED
    except TenantryError:
        code = REFUSED
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)
