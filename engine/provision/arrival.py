"""Waiting for a new server: SSH polled within a bound, then the end of its first boot."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.clock import Clock
from engine.errors import (
    CommandFailed,
    CommandLost,
    CommandTimedOut,
    TenantryError,
    UnknownState,
    Unreachable,
)
from engine.hosts.access import FirstContact
from engine.hosts.session import Session
from engine.registry.settings import Provisioning

Connect = Callable[[FirstContact], AbstractContextManager[Session]]
Tell = Callable[[str], None]

REPORT = Path(__file__).with_name("first_boot_script.py").read_text()

DONE, DEGRADED = 0, 2
"""cloud-init's exit codes that go on; 2 is "done, with recoverable errors"."""


@dataclass
class Arrival:
    """One server on its way: every connection attempt counts against ``provision.polls``."""

    connect: Connect
    bounds: Provisioning
    clock: Clock
    tell: Tell
    where: str
    _tries: int = 0
    _next: float = 0

    @contextmanager
    def session(self, first: FirstContact) -> Iterator[Session]:
        """A session with the server as soon as it admits the operator as root.

        Refused connections, a machine that shows another key, ``nologin`` and refused identities are tried
        again within the bound; then the last error is raised.
        """
        with ExitStack() as stack:
            yield self._reach(first, stack)

    def _reach(self, first: FirstContact, stack: ExitStack) -> Session:
        said = ""
        while True:
            self._pause()
            try:
                with ExitStack() as attempt:
                    session = attempt.enter_context(self.connect(first))
                    # A booting host may admit the account before sudo knows it.
                    session.check("true", label="first command")
                    stack.enter_context(attempt.pop_all())
                    # Only a try that failed makes the next one wait.
                    self._next = 0
                    return session
            except (Unreachable, CommandLost, CommandFailed) as error:
                if self._tries >= self.bounds.polls:
                    raise self._given_up(error) from error
                if error.message != said:
                    self.tell(f"not yet: {error.message}")
                    said = error.message

    def _pause(self) -> None:
        """Let a try begin `poll_seconds` after the failed one before it began."""
        early = self._next - self.clock.monotonic()
        if early > 0:
            self.clock.sleep(early)
        self._tries += 1
        self._next = self.clock.monotonic() + self.bounds.poll_seconds

    def _given_up(self, error: TenantryError) -> TenantryError:
        kind = type(error) if isinstance(error, Unreachable) else Unreachable
        return kind(
            f"the new server did not admit the operator in {self._tries} tries: {error.message}",
            where=self.where,
            hint="look at its console with the provider, then provision again",
        )

    def await_first_boot(self, first: FirstContact) -> None:
        """Return when cloud-init has ended well, its warnings told; raises :class:`CommandFailed` with its reasons."""
        deadline = self.clock.monotonic() + self.bounds.cloud_init_seconds
        while True:
            left = deadline - self.clock.monotonic()
            if left <= 0:
                raise self._too_slow()
            try:
                with self.session(first) as session:
                    self._await_in(session, left)
                    return
            except CommandTimedOut as error:
                raise self._too_slow() from error
            except CommandLost as error:
                # The question changes nothing, so it is simply asked again.
                self.tell(f"asking again: {error.message}")

    def _await_in(self, session: Session, seconds: float) -> None:
        output = session.execute("cloud-init status --wait", timeout_seconds=seconds, label="cloud-init status")
        report: Mapping[str, Any] = session.run_script(REPORT, {}, label="read cloud-init's report")
        if output.status not in (DONE, DEGRADED):
            reasons = [*report["errors"], *report["warnings"]] or [output.text.strip(), output.error_text.strip()]
            raise CommandFailed(
                f"cloud-init failed with status {output.status}: {'; '.join(filter(None, reasons))}",
                where=self.where,
                hint="see /var/log/cloud-init.log on the host, correct the template of the user-data, provision again",
            )
        for warning in report["warnings"]:
            self.tell(f"warning of cloud-init: {warning}")
        if output.status == DEGRADED:
            self._require_artefacts(session)

    def _require_artefacts(self, session: Session) -> None:
        """What first boot was to leave must be there if it had recoverable errors."""
        tests = "; ".join(f"[ -e {shlex.quote(path)} ] || echo {shlex.quote(path)}" for path in self.bounds.artefacts)
        missing = session.check(tests or "true", label="look for what first boot leaves").text.split("\n")
        if any(missing):
            raise CommandFailed(
                f"cloud-init had recoverable errors, and these are missing: {', '.join(filter(None, missing))}",
                where=self.where,
                hint="the log has its warnings; the list is provision.artefacts in fleet.yaml",
            )
        self.tell("cloud-init had recoverable errors; all that it must leave is there")

    def _too_slow(self) -> UnknownState:
        return UnknownState(
            f"cloud-init is not done after {self.bounds.cloud_init_seconds:g} s",
            where=self.where,
            hint="see /var/log/cloud-init.log on the host; the bound is provision.cloud_init_seconds in fleet.yaml",
        )
