"""The reclamation sweep: looks at what is due, and has each of it done by a process of its own.

A tick decides and starts, and does nothing to an environment itself: a job that dies frees its lock, and a tick that
dies leaves its job to its end. Nothing that is raised in a tick gets out of it, so the next one always comes.
"""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from engine.clock import new_run_id
from engine.environments.due import EXPIRE_BACKUPS, Due, Waiting, due_by_journal
from engine.environments.hosting import Hosting, with_due_copies
from engine.environments.orphans import Orphan, orphans
from engine.errors import Busy, ExitCode, TenantryError, most_serious
from engine.subject import Subject

SWEEP = Subject("sweep", "environments")
"""What a tick locks, so that none overlaps another one, of this process or of any other on this state directory."""

Source = Callable[[Hosting], Iterable[Due | Waiting]]
"""Says what is due of one sort; what it raises is told, and stops no other one."""

Start = Callable[[Due], int | None]
"""Starts the process of a job and waits for it: its exit code, or None if it was left to itself."""


def by_journal(hosting: Hosting) -> tuple[Due | Waiting, ...]:
    """Deletes, and data whose retention is over."""
    return due_by_journal(hosting.journal, hosting.clock.now())


def by_copies(hosting: Hosting) -> tuple[Due | Waiting, ...]:
    """Copies that are older than the fleet keeps them, and what is left of some that were never finished."""
    return tuple(Due(Subject(row.kind, row.uuid), EXPIRE_BACKUPS) for row in with_due_copies(hosting))


SOURCES: tuple[Source, ...] = (by_journal, by_copies)


@dataclass(frozen=True)
class JobEnd:
    """How the process of a job ended; no `exit_code` is one that was still at work when the sweep went on."""

    due: Due
    exit_code: int | None

    @property
    def is_wrong(self) -> bool:
        # Somebody else who is at work on it does the same, or something that comes first; the next tick looks again.
        return self.exit_code not in (ExitCode.DONE, ExitCode.BUSY)


@dataclass(frozen=True)
class Wrong:
    """What went wrong in a tick itself, and the exit code that a command would have ended with because of it."""

    message: str
    exit_code: ExitCode


@dataclass
class Tick:
    """What one tick did and found. No `orphans` is that the providers' listings could not be read."""

    busy: str | None = None
    jobs: list[JobEnd] = field(default_factory=list)
    waiting: list[Waiting] = field(default_factory=list)
    orphans: tuple[Orphan, ...] | None = None
    errors: list[Wrong] = field(default_factory=list)
    next_seconds: float | None = None

    @property
    def worked(self) -> bool:
        return any(job.exit_code == ExitCode.DONE for job in self.jobs)

    @property
    def went_wrong(self) -> bool:
        return bool(self.errors) or any(job.is_wrong for job in self.jobs)

    @property
    def exit_code(self) -> ExitCode:
        """The exit code that stands for the whole tick."""
        if self.busy:
            return ExitCode.BUSY
        known = {int(code): code for code in ExitCode}
        wrong = (known.get(job.exit_code or ExitCode.FAILED, ExitCode.FAILED) for job in self.jobs if job.is_wrong)
        return most_serious((*wrong, *(error.exit_code for error in self.errors)))

    @contextmanager
    def telling(self, what: str) -> Iterator[None]:
        """Note what the body raises, and go on. The text of an error that is not ours could quote anything."""
        try:
            yield
        except TenantryError as error:
            self.errors.append(Wrong(f"{what}: {error}", error.exit_code))
        except Exception as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            text = f"{what}: internal error: {type(error).__name__} in {place.name}, line {place.lineno}"
            self.errors.append(Wrong(text, ExitCode.FAILED))


@dataclass(frozen=True)
class Sweep:
    """Ticks over one fleet, which each of them reads anew with `open_fleet`; `stop` ends one between two jobs."""

    open_fleet: Callable[[], Hosting]
    start: Start
    stop: threading.Event
    sources: tuple[Source, ...] = SOURCES

    def tick(self) -> Tick:
        """Do what is due now, one job after the other; never raises.

        A receipt is written only if it did work or something went wrong.
        """
        tick = Tick()
        with tick.telling("fleet"):
            hosting = self.open_fleet()
            tick.next_seconds = hosting.settings.sweep_seconds
            try:
                with hosting.locks.hold(SWEEP, job="sweep", run=new_run_id(hosting.clock)):
                    self._work(hosting, tick)
            except Busy as error:
                tick.busy = str(error)
        return tick

    def serve(self, interval_seconds: float, show: Callable[[Tick], None]) -> None:
        """Tick until `stop` is set, waiting as long as the settings say: `interval_seconds` until they were read."""
        while not self.stop.is_set():
            tick = self.tick()
            with tick.telling("output"):
                show(tick)
            interval_seconds = tick.next_seconds or interval_seconds
            self.stop.wait(interval_seconds)

    def _work(self, hosting: Hosting, tick: Tick) -> None:
        if not hosting.journal_file.exists():
            tick.orphans = ()
            return
        for due in self._due(hosting, tick):
            if self.stop.is_set():
                break
            with tick.telling(f"{due.command} {due.subject}"):
                tick.jobs.append(JobEnd(due, self.start(due)))
        if not self.stop.is_set():
            with tick.telling("orphans"):
                tick.orphans = orphans(hosting.parts)
        if tick.worked or tick.went_wrong:
            with tick.telling("receipt"):
                done = sum(job.exit_code == ExitCode.DONE for job in tick.jobs)
                word = f"{done} of {len(tick.jobs)} jobs, {len(tick.errors)} errors"
                hosting.journal.receipt("sweep", "failed" if tick.went_wrong else "done", word)

    def _due(self, hosting: Hosting, tick: Tick) -> list[Due]:
        found: list[Due] = []
        for source in self.sources:
            with tick.telling(f"what is due {source.__name__.replace('_', ' ')}"):
                for item in source(hosting):
                    if isinstance(item, Due):
                        found.append(item)
                    else:
                        tick.waiting.append(item)
        return found
