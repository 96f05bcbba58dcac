"""Reading an archive in one pass and in constant memory, and refusing what is not a whole one.

The first member is :data:`DESCRIPTION`, the last is :data:`SENTINEL` with the same nonce; between them each file
of the tenant has its absolute path without the leading slash as its name. Names are text in which
undecodable bytes are surrogates (:func:`os.fsencode` gives the bytes back).
"""

from __future__ import annotations

import hashlib
import json
import stat
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import IO, Any, Protocol

import zstandard

from engine.backups.frame import Frame, FrameError
from engine.errors import ArchiveRejected

DESCRIPTION = "tenantry/backup.json"
SENTINEL = "tenantry/end.json"
OWN = ("tenantry", "tenantry/")
"""What begins with this is the archive's own, not the tenant's."""

SQLITE_MAGIC = b"SQLite format 3\0"
SQLITE_HEADER_BYTES = 100
_BLOCK = 1 << 18
_OWN_BYTES = 64 * 1024 * 1024
_EXTENSION_BYTES = 1024 * 1024


class Source(Protocol):
    """What compressed bytes are read from."""

    def read(self, size: int, /) -> bytes: ...


class Kind(StrEnum):
    """What a member is. A hard link's target is another member of the same archive."""

    FILE = "file"
    DIRECTORY = "directory"
    LINK = "link"
    HARD_LINK = "hard-link"
    FIFO = "fifo"
    DEVICE = "device"


_KINDS: Mapping[bytes, Kind] = {
    tarfile.DIRTYPE: Kind.DIRECTORY,
    tarfile.SYMTYPE: Kind.LINK,
    tarfile.LNKTYPE: Kind.HARD_LINK,
    tarfile.FIFOTYPE: Kind.FIFO,
    tarfile.CHRTYPE: Kind.DEVICE,
    tarfile.BLKTYPE: Kind.DEVICE,
}


@dataclass(frozen=True)
class Member:
    """One file, directory or link. `path` is absolute, `mtime_ns` in Unix nanoseconds, `size` without holes' saving.

    `owner` and `group` are names, empty where the tenant had none for the number.
    """

    path: str
    kind: Kind
    size: int
    mode: int
    owner: str
    group: str
    uid: int
    gid: int
    mtime_ns: int
    target: str = ""


class Entry:
    """A member and, until the next one is asked for, its content; `head` is the first bytes of a file."""

    def __init__(self, member: Member, content: IO[bytes] | None) -> None:
        self.member = member
        self.head = content.read(SQLITE_HEADER_BYTES) if content else b""
        self._content = content
        self._begun = self.head

    def read(self, size: int, /) -> bytes:
        """The next bytes of a file's content, empty at its end and for whatever is no file."""
        if self._begun:
            block, self._begun = self._begun[:size], self._begun[size:]
            return block
        return self._content.read(size) if self._content else b""

    def digest(self) -> str:
        """``sha256:…`` of what is left of the content."""
        digest = hashlib.sha256()
        while block := self.read(_BLOCK):
            digest.update(block)
        return f"sha256:{digest.hexdigest()}"


class ArchiveReader:
    """One pass over one archive. Iterate over it; only when that ends without an error was the archive whole.

    `description` is there from the first entry on. Iterating raises :class:`ArchiveRejected`.
    """

    def __init__(self, source: Source, where: str) -> None:
        self.description: Mapping[str, Any] = {}
        self.members = 0
        self.uncompressed_bytes = 0
        self._where = where
        self._source = _Watched(source)

    @property
    def digest(self) -> str:
        """``sha256:…`` of the compressed bytes that were read so far."""
        return f"sha256:{self._source.digest.hexdigest()}"

    @property
    def size_bytes(self) -> int:
        """How many compressed bytes were read so far."""
        return self._source.size_bytes

    def __iter__(self) -> Iterator[Entry]:
        try:
            yield from self._entries()
        except FrameError as error:
            raise self._rejected(f"its compression is damaged: {error}") from error
        except zstandard.ZstdError as error:
            raise self._rejected(f"it cannot be decompressed: {error}") from error
        except (tarfile.TarError, EOFError, ArithmeticError, LookupError, ValueError) as error:
            raise self._rejected(f"it cannot be listed: {error}") from error

    def _entries(self) -> Iterator[Entry]:
        reader = zstandard.ZstdDecompressor().stream_reader(self._source, read_size=_BLOCK)  # type: ignore[arg-type]
        ended = False
        with tarfile.open(
            fileobj=reader, mode="r|", bufsize=_BLOCK, encoding="utf-8", errors="surrogateescape", tarinfo=_Bounded
        ) as archive:
            while (info := archive.next()) is not None:
                # tarfile remembers every member; an archive of a million files must fit too.
                archive.members = []  # type: ignore[attr-defined]
                if ended:
                    raise self._rejected(f"{info.name!r} comes after its end")
                entry = self._take(info, archive)
                ended = info.name == SENTINEL
                if ended:
                    self._check_end(entry)
                elif info.name not in OWN and info.name != DESCRIPTION:
                    yield entry
        self._finish(reader, ended)

    def _take(self, info: tarfile.TarInfo, archive: tarfile.TarFile) -> Entry:
        content = archive.extractfile(info) if info.isreg() else None
        entry = Entry(_member(info), content)
        if self.members == 0:
            if info.name != DESCRIPTION:
                raise self._rejected(f"it begins with {info.name!r} instead of its description")
            self.description = _own_json(entry)
        elif entry.head.startswith(SQLITE_MAGIC) and len(entry.head) == SQLITE_HEADER_BYTES:
            self._check_database(entry.member)
        self.members += 1
        self.uncompressed_bytes += info.size
        return entry

    def _check_database(self, member: Member) -> None:
        """A database that came up while the archive was made is in it as it happened to be on the disk."""
        if member.path not in self.description.get("databases", {}):
            raise self._rejected(
                f"the database {member.path} appeared while the archive was made, so it is not a consistent copy",
                hint="back up again",
            )

    def _check_end(self, entry: Entry) -> None:
        found, wanted = _own_json(entry).get("nonce"), self.description.get("nonce")
        if not isinstance(found, str) or found != wanted:
            raise self._rejected("its end is that of another archive")

    def _finish(self, reader: Source, ended: bool) -> None:
        if not ended:
            raise self._rejected("its end is missing: it was cut, or the tenant did not finish it")
        while reader.read(_BLOCK):
            pass
        while self._source.read(_BLOCK):
            pass
        if not self._source.frame.is_complete:
            raise self._rejected("its last bytes are missing")

    def _rejected(self, problem: str, hint: str = "") -> ArchiveRejected:
        return ArchiveRejected(f"the archive is not whole: {problem}", where=self._where, hint=hint)


@contextmanager
def open_archive(path: Path) -> Iterator[ArchiveReader]:
    """A reader of the archive file `path`; raises :class:`ArchiveRejected` where it cannot be opened or read."""
    try:
        with path.open("rb", buffering=0) as file:
            yield ArchiveReader(_Blocks(file), str(path))
    except OSError as error:
        raise ArchiveRejected(f"the archive cannot be read: {error.strerror}", where=str(path)) from error


def verify_archive(path: Path, digest: str) -> ArchiveReader:
    """Read the archive `path` to its end and compare it with its manifest's `digest` (``sha256:…``).

    Returns the used reader with its description and counts; raises :class:`ArchiveRejected`.
    """
    with open_archive(path) as reader:
        for _ in reader:
            pass
    if reader.digest != digest:
        raise ArchiveRejected(f"its digest is {reader.digest}, its manifest says {digest}", where=str(path))
    return reader


class _Blocks:
    """A file read block by block, so that its errors are not taken for those of the archive's format."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def read(self, size: int, /) -> bytes:
        return self._file.read(size)


class _Watched:
    """A source whose bytes are counted, hashed and followed through their frame on the way."""

    def __init__(self, source: Source) -> None:
        self.frame = Frame()
        self.digest = hashlib.sha256()
        self.size_bytes = 0
        self._source = source

    def read(self, size: int, /) -> bytes:
        block = self._source.read(size)
        self.digest.update(block)
        self.size_bytes += len(block)
        self.frame.feed(block)
        return block


class _Bounded(tarfile.TarInfo):
    """A header whose extension is of a sane length: tarfile keeps the whole of it in memory."""

    def _proc_pax(self, archive: tarfile.TarFile) -> tarfile.TarInfo:
        self._check_length()
        return super()._proc_pax(archive)  # type: ignore[misc, no-any-return]

    def _proc_gnulong(self, archive: tarfile.TarFile) -> tarfile.TarInfo:
        self._check_length()
        return super()._proc_gnulong(archive)  # type: ignore[misc, no-any-return]

    def _check_length(self) -> None:
        if self.size > _EXTENSION_BYTES:
            raise ValueError(f"a member has a header of {self.size} bytes")


def _member(info: tarfile.TarInfo) -> Member:
    return Member(
        path="/" + info.name,
        kind=_KINDS.get(info.type, Kind.FILE),
        size=info.size,
        mode=stat.S_IMODE(info.mode),
        owner=info.uname,
        group=info.gname,
        uid=info.uid,
        gid=info.gid,
        mtime_ns=_nanoseconds(info),
        target="/" + info.linkname if info.islnk() else info.linkname,
    )


def _nanoseconds(info: tarfile.TarInfo) -> int:
    """The exact time: tarfile makes a float of it, which has no room for nanoseconds."""
    text = info.pax_headers.get("mtime", str(int(info.mtime)))
    seconds, _, fraction = text.partition(".")
    part = int(fraction[:9].ljust(9, "0")) if fraction else 0
    return int(seconds) * 10**9 + (-part if seconds.startswith("-") else part)


def _own_json(entry: Entry) -> Mapping[str, Any]:
    """One of the archive's own documents."""
    content = b""
    while block := entry.read(_BLOCK):
        content += block
        if len(content) > _OWN_BYTES:
            raise ValueError(f"{entry.member.path} is too long")
    value = json.loads(content)
    if not isinstance(value, dict):
        raise ValueError(f"{entry.member.path} holds no object")
    return value
