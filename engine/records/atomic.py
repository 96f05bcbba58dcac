"""Files that are published whole or not at all."""

from __future__ import annotations

import errno
import os
import secrets
from contextlib import suppress
from pathlib import Path

from engine.errors import RecordFailed


def replace_file(path: Path, content: bytes, *, mode: int = 0o600, durable: bool = True) -> None:
    """Replace `path` by `content` so that a reader sees the old file or the new one, never a part.

    Temporary name in the same directory, whole write, fsync, rename, fsync of the directory. A link
    is followed and stays a link; an existing file keeps its mode and owner, a new one has `mode` whatever the
    umask. On failure the old file is intact, no temporary file stays and :class:`RecordFailed` is raised.
    Without `durable` the fsyncs are left out: for what nobody needs after a power cut.
    """
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.partial")
    try:
        try:
            _write_whole(temporary, content, mode, durable)
            _keep_ownership(target, temporary)
            os.rename(temporary, target)
            if durable:
                sync_directory(target.parent)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(temporary)
    except OSError as error:
        raise RecordFailed(
            f"cannot write: {error.strerror}",
            where=str(path),
            hint="free space or correct permissions; the old file is intact",
        ) from error


def append_line(path: Path, line: str, *, mode: int = 0o600, durable: bool = True) -> None:
    """Append one line to `path` in one write and, if `durable`, fsync it; raises :class:`RecordFailed`."""
    data = line.encode() + b"\n"
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, mode)
        try:
            size = os.fstat(descriptor).st_size
            if size and os.pread(descriptor, 1, size - 1) != b"\n":
                # A power cut left half a line: it must not take this one with it.
                data = b"\n" + data
            if os.write(descriptor, data) != len(data):
                # A full disk took a part of the line: take it back, a history has whole lines only.
                os.ftruncate(descriptor, size)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            if durable:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise RecordFailed(
            f"cannot append: {error.strerror}", where=str(path), hint="free space or correct permissions"
        ) from error


def sync_directory(directory: Path) -> None:
    """Make a rename in `directory` survive a power cut."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_whole(path: Path, content: bytes, mode: int, durable: bool) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        os.fchmod(descriptor, mode)
        view = memoryview(content)
        while view:
            view = view[os.write(descriptor, view) :]
        if durable:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _keep_ownership(target: Path, temporary: Path) -> None:
    try:
        before = target.stat()
    except FileNotFoundError:
        return
    os.chmod(temporary, before.st_mode & 0o7777)
    if (before.st_uid, before.st_gid) != (os.geteuid(), os.getegid()):
        os.chown(temporary, before.st_uid, before.st_gid)
