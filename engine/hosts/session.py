"""A session: one tenant's live connection, used inside its own greenlet."""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.errors import CommandFailed
from engine.hosts import files, scripts, staging
from engine.hosts.channel import Output, Sink, Source
from engine.hosts.files import Ownership
from engine.hosts.probe import Extra, probe
from engine.hosts.shell import HostShell, Streams, failure
from engine.hosts.status import Status
from engine.registry.model import Tenant
from engine.registry.settings import Settings

if TYPE_CHECKING:
    from pyinfra.api.host import Host

__all__ = ["Output", "Session", "session_of"]


class Session:
    """What the engine can do on one tenant's host, as root.

    `host` is the tenant in pyinfra: operations and facts on it pass through the same connection and, once
    the session is claimed, under the same host-side lock. Nothing is ever sent twice by itself.
    """

    def __init__(self, tenant: Tenant, settings: Settings, host: Host, shell: HostShell) -> None:
        self.tenant = tenant
        self.settings = settings
        self.host = host
        self._shell = shell

    def execute(
        self,
        command: str,
        *,
        stdin: bytes | Source | None = None,
        stdout: Sink | None = None,
        timeout_seconds: float | None = None,
        label: str = "",
        direct: bool = False,
    ) -> Output:
        """Run a shell command; a status other than zero is returned, not raised.

        Input given as bytes arrives whole or the command is not started; a stream may end early if the
        connection does. `stdout` takes the output instead of capturing it. `label` stands for the command
        in messages and in the host's lock, where its text must not be seen. A `direct` command is not kept
        running once the connection is lost. Raises :class:`CommandLost`, :class:`CommandTimedOut` (default
        bound ``transport.command_seconds``), :class:`StaleRun` or :class:`Busy`.
        """
        return self._shell.execute(command, Streams(stdin, stdout, direct=direct), label=label, timeout=timeout_seconds)

    def check(
        self,
        command: str,
        *,
        stdin: bytes | Source | None = None,
        stdout: Sink | None = None,
        timeout_seconds: float | None = None,
        label: str = "",
    ) -> Output:
        """Like :meth:`execute`, but raises :class:`CommandFailed` with the last error lines."""
        return self._shell.check(command, Streams(stdin, stdout), label=label, timeout=timeout_seconds)

    def run_script(
        self,
        script: str,
        parameters: Mapping[str, Any],
        *,
        timeout_seconds: float | None = None,
        label: str = "script",
    ) -> Any:
        """Run a Python script of the standard library on the host; returns what it leaves in ``RESULT``.

        It finds `parameters` (JSON, over standard input) in ``PARAMETERS``. Raises :class:`CommandFailed`
        if it ends with an exception or without an answer.
        """
        nonce, content, program = _prepared(script, parameters)
        output = self._shell.check(program, Streams(stdin=content), label=label, timeout=timeout_seconds)
        return self._answer(output, nonce, label)

    def ask_script(self, script: str, parameters: Mapping[str, Any], *, label: str = "question") -> Any:
        """Like :meth:`run_script`, for a script that changes nothing: without the lock, in the time of a probe."""
        nonce, content, program = _prepared(script, parameters)
        bound = self.settings.transport.probe_seconds
        output = self._shell.read_only(shlex.split(program), Streams(stdin=content), label=label, timeout=bound)
        if output.status != 0:
            raise failure(output, label, self._shell.where)
        return self._answer(output, nonce, label)

    def _answer(self, output: Output, nonce: str, label: str) -> Any:
        try:
            return scripts.read_frame(output.stdout, nonce)
        except scripts.FrameError as error:
            raise CommandFailed(f"the {label} gave no answer: {error}", where=self._shell.where) from error

    def probe(self, extra: Extra | None = None) -> Status:
        """Ask the tenant for its status; changes nothing and takes no lock. Raises :class:`ProbeFailed`."""
        return probe(self._shell, self.settings, self.tenant, extra or Extra())

    def claim(self, run_id: str) -> None:
        """From here on every command runs under the host-side lock with `run_id`.

        Waits for a command that outlived its connection up to ``transport.survivor_seconds``, then raises
        :class:`Busy` naming it. A run that claims later makes this one stale.
        """
        self._shell.claim(run_id)

    def renew(self) -> None:
        """Go on over a new connection with the same claim: proof that the host still lets an operator in.

        Raises :class:`Unreachable`.
        """
        self._shell.renew()

    def stage(self, directory: Path) -> str:
        """Ship a directory into a new private one on the host; returns its path there."""
        return staging.stage(self._shell, directory)

    def unstage(self, path: str) -> None:
        """Remove what :meth:`stage` returned; refuses any other path."""
        staging.unstage(self._shell, path)

    def read_file(self, path: str) -> bytes | None:
        """A file's whole content, or None where it is absent or a link stands in its place."""
        return files.read_file(self._shell, path)

    def write_file(self, path: str, content: bytes, *, owner: str, group: str, mode: str) -> None:
        """Replace a file, or a link in its place, atomically and durably; `mode` is octal, such as ``0644``."""
        files.write_file(self._shell, path, content, Ownership(owner, group, mode))

    def close(self) -> None:
        """End the connection."""
        self._shell.close()


def _prepared(script: str, parameters: Mapping[str, Any]) -> tuple[str, bytes, str]:
    """A nonce, what goes to the program's standard input, and the program."""
    nonce, content = secrets.token_hex(8), scripts.payload(script, parameters)
    return nonce, content, scripts.command(nonce, len(content))


def session_of(host: Host) -> Session:
    """The session behind a connected pyinfra host of our connector, in the engine and in pyinfra's CLI."""
    session: Session = host.connector.session()
    return session
