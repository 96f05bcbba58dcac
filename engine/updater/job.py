"""The frame of every job that mutates a subject: lock first, then the record, then the work."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import gevent

from engine.clock import Clock, new_run_id
from engine.errors import RecordFailed, TenantryError
from engine.locks import HeldLock
from engine.records import RunRecord, RunResult
from engine.registry.model import Tenant
from engine.subject import Subject
from engine.updater.events import Event, Phase
from engine.updater.outcome import Outcome, failed, placed
from engine.updater.workspace import Workspace


@dataclass
class Job:
    """One running job on one tenant: its held lock, its record, its voice, and the clock it waits by."""

    workspace: Workspace
    tenant: Tenant
    lock: HeldLock
    record: RunRecord
    clock: Clock

    @property
    def run_id(self) -> str:
        return self.record.state.run

    def enter(self, phase: Phase, message: str) -> None:
        """Say that `phase` begins, on the record and to the person."""
        self.record.update(phase=phase.value)
        self.tell(phase, message)

    def tell(self, phase: Phase, message: str) -> None:
        """Say something within a phase; it goes to the log and to the person."""
        self.record.log(f"{phase}: {message}")
        self.workspace.report(Event(self.tenant.slug, phase, message))

    def update(self, **changes: Any) -> None:
        """Change fields of the run's state file."""
        self.record.update(**changes)


def run_job(
    workspace: Workspace,
    tenant: Tenant,
    name: str,
    work: Callable[[Job], Outcome],
    clock: Clock | None = None,
    *,
    subject: Subject | None = None,
) -> Outcome:
    """Run `work` under the tenant's lock and record; never raises, one tenant never stops another.

    A busy tenant writes no record. An error that is not ours is a defect: its traceback goes to the
    run's log only. `subject` is what is locked instead, for a job that leaves the tenant itself alone.
    """
    run, subject = new_run_id(workspace.clock), subject or tenant.subject
    try:
        with workspace.locks.hold(subject, job=name, run=run) as lock:
            record = workspace.runs.start(subject, job=name, run=run, process=os.getpid())
            outcome = _work(Job(workspace, tenant, lock, record, clock or workspace.clock), work)
            workspace.report(Event(tenant.slug, Phase.DONE, outcome.error or outcome.result.value))
            return outcome
    except TenantryError as error:
        workspace.report(Event(tenant.slug, Phase.DONE, str(error)))
        return failed(tenant.slug, error)


def _work(job: Job, work: Callable[[Job], Outcome]) -> Outcome:
    try:
        outcome = replace(work(job), run=job.run_id)
    except TenantryError as error:
        outcome = failed(job.tenant.slug, placed(error, job.tenant), job.run_id)
    except Exception as error:
        outcome = failed(job.tenant.slug, defect(job.record, error, job.tenant.slug), job.run_id)
    return _finish(job, outcome)


def _finish(job: Job, outcome: Outcome) -> Outcome:
    """Close the record; a record that cannot be closed is the run's error, whatever it achieved."""
    try:
        if outcome.error:
            job.record.log(outcome.error.replace("\n", " | "))
        # In a native thread: while one tenant's record is forced to the disk, the others go on.
        gevent.get_hub().threadpool.apply(job.record.finish, (outcome.result, outcome.error), _versions(outcome))
    except RecordFailed as error:
        return failed(job.tenant.slug, error, job.run_id)
    return outcome


def _versions(outcome: Outcome) -> dict[str, str | None]:
    """The versions that the record ends with: those that were announced, where the outcome knows none."""
    versions = {"from_version": outcome.from_version, "to_version": outcome.to_version}
    if outcome.result is RunResult.ROLLED_BACK:
        # What was announced is what the tenant was put back from, perhaps to version zero.
        return versions
    return {name: version for name, version in versions.items() if version is not None}


def defect(record: RunRecord, error: Exception, where: str) -> TenantryError:
    """What stands for an error that is not ours, which is being handled; its traceback goes to the run's log only."""
    message = f"internal error: {type(error).__name__} in phase {record.state.phase}"
    try:
        for line in traceback.format_exc().splitlines():
            record.log(line)
    except RecordFailed:
        message += "; the log could not be written either"
    return TenantryError(message, where=where, hint=f"report it with the log {record.log_file}")
