"""A kernel control group around everything that one lab host, or the model stub, runs."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from engine.errors import MissingPart, UnknownState

POLL_SECONDS = 0.02
KILL_SECONDS = 10.0


def hierarchies(mountinfo: str) -> tuple[Path, ...]:
    """Return where control groups live: the unified hierarchy first, then systemd's own, if any.

    systemd in a host uses both where the machine mounts both, so a host needs a group in each:
    hosts that share one would kill each other's services.
    """
    unified, named = [], []
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        mount_point = Path(before.split(" ")[4])
        if kind == "cgroup2":
            unified.append(mount_point)
        elif kind == "cgroup" and "name=systemd" in options.split(","):
            named.append(mount_point)
    if not unified:
        raise MissingPart(
            "no unified control group hierarchy (cgroup2) is mounted",
            where="this machine",
            hint="mount -t cgroup2 cgroup2 /sys/fs/cgroup",
        )
    return (unified[0], *named[:1])


@dataclass(frozen=True)
class ControlGroup:
    """One group, at the same relative path in every hierarchy.

    Membership survives forks, so the group names all processes of a host, also those whose id nobody
    had time to write down.
    """

    directories: tuple[Path, ...]

    @classmethod
    def of_machine(cls, *names: str) -> ControlGroup:
        """Return the group at ``names`` on this machine, whether it exists or not."""
        mounts = hierarchies(Path("/proc/self/mountinfo").read_text())
        return cls(tuple(mount.joinpath(*names) for mount in mounts))

    @property
    def entrances(self) -> tuple[Path, ...]:
        """The files that a process writes its id to in order to join."""
        return tuple(directory / "cgroup.procs" for directory in self.directories)

    @property
    def populated(self) -> bool:
        """Whether any process is in the group or below it."""
        try:
            return "populated 1" in (self.directories[0] / "cgroup.events").read_text()
        except FileNotFoundError:
            return False

    def create(self) -> None:
        for directory in self.directories:
            directory.mkdir(parents=True, exist_ok=True)

    def wait_empty(self, timeout_seconds: float) -> bool:
        """Wait until nothing runs in the group; tells whether that came true in time."""
        deadline = time.monotonic() + timeout_seconds
        while self.populated:
            if time.monotonic() > deadline:
                return False
            time.sleep(POLL_SECONDS)
        return True

    def kill(self) -> None:
        """End every process in the group at once, without waiting until they are gone."""
        if self.populated:
            (self.directories[0] / "cgroup.kill").write_text("1")

    def clear(self) -> None:
        """End every process in the group; raises `UnknownState` if one survives."""
        self.kill()
        if not self.wait_empty(KILL_SECONDS):
            raise UnknownState("processes survive a kill", where=str(self.directories[0]))

    def remove(self) -> None:
        """Remove the empty group with all below it."""
        for directory in self.directories:
            for child, _, _ in os.walk(directory, topdown=False):
                os.rmdir(child)
            # The lab's own group goes with its last member, and refuses until then.
            with suppress(OSError):
                directory.parent.rmdir()
