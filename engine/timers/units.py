"""The systemd units of a fleet's jobs, as text."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.registry.settings import Settings
from engine.registry.text import is_unsafe
from engine.render.filters import unit
from engine.timers.jobs import JOBS, Job

STOP_SECONDS = 120.0
"""How long a job that runs is waited for when the sweep, or the job's own timer, is told to end."""

NEVER = "never"
"""The calendar event of a job that has no timer."""

_PLAIN = re.compile(r"[A-Za-z0-9_@+=:,./-]+", re.ASCII)


@dataclass(frozen=True)
class Caller:
    """How a timer reaches this installation: absolute paths, and the user whose files they are (None: root)."""

    command: Path
    root: Path
    state_directory: Path
    user: str | None = None

    @property
    def id(self) -> str:
        """Six hexadecimal digits that mark the units of this fleet and state directory on the machine."""
        places = f"{self.root.resolve()}\0{self.state_directory.resolve()}"
        return hashlib.sha256(places.encode(errors="surrogateescape")).hexdigest()[:6]

    @property
    def prefix(self) -> str:
        """What the name of every unit of this fleet begins with."""
        return f"tenantry-{self.id}-"

    def arguments(self, *more: str) -> tuple[str, ...]:
        """The command line of ``tenantry`` on this fleet."""
        return (str(self.command), "-C", str(self.root), "--state-dir", str(self.state_directory), *more)


@dataclass(frozen=True)
class JobUnits:
    """One job's service and timer: file names and whole texts."""

    job: Job
    calendar: str
    names: tuple[str, str]
    service: str
    timer: str

    @property
    def files(self) -> tuple[tuple[str, str], ...]:
        """Name and text of both."""
        return tuple(zip(self.names, (self.service, self.timer), strict=True))


def units_of(settings: Settings, caller: Caller) -> tuple[JobUnits, ...]:
    """The units of every job that is ever to run, in the order of the table."""
    return tuple(_units(settings, caller, job) for job in JOBS if job.calendar(settings.timers) != NEVER)


def sweep_unit(settings: Settings, caller: Caller) -> tuple[str, str]:
    """Name and text of the service that sweeps hosted environments; it is none of the timers' units.

    At its end only the sweep is told, and a job is left to its own: one that was killed could leave an effect of
    which nobody knows the outcome.
    """
    user = f"User={_text(caller.user)}\n" if caller.user else ""
    return (
        f"tenantry-sweep-{caller.id}.service",
        f"""\
[Unit]
Description={_text(f"Tenantry: reclamation sweep of {settings.brand} ({caller.root})")}
Wants=network-online.target
After=network-online.target

[Service]
{user}ExecStart={_command_line(caller.arguments("sweep"))}
Restart=always
RestartSec=60s
KillMode=process
TimeoutStopSec={int(STOP_SECONDS) + 30}s

[Install]
WantedBy=multi-user.target
""",
    )


def _units(settings: Settings, caller: Caller, job: Job) -> JobUnits:
    name = f"{caller.prefix}{job.name}"
    title = _text(f"Tenantry: {job.summary} of {settings.brand} ({caller.root})")
    calendar = job.calendar(settings.timers)
    delay = settings.timers.randomized_delay_seconds
    names = (f"{name}.service", f"{name}.timer")
    return JobUnits(job, calendar, names, _service(title, caller, job), _timer(title, calendar, delay))


def _service(title: str, caller: Caller, job: Job) -> str:
    user = f"User={_text(caller.user)}\n" if caller.user else ""
    # The colon: no variable of the environment is put in. OOMPolicy: of a job that ran out of memory, the watcher
    # must be left to tell. KillMode: the watcher hands the end on, and ssh outlives it while the job cleans up.
    return f"""\
[Unit]
Description={title}
Wants=network-online.target
After=network-online.target

[Service]
Type=oneshot
{user}ExecStart={_command_line(caller.arguments("timers", "run", job.name))}
OOMPolicy=continue
KillMode=mixed
TimeoutStopSec={int(STOP_SECONDS) + 30}s
"""


def _timer(title: str, calendar: str, delay_seconds: float) -> str:
    whole = float(delay_seconds).is_integer()
    delay = f"{int(delay_seconds)}s" if whole else f"{round(delay_seconds * 1000)}ms"
    # A missed night is made up for at boot, when the clock may still be wrong. The target is not wanted here: that
    # is for what waits for the time, such as systemd-time-wait-sync, and an administrator's decision.
    return f"""\
[Unit]
Description={title}
After=time-sync.target

[Timer]
OnCalendar={_text(calendar)}
RandomizedDelaySec={delay}
Persistent=true

[Install]
WantedBy=timers.target
"""


def _command_line(arguments: Sequence[str]) -> str:
    program, *rest = arguments
    return " ".join(quoted(word) for word in (f":{program}", *rest))


def quoted(word: str) -> str:
    """One word of a command line by the rules of systemd.syntax(7)."""
    return word if _PLAIN.fullmatch(word) else unit(word)


def _text(value: str) -> str:
    """A value on one line, in which systemd replaces nothing."""
    return "".join(" " if is_unsafe(character) else character for character in value).replace("%", "%%")
