"""Provisioning in a process of its own, watched phase by phase."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.lab.light_fleet import LightFleet

SECONDS = 120


@dataclass
class Ended:
    """How a command ended, and the lines that it told on standard error."""

    code: int
    out: str
    lines: list[str]

    @property
    def error(self) -> str:
        return "\n".join(self.lines)


@dataclass
class WatchedRun:
    """One command of the command line that works on `slug`; its phases are read as they come."""

    process: subprocess.Popen[str]
    slug: str
    lines: list[str] = field(default_factory=list)

    @classmethod
    def start(cls, fleet: LightFleet, slug: str, command: str) -> WatchedRun:
        confirm = ("--confirm", slug) if command == "provision" else ()
        return cls(fleet.cli(command, slug, *confirm), slug)

    def reach(self, phase: str) -> bool:
        """Read on until `phase` begins; False if the command ended without it."""
        return any(line.startswith(f"{self.slug} {phase}: ") for line in self._told())

    def kill(self) -> None:
        """End it as a power cut would."""
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate()
        assert self.process.returncode == -signal.SIGKILL

    def end(self) -> Ended:
        out, rest = self.process.communicate(timeout=SECONDS)
        self.lines += rest.splitlines()
        return Ended(self.process.returncode, out, self.lines)

    def _told(self) -> Iterator[str]:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line.rstrip("\n"))
            yield line


def killed_in(fleet: LightFleet, slug: str, command: str, phase: str) -> None:
    """Start `command` and kill it as soon as `phase` begins."""
    run = WatchedRun.start(fleet, slug, command)
    assert run.reach(phase), f"{command} never came to {phase}: {run.end().error}"
    run.kill()


def run_whole(fleet: LightFleet, slug: str, command: str) -> Ended:
    return WatchedRun.start(fleet, slug, command).end()
