"""Runs one job for its timer and tells the operator what is new about it."""

from __future__ import annotations

import os
import select
import subprocess
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from engine.clock import Clock, iso
from engine.errors import ExitCode, RecordFailed, TenantryError
from engine.secrets import SecretSources
from engine.timers.jobs import Job
from engine.timers.messages import compose, plainer
from engine.timers.reports import Contact, Failure, Knowledge, News, Report, error_lines, read_report, write_report
from engine.timers.units import Caller
from engine.updater.notify import Delivery, Sender

Kept = TypeVar("Kept")

STDERR = 2
KEPT_LINES = 500
LINE_BYTES = 4096


@dataclass(frozen=True)
class Watched:
    """What one run of a job came to; `delivery` is None where nothing was sent."""

    report: Report
    news: News | None
    delivery: Delivery | None

    @property
    def exit_code(self) -> int:
        """The job's own, as a shell says it: 128 and the signal where one ended it."""
        code = self.report.exit_code
        return code if code >= 0 else 128 - code


@dataclass(frozen=True)
class Watch:
    """Everything that a job's run needs.

    `contact` is None where the settings cannot be read: the last known one is used. `names` are words that tell
    failures apart although they may hold digits, such as slugs. `say` shows a line of the job or about it.
    """

    caller: Caller
    clock: Clock
    contact: Contact | None
    names: Collection[str]
    say: Callable[[str], None]
    send: Sender

    def run(self, job: Job, *, quiet_output: bool = False) -> Watched:
        """Run `job` to its end; what becomes of the message about it never changes the result.

        With `quiet_output` what it prints to standard output goes to standard error.
        """
        failure = self._outcome(job, STDERR if quiet_output else None)
        path = report_file(self.caller.state_directory, job)
        before = self._kept(lambda: read_report(path))
        contact = self.contact or (before.contact if before else None) or Contact()
        report = self._report(job, before, failure, contact)
        news = report.news()
        if news is None:
            self._kept(lambda: write_report(path, report))
            return Watched(report, None, None)
        # Written before the attempt: if this process dies in it, the next run tells it once more.
        self._kept(lambda: write_report(path, replace(report, told=Knowledge.UNCERTAIN)))
        delivery = self._deliver(message(report, news, contact, self.caller), contact)
        told = _told(report, delivery)
        self._kept(lambda: write_report(path, told))
        return Watched(told, news, delivery)

    def _outcome(self, job: Job, output: int | None) -> Failure | None:
        lines: deque[str] = deque(maxlen=KEPT_LINES)

        def hear(line: str) -> None:
            lines.append(line)
            self.say(line)

        try:
            code = _run(self.caller.arguments(*job.arguments), hear, output)
        except OSError as error:
            hear(f"error: {self.caller.command}: {error.strerror or error}")
            code = ExitCode.FAILED
        return Failure(code, error_lines(lines)) if code else None

    def _report(self, job: Job, before: Report | None, failure: Failure | None, contact: Contact) -> Report:
        now = iso(self.clock.now())
        report = before or Report(job.name, now, 0)
        report = replace(report, job=job.name, finished_at=now, contact=contact)
        if failure is None:
            return replace(report, exit_code=0, failure=None)
        return replace(
            report,
            exit_code=failure.exit_code,
            failure=failure.key(self.names),
            failing_since=report.failing_since if report.failure else now,
            lines=failure.lines,
        )

    def _deliver(self, text: str, contact: Contact) -> Delivery | None:
        if contact.target is None:
            return None
        sources = SecretSources(self.caller.root, Path(contact.age_identity), contact.command_seconds)
        try:
            target = sources.resolve(contact.target).decode().strip()
            delivery = self.send(target, text)
            if delivery is Delivery.REFUSED:
                # A service may refuse what looks like broken markup to it.
                delivery = self.send(target, plainer(text))
        except TenantryError as error:
            self.say(f"the operator is not told: {error}")
            return Delivery.REFUSED
        except Exception as error:
            # Whatever a message meets, the job has ended as it has. No text: it could quote the target.
            self.say(f"the operator is not told: {type(error).__name__}")
            return Delivery.UNKNOWN
        if delivery is not Delivery.DELIVERED:
            self.say(f"the message to the operator is {delivery.value}; the next run tries again")
        return delivery

    def _kept(self, action: Callable[[], Kept]) -> Kept | None:
        """The state of a job is a log: that it cannot be kept must not change how the job ended."""
        try:
            return action()
        except RecordFailed as error:
            self.say(f"the report is not kept: {error}")
            return None


def report_file(state_directory: Path, job: Job) -> Path:
    return state_directory / "timers" / f"{job.name}.json"


def message(report: Report, news: News, contact: Contact, caller: Caller) -> str:
    """The text for the operator, within the contact's limit."""
    log = f"journalctl -u {caller.prefix}{report.job}.service"
    failure = Failure(report.exit_code, report.lines)
    match news:
        case News.RECOVERED:
            since = f"It had failed since {report.failing_since}."
            return compose(f"{contact.brand}: {report.job} works again", (since,), "", contact.limit)
        case News.CHANGED:
            title = f"{contact.brand}: {report.job} fails in another way, {failure.ending}"
        case News.FAILED:
            title = f"{contact.brand}: {report.job} failed, {failure.ending}"
    return compose(title, report.lines, log, contact.limit)


def _told(report: Report, delivery: Delivery | None) -> Report:
    if delivery is Delivery.DELIVERED or (delivery is None and report.failure is None):
        told = Knowledge.FAILURE if report.failure else Knowledge.WORKS
        return replace(report, told=told, told_failure=report.failure)
    return replace(report, told=Knowledge.UNCERTAIN, told_failure=None)


def _run(argv: Sequence[str], hear: Callable[[str], None], output: int | None) -> int:
    """Run a command, hand every line of its error output to `hear`, and return its status.

    The command has a session of its own, so that nobody but this process ends it; an interruption is handed on, and
    waits for what the command then cleans up.
    """
    with subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.PIPE, start_new_session=True
    ) as process:
        try:
            return _heard(process, hear)
        except KeyboardInterrupt:
            process.terminate()
            _heard(process, hear)
            raise


def _heard(process: subprocess.Popen[bytes], hear: Callable[[str], None]) -> int:
    assert process.stderr is not None
    rest = b""
    while True:
        # Something that the command left running may hold the pipe open: the command's end is enough.
        ready, _, _ = select.select([process.stderr], [], [], 1)
        if not ready and process.poll() is not None:
            break
        piece = os.read(process.stderr.fileno(), 65536) if ready else None
        if piece == b"":
            break
        *lines, rest = (rest + (piece or b"")).split(b"\n")
        for line in lines:
            hear(_shown(line))
        rest = rest[:LINE_BYTES]
    if rest:
        hear(_shown(rest))
    return process.wait()


def _shown(line: bytes) -> str:
    return line[:LINE_BYTES].decode(errors="replace").rstrip()
