"""What a restore replaces on the tenant, decided before anything is touched. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from posixpath import dirname, normpath
from typing import Any

from engine.backups.listing import Listed, Listing
from engine.backups.manifest import Manifest as ArchiveManifest
from engine.errors import AheadOfHead, EditedRelease, InvalidInput, Refused
from engine.hosts.host_lock import HOME
from engine.registry.safeguards import ContentKind
from engine.registry.settings import Settings
from engine.releases.applied import check_applied
from engine.releases.model import Manifest
from engine.releases.version import Version

DIRECTORY = "directory"
# Files that SQLite keeps beside a database. No archive holds them, and one that is left beside another database than
# its own is replayed into that.
SIDECARS = ("-wal", "-shm", "-journal")

Live = Mapping[str, str]
"""What kind of thing is at each path on the tenant now; absent paths are missing."""


@dataclass(frozen=True)
class Tree:
    """One path that is replaced by the archive's; what was there moves into the recovery set.

    `exclude` are patterns below it of what stays. A `whole` one is exchanged itself, of the others the children are,
    so that a directory that is a mount point stays one.
    """

    path: str
    kind: ContentKind
    exclude: tuple[str, ...]
    whole: bool

    @property
    def keep(self) -> tuple[str, ...]:
        """The children that stay."""
        return tuple(pattern for pattern in self.exclude if "/" not in pattern)

    @property
    def deeper(self) -> tuple[str, ...]:
        """What stays although what it lies in is replaced."""
        return tuple(pattern for pattern in self.exclude if "/" in pattern)

    def document(self) -> dict[str, Any]:
        """The tree as the host-side scripts take it."""
        return {
            "path": self.path,
            "kind": self.kind.value,
            "exclude": list(self.keep),
            "carry": list(self.deeper),
            "whole": self.whole,
        }


def check_archive(manifest: ArchiveManifest, slug: str, releases: Manifest, digests: Mapping[str, str]) -> None:
    """Raise for an archive that must not be restored to tenant `slug` with this fleet's releases."""
    if manifest.slug != slug:
        raise Refused(f"archive {manifest.archive} is one of {manifest.slug}", where=slug, hint="nothing was touched")
    if manifest.marker_problem:
        raise Refused(
            f"archive {manifest.archive} has no version: {manifest.marker_problem}",
            where=slug,
            hint="restore single paths of it with --path",
        )
    if manifest.version is None:
        return
    version = Version.parse(manifest.version)
    if releases.head < version:
        raise AheadOfHead(
            f"archive {manifest.archive} is at {version}, above this manifest's head {releases.head}",
            where=slug,
            hint="update this checkout; nothing was touched",
        )
    if not any(release.version == version for release in releases):
        raise Refused(
            f"archive {manifest.archive} is at {version}, which this manifest does not have",
            where=slug,
            hint="restore it with the checkout that it was made with, or another archive; nothing was touched",
        )
    _refuse_edited(check_applied(releases, digests, manifest.applied, version).edited, manifest, slug)


def trees_of(manifest: ArchiveManifest, listing: Listing, live: Live, settings: Settings) -> tuple[Tree, ...]:
    """Everything of the tenant that becomes the archive's: its contents, and single files beside them.

    The contents are those that the archive was made with: what it was never meant to hold stays as it is. So do the
    runtime's link, because installations are not restored, and the engine's own files.
    """
    trees: dict[str, Tree] = {}
    for path, content in sorted(_roots(manifest, live), key=lambda root: root[0].count("/")):
        if not lies_in(path, trees):
            tree = _tree(path, content, listing.get(path), live.get(path))
            trees[path] = tree
    links = {settings.gateway.runtime_link} if settings.gateway else set()
    for path, member in listing.items():
        if path not in links and not lies_in(path, (*trees, HOME)) and member.kind != DIRECTORY:
            trees[path] = Tree(path, ContentKind.CONFIGURATION, (), whole=True)
    return _with_sidecars(trees.values(), manifest)


def trees_at(path: str, manifest: ArchiveManifest, listing: Listing, live: Live) -> tuple[Tree, ...]:
    """What a partial restore of one path replaces; raises :class:`InvalidInput` or :class:`Refused`."""
    return _with_sidecars([_tree_at(path, manifest, listing, live)], manifest)


def _tree_at(path: str, manifest: ArchiveManifest, listing: Listing, live: Live) -> Tree:
    wanted = plain_path(path)
    for content in manifest.contents:
        for root in content["found"]:
            if wanted == root or wanted.startswith(root + "/"):
                if wanted not in listing:
                    raise Refused(
                        f"archive {manifest.archive} has nothing at {wanted}",
                        where=manifest.slug,
                        hint="see what it has with --dry-run",
                    )
                inner = tuple(_inner(content["exclude"], wanted[len(root) + 1 :]))
                found = {**content, "path": wanted, "exclude": inner}
                return _tree(wanted, found, listing[wanted], live.get(wanted))
    raise Refused(
        f"{wanted} is in none of the archive's contents",
        where=manifest.slug,
        hint=f"they are: {', '.join(content['path'] for content in manifest.contents)}",
    )


def plain_path(path: str) -> str:
    """An absolute path in its plain form; raises :class:`InvalidInput`."""
    if not path.startswith("/") or ".." in path.split("/"):
        raise InvalidInput(f"{path} is no absolute path without ..", where="--path")
    return normpath("/" + path.lstrip("/"))


def missing_parents(tree: Tree, listing: Listing) -> dict[str, Listed]:
    """The directories above the tree that the archive knows, the outermost first."""
    parents, path = [], dirname(tree.path)
    while path != "/":
        parents.append(path)
        path = dirname(path)
    return {path: listing[path] for path in reversed(parents) if path in listing}


def lies_in(path: str, roots: Iterable[str]) -> bool:
    """Whether `path` is one of these, or below one."""
    return any(path == root or path.startswith(root + "/") for root in roots)


def _roots(manifest: ArchiveManifest, live: Live) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for content in manifest.contents:
        pattern = content["path"]
        found = {path for path in live if _same_depth(path, pattern) and fnmatchcase(path, pattern)}
        for path in sorted({*found, *content["found"]}):
            yield path, content


def _same_depth(path: str, pattern: str) -> bool:
    return path.count("/") == pattern.count("/")


def _tree(path: str, content: Mapping[str, Any], ours: Listed | None, now: str | None) -> Tree:
    # What is absent goes back as a whole too: the children's way back would leave an empty directory.
    is_directory = (ours is None or ours.kind == DIRECTORY) and now == DIRECTORY
    # A match of a pattern that the archive lacks goes as a whole: nobody declared the directory itself.
    is_extra = ours is None and path != content["path"]
    return Tree(path, ContentKind(content["kind"]), tuple(content["exclude"]), whole=is_extra or not is_directory)


def _with_sidecars(trees: Iterable[Tree], manifest: ArchiveManifest) -> tuple[Tree, ...]:
    """The trees, and beside each that is a database itself what SQLite may have left there."""
    databases = manifest.databases
    sidecars = [
        Tree(tree.path + end, tree.kind, (), whole=True) for tree in trees if tree.path in databases for end in SIDECARS
    ]
    taken = {tree.path: tree for tree in (*sidecars, *trees)}
    return tuple(taken.values())


def _inner(patterns: Sequence[str], relative: str) -> Iterator[str]:
    """What of the patterns of a content applies below the path `relative` in it."""
    parts = relative.split("/") if relative else []
    for pattern in patterns:
        wanted = pattern.strip("/").split("/")
        if len(wanted) > len(parts) and all(map(fnmatchcase, parts, wanted)):
            yield "/".join(wanted[len(parts) :])


def _refuse_edited(edited: Sequence[Any], manifest: ArchiveManifest, slug: str) -> None:
    if edited:
        listing = "; ".join(f"{item.version}: applied as {item.recorded}, now {item.current}" for item in edited)
        raise EditedRelease(
            f"archive {manifest.archive} has releases that were edited since: {listing}",
            where=slug,
            hint="restore the releases as they were applied; nothing was touched",
        )
