"""``tenantry rollback``: a person's decision to put a tenant back to one of its recovery sets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from engine.errors import ExitCode, InvalidInput, Refused, RollbackFailed, UnknownState
from engine.hosts.pool import SessionPool
from engine.hosts.session import Session
from engine.hosts.status import Armed, Held, RecoverySet, Status
from engine.records import RunResult
from engine.registry.model import Tenant
from engine.registry.settings import Gateway
from engine.releases.plan import all_steps
from engine.releases.version import Version
from engine.updater.assessment import version_of_record
from engine.updater.events import Phase
from engine.updater.fleet import map_tenants
from engine.updater.job import Job, run_job
from engine.updater.outcome import Outcome
from engine.updater.restart import OwedRestart
from engine.updater.safety_net import Fall, SafetyNet
from engine.updater.standing import moment
from engine.updater.survivors import probe_after_survivors
from engine.updater.workspace import Workspace

PERSON = "person"


def roll_back(workspace: Workspace, tenant: Tenant, to: str | None) -> Outcome:
    """Put `tenant` back to its newest set, or to the one that `to` names by run or by version, in one lock."""

    def roll_back_one(pool: SessionPool, tenant: Tenant) -> Outcome:
        def work(job: Job) -> Outcome:
            job.tell(Phase.CONNECT, "connecting")
            with pool.session(tenant) as session:
                return Rollback(job, session, to).run()

        return run_job(workspace, tenant, "rollback", work, pool.clock)

    return map_tenants(workspace, [tenant], roll_back_one)[0]


@dataclass
class Rollback:
    """One rollback within a job that holds the tenant's lock.

    `by` says whose decision it is, and `reason` why the tenant is then held; the default is a person's.
    """

    job: Job
    session: Session
    to: str | None
    by: str = PERSON
    reason: str | None = None
    _remarks: list[str] = field(default_factory=list, init=False)

    def run(self) -> Outcome:
        """Choose the set, wait for silence, put the tenant back and prove it; raises what stopped it.

        Where a dead-man is armed, its rollback comes first, and may be the one that is wanted.
        """
        self.job.tell(Phase.PROBE, "asking the tenant")
        asked = probe_after_survivors(self.job, self.session)
        if not asked.armed:
            self._choose(asked)
        self.session.claim(self.job.run_id)
        # Only from the claim on is the host ours: what was chosen must still be there.
        status = self.session.probe()
        require_unfinished(asked, status, self.job.tenant.slug)
        return self._finish_first(status, status.armed) if status.armed else self._go_back(status, status)

    def _finish_first(self, status: Status, order: Armed) -> Outcome:
        armed = [item for item in status.recovery if item.run == order.set]
        wanted = next((item for item in armed if self.to is None or is_named(item, self.to)), None)
        net = SafetyNet(self.job, self.session)
        try:
            fall = net.finish(status, self._held(status, wanted) if wanted else None)
        except RollbackFailed as error:
            if wanted or self.to is None:
                raise
            # Nobody can put it back to that set, and another one is wanted.
            net.disarm()
            self._remark(Phase.ROLLBACK, error.message)
            return self._go_back(status, self.session.probe())
        if wanted:
            return self._outcome(status, wanted, fall)
        self._remark(Phase.ROLLBACK, fall.error.message)
        return self._go_back(status, self.session.probe())

    def _go_back(self, before: Status, status: Status) -> Outcome:
        chosen = self._choose(status)
        net = SafetyNet(self.job, self.session, set_run=chosen.run, head=chosen.to_version)
        self._await_silence(net)
        net.arm()
        return self._outcome(before, chosen, net.fall_back(chosen.run, self._held(status, chosen)))

    def _outcome(self, before: Status, chosen: RecoverySet, fall: Fall) -> Outcome:
        return Outcome(
            slug=self.job.tenant.slug,
            result=RunResult.ROLLED_BACK if fall.is_alive else RunResult.FAILED,
            exit_code=ExitCode.DONE if fall.is_alive else ExitCode.FAILED,
            from_version=str(before.marker.version) if before.marker.version else None,
            to_version=chosen.from_version,
            restarted=self._gateway is not None,
            messages=(*self._remarks, *fall.messages),
            error=None if fall.is_alive else str(fall.error),
        )

    def _choose(self, status: Status) -> RecoverySet:
        """The set to go back to; raises :class:`Refused` where there is none or an irreversible step is in the way."""
        chosen = choose(status.recovery, self.to, self.job.tenant.slug)
        marker = version_of_record(self.job.tenant, status)
        crossed = self._crossed(status.recovery, chosen, marker)
        if crossed:
            raise Refused(
                f"there is no way back to {chosen.from_version or 'version zero'} across {', '.join(crossed)}",
                where=self.job.tenant.slug,
                hint=f"tenantry restore {self.job.tenant.slug}",
            )
        return chosen

    def _crossed(self, found: Sequence[RecoverySet], chosen: RecoverySet, marker: Version | None) -> list[str]:
        """The irreversible steps between the set and now, by what the sets say and by the manifest."""
        steps = {step for item in found if item.run >= chosen.run and not item.undone for step in item.irreversible}
        workspace, tenant = self.job.workspace, self.job.tenant
        if marker is not None:
            below = Version.parse(chosen.from_version) if chosen.from_version else None
            for planned in all_steps(workspace.manifest, workspace.step_infos, marker, tenant.trade, tenant.role):
                is_above = below is None or planned.releases[0] > below
                if is_above and workspace.catalog[planned.entry.name].irreversible:
                    steps.add(str(planned.entry))
        return sorted(steps)

    def _await_silence(self, net: SafetyNet) -> None:
        gateway = self._gateway
        if gateway is not None:
            self.job.enter(Phase.QUIESCE, "waiting until the gateway is silent")
            polls = self.job.workspace.fleet.settings.quiesce.polls
            try:
                OwedRestart(self.job, self.session, net).await_silence(gateway, polls)
            except UnknownState as error:
                # What cannot be known may be what the person wants to be rid of.
                if self.by != PERSON:
                    raise
                self._remark(Phase.QUIESCE, f"{error.message}; it is stopped, because a person says so")

    def _remark(self, phase: Phase, message: str) -> None:
        self.job.tell(phase, message)
        self._remarks.append(message)

    def _held(self, status: Status, chosen: RecoverySet) -> Held:
        """Held back from what it was at: the next converge would only bring that back."""
        reached = [item.to_version for item in status.recovery if item.run >= chosen.run and not item.undone]
        versions = [Version.parse(text) for text in reached] + [self.job.workspace.manifest.head]
        now = self.job.clock.now().timestamp()
        reason = self.reason or f"a person rolled it back to {chosen.from_version or 'version zero'}"
        return Held(str(max(versions)), self.job.run_id, now, reason, self.by)

    @property
    def _gateway(self) -> Gateway | None:
        return self.job.workspace.fleet.settings.gateway


def require_unfinished(asked: Status, claimed: Status, slug: str) -> None:
    """Raise :class:`Refused` where the dead-man has done meanwhile what this rollback may have been meant to do."""
    if asked.armed and not claimed.armed:
        raise Refused(
            f"the tenant has just put itself back from run {asked.armed.run}",
            where=slug,
            hint=f"to go further back, roll back again; look first: tenantry status {slug} --live",
        )


def choose(found: Sequence[RecoverySet], to: str | None, slug: str) -> RecoverySet:
    """The newest set that was not undone, or the newest of those that `to` names by run or version.

    Raises :class:`Refused` naming the sets that there are, or the later one that files were moved into.
    """
    usable = [item for item in found if not item.undone]
    wanted = [item for item in usable if to is None or is_named(item, to)]
    if wanted:
        _refuse_across_moved([item for item in usable if item.run > wanted[-1].run and item.moved], wanted[-1], slug)
        return wanted[-1]
    listing = "; ".join(
        f"{item.from_version or 'zero'} (run {item.run}, taken {moment(item.created)})" for item in usable
    )
    raise Refused(
        f"there is no recovery set that leads back to {to}" if to else "there is no recovery set to go back to",
        where=slug,
        hint=f"there are: {listing}" if listing else f"tenantry restore {slug} puts it back to a backup",
    )


def _refuse_across_moved(later: Sequence[RecoverySet], chosen: RecoverySet, slug: str) -> None:
    """An undo closes later sets; files that were moved into one have no other way back."""
    if later:
        raise Refused(
            f"what was live before the restore of run {later[-1].run} lies in that run's recovery set, "
            f"and would not come back from set {chosen.run}",
            where=slug,
            hint=f"first take the restore back: tenantry rollback {slug} --to {later[-1].run}",
        )


def is_named(item: RecoverySet, to: str) -> bool:
    """Whether a person who says `to`, a run or a version, means this set."""
    if item.run == to:
        return True
    if item.from_version is None:
        return to == "zero"
    try:
        return Version.parse(item.from_version) == Version.parse(to)
    except InvalidInput:
        return False
