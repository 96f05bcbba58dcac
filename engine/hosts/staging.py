"""Directories shipped to the host: a compressed archive, streamed into a private directory of random name."""

from __future__ import annotations

import itertools
import operator
import os
import re
import shlex
import stat
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path

from engine.errors import CommandFailed, InvalidInput
from engine.hosts.channel import BLOCK
from engine.hosts.host_lock import HOME, STAGING
from engine.hosts.shell import HostShell, Streams

_PATH = re.compile(rf"{STAGING}/[A-Za-z0-9]{{12}}", re.ASCII)

_COMPRESSED = frozenset({".gz", ".jpg", ".png", ".whl", ".xz", ".zip", ".zst"})

_UNPACK = f"""
set -eu
umask 077
mkdir -p -m 0700 {HOME} {STAGING}
directory=$(mktemp -d {STAGING}/XXXXXXXXXXXX)
if tar -xzf - -C "$directory" --no-same-owner --same-permissions; then printf '%s\\n' "$directory"
else rm -rf -- "$directory"; exit 1; fi
"""


def stage(shell: HostShell, directory: Path) -> str:
    """Ship `directory`; returns its path on the host, checked against the only form it can have."""
    output = shell.check(_UNPACK, Streams(stdin=Archive(directory)), label=f"receive {directory.name}")
    path = output.text.strip()
    if not _PATH.fullmatch(path):
        raise CommandFailed(f"the staged directory {path[:200]!r} is not one of ours", where=shell.where)
    return path


def unstage(shell: HostShell, path: str) -> None:
    """Remove what :func:`stage` returned; refuses any other path."""
    if not _PATH.fullmatch(path):
        raise CommandFailed(f"{path!r} is not a staged directory, so it is not removed", where=shell.where)
    shell.check(f"rm -rf -- {shlex.quote(path)}", label=f"remove {path}")


class Archive:
    """A directory as tar.gz, read in blocks: equal bytes for equal contents, in constant memory.

    Little is compressed, and nothing twice: the operator's processor is shared by all tenants.
    """

    def __init__(self, directory: Path) -> None:
        self._blocks = _compressed(_members(directory))
        self._left = b""

    def read(self, size: int, /) -> bytes:
        while not self._left:
            block = next(self._blocks, None)
            if block is None:
                return b""
            self._left = block
        taken, self._left = self._left[:size], self._left[size:]
        return taken


def _compressed(blocks: Iterator[tuple[int, bytes]]) -> Iterator[bytes]:
    """Blocks with their levels as gzip: a member for each change of the level, which together are one stream."""
    for level, members in itertools.groupby(blocks, key=operator.itemgetter(0)):
        # zlib's gzip header carries no time, unlike that of the gzip module.
        compressor = zlib.compressobj(level, wbits=zlib.MAX_WBITS | 16)
        for _, block in members:
            yield compressor.compress(block)
        yield compressor.flush()


def _members(directory: Path) -> Iterator[tuple[int, bytes]]:
    for path in sorted(directory.rglob("*")):
        entry = _entry(path, str(path.relative_to(directory)))
        level = zlib.Z_NO_COMPRESSION if path.suffix in _COMPRESSED else zlib.Z_BEST_SPEED
        yield level, entry.tobuf(format=tarfile.PAX_FORMAT)
        if entry.isreg():
            for block in _contents(path, entry.size):
                yield level, block
            yield level, bytes(-entry.size % tarfile.BLOCKSIZE)
    yield zlib.Z_BEST_SPEED, bytes(2 * tarfile.BLOCKSIZE)


def _entry(path: Path, name: str) -> tarfile.TarInfo:
    """The archive's entry: root's, without times, and executable or not."""
    entry = tarfile.TarInfo(name)
    status = path.lstat()
    if stat.S_ISLNK(status.st_mode):
        entry.type, entry.linkname = tarfile.SYMTYPE, os.readlink(path)
    elif stat.S_ISDIR(status.st_mode):
        entry.type, entry.mode = tarfile.DIRTYPE, 0o755
    elif stat.S_ISREG(status.st_mode):
        entry.size = status.st_size
        entry.mode = 0o755 if status.st_mode & 0o100 else 0o644
    else:
        raise InvalidInput("a bundle holds files, directories and links only", where=str(path))
    return entry


def _contents(path: Path, size: int) -> Iterator[bytes]:
    with path.open("rb") as file:
        left = size
        while left:
            block = file.read(min(BLOCK, left))
            if not block:
                raise InvalidInput("the file became shorter while it was read", where=str(path))
            left -= len(block)
            yield block
