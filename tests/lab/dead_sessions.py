"""Labs and parents of test sessions that were killed: they would go on running until somebody notices.

A session holds a kernel lock on a file in its base directory as long as it lives, and removes the file at its end.
A file that is there and not locked is a dead session's, whatever became of its process id. No other lab is touched.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from engine.environments.parents import LabParents
from engine.provision.providers.lab import Lab
from engine.registry.settings import LabSettings

MARK = ".lab-session"


@contextmanager
def living_session(base: Path) -> Iterator[None]:
    """Mark `base` as the directory of a session that lives as long as the body runs."""
    mark, unlocked = base / MARK, base / f"{MARK}.new"
    with unlocked.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Under its name only now: a session that begins at the same time would take an unlocked one for dead.
        unlocked.rename(mark)
        yield
        mark.unlink()


def end_dead_labs(base: Path) -> None:
    """End the labs of dead sessions whose directories lie beside `base`, with their disks."""
    for mark in base.parent.glob(f"*/{MARK}"):
        with suppress(FileNotFoundError), mark.open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            # What cannot be ended now is tried again by the next session.
            left_over = [each for each in _labs_below(mark.parent) if not _is_ended(each)]
            if not left_over:
                mark.unlink()


def _is_ended(state_directory: Path) -> bool:
    """End what is left over in one state directory; one that nobody can end is told, and keeps nobody from testing."""
    try:
        Lab(state_directory, LabSettings(), print).destroy()
        if (parents := state_directory / "lab/parents").exists():
            LabParents(state_directory, print).down()
            shutil.rmtree(parents.resolve())
    except Exception as error:
        print(f"{state_directory} is left over and cannot be ended: {error!r}")
        return False
    return True


def _labs_below(directory: Path) -> Iterator[Path]:
    for name, directories, _ in os.walk(directory):
        # Whoever changes anything in a lab, or its parents, creates a lock first. Below it lie whole systems.
        if "lab" in directories and any(Path(name, lock).exists() for lock in ("lab/lock", "lab/parents/lock")):
            directories.remove("lab")
            yield Path(name)
