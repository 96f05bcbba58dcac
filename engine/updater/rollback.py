"""``tenantry rollback``: a person's decision to put a tenant back to one of its recovery sets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.errors import ExitCode, InvalidInput, Refused
from engine.hosts.pool import SessionPool
from engine.hosts.session import Session
from engine.hosts.status import Held, RecoverySet, Status
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
from engine.updater.safety_net import SafetyNet
from engine.updater.standing import moment
from engine.updater.survivors import probe_after_survivors
from engine.updater.workspace import Workspace


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
    """One rollback within a job that holds the tenant's lock."""

    job: Job
    session: Session
    to: str | None

    def run(self) -> Outcome:
        """Choose the set, wait for silence, put the tenant back and prove it; raises what stopped it."""
        self.job.tell(Phase.PROBE, "asking the tenant")
        status = probe_after_survivors(self.job, self.session)
        self._choose(status)
        self.session.claim(self.job.run_id)
        # Only from the claim on is the host ours: what was chosen must still be there.
        status = self.session.probe()
        chosen = self._choose(status)
        net = SafetyNet(self.job, self.session, set_run=chosen.run, head=chosen.to_version)
        self._await_silence(net)
        # Also where an earlier run's order is there: what counts now is this one.
        net.arm()
        fall = net.fall_back(chosen.run, self._held(status, chosen))
        version = str(status.marker.version) if status.marker.version else None
        return Outcome(
            slug=self.job.tenant.slug,
            result=RunResult.ROLLED_BACK if fall.is_alive else RunResult.FAILED,
            exit_code=ExitCode.DONE if fall.is_alive else ExitCode.FAILED,
            from_version=version,
            to_version=chosen.from_version,
            restarted=self._gateway is not None,
            messages=fall.messages,
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
            OwedRestart(self.job, self.session, net).await_silence(gateway, polls)

    def _held(self, status: Status, chosen: RecoverySet) -> Held:
        """Held back from what it was at: the next converge would only bring that back."""
        reached = [item.to_version for item in status.recovery if item.run >= chosen.run and not item.undone]
        versions = [Version.parse(text) for text in reached] + [self.job.workspace.manifest.head]
        now = self.job.clock.now().timestamp()
        reason = f"a person rolled it back to {chosen.from_version or 'version zero'}"
        return Held(str(max(versions)), self.job.run_id, now, reason, "person")

    @property
    def _gateway(self) -> Gateway | None:
        return self.job.workspace.fleet.settings.gateway


def choose(found: Sequence[RecoverySet], to: str | None, slug: str) -> RecoverySet:
    """The newest set that was not undone, or the newest of those that `to` names by run or version.

    Raises :class:`Refused` naming the sets that there are.
    """
    usable = [item for item in found if not item.undone]
    wanted = [item for item in usable if to is None or item.run == to or _leads_to(item, to)]
    if wanted:
        return wanted[-1]
    listing = "; ".join(
        f"{item.from_version or 'zero'} (run {item.run}, taken {moment(item.created)})" for item in usable
    )
    raise Refused(
        f"there is no recovery set that leads back to {to}" if to else "there is no recovery set to go back to",
        where=slug,
        hint=f"there are: {listing}" if listing else f"tenantry restore {slug} puts it back to a backup",
    )


def _leads_to(item: RecoverySet, to: str) -> bool:
    if item.from_version is None:
        return to == "zero"
    try:
        return Version.parse(item.from_version) == Version.parse(to)
    except InvalidInput:
        return False
