"""Waiting for a new server: the bound, what is tried again, and what is not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from engine.errors import (
    AuthenticationRefused,
    CommandFailed,
    CommandLost,
    CommandTimedOut,
    HostKeyMismatch,
    MissingPart,
    TenantryError,
    UnknownState,
    Unreachable,
)
from engine.hosts.access import FirstContact
from engine.hosts.channel import Output
from engine.provision.arrival import Arrival
from engine.registry.settings import Provisioning
from tests.unit.updater.clocks import FakeClock

FIRST = FirstContact()


class Host:
    """A host that admits nobody until its `errors` are used up; then cloud-init ends with `status`."""

    def __init__(self, *errors: TenantryError, status: int = 0, report: dict[str, Any] | None = None) -> None:
        self.errors = list(errors)
        self.status = status
        self.report = report or {"errors": [], "warnings": []}
        self.tries = 0
        self.missing = ""
        self.lost: list[TenantryError] = []

    @contextmanager
    def connect(self, first: FirstContact) -> Iterator[Any]:
        self.tries += 1
        if self.errors:
            raise self.errors.pop(0)
        yield self

    def check(self, command: str, **options: Any) -> Output:
        return Output(0, self.missing.encode(), b"")

    def execute(self, command: str, **options: Any) -> Output:
        if self.lost:
            raise self.lost.pop(0)
        return Output(self.status, b"status", b"")

    def run_script(self, script: str, parameters: Any, **options: Any) -> Any:
        return self.report


def arrival(host: Host, told: list[str] | None = None, **bounds: Any) -> tuple[Arrival, FakeClock]:
    clock = FakeClock()
    tell: Callable[[str], None] = (told if told is not None else []).append
    return Arrival(host.connect, Provisioning(**bounds), clock, tell, "maple"), clock


def test_the_defaults_are_ten_seconds_and_sixty_tries() -> None:
    host = Host(*(Unreachable("connection refused") for _ in range(1000)))
    arriving, clock = arrival(host)
    began = clock.monotonic()
    with pytest.raises(Unreachable, match="in 60 tries: connection refused"), arriving.session(FIRST):
        pass
    assert (host.tries, clock.monotonic() - began) == (60, 590)


@pytest.mark.parametrize(
    "error",
    [
        Unreachable("connection refused"),
        HostKeyMismatch("the host shows another key"),
        AuthenticationRefused("the host admits no user now: nologin"),
        AuthenticationRefused("ops may not become root"),
        CommandLost("the connection was lost"),
        CommandFailed("`first command` ended with status 1"),
    ],
)
def test_what_a_booting_host_may_say_is_tried_again_and_told_once(error: TenantryError) -> None:
    told: list[str] = []
    host = Host(error, error, error)
    arriving, _ = arrival(host, told)
    with arriving.session(FIRST):
        pass
    assert host.tries == 4
    assert told == [f"not yet: {error.message}"]


def test_only_a_failed_try_makes_the_next_one_wait() -> None:
    arriving, clock = arrival(Host())
    began = clock.monotonic()
    for _ in range(3):
        with arriving.session(FIRST):
            pass
    assert clock.monotonic() == began


def test_the_last_error_keeps_its_kind() -> None:
    arriving, _ = arrival(Host(*(HostKeyMismatch("the host shows X") for _ in range(9))), polls=3)
    with pytest.raises(HostKeyMismatch, match="in 3 tries: the host shows X"), arriving.session(FIRST):
        pass


def test_an_error_that_no_boot_cures_ends_it_at_once() -> None:
    host = Host(MissingPart("the identity does not exist"))
    with pytest.raises(MissingPart), arrival(host)[0].session(FIRST):
        pass
    assert host.tries == 1


def test_an_error_of_the_body_is_no_try() -> None:
    host = Host()
    with pytest.raises(CommandLost), arrival(host)[0].session(FIRST):
        raise CommandLost("in the middle")
    assert host.tries == 1


def test_the_bound_counts_over_all_of_an_arrival() -> None:
    host = Host(Unreachable("refused"))
    arriving, _ = arrival(host, polls=2)
    with arriving.session(FIRST):
        pass
    host.errors = [Unreachable("refused")]
    with pytest.raises(Unreachable, match="3 tries"), arriving.session(FIRST):
        pass


def test_warnings_of_a_first_boot_that_succeeded_are_told() -> None:
    told: list[str] = []
    arrival(Host(report={"errors": [], "warnings": ["init: odd"]}), told)[0].await_first_boot(FIRST)
    assert told == ["warning of cloud-init: init: odd"]


def test_recoverable_errors_need_the_declared_artefacts() -> None:
    told: list[str] = []
    host = Host(status=2)
    arrival(host, told, artefacts=("/etc/a",))[0].await_first_boot(FIRST)
    assert "recoverable" in told[-1]
    host.missing = "/etc/a\n"
    with pytest.raises(CommandFailed, match="missing: /etc/a"):
        arrival(host, artefacts=("/etc/a", "/etc/b"))[0].await_first_boot(FIRST)


def test_a_failed_first_boot_has_its_reasons() -> None:
    host = Host(status=1, report={"errors": ["scripts-user failed"], "warnings": ["odd"]})
    with pytest.raises(CommandFailed, match="status 1: scripts-user failed; odd"):
        arrival(host)[0].await_first_boot(FIRST)
    with pytest.raises(CommandFailed, match="status 127: status"):
        arrival(Host(status=127))[0].await_first_boot(FIRST)


def test_a_first_boot_that_does_not_end_is_given_up() -> None:
    host = Host()
    host.lost = [CommandTimedOut("no end")]
    with pytest.raises(UnknownState, match="not done after 900 s"):
        arrival(host)[0].await_first_boot(FIRST)


def test_a_lost_connection_asks_again() -> None:
    host = Host()
    host.lost = [CommandLost("lost"), CommandLost("lost")]
    arrival(host)[0].await_first_boot(FIRST)
    assert host.tries == 3
