"""A rollout's tenants as they are: converged, looked at and put back over SSH."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import gevent

from engine.clock import moment_of
from engine.errors import ExitCode, Refused, TenantryError, UnknownState, Unreachable
from engine.hosts.ledger import Ledger
from engine.hosts.pool import SessionPool
from engine.hosts.session import Session
from engine.hosts.status import OwedNote, RecoverySet, Status
from engine.records import RunResult
from engine.registry.model import Tenant
from engine.registry.settings import Gateway, Strategy
from engine.releases.version import Version
from engine.render.notes import compose
from engine.rollout.runner import Ended, Look
from engine.rollout.state import Attempt, Baseline
from engine.rollout.verdict import MemberResult
from engine.updater.assessment import version_of_record
from engine.updater.events import Phase
from engine.updater.fleet import ask_many, converge_one, map_tenants
from engine.updater.job import Job, run_job
from engine.updater.liveness import problems
from engine.updater.notify import Sender, send
from engine.updater.outcome import Options, Outcome
from engine.updater.owner_note import OwnerNote
from engine.updater.rollback import Rollback
from engine.updater.workspace import Workspace

_RESULTS = {
    RunResult.UPDATED: MemberResult.UPDATED,
    RunResult.UNCHANGED: MemberResult.UPDATED,
    RunResult.ROLLED_BACK: MemberResult.ROLLED_BACK,
    RunResult.UNREACHABLE: MemberResult.UNREACHABLE,
    RunResult.DEFERRED: MemberResult.DEFERRED,
    RunResult.BUSY: MemberResult.BUSY,
}

SCRIPT = Path(__file__).with_name("journal_script.py").read_text()
TAKEN_BACK = "The last update is taken back; your assistant is as it was before."
NO_GATEWAY = Baseline(0, 0, 0, 0.0)
UNREGISTERED = "the tenant is no longer in the registry"


@dataclass(frozen=True)
class LiveFleet:
    """Implements :class:`engine.rollout.runner.FleetPort` for the rollout of that id.

    The head of `workspace` is the rollout's target.
    """

    workspace: Workspace
    rollout: str
    strategy: Strategy
    sender: Sender = send

    def converge(
        self,
        attempts: Mapping[str, Attempt],
        *,
        seconds: float,
        begun: Callable[[str], bool],
        ended: Callable[[Ended], None],
    ) -> None:
        """Converge these tenants at the same time, as many as the fleet's settings allow."""

        def work(pool: SessionPool, tenant: Tenant) -> None:
            if begun(tenant.slug):
                options = self._options(attempts[tenant.slug])
                ended(_ended(converge_one(self.workspace, pool, tenant, options, self.sender)))

        # A run that is ended by this has its tenant's dead-man; its lock is freed with it.
        with gevent.Timeout(seconds, False):
            map_tenants(self.workspace, self._registered(attempts, ended), work)

    def _options(self, attempt: Attempt) -> Options:
        if attempt is Attempt.RETRY:
            return Options(retry=True)
        return Options(resumes=self.rollout if attempt is Attempt.AFTER_CRASH else None)

    def look(self, slugs: Sequence[str]) -> Mapping[str, Look]:
        """How these tenants are as their soak begins."""
        return self._ask(slugs, lambda tenant, session: self._look(session, None))

    def compare(self, before: Mapping[str, Baseline]) -> Mapping[str, Look]:
        """How these tenants are against how they were as their soak began."""
        return self._ask(list(before), lambda tenant, session: self._look(session, before[tenant.slug]))

    def roll_back(self, sets: Mapping[str, str | None], ended: Callable[[Ended], None]) -> None:
        """Put these tenants back to before this rollout, each under its lock, and tell their owners."""

        def work(pool: SessionPool, tenant: Tenant) -> None:
            ended(_put_back(self._roll_back_one(pool, tenant, sets[tenant.slug])))

        map_tenants(self.workspace, self._registered(sets, ended), work)

    def _roll_back_one(self, pool: SessionPool, tenant: Tenant, known: str | None) -> Outcome:
        def work(job: Job) -> Outcome:
            job.tell(Phase.CONNECT, "connecting")
            with pool.session(tenant) as session:
                found = way_back(tenant, session.probe(), known, self.rollout, self.workspace.manifest.head)
                if found is None:
                    return Outcome(tenant.slug, RunResult.UNCHANGED, messages=("it was put back before",))
                outcome = Rollback(job, session, found.run, by="rollout", reason=self._reason).run()
                said = self._tell_owner(tenant, session, outcome)
                return replace(outcome, messages=(*outcome.messages, *said))

        return run_job(self.workspace, tenant, "rollback", work, pool.clock)

    @property
    def _reason(self) -> str:
        return f"rollout {self.rollout} to {self.workspace.manifest.head} was taken back here"

    def _tell_owner(self, tenant: Tenant, session: Session, outcome: Outcome) -> list[str]:
        """What became of the owner's note about a rollback that did well."""
        said: list[str] = []
        if tenant.text_updates and outcome.error is None and outcome.to_version is not None:
            settings, version = self.workspace.fleet.settings, Version.parse(outcome.to_version)
            text = compose(settings.brand, version, [TAKEN_BACK], settings.notify.limit_characters)
            Ledger(session).note(OwedNote(str(version), text))
            OwnerNote(self.workspace, tenant, session, None, self.sender, said.append).send_owed()
        return said

    def _ask(self, slugs: Sequence[str], question: Callable[[Tenant, Session], Look]) -> Mapping[str, Look]:
        tenants = [self.workspace.fleet.tenants[slug] for slug in slugs if slug in self.workspace.fleet.tenants]
        answers = ask_many(self.workspace, tenants, question)
        looks = {
            tenant.slug: _look_of(answer) if isinstance(answer, TenantryError) else answer
            for tenant, answer in zip(tenants, answers, strict=True)
        }
        return {slug: looks.get(slug, Look(None, (UNREGISTERED,))) for slug in slugs}

    def _look(self, session: Session, before: Baseline | None) -> Look:
        gateway, status = self.workspace.fleet.settings.gateway, session.probe()
        failed = _services(self.workspace, status)
        if gateway is None or status.gateway is None:
            return Look(NO_GATEWAY, failed)
        now = _baseline(session, gateway, status, self.strategy, before)
        found = (*problems(status.gateway, gateway, None), *failed)
        return Look(now, found if before is None else (*found, *worse(before, now, gateway, self.strategy)))

    def _registered(self, slugs: Iterable[str], ended: Callable[[Ended], None]) -> list[Tenant]:
        """The tenants of these names; one that the registry has lost meanwhile has `ended` as failed."""
        tenants = self.workspace.fleet.tenants
        for slug in slugs:
            if slug not in tenants:
                ended(Ended(slug, MemberResult.FAILED, error=UNREGISTERED))
        return [tenants[slug] for slug in slugs if slug in tenants]


def way_back(tenant: Tenant, status: Status, known: str | None, rollout: str, target: Version) -> RecoverySet | None:
    """The recovery set that leads from `target` to before that rollout: the `known` one, or else the oldest since.

    None for a tenant that is not at `target` any more, so that nothing is left to be put back. Raises
    :class:`Refused` for one that is, and has no such set; :class:`UnknownState` where nobody can tell where it is.
    """
    usable = [item for item in status.recovery if item.to_version == str(target) and not item.undone]
    since = (item for item in usable if item.from_version != str(target) and moment_of(item.run) >= moment_of(rollout))
    found = next((item for item in usable if item.run == known), next(since, None))
    if found is None and version_of_record(tenant, status) == target:
        raise Refused(
            f"there is no recovery set of this rollout that leads back from {target}",
            where=tenant.slug,
            hint=f"tenantry restore {tenant.slug} puts it back to a backup",
        )
    return found


def worse(before: Baseline, now: Baseline, gateway: Gateway, strategy: Strategy) -> list[str]:
    """What became worse between two looks at a tenant."""
    found = []
    if now.restarts > before.restarts:
        found.append(f"{gateway.unit} restarted {now.restarts - before.restarts} times by itself")
    elif now.main_pid != before.main_pid:
        found.append(f"{gateway.unit} is another process than when the soak began")
    if now.error_lines - before.error_lines >= strategy.error_lines:
        found.append(
            f"{gateway.unit} wrote {now.error_lines} error lines in {strategy.soak_seconds:g} s, "
            f"{before.error_lines} in as long before"
        )
    return found


def _baseline(
    session: Session, gateway: Gateway, status: Status, strategy: Strategy, before: Baseline | None
) -> Baseline:
    """The gateway's process now and its error lines: of the soak that began with `before`, or of as long before it."""
    assert status.gateway is not None
    answer = session.ask_script(
        SCRIPT,
        {
            "unit": gateway.unit,
            "seconds": strategy.soak_seconds,
            "since": before.at if before else None,
            "recent_seconds": strategy.wave_seconds + strategy.soak_seconds,
            "pattern": gateway.error_pattern,
        },
        label="journal",
    )
    if "problem" in answer:
        raise UnknownState(
            f"the journal of {gateway.unit} cannot be read: {answer['problem']}", where=session.tenant.slug
        )
    service = status.gateway.service
    return Baseline(service.main_pid, service.restarts, answer["error_lines"], status.clock)


def _services(workspace: Workspace, status: Status) -> tuple[str, ...]:
    """Services that systemd gave up; one that a later version brings is not there yet, and not failed."""
    known = (service.unit for service in workspace.fleet.settings.services)
    return tuple(f"{unit} has failed" for unit in known if status.services[unit].active == "failed")


def _look_of(error: TenantryError) -> Look:
    """An unreachable tenant is not well; one whose answer could not be read may be."""
    if isinstance(error, Unreachable):
        return Look(None, (f"unreachable: {error.message}",))
    return Look(None, None)


def _ended(outcome: Outcome) -> Ended:
    result = _RESULTS.get(outcome.result, MemberResult.FAILED)
    if result is MemberResult.UPDATED and outcome.exit_code is not ExitCode.DONE:
        result = MemberResult.FAILED
    return Ended(outcome.slug, result, outcome.run, outcome.error, outcome.messages, outcome.recovery_set)


def _put_back(outcome: Outcome) -> Ended:
    is_back = outcome.exit_code is ExitCode.DONE
    result = MemberResult.ROLLED_BACK if is_back else _RESULTS.get(outcome.result, MemberResult.FAILED)
    return Ended(outcome.slug, result, outcome.run, outcome.error, outcome.messages)


def at_target(workspace: Workspace, target: str) -> Workspace:
    """The workspace with a manifest that ends at `target`."""
    return replace(workspace, manifest=workspace.manifest.up_to(Version.parse(target)))
