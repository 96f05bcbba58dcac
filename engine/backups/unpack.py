"""An archive on its way to a tenant: looked for room, streamed beside the live files, checked there."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from engine.backups.listing import MEMBER_BYTES, Listed, Listing, below, sources
from engine.backups.manifest import Manifest
from engine.backups.restore_plan import Live, Tree
from engine.errors import ArchiveRejected, Refused
from engine.hosts.host_lock import HOME
from engine.hosts.session import Session
from engine.recovery.assembly import assembled

LOOK = Path(__file__).with_name("look_script.py").read_text()
CHECK = Path(__file__).with_name("check_script.py").read_text()
RESTORE = f"{HOME}/restore"
MEBIBYTE = 1024 * 1024

# tar maps owners and groups by their names, and by number where nobody has the name. It leaves the padding after the
# archive's end unread, which must not look like a broken pipe.
_UNPACK = """
set -o pipefail
umask 077
mkdir -p {directory}
zstd --quiet --decompress --stdout | {{
  tar --extract --file=- --directory={directory} --same-owner --same-permissions --anchored --no-wildcards {names}
  status=$?
  cat > /dev/null
  exit $status
}}
"""

CARRIED = """
RESULT = sum(
    trees.measure(f"{tree}/{relative}")
    for tree, patterns in PARAMETERS.items() for relative in trees.matching(tree, patterns)
)
"""


@dataclass(frozen=True)
class Found:
    """What is on the tenant at the places that a restore means, and what room there is."""

    live: Live
    elsewhere: tuple[str, ...]
    free_bytes: int


def look(session: Session, paths: Iterable[str]) -> Found:
    """Ask the tenant; changes nothing."""
    answer = session.run_script(assembled(LOOK), {"home": HOME, "paths": list(paths)}, label="look at what is there")
    return Found(answer["live"], tuple(answer["elsewhere"]), answer["free"])


def require_room(found: Found, trees: Iterable[Tree], needed_bytes: int, where: str) -> None:
    """Raise :class:`Refused` where the archive cannot lie beside what it replaces."""
    apart = [tree.path for tree in trees if tree.path in found.elsewhere]
    if apart:
        raise Refused(
            f"{', '.join(apart)} lies on another file system than {HOME}, where the archive would be unpacked",
            where=where,
            hint=f"make {HOME} a directory on that file system (a bind mount will do); nothing was touched",
        )
    if found.free_bytes < needed_bytes:
        raise Refused(
            f"no room for the archive: {needed_bytes // MEBIBYTE} MiB needed beside the live files, "
            f"{found.free_bytes // MEBIBYTE} MiB free",
            where=where,
            hint="free space on the tenant; nothing was touched",
        )


def carried_bytes(session: Session, trees: Iterable[Tree]) -> int:
    """What of the live trees is copied into the archive's, because it stays although what it lies in is replaced."""
    carried = {tree.path: list(tree.deeper) for tree in trees if tree.deeper}
    return int(session.run_script(assembled(CARRIED), carried, label="measure what stays")) if carried else 0


def needed_bytes(listing: Listing, trees: Iterable[Tree], reserve_bytes: int) -> int:
    """What the unpacked trees take, a block for each member, and what must stay free."""
    paths = [tree.path for tree in trees]
    members: list[Listed] = [member for path in paths for _, member in below(listing, path)]
    members += sources(listing, paths).values()
    return reserve_bytes + sum(member.size + MEMBER_BYTES for member in members)


def tree_of(run: str) -> str:
    """Where the archive of a run lies on the tenant."""
    return f"{RESTORE}/{run}/tree"


def unpack(session: Session, archive: Path, run: str, listing: Listing, trees: Iterable[Tree], seconds: float) -> None:
    """Stream the archive to the tenant and unpack these trees of it; raises :class:`CommandFailed`."""
    paths = [tree.path for tree in trees]
    # tar makes a hard link of what it has made already.
    names = shlex.join(["--", *(path.lstrip("/") for path in (*paths, *sources(listing, paths)))])
    program = _UNPACK.format(directory=shlex.quote(tree_of(run)), names=names)
    with archive.open("rb") as source:
        session.check(
            shlex.join(["bash", "-c", program]),
            stdin=source,
            timeout_seconds=seconds,
            label="unpack the archive",
        )


def check(session: Session, run: str, listing: Listing, trees: Iterable[Tree], manifest: Manifest) -> int:
    """Compare what was unpacked with the archive, look into every database; how many members were compared.

    Raises :class:`ArchiveRejected` naming what is not as it must be.
    """
    wanted = {path: member for tree in trees for path, member in below(listing, tree.path)}
    known = {path: database for path, database in manifest.databases.items() if path in wanted}
    answer = session.run_script(
        assembled(CHECK),
        {
            "tree": tree_of(run),
            "expected": {path: member.document() for path, member in wanted.items()},
            "databases": {
                path: {"tables": dict(database.tables), "user_version": database.user_version}
                for path, database in known.items()
            },
        },
        label="check what was unpacked",
    )
    if answer["count"]:
        raise ArchiveRejected(
            f"archive {manifest.archive} does not restore: {'; '.join(answer['wrong'])}",
            where=manifest.slug,
            hint="restore another archive; the live files were not touched",
        )
    return int(answer["checked"])


def clean(session: Session) -> None:
    """Remove what this and earlier restores unpacked."""
    session.check(f"rm -rf {RESTORE}", label="remove what was unpacked")
