"""A tenant's archives on the operator's machine: one directory, where a name appears only with the whole file."""

from __future__ import annotations

import datetime
import json
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from engine.backups.manifest import Manifest, load_manifest, save_manifest
from engine.clock import iso
from engine.errors import ArchiveRejected, InvalidInput, RecordFailed, Refused
from engine.records.atomic import append_line, sync_directory
from engine.registry.settings import Settings
from engine.subject import Subject

ID_FORMAT = "%Y%m%dT%H%M%SZ"
HISTORY = "history.jsonl"
CLOCK_JITTER = datetime.timedelta(minutes=1)
"""How far a clock may be behind the newest archive: two backups within a second, or a clock corrected in between."""

_SUFFIX = ".tar.zst"
_ID = r"[0-9]{8}T[0-9]{6}Z"


@dataclass(frozen=True)
class StoredArchive:
    """An archive file. It is verified if its manifest is there and tells its name and size; else `problem` says why."""

    archive: str
    path: Path
    size_bytes: int
    manifest: Manifest | None
    problem: str | None = None

    @property
    def is_verified(self) -> bool:
        return self.problem is None

    @property
    def taken_at(self) -> datetime.datetime:
        """The time in its name; file times mean nothing."""
        return moment_of(self.archive)


class ArchiveStore:
    """The archives of `subject`, in ``<root>/<kind>/<id>``. Whoever writes holds the subject's lock."""

    def __init__(self, root: Path, subject: Subject) -> None:
        self.subject = subject
        self.directory = root / subject.kind / subject.id
        self._name = re.compile(rf"{re.escape(subject.id)}-({_ID}){re.escape(_SUFFIX)}")
        self._left = re.compile(rf"\.{self._name.pattern}(\.json)?(\.[0-9a-f]+)?\.partial")

    def archives(self) -> tuple[StoredArchive, ...]:
        """Every file with the name of an archive of this subject, oldest first by that name."""
        found = []
        for path in self._files():
            archive = self._id_of(path.name)
            if archive is not None and path.is_file() and not path.is_symlink():
                found.append(self._stored(archive, path))
        return tuple(sorted(found, key=lambda item: item.archive))

    def newest(self) -> StoredArchive | None:
        """The newest verified archive."""
        return next((item for item in reversed(self.archives()) if item.is_verified), None)

    def get(self, archive: str) -> StoredArchive:
        """The archive with this id; raises :class:`InvalidInput` naming the known ones."""
        archives = self.archives()
        for item in archives:
            if item.archive == archive:
                return item
        known = ", ".join(item.archive for item in archives) or "none"
        raise InvalidInput(
            f"there is no archive {archive}", where=self.subject.id, hint=f"known: {known}; see `tenantry backups`"
        )

    def prepare(self) -> None:
        """Have the directory, private, without what a killed run left in it; raises :class:`RecordFailed`."""
        try:
            _make_private(self.directory)
            for path in self._files():
                if self._left.fullmatch(path.name) or self._is_orphan(path):
                    path.unlink()
        except OSError as error:
            raise self._failed("cannot be made ready", error) from error

    def free_id(self, moment: datetime.datetime) -> str:
        """The id for an archive begun at `moment`: later than every verified archive's, and never used before.

        Raises :class:`Refused` for a clock that is behind the newest one by more than :data:`CLOCK_JITTER`: what
        it names would be the oldest archive, the first to expire, and never the one that is restored.
        """
        moment, newest = moment.astimezone(datetime.UTC), self.newest()
        if newest is not None and moment <= newest.taken_at:
            if newest.taken_at - moment > CLOCK_JITTER:
                raise self._clock_is_behind(moment, newest)
            moment = newest.taken_at + datetime.timedelta(seconds=1)
        while os.path.lexists(self.path_of(moment.strftime(ID_FORMAT))):
            moment += datetime.timedelta(seconds=1)
        return moment.strftime(ID_FORMAT)

    def path_of(self, archive: str) -> Path:
        return self.directory / f"{self.subject.id}-{archive}{_SUFFIX}"

    def partial_of(self, archive: str) -> Path:
        """Where an archive is while it comes in."""
        return self.directory / f".{self.subject.id}-{archive}{_SUFFIX}.partial"

    def publish(self, manifest: Manifest) -> StoredArchive:
        """Give a received partial file, which is on the disk, its name and its manifest.

        Raises :class:`RecordFailed`; then neither is there: what had its name already is taken back.
        """
        partial, path = self.partial_of(manifest.archive), self.path_of(manifest.archive)
        try:
            save_manifest(manifest_path(path), manifest)
            os.rename(partial, path)
            sync_directory(self.directory)
        except (OSError, RecordFailed) as error:
            for left in (path, manifest_path(path)):
                with suppress(OSError):
                    left.unlink()
            if isinstance(error, RecordFailed):
                raise
            raise self._failed("cannot publish the archive", error) from error
        return self._stored(manifest.archive, path)

    def remove(self, archives: Sequence[StoredArchive]) -> None:
        """Delete archives with their manifests; raises :class:`RecordFailed`."""
        try:
            for item in archives:
                # In this order a crash leaves a manifest without its archive, which the next run clears away.
                item.path.unlink()
                with suppress(FileNotFoundError):
                    manifest_path(item.path).unlink()
            sync_directory(self.directory)
        except OSError as error:
            raise self._failed("cannot delete an old archive", error) from error

    def note(self, item: StoredArchive, moment: datetime.datetime) -> None:
        """Append the one line of a success to the history, durably; raises :class:`RecordFailed`."""
        digest = item.manifest.digest if item.manifest else None
        entry = {"time": iso(moment), "file": item.path.name, "size_bytes": item.size_bytes, "digest": digest}
        append_line(self.directory / HISTORY, json.dumps(entry))

    def _files(self) -> list[Path]:
        try:
            return list(self.directory.iterdir())
        except FileNotFoundError:
            return []
        except OSError as error:
            raise self._failed("cannot be listed", error) from error

    def _id_of(self, name: str) -> str | None:
        match = self._name.fullmatch(name)
        try:
            return moment_of(match[1]).strftime(ID_FORMAT) if match else None
        except ValueError:
            return None

    def _is_orphan(self, path: Path) -> bool:
        """Whether this is a manifest whose archive was never published, or is deleted."""
        name = path.name.removesuffix(".json")
        return name != path.name and self._id_of(name) is not None and not os.path.lexists(self.directory / name)

    def _stored(self, archive: str, path: Path) -> StoredArchive:
        size = path.stat().st_size
        try:
            manifest = load_manifest(manifest_path(path))
        except ArchiveRejected as error:
            return StoredArchive(archive, path, size, None, error.message)
        problem = None
        if (manifest.slug, manifest.archive) != (self.subject.id, archive):
            problem = f"its manifest is that of {manifest.slug} {manifest.archive}"
        elif manifest.size_bytes != size:
            problem = f"it has {size} bytes, its manifest says {manifest.size_bytes}"
        return StoredArchive(archive, path, size, manifest, problem)

    def _clock_is_behind(self, moment: datetime.datetime, newest: StoredArchive) -> Refused:
        return Refused(
            f"this machine's clock says {iso(moment)}, but archive {newest.archive} is of {iso(newest.taken_at)}",
            where=self.subject.id,
            hint="set the clock; if it is right, that archive was named by a wrong one: move it and every other one "
            f"of the future, each with its .json, out of {self.directory}",
        )

    def _failed(self, problem: str, error: OSError) -> RecordFailed:
        return RecordFailed(
            f"{problem}: {error.strerror}", where=str(self.directory), hint="free space or correct permissions"
        )


def moment_of(archive: str) -> datetime.datetime:
    """When the archive with this id was begun; raises ValueError for what is no id."""
    return datetime.datetime.strptime(archive, ID_FORMAT).replace(tzinfo=datetime.UTC)


def manifest_path(archive: Path) -> Path:
    """Where the manifest of the archive file `archive` is."""
    return archive.with_name(archive.name + ".json")


def backup_root(settings: Settings, state_directory: Path) -> Path:
    """The directory of all archives; a relative one starts at the state directory."""
    return state_directory / Path(settings.backup.directory).expanduser()


def _make_private(directory: Path) -> None:
    if not directory.is_dir():
        _make_private(directory.parent)
        directory.mkdir(mode=0o700, exist_ok=True)
