"""What an archive holds, file by file with digests: what a restore is checked and compared against."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import gevent

from engine.backups.manifest import Manifest
from engine.backups.reading import Entry, Kind, Member, open_archive
from engine.errors import ArchiveRejected

SPECIAL = "special"

MEMBER_BYTES = 4096
"""What a member takes on a disk beside its content."""


@dataclass(frozen=True)
class Listed:
    """One member, in the words of the host-side scripts: `kind` is ``file``, ``directory``, ``link`` or ``special``.

    `sha256` and `size` are a file's, `target` is a link's. `source` is the path of the member that has the content of
    a hard link.
    """

    kind: str
    mode: str
    owner: str
    group: str
    uid: int
    gid: int
    size: int = 0
    sha256: str | None = None
    target: str | None = None
    source: str | None = None

    def document(self) -> dict[str, Any]:
        return asdict(self)


Listing = Mapping[str, Listed]
"""The members of an archive by their absolute paths."""


def list_archive(path: Path, manifest: Manifest) -> Listing:
    """Read the archive to its end; raises :class:`ArchiveRejected` unless it is whole and the one of `manifest`.

    In a native thread: other tenants go on meanwhile.
    """
    listing: Listing = gevent.get_hub().threadpool.apply(_list, (path, manifest))
    return listing


def below(listing: Listing, path: str) -> Iterator[tuple[str, Listed]]:
    """The members at `path` and below it."""
    prefix = path.rstrip("/") + "/"
    return ((name, member) for name, member in listing.items() if name == path or name.startswith(prefix))


def sources(listing: Listing, paths: Iterable[str]) -> dict[str, Listed]:
    """The members outside `paths` that have the content of hard links at or below them."""
    inside = {name: member for path in paths for name, member in below(listing, path)}
    wanted = (member.source for member in inside.values())
    return {source: listing[source] for source in wanted if source is not None and source not in inside}


def _list(path: Path, manifest: Manifest) -> Listing:
    listing: dict[str, Listed] = {}
    with open_archive(path) as reader:
        for entry in reader:
            listing[entry.member.path] = _listed(entry, listing, path)
    if reader.digest != manifest.digest:
        raise ArchiveRejected(
            f"its digest is {reader.digest}, its manifest says {manifest.digest}",
            where=str(path),
            hint="it was damaged or exchanged since it was made: restore another one",
        )
    return listing


def _listed(entry: Entry, listing: Listing, path: Path) -> Listed:
    member = entry.member
    match member.kind:
        case Kind.FILE:
            return _made(member, "file", size=member.size, sha256=entry.digest().removeprefix("sha256:"))
        case Kind.HARD_LINK:
            if member.target not in listing:
                raise ArchiveRejected(f"{member.path} is a link to {member.target}, which is missing", where=str(path))
            return replace(listing[member.target], source=member.target)
        case Kind.LINK:
            return _made(member, "link", target=member.target)
        case Kind.DIRECTORY:
            return _made(member, "directory")
    return _made(member, SPECIAL)


def _made(member: Member, kind: str, **more: Any) -> Listed:
    mode = f"{member.mode:04o}"
    # Where the tenant had no name for a number, the number stands for it, as in the host-side scripts.
    owner, group = member.owner or str(member.uid), member.group or str(member.gid)
    return Listed(kind, mode, owner, group, member.uid, member.gid, **more)
