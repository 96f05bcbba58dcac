"""Processes named by id and start time, so that a reused id is never taken for the old process."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Process:
    """One process for all time: its id, and its start in clock ticks since the machine booted."""

    pid: int
    started: int

    @property
    def alive(self) -> bool:
        """Whether exactly this process still runs; one that only waits to be reaped does not."""
        return identify(self.pid) == self

    def signal(self, number: int) -> None:
        """Send a signal to exactly this process; nothing happens if it is gone."""
        try:
            descriptor = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return
        try:
            # The descriptor pins the process first, so the check and the signal mean the same one.
            if self.alive:
                signal.pidfd_send_signal(descriptor, number)
        except ProcessLookupError:
            return
        finally:
            os.close(descriptor)


def identify(pid: int) -> Process | None:
    """Return the running process that has this id now, or None."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The command name may hold blanks and parentheses; the fields after the last one are regular.
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else Process(pid, int(fields[19]))


def is_first(pid: int) -> bool:
    """Whether the process is number 1 in a process id namespace of its own."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return False
    numbers = next((line.split()[1:] for line in status.splitlines() if line.startswith("NSpid:")), [])
    return len(numbers) > 1 and numbers[-1] == "1"
