"""One binary-safe exec channel: bytes in, bytes out, the real exit status, or an outcome that says "lost".

Commands, facts, file transfer and streams all pass here. Memory is constant: standard input is read
in blocks, standard output goes to a sink or is captured up to a limit. There is no pseudo-terminal
unless asked for, because one would corrupt binary data.
"""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

import paramiko

from engine.errors import CommandLost, CommandTimedOut, Unreachable

BLOCK = 64 * 1024
# All that the window lets arrive: a part taken from the front would have paramiko move the rest for each one.
WHOLE_WINDOW = 4 * 1024 * 1024
_OPEN_ATTEMPTS = 6
_OPEN_PAUSE_SECONDS = 0.1
_LABEL_CHARACTERS = 200


class Source(Protocol):
    """What standard input is read from."""

    def read(self, size: int, /) -> bytes: ...


class Sink(Protocol):
    """What standard output is written to."""

    def write(self, data: bytes, /) -> object: ...


@dataclass(frozen=True)
class Output:
    """How a command ended.

    `truncated` says that more was printed than the captured bytes hold, `began` that the request's mark has come.
    """

    status: int
    stdout: bytes
    stderr: bytes
    truncated: bool = False
    began: bool = False

    @property
    def text(self) -> str:
        """Standard output as text; undecodable bytes are replaced."""
        return self.stdout.decode(errors="replace")

    @property
    def error_text(self) -> str:
        """Standard error as text; undecodable bytes are replaced."""
        return self.stderr.decode(errors="replace")


@dataclass(frozen=True)
class Request:
    """One command as the host's login shell gets it.

    `label` is what errors call it: one line, never a secret. `observer` sees every block of output
    as it comes, with the stream's name. `mark` is what the command prints before its own output:
    everything up to it is the noise of the login shell's start files and is dropped.
    """

    command: str
    label: str
    timeout_seconds: float
    output_limit_bytes: int
    stdin: bytes | Source | None = None
    stdout: Sink | None = None
    observer: Callable[[str, bytes], None] | None = None
    terminal: bool = False
    mark: bytes = b""


def short(label: str) -> str:
    """A label on one line of bounded length."""
    line = " ".join(label.split())
    return line if len(line) <= _LABEL_CHARACTERS else line[: _LABEL_CHARACTERS - 1] + "…"


def run(transport: paramiko.Transport, request: Request, where: str) -> Output:
    """Run `request` to its end.

    Raises :class:`CommandLost` if the connection ends before the exit status, :class:`CommandTimedOut`
    after its bound, :class:`Unreachable` if the host opens no channel (then nothing was run). A command
    is never sent twice.
    """
    deadline = time.monotonic() + request.timeout_seconds
    channel = _open(transport, request, where)
    try:
        _start(channel, request, where)
        return _Exchange(channel, request, where, deadline).complete()
    finally:
        channel.close()


def _open(transport: paramiko.Transport, request: Request, where: str) -> paramiko.Channel:
    """Open a channel; a host at its limit of sessions is asked again, since nothing was run yet."""
    for attempt in range(1, _OPEN_ATTEMPTS + 1):
        try:
            return transport.open_session(timeout=request.timeout_seconds)
        except paramiko.ChannelException as error:
            if attempt == _OPEN_ATTEMPTS:
                raise Unreachable(
                    f"the host opens no further session: {error.text}",
                    where=where,
                    hint="raise MaxSessions in its sshd_config",
                ) from error
            time.sleep(_OPEN_PAUSE_SECONDS * attempt)
        except (OSError, EOFError, paramiko.SSHException) as error:
            reason = str(error) or type(error).__name__
            raise CommandLost(
                f"the connection was lost before `{request.label}` was sent: {reason}",
                where=where,
                hint="nothing was run; try again",
            ) from error
    raise AssertionError("unreachable")


def _start(channel: paramiko.Channel, request: Request, where: str) -> None:
    # paramiko waits for the answer to an exec request without a bound of its own.
    watch = threading.Timer(request.timeout_seconds, channel.close)
    watch.daemon = True
    watch.start()
    try:
        if request.terminal:
            channel.get_pty()
        channel.exec_command(request.command.encode())
    except (OSError, EOFError, paramiko.SSHException) as error:
        raise _lost(request, where) from error
    finally:
        watch.cancel()


def _lost(request: Request, where: str) -> CommandLost:
    return CommandLost(
        f"the connection was lost while `{request.label}` ran: its outcome is unknown",
        where=where,
        hint="it may still run on the host; the next run waits for it",
    )


class _Capture:
    """The last bytes of a stream, up to a limit: the end of an output tells most about a failure."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._data = bytearray()
        self.truncated = False

    def write(self, data: bytes) -> None:
        self._data += data
        # Trimming at twice the limit keeps the cost of moving bytes linear.
        if len(self._data) > 2 * self._limit:
            self._trim()

    def value(self) -> bytes:
        self._trim()
        return bytes(self._data)

    def _trim(self) -> None:
        if len(self._data) > self._limit:
            del self._data[: -self._limit]
            self.truncated = True


class _AfterMark:
    """Lets pass what comes after a mark; with an empty mark, everything."""

    def __init__(self, mark: bytes) -> None:
        self._mark = mark
        self._seen = b""
        self._open = not mark
        self.found = False

    def __call__(self, data: bytes) -> bytes:
        if self._open:
            return data
        _, found, rest = (self._seen + data).partition(self._mark)
        if not found:
            # The mark may be cut by the end of a block: its length less one is enough to know it again.
            self._seen = (self._seen + data)[-(len(self._mark) - 1) :]
            return b""
        self._open = self.found = True
        return rest


class _Wakeup:
    """Lets two buffers of a channel share one event: neither may clear what the other has set."""

    def __init__(self, event: threading.Event) -> None:
        self.set = event.set

    def clear(self) -> None:
        """Leave the event alone; the reader clears it before it looks."""


class _Exchange:
    """The three streams of one started command, moved at the same time until the host closes the channel."""

    def __init__(self, channel: paramiko.Channel, request: Request, where: str, deadline: float) -> None:
        self._channel = channel
        self._request = request
        self._where = where
        self._deadline = deadline
        self._stdout = _Capture(request.output_limit_bytes)
        self._stderr = _Capture(request.output_limit_bytes)
        self._own_output = _AfterMark(request.mark)
        self._source_error: Exception | None = None
        self._activity = threading.Event()
        for buffer in (channel.in_buffer, channel.in_stderr_buffer):
            buffer.set_event(_Wakeup(self._activity))  # type: ignore[arg-type]

    def complete(self) -> Output:
        """Move bytes until the end; raises :class:`CommandLost` or :class:`CommandTimedOut`."""
        self._begin_input()
        while True:
            self._activity.clear()
            # Closed before the last look at the buffers: nothing can arrive after that.
            closed = self._channel.closed
            if self._drain():
                # What prints without an end is bounded too.
                if time.monotonic() > self._deadline:
                    raise self._timed_out()
                continue
            if closed:
                return self._outcome()
            if not self._activity.wait(max(0.0, self._deadline - time.monotonic())):
                raise self._timed_out()

    def _drain(self) -> bool:
        """Take what has arrived on both streams; False if there was nothing."""
        taken = False
        if self._channel.recv_ready():
            data = self._own_output(self._channel.recv(WHOLE_WINDOW))
            (self._request.stdout or self._stdout).write(data)
            self._observe("stdout", data)
            taken = True
        if self._channel.recv_stderr_ready():
            data = self._channel.recv_stderr(WHOLE_WINDOW)
            self._stderr.write(data)
            self._observe("stderr", data)
            taken = True
        return taken

    def _observe(self, stream: str, data: bytes) -> None:
        if self._request.observer:
            self._request.observer(stream, data)

    def _begin_input(self) -> None:
        stdin = self._request.stdin
        if isinstance(stdin, bytes):
            stdin = io.BytesIO(stdin)
        if stdin is None:
            self._end_input()
        else:
            # Its own thread: a command may print more than fits in the window before it reads on.
            threading.Thread(target=self._feed, args=(stdin,), daemon=True).start()

    def _feed(self, source: Source) -> None:
        try:
            while block := source.read(BLOCK):
                self._channel.sendall(block)
        except Exception as error:
            if not self._channel.closed:
                # The source failed, not the channel: without its end the command's outcome means nothing.
                self._source_error = error
                self._channel.close()
            return
        self._end_input()

    def _end_input(self) -> None:
        with suppress(OSError, EOFError, paramiko.SSHException):
            self._channel.shutdown_write()

    def _outcome(self) -> Output:
        if self._source_error:
            raise self._source_error
        if self._channel.exit_status < 0:
            raise _lost(self._request, self._where)
        stdout, stderr = self._stdout.value(), self._stderr.value()
        truncated = self._stdout.truncated or self._stderr.truncated
        return Output(self._channel.exit_status, stdout, stderr, truncated, began=self._own_output.found)

    def _timed_out(self) -> CommandTimedOut:
        label, seconds = self._request.label, self._request.timeout_seconds
        if self._channel.exit_status_ready():
            return CommandTimedOut(
                f"`{label}` ended with status {self._channel.exit_status}, but something it started "
                f"still holds its output after {seconds:g} s",
                where=self._where,
                hint="redirect the output of what it leaves behind in the background",
            )
        return CommandTimedOut(
            f"`{label}` did not end within {seconds:g} s: its outcome is unknown",
            where=self._where,
            hint="it may still run on the host; the next run waits for it",
        )
