"""Operator processes that are killed at a chosen journal commit or driver call.

A child counts the points that it passes: before and after every commit, and whatever the drivers report. It kills
itself with SIGKILL at the one that was chosen, so that nothing of it runs any more: no handler, no rollback.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
import sqlalchemy as sa

from engine.environments.drivers.base import CreateRequest, Driver, Kind, Owned
from engine.environments.journal import Database
from engine.environments.observation import Mark, Observation
from engine.errors import TenantryError

ENDED, REFUSED = 0, 3


class Pointed:
    """A driver that says before and after each of its calls that it was reached."""

    def __init__(self, driver: Driver, reach: Callable[[str], None]) -> None:
        self._driver, self._reach = driver, reach
        self.kind, self.settle_seconds = driver.kind, driver.settle_seconds

    def name(self, uuid: str) -> str:
        return self._driver.name(uuid)

    def observe(self, name: str) -> Observation:
        return self._between(self._driver.observe, name)  # type: ignore[no-any-return]

    def create(self, request: CreateRequest) -> Observation:
        return self._between(self._driver.create, request)  # type: ignore[no-any-return]

    def delete(self, name: str, mark: Mark) -> None:
        self._between(self._driver.delete, name, mark)

    def list_owned(self) -> tuple[Owned, ...]:
        return self._driver.list_owned()

    def _between(self, call: Callable[..., Any], *arguments: Any) -> Any:
        self._reach(f"before {call.__name__} {self.kind}")
        try:
            return call(*arguments)
        finally:
            self._reach(f"after {call.__name__} {self.kind}")


def pointed(drivers: Mapping[Kind, Driver], reach: Callable[[str], None]) -> dict[Kind, Driver]:
    return {kind: Pointed(driver, reach) for kind, driver in drivers.items()}


@contextmanager
def counted_commits(reach: Callable[[str], None]) -> Iterator[None]:
    """Every commit of every journal of this process is a point before and a point after."""
    write = Database.write

    @contextmanager
    def instead(self: Database) -> Iterator[sa.Connection]:
        with write(self) as connection:
            yield connection
            reach("before commit")
        reach("after commit")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Database, "write", instead)
        yield


@contextmanager
def counted_reads(reach: Callable[[str], None]) -> Iterator[None]:
    """Every look into a journal of this process is a point, once it has ended."""
    read = Database.read

    @contextmanager
    def instead(self: Database) -> Iterator[sa.Connection]:
        with read(self) as connection:
            yield connection
        reach("after read")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Database, "read", instead)
        yield


def killed_at(point: int, work: Callable[[Callable[[str], None]], Any]) -> bool:
    """Run `work` in a child that is killed at its `point`-th point; whether it came that far.

    `work` is given what to call at each point. An error of the engine's own ends the child like a command.
    """
    child = os.fork()
    if child == 0:
        _run(point, work)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.waitstatus_to_exitcode(status) in (ENDED, REFUSED)
    return False


def _run(point: int, work: Callable[[Callable[[str], None]], Any]) -> None:
    left = [point]

    def reach(_: str) -> None:
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    code = 1
    try:
        with counted_commits(reach):
            work(reach)
        code = ENDED
    except TenantryError:
        code = REFUSED
    finally:
        os._exit(code)
