"""Puts units into a machine's systemd, and takes them out again."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.errors import CommandFailed, InvalidInput, MissingPart
from engine.records.atomic import replace_file, sync_directory
from engine.registry.load import SETTINGS_FILE
from engine.timers.units import JobUnits

UNIT_DIRECTORY = Path("/etc/systemd/system")
RUNNING = Path("/run/systemd/system")

Runner = Callable[[Sequence[str]], str]
"""Runs a command to its end and returns what it printed; raises :class:`CommandFailed`."""


@dataclass(frozen=True)
class Systemd:
    """One machine's systemd: the directory of its administrator's units, and how its commands are run."""

    directory: Path
    run: Runner

    def install(self, units: Iterable[JobUnits], prefix: str) -> tuple[str, ...]:
        """Have exactly these units below `prefix`, their timers enabled and waiting; returns what was removed."""
        files = dict(file for unit in units for file in unit.files)
        stale = [name for name in self.installed(prefix) if name not in files]
        self._end(stale)
        for name, text in files.items():
            replace_file(self.directory / name, text.encode(), mode=0o644)
        self._delete(stale)
        self.run(("systemctl", "daemon-reload"))
        timers = _timers(files)
        self.run(("systemctl", "enable", "--quiet", *timers))
        # Restarted: a timer that waits already would keep the calendar that it began with.
        self.run(("systemctl", "restart", *timers))
        return tuple(stale)

    def remove(self, prefix: str) -> tuple[str, ...]:
        """Have no unit below `prefix`; a job that runs now is left to its end. Returns what was removed."""
        names = self.installed(prefix)
        self._end(names)
        self._delete(names)
        if names:
            self.run(("systemctl", "daemon-reload"))
        return tuple(names)

    def installed(self, prefix: str) -> list[str]:
        """The names of the units below `prefix`."""
        return sorted(path.name for path in self.directory.glob(f"{prefix}*") if path.suffix in (".service", ".timer"))

    def has(self, name: str, text: str) -> bool:
        """Whether the unit is there with exactly this text."""
        try:
            return (self.directory / name).read_text(encoding="utf-8", errors="replace") == text
        except OSError:
            return False

    def _end(self, names: Iterable[str]) -> None:
        timers = _timers(names)
        if timers:
            self.run(("systemctl", "disable", "--quiet", "--now", *timers))
            # With the time of their last run: a later installation does not find a night missed.
            self.run(("systemctl", "clean", "--what=state", *timers))

    def _delete(self, names: Sequence[str]) -> None:
        for name in names:
            (self.directory / name).unlink(missing_ok=True)
        if names:
            sync_directory(self.directory)


def machine_systemd() -> Systemd:
    """The systemd of this machine; raises :class:`MissingPart` where it is not the one that runs it."""
    if not RUNNING.is_dir():
        raise MissingPart(
            "this machine is not run by systemd",
            hint="`tenantry timers show` prints the commands; give them to what starts jobs here",
        )
    return Systemd(UNIT_DIRECTORY, run_here)


def run_here(argv: Sequence[str]) -> str:
    """Run a command on this machine; raises :class:`CommandFailed` with its last words."""
    done = subprocess.run(argv, capture_output=True, text=True, errors="replace", check=False, stdin=subprocess.DEVNULL)
    if done.returncode:
        words = "; ".join(done.stderr.strip().splitlines()[-3:])
        raise CommandFailed(f"{' '.join(argv[:3])}: {words}", where="this machine")
    return done.stdout


def check_calendars(units: Iterable[JobUnits], root: Path) -> None:
    """Raise :class:`InvalidInput` for a calendar event that systemd does not take.

    Where ``systemd-analyze`` is missing nothing is checked: no timer can be installed there either.
    """
    if shutil.which("systemd-analyze") is None:
        return
    for unit in units:
        asked = subprocess.run(
            ("systemd-analyze", "calendar", "--", unit.calendar),
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            env={**os.environ, "LC_ALL": "C.UTF-8"},
        )
        if asked.returncode:
            raise InvalidInput(
                f"timers.{unit.job.name}: {unit.calendar!r} is no calendar event",
                where=str(root / SETTINGS_FILE),
                hint='such as "*-*-* 01:30:00" or "Sun 03:00"; try one with: systemd-analyze calendar TEXT',
            )


def _timers(names: Iterable[str]) -> list[str]:
    return [name for name in names if name.endswith(".timer")]
