"""Jobs on environments and tiers: each under its subject's lock, with a run record, and none stops another."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import gevent.pool

from engine.clock import new_run_id
from engine.environments import life, verbs
from engine.environments.conditions import Verb
from engine.environments.drivers.base import Kind
from engine.environments.drivers.postgres_roles import PostgresRoles
from engine.environments.hosting import copying
from engine.environments.hosting.plan import LET_GO, plan_of
from engine.environments.hosting.proof import prove_serving
from engine.environments.hosting.requests import Requests
from engine.environments.hosting.workspace import Hosting
from engine.environments.journal import State
from engine.environments.spec import Specification
from engine.errors import ExitCode, RecordFailed, Refused, TenantryError
from engine.locks import HeldLock
from engine.records import RunRecord, RunResult
from engine.registry.environments_model import Environment, Tier
from engine.subject import Subject
from engine.updater.events import Event, Phase
from engine.updater.job import defect
from engine.updater.outcome import result_of


@dataclass(frozen=True)
class Ended:
    """How a job on one environment or tier ended. `state` is the journal's after it, `done` what was sent."""

    subject: Subject
    result: RunResult
    exit_code: ExitCode = ExitCode.DONE
    run: str | None = None
    state: str | None = None
    done: tuple[str, ...] = ()
    messages: tuple[str, ...] = ()
    error: str | None = None


@dataclass(frozen=True)
class Job:
    """One running job: the lock that it holds until its end, and its record."""

    hosting: Hosting
    subject: Subject
    lock: HeldLock
    record: RunRecord

    @property
    def uuid(self) -> str:
        return self.subject.id

    def enter(self, phase: Phase, message: str) -> None:
        """Say that `phase` begins, on the record and to the person."""
        self.record.update(phase=phase.value)
        self.record.log(f"{phase}: {message}")
        self.hosting.report(Event(str(self.subject), phase, message))

    def ended(self, *done: str, messages: Sequence[str] = ()) -> Ended:
        """The end of a job that went well: it changed something if anything was `done`."""
        result = RunResult.UPDATED if done else RunResult.UNCHANGED
        state = _state(self.hosting, self.subject)
        return Ended(self.subject, result, state=state, done=tuple(done), messages=tuple(messages))


Work = Callable[[Job], Ended]


def run_job(hosting: Hosting, subject: Subject, name: str, work: Work) -> Ended:
    """Run `work` under the lock and the record of `subject`; never raises. A busy one writes no record."""
    run = new_run_id(hosting.clock)
    try:
        with hosting.locks.hold(subject, job=name, run=run) as lock:
            record = hosting.runs.start(subject, job=name, run=run, process=os.getpid())
            ended = replace(_work(Job(hosting, subject, lock, record), work), run=run)
            if ended.error:
                record.log(ended.error.replace("\n", " | "))
            record.finish(ended.result, ended.error)
    except TenantryError as error:
        ended = _failed(hosting, subject, error)
    hosting.report(Event(str(subject), Phase.DONE, ended.error or ended.result.value))
    return ended


def run_jobs(hosting: Hosting, subjects: Sequence[Subject], name: str, work: Work) -> tuple[Ended, ...]:
    """Run `work` for each of `subjects`, so many at a time as the fleet says; all of them in their order."""
    pool = gevent.pool.Pool(hosting.settings.parallel)
    return tuple(pool.imap(lambda subject: run_job(hosting, subject, name, work), subjects))


def converge_all(
    hosting: Hosting, subjects: Sequence[Subject], digests: frozenset[str] | None = None
) -> tuple[Ended, ...]:
    """Converge `subjects`: tiers before what joins them, and after what leaves them.

    With `digests`, only what still has one of these plans: others are refused.
    """

    def work(job: Job) -> Ended:
        if digests is not None and (found := plan_of(hosting, job.uuid).digest) not in digests:
            raise Refused(f"the plan is now {found}", hint="look at `tenantry plan` again")
        return converge(job)

    chosen = [hosting.entry(subject.id) for subject in subjects]
    batches = (
        [entry for entry in chosen if isinstance(entry, Tier) and not entry.retired],
        [entry for entry in chosen if isinstance(entry, Environment)],
        [entry for entry in chosen if isinstance(entry, Tier) and entry.retired],
    )
    ended: list[Ended] = []
    for batch in batches:
        ended += run_jobs(hosting, [entry.subject for entry in batch], "converge", work)
    return tuple(ended)


def converge(job: Job) -> Ended:
    """Bring an entry of the inventory to what it says: there and serving, or retired.

    Raises what :func:`engine.environments.life.create` and :func:`engine.environments.verbs.retire` raise, and
    :class:`LivenessFailed` for an environment that does not answer.
    """
    hosting, entry = job.hosting, job.hosting.entry(job.uuid)
    row = hosting.journal.subject(job.uuid)
    if entry.retired:
        if row is None or row.state in LET_GO:
            return job.ended()
        return retire(job)
    if row is not None:
        life.require_creatable(row)
    spec = hosting.specifications[job.uuid]
    job.enter(Phase.PLAN, f"specification {spec.digest}")
    hosting.require_parents()
    copying.require_source(hosting, spec)
    if isinstance(entry, Tier):
        PostgresRoles(hosting.parents.postgres).refuse_logins(spec.name(Kind.ROLE))
    job.enter(Phase.APPLY, "observing and making its resources")
    made = life.create(
        hosting.parts,
        spec,
        Requests(hosting, spec),
        seed=lambda: copying.seed(hosting, spec),
        prove=lambda: _prove(job, spec),
    )
    return job.ended(*made)


def retire(job: Job) -> Ended:
    """Retire: compute and routing go, and the data too unless it is kept for a while."""
    verbs.require_retirable(job.hosting.journal.required(job.uuid))
    job.hosting.require_parents()
    job.enter(Phase.APPLY, "letting go of its resources")
    return _let_go(job, verbs.retire(job.hosting.parts, job.uuid), "retire")


def abandon(job: Job) -> Ended:
    """Give up a creation; what it made, or may have made, is left to the verbs."""
    life.abandon(job.hosting.parts, job.uuid)
    return job.ended("abandon")


def give_verb(verb: Verb) -> Work:
    """The job that gives `verb` on its subject."""

    def work(job: Job) -> Ended:
        job.hosting.require_parents()
        job.enter(Phase.APPLY, verb.value)
        return _let_go(job, verbs.run(job.hosting.parts, verb, job.uuid), verb.value)

    return work


def _let_go(job: Job, reached: State, done: str) -> Ended:
    row = job.hosting.journal.required(job.uuid)
    kept = (f"its data is kept until {row.retained_until:%Y-%m-%d %H:%M} UTC",) if row.retained_until else ()
    return job.ended(done, messages=kept if reached is State.RETAINED else ())


def _prove(job: Job, spec: Specification) -> None:
    if Kind.GATEWAY in spec.kinds:
        job.enter(Phase.LIVENESS, "waiting until it answers")
        for kind in (Kind.GATEWAY, Kind.WEB):
            # Whole, but maybe off: this machine was switched off meanwhile, or an operator died in between.
            job.hosting.machines(kind).power_on(spec.name(kind))
        prove_serving(job.hosting, spec)


def _work(job: Job, work: Work) -> Ended:
    try:
        return work(job)
    except TenantryError as error:
        return _failed(job.hosting, job.subject, error)
    except Exception as error:
        return _failed(job.hosting, job.subject, defect(job.record, error, str(job.subject)))


def _failed(hosting: Hosting, subject: Subject, error: TenantryError) -> Ended:
    error.where = error.where or str(subject)
    return Ended(subject, result_of(error), error.exit_code, state=_state(hosting, subject), error=str(error))


def _state(hosting: Hosting, subject: Subject) -> str | None:
    """The journal's state of `subject`; None also where the journal is what failed."""
    if not hosting.journal_file.exists():
        return None
    with suppress(RecordFailed):
        row = hosting.journal.subject(subject.id)
        return row.state.value if row else None
    return None
