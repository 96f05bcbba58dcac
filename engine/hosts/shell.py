"""Root's shell on one host: privileges, locale, time bounds, and the host-side lock once it is claimed."""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from engine.clock import Clock
from engine.errors import Busy, CommandFailed, CommandLost, StaleRun, Unreachable
from engine.hosts import host_lock
from engine.hosts.channel import Output, Request, Sink, Source, short
from engine.hosts.connection import Connection
from engine.hosts.host_lock import Guarded, Refusal, Refused
from engine.hosts.privilege import as_root, check_privilege, shell
from engine.registry.settings import Transport as Bounds

_ERROR_LINES = 12


@dataclass(frozen=True)
class Streams:
    """Where a command's input comes from and its output goes. Bytes as input arrive whole or not at all.

    A `direct` command notices when the connection ends, instead of going on without it; so does one with a
    `terminal`.
    """

    stdin: bytes | Source | None = None
    stdout: Sink | None = None
    observer: Callable[[str, bytes], None] | None = None
    terminal: bool = False
    direct: bool = False


NO_STREAMS = Streams()


@dataclass(frozen=True)
class _Job:
    label: str
    streams: Streams = NO_STREAMS
    timeout: float | None = None


class HostShell:
    """Runs commands as root over one connection, one at a time."""

    def __init__(self, connection: Connection, bounds: Bounds, clock: Clock) -> None:
        self._connection = connection
        self._bounds = bounds
        self._clock = clock
        self._run: str | None = None
        self.reconnect: Callable[[], Connection] | None = None
        """Makes another connection to the same host; needed by :meth:`renew` alone."""
        self.before_command: Callable[[], None] | None = None
        """Called before each command that may change the host; pyinfra's CLI takes its lock there."""

    @property
    def where(self) -> str:
        return str(self._connection.target)

    @property
    def output_limit_bytes(self) -> int:
        """How much of a command's output is kept."""
        return self._bounds.output_limit_bytes

    @property
    def claimed_by(self) -> str | None:
        """The run that claimed the host through this shell."""
        return self._run

    def claim(self, run_id: str) -> None:
        """Make `run_id` the only run whose commands the host starts.

        Waits for a command that outlived its connection, up to ``transport.survivor_seconds``, then raises
        :class:`Busy` naming it. It is never killed.
        """
        label = f"claim by run {run_id}"
        output = self._under_lock(lambda nonce: host_lock.claim(run_id, nonce), _Job(label))
        if output.status != 0:
            raise failure(output, label, self.where)
        self._run = run_id

    def renew(self) -> None:
        """Go on over a new connection, with the same claim; raises :class:`Unreachable` if none can be made."""
        if self.reconnect is None:
            raise Unreachable("this connection cannot be made again", where=self.where)
        before, self._connection = self._connection, self.reconnect()
        before.close()

    def execute(
        self, command: str, streams: Streams = NO_STREAMS, *, label: str = "", timeout: float | None = None
    ) -> Output:
        """Run the shell command `command`; a status other than zero is returned, not raised.

        `label` stands for the command in messages and on the host. Raises :class:`CommandLost`,
        :class:`CommandTimedOut`, and in a claimed shell :class:`StaleRun` or :class:`Busy`.
        """
        label = label or command
        if self.before_command:
            self.before_command()
        job = _Job(label, streams, timeout)
        run_id = self._run
        if run_id is None:
            mark = secrets.token_hex(8)
            return self._send(shell(command, mark), job, mark)
        size = len(streams.stdin) if isinstance(streams.stdin, bytes) else None
        guarded = Guarded(command, label, size, direct=streams.terminal or streams.direct)
        return self._under_lock(lambda nonce: host_lock.guard(run_id, nonce, guarded), job)

    def check(
        self, command: str, streams: Streams = NO_STREAMS, *, label: str = "", timeout: float | None = None
    ) -> Output:
        """Like :meth:`execute`, but raises :class:`CommandFailed` with the last error lines."""
        output = self.execute(command, streams, label=label, timeout=timeout)
        if output.status != 0:
            raise failure(output, label or command, self.where)
        return output

    def read_only(
        self,
        program: Sequence[str],
        streams: Streams = NO_STREAMS,
        *,
        label: str,
        timeout: float | None = None,
    ) -> Output:
        """Run a program that changes nothing: without the lock, and without a shell in between."""
        return self._send(shlex.join(program), _Job(label, streams, timeout))

    def close(self) -> None:
        """End the connection."""
        self._connection.close()

    @property
    def _user(self) -> str:
        return self._connection.target.user

    def _under_lock(self, program: Callable[[str], str], job: _Job) -> Output:
        """Send `program` of a fresh nonce until the lock is free; a refused one was not started."""
        give_up = self._clock.monotonic() + self._bounds.survivor_seconds
        # A stream is used up by a refused attempt, so it has only one.
        repeatable = job.streams.stdin is None or isinstance(job.streams.stdin, bytes)
        while True:
            nonce = secrets.token_hex(8)
            output = self._send(program(nonce), job, mark=nonce)
            refused = host_lock.refusal(output, nonce)
            if refused is None:
                return output
            if refused.reason is not Refusal.BUSY or not repeatable or self._clock.monotonic() >= give_up:
                raise self._refused_error(refused, job.label)
            self._clock.sleep(self._bounds.survivor_poll_seconds)

    def _refused_error(self, refused: Refused, label: str) -> Exception:
        if refused.reason is Refusal.CUT:
            return CommandLost(f"the input of `{label}` did not arrive whole, so it was not run", where=self.where)
        if refused.reason is Refusal.STALE:
            return StaleRun(
                f"run {refused.run or '(none)'} has claimed the host after run {self._run}",
                where=self.where,
                hint="this run must not touch the host any more; start a new one",
            )
        command = f", running `{refused.command}`" if refused.command else ""
        return Busy(
            f"a command of run {refused.run or 'unknown'} still holds the host{command}",
            where=self.where,
            hint=f"it was awaited for {self._bounds.survivor_seconds:g} s and is never killed",
        )

    def _send(self, program: str, job: _Job, mark: str = "") -> Output:
        request = Request(
            command=as_root(program, self._user),
            label=short(job.label),
            timeout_seconds=job.timeout if job.timeout is not None else self._bounds.command_seconds,
            output_limit_bytes=self._bounds.output_limit_bytes,
            stdin=job.streams.stdin,
            stdout=job.streams.stdout,
            observer=job.streams.observer,
            terminal=job.streams.terminal,
            mark=mark.encode(),
        )
        output = self._connection.run(request)
        check_privilege(output, self._user, self.where)
        return output


def failure(output: Output, label: str, where: str) -> CommandFailed:
    """The error that tells how a command failed: its status and last error lines, never its input."""
    lines = [line.strip() for line in output.error_text.splitlines() if line.strip()][-_ERROR_LINES:]
    reason = " | ".join(lines) or "it printed no error"
    return CommandFailed(f"`{short(label)}` ended with status {output.status}: {reason}", where=where)
