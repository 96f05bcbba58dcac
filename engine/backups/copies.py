"""Copies of published archives in a restic repository: restic encrypts, deduplicates and knows the storage."""

from __future__ import annotations

import datetime
import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.backups.manifest import load_manifest
from engine.backups.reading import verify_archive
from engine.backups.restic import ResticProgram
from engine.backups.store import ArchiveStore, StoredArchive
from engine.clock import iso
from engine.errors import ArchiveRejected, CommandFailed, InvalidInput, OffsiteFailed, Refused, TenantryError

SUFFIX = ".tar.zst"
_FRACTION = re.compile(r"\.\d+")
_UNTAGGABLE = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True)
class Snapshot:
    """One archive in the repository: restic's id, when it was sent, and the files as they were named here."""

    id: str
    time: str
    slug: str
    paths: tuple[str, ...]

    @property
    def archive(self) -> str:
        """The archive's id: the time in its file's name."""
        names = (Path(path).name.removeprefix(f"{self.slug}-") for path in self.paths)
        return next((name.removesuffix(SUFFIX) for name in names if name.endswith(SUFFIX)), "")


@dataclass(frozen=True)
class Copies:
    """The copies of one fleet, told apart from other fleets' in the same repository by a tag."""

    restic: ResticProgram
    brand: str

    def create(self) -> None:
        """Make the repository; raises :class:`CommandFailed` where there is one.

        Never done by the way: restic says the same of a repository that is out of reach as of one that never was,
        and a disk that is not mounted looks like an empty one.
        """
        self.restic.run("init")

    def send(self, slug: str, files: Sequence[Path]) -> str:
        """Copy an archive with its manifest and return the snapshot's id.

        The files are left as they are. Whoever calls holds the subject's lock. Raises :class:`OffsiteFailed`, also
        where restic or a secret is missing: whatever fails, the archive is published.
        """
        tags = ("--tag", f"tenant:{slug}", "--tag", self._fleet_tag)
        try:
            words = self.restic.run("backup", "--json", "--quiet", *tags, "--", *(str(path) for path in files))
            return _complete(_summary(words), files)
        except TenantryError as error:
            then = f"the archive is kept here; send it later: tenantry offsite send {slug}"
            raise OffsiteFailed(
                f"{files[0].name} is published, but not offsite: {error.message}",
                where=slug,
                hint=f"{error.hint}; {then}" if error.hint else then,
            ) from error

    def missing(self, slug: str, archives: Sequence[StoredArchive]) -> tuple[StoredArchive, ...]:
        """The verified ones of `archives` that are not in the repository, the oldest first."""
        there = {snapshot.archive for snapshot in self.snapshots(slug)}
        return tuple(item for item in archives if item.is_verified and item.archive not in there)

    def fetch(self, store: ArchiveStore, archive: str) -> StoredArchive:
        """Bring a copy back and publish it among the archives here; it is read whole and must be what was sent.

        Whoever calls holds the subject's lock. Raises :class:`InvalidInput` for one that is not there,
        :class:`Refused` for one that is here, :class:`ArchiveRejected`, or an error of restic's.
        """
        slug = store.subject.id
        if store.path_of(archive).exists():
            raise Refused(f"archive {archive} is here already", where=slug, hint="`tenantry backups` lists it")
        snapshot = self._snapshot_of(slug, archive)
        store.prepare()
        partial = store.partial_of(archive)
        beside = partial.with_name(partial.name.replace(SUFFIX, f"{SUFFIX}.json"))
        try:
            self._dump(snapshot, f"{SUFFIX}.json", beside)
            manifest = load_manifest(beside)
            if (manifest.slug, manifest.archive) != (slug, archive):
                raise ArchiveRejected(f"its manifest is that of {manifest.slug} {manifest.archive}", where=slug)
            self._dump(snapshot, SUFFIX, partial)
            verify_archive(partial, manifest.digest)
            return store.publish(manifest)
        finally:
            for path in (beside, partial):
                path.unlink(missing_ok=True)

    def _snapshot_of(self, slug: str, archive: str) -> Snapshot:
        found = self.snapshots(slug)
        for snapshot in reversed(found):
            if snapshot.archive == archive:
                return snapshot
        known = ", ".join(sorted({snapshot.archive for snapshot in found})) or "none"
        raise InvalidInput(f"there is no copy of archive {archive}", where=slug, hint=f"known: {known}")

    def _dump(self, snapshot: Snapshot, suffix: str, target: Path) -> None:
        (path,) = (path for path in snapshot.paths if path.endswith(suffix))
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(descriptor, "wb") as file:
            self.restic.run("dump", snapshot.id, path, output=file)
            os.fsync(file.fileno())

    def snapshots(self, slug: str | None = None) -> tuple[Snapshot, ...]:
        """The fleet's snapshots, the oldest first, of one tenant or of all."""
        tags = self._fleet_tag if slug is None else f"{self._fleet_tag},tenant:{slug}"
        found = json.loads(self.restic.run("snapshots", "--json", "--tag", tags)) or []
        return tuple(sorted((_snapshot(entry) for entry in found), key=lambda snapshot: snapshot.time))

    @property
    def _fleet_tag(self) -> str:
        return f"fleet:{_UNTAGGABLE.sub('-', self.brand.lower()).strip('-') or 'unnamed'}"


def _complete(summary: dict[str, Any], files: Sequence[Path]) -> str:
    """The snapshot's id; of a file that it does not find, restic says "skipping" and ends with 0."""
    found = (summary.get("total_files_processed"), summary.get("total_bytes_processed"))
    if found != (len(files), sum(path.stat().st_size for path in files)):
        raise CommandFailed(f"restic took {found[0]} of {len(files)} files, {found[1]} bytes")
    return str(summary["snapshot_id"])


def _summary(words: str) -> dict[str, Any]:
    for line in reversed(words.splitlines()):
        try:
            message = json.loads(line)
        except ValueError:
            continue
        if isinstance(message, dict) and message.get("message_type") == "summary" and message.get("snapshot_id"):
            return message
    raise CommandFailed("restic ended without the summary of its snapshot")


def _snapshot(entry: dict[str, Any]) -> Snapshot:
    slugs = [tag.removeprefix("tenant:") for tag in entry.get("tags") or () if tag.startswith("tenant:")]
    return Snapshot(entry["short_id"], _second(entry["time"]), slugs[0] if slugs else "", tuple(entry["paths"]))


def _second(time: str) -> str:
    """A time of restic's, with nanoseconds and an offset, as documents say it."""
    return iso(datetime.datetime.fromisoformat(_FRACTION.sub("", time)))
