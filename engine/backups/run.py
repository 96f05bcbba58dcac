"""One backup of one tenant: lock, probe, claim, stream, publish, prune."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import Any

from engine.backups.contents import check_contents
from engine.backups.copies import Copies
from engine.backups.manifest import Database, Manifest, problem_of
from engine.backups.reading import ArchiveReader
from engine.backups.receive import Reception
from engine.backups.request import check_answer, request
from engine.backups.restic import ResticProgram
from engine.backups.retention import expired
from engine.backups.store import ArchiveStore, StoredArchive, backup_root, manifest_path
from engine.clock import iso
from engine.errors import ArchiveRejected, Refused, TenantryError, UnknownState
from engine.hosts.pool import SessionPool
from engine.hosts.session import Session
from engine.hosts.status_reader import read_marker
from engine.records import RunResult
from engine.registry.model import Tenant
from engine.registry.settings import Settings
from engine.updater.assessment import version_of_record
from engine.updater.events import Phase
from engine.updater.fleet import each_tenant
from engine.updater.job import Job, run_job
from engine.updater.outcome import Outcome, placed, result_of
from engine.updater.survivors import probe_after_survivors
from engine.updater.workspace import Workspace


@dataclass(frozen=True)
class BackupOutcome(Outcome):
    """How a backup ended: the published archive, and the ids of the ones that retention removed.

    One with an error has an archive too, if that came after it was published.
    """

    stored: StoredArchive | None = None
    removed: tuple[str, ...] = ()


def backup_many(workspace: Workspace, tenants: Sequence[Tenant], *, parallel: int | None = None) -> tuple[Outcome, ...]:
    """Back up `tenants`, at most `parallel` at a time; one tenant's failure leaves the others alone.

    Raises :class:`InvalidInput` before any connection for contents that no archive could hold.
    """

    check_contents(workspace.fleet.settings)

    def backup_one(pool: SessionPool, tenant: Tenant) -> Outcome:
        def work(job: Job) -> Outcome:
            job.tell(Phase.CONNECT, "connecting")
            with pool.session(tenant) as session:
                backup = Backup(job, session)
                stored = backup.archive()
            # The connection has no part in what follows.
            return backup.keep(stored)

        return run_job(workspace, tenant, "backup", work, pool.clock)

    return each_tenant(workspace, tenants, backup_one, parallel=parallel or workspace.fleet.settings.backup.parallel)


class Backup:
    """A backup within a job that holds the tenant's lock."""

    def __init__(self, job: Job, session: Session) -> None:
        self._job = job
        self._session = session
        self._messages: list[str] = []
        self._store = store_of(job.workspace, job.tenant)

    def archive(self) -> StoredArchive:
        """Stream, verify and publish one archive; whatever it raises, the tenant's directory is as it was.

        Raises :class:`Refused` before the tenant is touched for a clock that is behind the newest archive.
        """
        self._check_tenant()
        self._store.prepare()
        started = self._job.clock.now()
        archive = self._store.free_id(started)
        self._session.claim(self._job.run_id)
        self._job.enter(Phase.ARCHIVE, f"streaming archive {archive}")
        reception = Reception(self._store.partial_of(archive), self._slug)
        try:
            reader = self._receive(reception)
            manifest = manifest_of(reader, self._slug, archive, self._job.run_id)
            manifest = replace(manifest, started_at=iso(started), finished_at=iso(self._job.clock.now()))
            self._check(manifest)
            self._job.enter(Phase.PUBLISH, f"{manifest.size_bytes} bytes, {manifest.members} members, whole")
            return self._store.publish(manifest)
        finally:
            reception.abandon()

    def keep(self, stored: StoredArchive) -> Outcome:
        """What follows a success: the history's line, the offsite copy, and then retention.

        Where one of them fails the archive is published all the same: the outcome has it and the error.
        """
        outcome = BackupOutcome(self._slug, RunResult.BACKED_UP, messages=tuple(self._messages), stored=stored)
        try:
            self._store.note(stored, self._job.clock.now())
            self._send(stored)
            return replace(outcome, removed=self._prune())
        except TenantryError as error:
            told = str(placed(error, self._job.tenant))
            return replace(outcome, result=result_of(error), exit_code=error.exit_code, error=told)

    def _send(self, stored: StoredArchive) -> None:
        workspace, settings = self._job.workspace, self._settings.backup
        if settings.restic:
            self._job.enter(Phase.OFFSITE, "sending the archive to the offsite repository")
            program = ResticProgram(settings.restic, workspace.secrets, workspace.state_directory)
            copies = Copies(program, self._settings.brand)
            copies.send(self._slug, (stored.path, manifest_path(stored.path)))

    def _prune(self) -> tuple[str, ...]:
        kept = self._settings.backup.kept
        old = expired(self._store.archives(), kept)
        self._store.remove(old)
        removed = tuple(item.archive for item in old)
        if removed:
            self._job.tell(Phase.PUBLISH, f"removed beyond the newest {kept}: {', '.join(removed)}")
        return removed

    def _check_tenant(self) -> None:
        """Raise for a server that was never provisioned, and for one that is between two versions.

        A marker that cannot be read is no reason for no backup.
        """
        self._job.tell(Phase.PROBE, "asking the tenant")
        status = probe_after_survivors(self._job, self._session)
        if status.armed:
            # A claim would be a sign of life to the dead-man, and what it is going to undo is not what the tenant is.
            raise Refused(
                f"run {status.armed.run} ended within its change, and the tenant is about to be put back",
                where=self._slug,
                hint=f"tenantry converge {self._slug} finishes that; then back up",
            )
        try:
            version_of_record(self._job.tenant, status)
        except UnknownState as error:
            self._messages.append(f"{error.message}; the archive has no version")

    def _receive(self, reception: Reception) -> ArchiveReader:
        wanted = request(self._settings, {"slug": self._slug, "run": self._job.run_id, "engine": version("tenantry")})
        output = self._session.execute(
            wanted.command,
            stdin=wanted.stdin,
            stdout=reception,
            timeout_seconds=self._settings.backup.seconds,
            label="backup",
            direct=True,
        )
        if not check_answer(output, wanted.nonce, self._slug):
            self._messages.append("a file changed while it was read: in the archive it is in part old, in part new")
        reader = reception.finish()
        if reader.description.get("nonce") != wanted.nonce:
            raise ArchiveRejected("the archive is not the one that was asked for", where=self._slug)
        if reader.size_bytes < self._settings.backup.minimum_bytes:
            raise ArchiveRejected(
                f"the archive has {reader.size_bytes} bytes, fewer than {self._settings.backup.minimum_bytes}: "
                "a tenant with so little in it is not one",
                where=self._slug,
                hint="look at `tenantry backup --list-paths` and at the tenant; backup.minimum_bytes is the bound",
            )
        return reader

    def _check(self, manifest: Manifest) -> None:
        problem = problem_of(manifest.document())
        if problem is not None:
            raise ArchiveRejected(f"the archive's description is not one of ours: {problem}", where=self._slug)

    @property
    def _slug(self) -> str:
        return self._job.tenant.slug

    @property
    def _settings(self) -> Settings:
        return self._job.workspace.fleet.settings


def store_of(workspace: Workspace, tenant: Tenant) -> ArchiveStore:
    """Where the archives of `tenant` are."""
    return ArchiveStore(backup_root(workspace.fleet.settings, workspace.state_directory), tenant.subject)


def manifest_of(reader: ArchiveReader, slug: str, archive: str, run: str) -> Manifest:
    """The manifest of an archive that was read to its end; times are left empty. Raises :class:`ArchiveRejected`."""
    found = reader.description
    try:
        marker = read_marker({} if found["marker"] is None else {"text": found["marker"]})
        return Manifest(
            slug=slug,
            archive=archive,
            run=run,
            engine_version=found["engine"],
            started_at="",
            finished_at="",
            size_bytes=reader.size_bytes,
            digest=reader.digest,
            version=str(marker.version) if marker.version else None,
            marker_problem=marker.problem or None,
            applied=_applied(found["applied"]),
            contents=tuple(found["contents"]),
            members=reader.members,
            uncompressed_bytes=reader.uncompressed_bytes,
            databases={path: Database(**known) for path, known in found["databases"].items()},
        )
    except (AttributeError, KeyError, TypeError) as error:
        raise ArchiveRejected(f"the archive's description is not one of ours: {error}", where=slug) from error


def _applied(text: str | None) -> Mapping[str, Any]:
    """The digests of applied releases; what the file holds that is none of them is not told."""
    try:
        value = json.loads(text or "{}")
    except ValueError:
        return {}
    return {key: item for key, item in value.items() if isinstance(item, str)} if isinstance(value, dict) else {}
