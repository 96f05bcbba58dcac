"""Receiving an archive: written, hashed and listed in one pass, in a real thread beside the connection's."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path

import gevent.monkey
import gevent.os
from gevent.threadpool import ThreadPool

from engine.backups.reading import ArchiveReader
from engine.errors import ArchiveRejected

_PIPE_BYTES = 1 << 20

# gevent's own closes a pipe when its loop next turns, which it does not while everybody waits for the thread.
_close_at_once = gevent.monkey.get_original("os", "close")


class Reception:
    """A sink for one archive's bytes, which go to the file `partial`.

    The connection's side only puts them into a bounded pipe and waits there for the thread at its other end,
    while the other tenants go on. End it with :meth:`finish` or :meth:`abandon`.
    """

    def __init__(self, partial: Path, where: str) -> None:
        self._partial = partial
        reading, self._writing = os.pipe()
        with suppress(OSError):
            # An unprivileged user has a limit for all pipes together; a smaller one is slower, not wrong.
            fcntl.fcntl(self._writing, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        gevent.os.make_nonblocking(self._writing)
        self._thread = ThreadPool(1)
        self._result = self._thread.spawn(_keep, reading, partial, where)

    def write(self, data: bytes, /) -> None:
        """Take the next bytes; raises :class:`ArchiveRejected` as soon as they cannot be kept or belong to none."""
        view = memoryview(data)
        try:
            while view:
                view = view[gevent.os.nb_write(self._writing, view) :]
        except BrokenPipeError:
            self._outcome()
            raise

    def finish(self) -> ArchiveReader:
        """All bytes have come: the used reader, with the file on the disk. Raises :class:`ArchiveRejected`."""
        self._close()
        return self._outcome()

    def abandon(self) -> None:
        """End the thread and remove the file, unless it was published."""
        self._close()
        with suppress(Exception):
            self._result.get()
        self._thread.kill()
        with suppress(FileNotFoundError):
            self._partial.unlink()

    def _close(self) -> None:
        if self._writing >= 0:
            _close_at_once(self._writing)
            self._writing = -1

    def _outcome(self) -> ArchiveReader:
        outcome = self._result.get()
        if isinstance(outcome, Exception):
            raise outcome
        reader: ArchiveReader = outcome
        return reader


def _keep(reading: int, partial: Path, where: str) -> ArchiveReader | Exception:
    """The thread: an error is returned, because gevent would print one that is raised."""
    try:
        with open(reading, "rb", buffering=0) as pipe:
            descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                copied = _Copied(pipe.fileno(), descriptor, partial.parent)
                reader = ArchiveReader(copied, where)
                for _ in reader:
                    pass
                copied.sync()
            finally:
                os.close(descriptor)
        return reader
    except OSError as error:
        return ArchiveRejected(
            f"the archive cannot be received: {error.strerror}", where=str(partial.parent), hint="correct permissions"
        )
    except Exception as error:
        return error


class _Copied:
    """The bytes of a pipe, on the disk before they are looked at."""

    def __init__(self, pipe: int, file: int, directory: Path) -> None:
        self._pipe = pipe
        self._file = file
        self._directory = directory
        self._written = 0

    def read(self, size: int, /) -> bytes:
        block = os.read(self._pipe, size)
        view = memoryview(block)
        try:
            while view:
                count = os.write(self._file, view)
                self._written += count
                view = view[count:]
        except OSError as error:
            raise self._cannot_write(error) from error
        return block

    def sync(self) -> None:
        try:
            os.fsync(self._file)
        except OSError as error:
            raise self._cannot_write(error) from error

    def _cannot_write(self, error: OSError) -> ArchiveRejected:
        return ArchiveRejected(
            f"the archive cannot be written: {error.strerror} after {self._written} bytes",
            where=str(self._directory),
            hint="free space or name another directory in backup.directory; what had come is removed",
        )
