"""Provisioning in a process of its own, watched phase by phase."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

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
    def start(cls, fleet: LightFleet, slug: str, command: str, **options: Any) -> WatchedRun:
        """Start it; `options` are those of :meth:`LightFleet.cli`."""
        return cls(fleet.cli(command, slug, *_confirmed(slug, command), **options), slug)

    def reach(self, phase: str) -> bool:
        """Read on until `phase` begins; False if the command ended without it."""
        return any(line.startswith(f"{self.slug} {phase}: ") for line in self._told())

    def end(self) -> Ended:
        out, rest = self.process.communicate(timeout=SECONDS)
        self.lines += rest.splitlines()
        return Ended(self.process.returncode, out, self.lines)

    def _told(self) -> Iterator[str]:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line.rstrip("\n"))
            yield line


def _confirmed(slug: str, command: str) -> tuple[str, ...]:
    return ("--confirm", slug) if command == "provision" else ()


def killed_at(fleet: LightFleet, words: str, *arguments: str) -> None:
    """Run the command line, and let it die as by a power cut when it says `words`."""
    process = fleet.cli(*arguments, signal_at=(signal.SIGKILL, words))
    _, told = process.communicate(timeout=SECONDS)
    assert process.returncode == -signal.SIGKILL, f"{words!r} was never said:\n{told}"


def killed_in(fleet: LightFleet, slug: str, command: str, phase: str) -> None:
    """Run `command` and let it die as soon as `phase` begins."""
    killed_at(fleet, f"{slug} {phase}: ", command, slug, *_confirmed(slug, command))


def run_whole(fleet: LightFleet, slug: str, command: str) -> Ended:
    return WatchedRun.start(fleet, slug, command).end()
