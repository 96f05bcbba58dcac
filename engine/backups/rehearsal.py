"""Rehearsals: the newest archive of a tenant, restored, booted and converged on a scratch server."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from engine.backups.choice import Chosen, choose
from engine.backups.proofs import Proof, ProofStore
from engine.backups.restore import Onto
from engine.backups.scratch import (
    marks_of,
    require_isolated,
    require_no_way_out,
    scratch_subject,
    scratch_tenant,
    scratch_workspace,
    tell_nobody,
    unproven_channels,
)
from engine.clock import Clock, iso, new_run_id
from engine.errors import Busy, Refused, RehearsalFailed, TenantryError
from engine.hosts.pool import SessionPool
from engine.hosts.session import Session
from engine.provision.installer import Deploys, Finish, Provision
from engine.provision.servers import provider_for
from engine.records import RunResult
from engine.registry.model import Tenant
from engine.updater.events import Phase
from engine.updater.fleet import map_tenants
from engine.updater.job import Job, run_job
from engine.updater.notify import Sender
from engine.updater.outcome import Outcome, failed, placed
from engine.updater.workspace import Workspace


@dataclass(frozen=True)
class RehearsalOutcome(Outcome):
    """How a rehearsal ended; `proof` is what was recorded of it, None where it never began."""

    proof: Proof | None = None


def rehearse_many(
    workspace: Workspace, tenants: Sequence[Tenant], *, archive: str | None = None, parallel: int = 1
) -> tuple[Outcome, ...]:
    """Rehearse a restore of each tenant, `parallel` at a time; the tenants themselves are neither asked nor locked.

    Scratch servers that killed rehearsals left behind are destroyed first.
    """
    deploys = Deploys.load(workspace.fleet.root)
    refused, wanted = _sorted_out(workspace, tenants)
    scratch = scratch_workspace(workspace, wanted.values())
    if tenants:
        _sweep(workspace, wanted, tenants[0])

    def rehearse_one(pool: SessionPool, stand_in: Tenant) -> Outcome:
        tenant = wanted[stand_in.slug]

        def work(job: Job) -> Outcome:
            return Rehearsal(workspace, tenant, job, pool, deploys).run(archive)

        outcome = run_job(scratch, stand_in, "rehearse", work, pool.clock, subject=scratch_subject(tenant))
        return replace(outcome, slug=tenant.slug)

    ended = map_tenants(scratch, list(scratch.fleet.tenants.values()), rehearse_one, parallel=parallel)
    by_slug = {outcome.slug: outcome for outcome in (*refused, *ended)}
    return tuple(by_slug[tenant.slug] for tenant in tenants)


@dataclass
class Parts:
    """How long each part took, in seconds, one after the other."""

    clock: Clock
    seconds: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._begun = self._last = self.clock.monotonic()

    def mark(self, part: str) -> None:
        """`part` is over."""
        now = self.clock.monotonic()
        self.seconds[part] = round(self.seconds.get(part, 0) + now - self._last, 2)
        self._last = now

    @property
    def total(self) -> float:
        return round(self.clock.monotonic() - self._begun, 2)


@dataclass
class Rehearsal:
    """One rehearsal, within a job that holds the scratch subject; `job` knows the scratch server alone."""

    workspace: Workspace
    tenant: Tenant
    job: Job
    pool: SessionPool
    deploys: Deploys

    def __post_init__(self) -> None:
        self._parts = Parts(self.workspace.clock)
        self._archive = ""

    def run(self, archive: str | None) -> Outcome:
        """Restore, boot and verify on a scratch server that is destroyed whatever happens; records the proof.

        Raises :class:`Refused`, and destroys nothing, where a server of that name is there that no rehearsal made.
        """
        provider = provider_for(self.job.workspace, self.job.tenant, lambda text: self.job.tell(Phase.REBUILD, text))
        marks = marks_of(self.workspace)
        if not marks.has(self.job.tenant) and provider.find(self.job.tenant):
            raise Refused(
                f"there is a server named {self.job.tenant.slug} that no rehearsal made",
                where=self.tenant.slug,
                hint="a rehearsal would destroy it: rename it, or remove it yourself",
            )
        marks.put(self.job.tenant, self.tenant)
        try:
            try:
                # What a killed rehearsal of this tenant left.
                provider.destroy(self.job.tenant)
                return self._rehearse(archive)
            except TenantryError as error:
                self._record(RunResult.FAILED, str(placed(error, self.tenant)))
                raise
            except Exception as error:
                self._record(RunResult.FAILED, f"internal error: {type(error).__name__}")
                raise
        finally:
            try:
                self.job.enter(Phase.DESTROY, "removing the scratch server")
            finally:
                # Nobody who listens is no reason to leave it.
                provider.destroy(self.job.tenant)
                marks.remove(self.job.tenant)

    def _rehearse(self, archive: str | None) -> Outcome:
        self.job.enter(Phase.ARCHIVE, "reading the archive")
        chosen = choose(self.workspace, self.tenant, archive)
        self._archive = chosen.archive
        self._parts.mark("read the archive")
        self.job.tell(Phase.ARCHIVE, f"archive {chosen.archive} of version {chosen.version or 'zero'} is whole")
        outcome = Provision(self.job, self.pool, self.deploys, tell_nobody, finish=self._finish(chosen)).run()
        if outcome.error:
            raise RehearsalFailed(outcome.error)
        proof = self._record(RunResult.REHEARSED, None, outcome.to_version)
        return RehearsalOutcome(
            slug=self.tenant.slug,
            result=RunResult.REHEARSED,
            from_version=str(chosen.version) if chosen.version else None,
            to_version=outcome.to_version,
            messages=(*outcome.messages, *self._unproven_words()),
            proof=proof,
        )

    def _finish(self, chosen: Chosen) -> Finish:
        def finish(job: Job, session: Session, sender: Sender) -> Outcome:
            # Before anything of the tenant's gets there.
            require_no_way_out(session)
            return Onto(chosen, self._parts.mark).finish(job, session, sender)

        return finish

    def _record(self, result: RunResult, error: str | None, version: str | None = None) -> Proof:
        proof = Proof(
            run=self.job.run_id,
            archive=self._archive,
            at=iso(self.workspace.clock.now()),
            duration_seconds=self._parts.total,
            result=result,
            unproven=unproven_channels(self.workspace.fleet.settings),
            phases=self._parts.seconds,
            version=version,
            error=error,
        )
        ProofStore(self.workspace.state_directory / "records").record(self.tenant.subject, proof)
        return proof

    def _unproven_words(self) -> tuple[str, ...]:
        names = unproven_channels(self.workspace.fleet.settings)
        return (f"unproven, because they need an account outside: {', '.join(names)}",) if names else ()


def _sorted_out(workspace: Workspace, tenants: Sequence[Tenant]) -> tuple[list[Outcome], dict[str, Tenant]]:
    """The tenants that cannot be rehearsed, with the reason; the others by their scratch servers' names."""
    refused, wanted = [], {}
    for tenant in tenants:
        try:
            stand_in = scratch_tenant(workspace.fleet, tenant)
            require_isolated(workspace, stand_in)
            wanted[stand_in.slug] = tenant
        except TenantryError as error:
            refused.append(failed(tenant.slug, placed(error, tenant)))
    return refused, wanted


def _sweep(workspace: Workspace, others: Collection[str], template: Tenant) -> None:
    """Destroy what killed rehearsals left, `others` aside; those that are going on hold their lock."""
    marks = marks_of(workspace)
    for server, subject in marks.left(template):
        # A tenant that was registered with that name since has a server that is no scratch server.
        if server.slug in others or server.slug in workspace.fleet.tenants:
            continue
        run = new_run_id(workspace.clock)
        with suppress(Busy), workspace.locks.hold(subject, job="sweep", run=run):
            provider_for(workspace, server, lambda text: None).destroy(server)
            marks.remove(server)
