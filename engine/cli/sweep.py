"""``tenantry sweep``: lets go of what is due, by itself."""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click
import gevent

from engine.cli.failures import report_error
from engine.cli.invocation import Invocation, json_option
from engine.cli.output import print_document, print_line
from engine.cli.timers import caller_of
from engine.errors import ExitCode
from engine.timers.units import STOP_SECONDS, Caller, sweep_unit

if TYPE_CHECKING:
    from engine.environments.due import Due
    from engine.environments.sweep import Sweep, Tick

JOB_SECONDS = 3600.0
"""How long a tick waits for one job before it goes on; the job is left to its end, with its lock."""

POLL_SECONDS = 1.0
STDERR = 2

_ENDED: Mapping[int | None, str] = {
    None: "still at work",
    ExitCode.DONE: "done",
    ExitCode.BUSY: "somebody else is at work on it",
}


@dataclass(frozen=True)
class Starter:
    """Starts jobs as processes of their own, which a signal to this one does not reach."""

    caller: Caller
    stop: threading.Event
    job_seconds: float = JOB_SECONDS
    stop_seconds: float = STOP_SECONDS

    def __call__(self, due: Due) -> int | None:
        arguments = self.caller.arguments(due.subject.kind, due.command, due.subject.id)
        process = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=STDERR, start_new_session=True)
        deadline = time.monotonic() + self.job_seconds
        stopping = False
        while time.monotonic() < deadline:
            if self.stop.is_set() and not stopping:
                stopping, deadline = True, min(deadline, time.monotonic() + self.stop_seconds)
            try:
                return process.wait(timeout=POLL_SECONDS)
            except subprocess.TimeoutExpired:
                continue
        return None


@click.command()
@click.option("--once", is_flag=True, help="Look once and end.")
@click.option("--unit", is_flag=True, help="Print the systemd unit of the service; starts nothing.")
@json_option
@click.pass_obj
def sweep(invocation: Invocation, once: bool, unit: bool, as_json: bool) -> ExitCode:
    """Finish deletes that are due, and delete what was kept long enough; list orphans.

    Without --once it runs until it is ended, looking as often as `environments.sweep_seconds` says. Each job is a
    command of its own. What needs a person is listed and left alone.
    """
    if as_json and not once:
        raise click.UsageError("--json needs --once")
    if once and unit:
        raise click.UsageError("give one of --once and --unit")
    settings, caller = invocation.fleet().settings, caller_of(invocation)
    if unit:
        name, text = sweep_unit(settings, caller)
        print_line(f"# /etc/systemd/system/{name}")
        click.echo(text, nl=False)
        return ExitCode.DONE
    with _stopped_by_signals() as stop:
        found = _sweep(invocation, caller, stop)
        if not once:
            found.serve(settings.environments.sweep_seconds, _show_all)
            return ExitCode.DONE
        tick = found.tick()
    if as_json:
        print_document(document(tick))
    else:
        _show(tick)
        if not (tick.busy or tick.jobs or tick.waiting or tick.orphans or tick.errors):
            print_line("nothing is due")
    _show_errors(tick)
    return tick.exit_code


def document(tick: Tick) -> dict[str, Any]:
    """The document of ``sweep --once``."""
    return {
        "busy": tick.busy,
        "jobs": [
            {
                "uuid": job.due.subject.id,
                "kind": job.due.subject.kind,
                "command": job.due.command,
                "exit_code": job.exit_code,
            }
            for job in tick.jobs
        ],
        "waiting": [
            {"uuid": item.subject.id, "kind": item.subject.kind, "state": item.state.value, "word": item.word}
            for item in tick.waiting
        ],
        "orphans": None
        if tick.orphans is None
        else [
            {
                "kind": item.kind.value,
                "name": item.owned.name,
                "uuid": item.owned.mark.uuid,
                "intent": item.owned.mark.intent_id,
            }
            for item in tick.orphans
        ],
        "errors": [error.message for error in tick.errors],
    }


def _sweep(invocation: Invocation, caller: Caller, stop: threading.Event) -> Sweep:
    from engine.environments.hosting import open_hosting
    from engine.environments.sweep import Sweep

    return Sweep(lambda: open_hosting(invocation.root, invocation.state_directory), Starter(caller, stop), stop)


@contextmanager
def _stopped_by_signals() -> Iterator[threading.Event]:
    """An event that SIGTERM and SIGINT set: a tick ends between two jobs, never within one."""
    stop = threading.Event()
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    watchers = [gevent.signal_handler(number, stop.set) for number in before]
    try:
        yield stop
    finally:
        for watcher in watchers:
            watcher.cancel()
        for number, handler in before.items():
            signal.signal(number, handler)


def _show_all(tick: Tick) -> None:
    _show(tick)
    _show_errors(tick)


def _show_errors(tick: Tick) -> None:
    for error in (*([tick.busy] if tick.busy else []), *(error.message for error in tick.errors)):
        report_error(error)


def _show(tick: Tick) -> None:
    for job in tick.jobs:
        print_line(f"{job.due.subject} {job.due.command}: {_ENDED.get(job.exit_code, f'exit code {job.exit_code}')}")
    for item in tick.waiting:
        print_line(f"{item.subject} is {item.state} and waits for a person: {item.word}")
    for orphan in tick.orphans or ():
        mark = orphan.owned.mark
        print_line(f"orphan {orphan.kind} {orphan.owned.name} of {mark.uuid}, intent {mark.intent_id}")
