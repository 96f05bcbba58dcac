"""Locks as kernel `flock`s on files that are never deleted.

The kernel frees a lock when its process dies, so a crashed job cannot wedge a subject, and a file
that stays can never be locked by two jobs under two inodes. The file's content only names the
holder for people; whether the lock is held is the kernel's word alone.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from engine.clock import Clock, iso
from engine.errors import Busy, RecordFailed
from engine.subject import Subject

_HOLDER_BYTES = 1024


@dataclass(frozen=True)
class Holder:
    """Who holds a lock: the job's name, its run, its process and since when (UTC)."""

    job: str
    run: str
    pid: int
    since: str


@dataclass(frozen=True)
class HeldLock:
    """Proof that this process holds `subject`; handed to whatever mutates it."""

    subject: Subject
    holder: Holder


class LockDirectory:
    """The locks of one state directory, one file for each subject."""

    def __init__(self, directory: Path, clock: Clock) -> None:
        self._directory = directory
        self._clock = clock

    @contextmanager
    def hold(self, subject: Subject, *, job: str, run: str) -> Iterator[HeldLock]:
        """Hold `subject` for the body; raises :class:`Busy` at once, naming the holder."""
        descriptor = self._open(subject)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise self._busy(subject, descriptor) from None
            except OSError as error:
                raise RecordFailed(
                    f"the lock cannot be taken: {error.strerror}",
                    where=str(self._path(subject)),
                    hint="keep the state directory on a local file system",
                ) from error
            holder = Holder(job=job, run=run, pid=os.getpid(), since=iso(self._clock.now()))
            _write_holder(descriptor, holder)
            yield HeldLock(subject, holder)
        finally:
            os.close(descriptor)

    def holder(self, subject: Subject) -> Holder | None:
        """Who holds `subject` now, or None. Takes no lock, so it never makes a job busy.

        Raises :class:`RecordFailed` where this user may not look.
        """
        path = self._path(subject)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise RecordFailed(
                f"cannot read the lock file: {error.strerror}",
                where=str(path),
                hint="look at it as the user who runs converge",
            ) from error
        try:
            holder = _read_holder(descriptor)
            if holder is None or not _kernel_knows(os.fstat(descriptor).st_ino, holder.pid):
                return None
            return holder
        finally:
            os.close(descriptor)

    def _path(self, subject: Subject) -> Path:
        return self._directory / subject.kind / f"{subject.id}.lock"

    def _open(self, subject: Subject) -> int:
        path = self._path(subject)
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise RecordFailed(
                f"cannot open the lock file: {error.strerror}",
                where=str(path),
                hint="check the state directory",
            ) from error

    def _busy(self, subject: Subject, descriptor: int) -> Busy:
        holder = _read_holder(descriptor)
        if holder is None:
            return Busy(f"{subject} is busy: another job holds its lock", hint="try again when it ended")
        return Busy(
            f"{subject} is busy: {holder.job} run {holder.run} (process {holder.pid}) holds it since {holder.since}",
            hint="try again when that run has ended",
        )


def _write_holder(descriptor: int, holder: Holder) -> None:
    # One write of a fixed size within one page: a reader never sees half of one holder and half of another.
    text = json.dumps(asdict(holder)).encode()
    try:
        os.pwrite(descriptor, text.ljust(_HOLDER_BYTES)[:_HOLDER_BYTES], 0)
    except OSError as error:
        raise RecordFailed(
            f"cannot name the holder in the lock file: {error.strerror}",
            hint="free space in the state directory",
        ) from error


def _read_holder(descriptor: int) -> Holder | None:
    try:
        return Holder(**json.loads(os.pread(descriptor, _HOLDER_BYTES, 0)))
    except (ValueError, TypeError):
        return None


def _kernel_knows(inode: int, pid: int) -> bool:
    """Whether the kernel lists a write `flock` of `pid` on `inode`."""
    with open("/proc/locks", encoding="ascii") as table:
        for line in table:
            fields = line.split()
            # "12: FLOCK ADVISORY WRITE 4711 fe:00:131 0 EOF"; a waiter has "->" in second place.
            if fields[1:4:2] == ["FLOCK", "WRITE"] and int(fields[4]) == pid and fields[5].endswith(f":{inode}"):
                return True
    return False
