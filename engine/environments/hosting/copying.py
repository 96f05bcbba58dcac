"""Copies of a fleet's environments: who carries some, which are due, and what a new environment is made from."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from engine.environments.copies import Copy, Source, back_up, due, is_restored, known, require_whole, restore
from engine.environments.drivers.base import Kind
from engine.environments.effects import is_ours, made_by
from engine.environments.hosting.workspace import Hosting
from engine.environments.journal import State, SubjectRow
from engine.environments.life import resources
from engine.environments.observation import Present, Unknown
from engine.environments.spec import Specification, read
from engine.environments.words import Attention, Refusal
from engine.errors import EnvironmentRefused, UnknownState
from engine.records import RunResult
from engine.registry.environments import load_environments
from engine.updater.events import Phase

if TYPE_CHECKING:
    from engine.environments.hosting.jobs import Ended, Job


def carries_backup(spec: Specification) -> bool:
    """Whether copies are made of it: it is durable, and the data is its own."""
    return spec.subject().durable


def with_backup(hosting: Hosting) -> tuple[SubjectRow, ...]:
    """Every environment and tier that is ready and carries a backup."""
    rows = (row for row in hosting.journal.subjects() if row.state is State.READY)
    return tuple(row for row in rows if carries_backup(read(row.spec)))


def require_copy(hosting: Hosting, uuid: str, copy_id: str) -> None:
    """Raise :class:`EnvironmentRefused` with ``copyUnknown`` unless there is this copy of `uuid`."""
    known(hosting.copies, Source(uuid, copy_id))


def list_copies(hosting: Hosting, uuid: str) -> tuple[Copy, ...]:
    """The copies of `uuid`, the oldest first; raises :class:`UnknownState`."""
    return hosting.copies.copies(uuid)


def due_copies(hosting: Hosting, row: SubjectRow, now: datetime.datetime) -> tuple[str, ...]:
    """The ids of those copies of a subject that are to be removed at `now`; raises :class:`UnknownState`.

    The newest stays, and so does one that an environment of the inventory has yet to be made from. All stay while
    data is retained. After the tombstone there are none, unless a job that was thought dead has written on.
    """
    if row.state is State.TOMBSTONED:
        return tuple(hosting.copies.found(row.uuid))
    if row.state is not State.READY:
        return ()
    kept = datetime.timedelta(hours=hosting.settings.copies_kept_hours)
    return due(hosting.copies.found(row.uuid), now, kept, frozenset(_needed(hosting, row.uuid)))


def with_due_copies(hosting: Hosting) -> tuple[SubjectRow, ...]:
    """Every environment and tier that has copies to remove, of those that need no attention."""
    rows = [row for row in hosting.journal.subjects() if row.attention is None and carries_backup(read(row.spec))]
    if not rows:
        return ()
    having, now = frozenset(hosting.copies.uuids()), hosting.clock.now()
    return tuple(row for row in rows if row.uuid in having and due_copies(hosting, row, now))


def expire_copies(hosting: Hosting, uuid: str, now: datetime.datetime) -> tuple[str, ...]:
    """Remove what :func:`due_copies` says; the ids. To be called under the lock of `uuid`."""
    expired: list[str] = []
    while due_now := due_copies(hosting, hosting.journal.required(uuid), now):
        # Decided anew before each: an entry may have been written meanwhile that is to be made from one of them.
        hosting.copies.remove(uuid, due_now[0])
        expired.append(due_now[0])
    return tuple(expired)


def expire_job(job: Job) -> Ended:
    """Remove the old copies of the job's subject."""
    hosting = job.hosting
    hosting.require_parents()
    job.enter(Phase.APPLY, "removing old copies")
    expired = expire_copies(hosting, job.uuid, hosting.clock.now())
    if expired:
        hosting.journal.writer(job.uuid).receipt("expire-backups", "done", f"{len(expired)} copies")
    return job.ended(*expired)


def back_up_job(job: Job) -> Ended:
    """Make a copy of the job's subject.

    Raises :class:`EnvironmentRefused`, :class:`CopyFailed` and :class:`UnknownState`.
    """
    hosting, uuid = job.hosting, job.uuid
    row = hosting.journal.required(uuid)
    spec = read(row.spec)
    _require_ready(row, spec)
    hosting.require_parents()
    _require_storage(hosting, spec)
    job.enter(Phase.ARCHIVE, "copying its database, then its bucket")
    copy = back_up(hosting.copies, hosting.parents.postgres, spec, hosting.clock, _unmoved(hosting, row))
    hosting.journal.writer(uuid).receipt("backup", "done", copy.id)
    size = f"{copy.size_bytes} bytes, {len(copy.objects)} objects, {sum(copy.dump.rows.values())} rows"
    return replace(job.ended(copy.id, messages=(f"copy {copy.id}: {size}",)), result=RunResult.BACKED_UP)


def require_source(hosting: Hosting, spec: Specification) -> None:
    """Raise unless the copy that `spec` is still to be made from is whole; :func:`require_whole` says what."""
    source = Source.of(spec)
    row = hosting.journal.subject(spec.uuid)
    if source is None or (row is not None and row.state is not State.CREATING):
        return
    if not is_restored(hosting.parents.postgres, spec, source):
        require_whole(hosting.copies, source)


def seed(hosting: Hosting, spec: Specification) -> None:
    """Fill the new database and bucket of `spec` from the copy that it names, if it names one."""
    source = Source.of(spec)
    if source is None:
        return
    password = hosting.credentials.ensure(spec.uuid).password.encode()
    # Whatever it is by now, only what is being created may be filled.
    confirm = _unmoved(hosting, replace(hosting.journal.required(spec.uuid), state=State.CREATING))
    if restore(hosting.copies, hosting.parents.postgres, spec, source, password, confirm):
        hosting.journal.writer(spec.uuid).receipt("restore", "done", source.copy_id)


def _unmoved(hosting: Hosting, row: SubjectRow) -> Callable[[], None]:
    """What raises :class:`EnvironmentRefused` with ``fenced`` once a subject is not what it was in `row`."""

    def confirm() -> None:
        now = hosting.journal.required(row.uuid)
        if (now.epoch, now.state) != (row.epoch, row.state):
            raise EnvironmentRefused(Refusal.FENCED, f"it is {now.state} by now", where=row.uuid)

    return confirm


def _require_ready(row: SubjectRow, spec: Specification) -> None:
    if not carries_backup(spec):
        raise EnvironmentRefused(
            Refusal.CARRIES_NO_BACKUP, "only a durable one with storage of its own does", where=row.uuid
        )
    if row.state is not State.READY:
        raise EnvironmentRefused(Refusal.NOT_READY, f"it is {row.state}", where=row.uuid)


def _require_storage(hosting: Hosting, spec: Specification) -> None:
    """Raise unless database and bucket are there and ours."""
    effects = hosting.journal.effects(spec.uuid)
    for item in resources(hosting.parts, spec, (Kind.DATABASE, Kind.BUCKET)):
        found = item.driver.observe(item.name)
        where = f"{item.driver.kind} {item.name}"
        if isinstance(found, Unknown):
            raise UnknownState(f"{Refusal.OBSERVATION_UNKNOWN}: {found.word}", where=where)
        if not isinstance(found, Present):
            raise EnvironmentRefused(Attention.RESOURCE_MISSING, "it is not there", where=where)
        if not is_ours(found, made_by(item, effects)):
            raise EnvironmentRefused(Refusal.FOREIGN_RESOURCE, "it does not carry our mark", where=where)


def _needed(hosting: Hosting, uuid: str) -> Iterator[str]:
    """The copies of `uuid` that environments of the inventory, as it is now, have yet to be made from."""
    for entry in load_environments(hosting.fleet.root).environments.values():
        if entry.restore is None or entry.restore.environment != uuid or entry.retired:
            continue
        row = hosting.journal.subject(entry.uuid)
        if row is None or row.state is State.CREATING:
            yield entry.restore.backup
