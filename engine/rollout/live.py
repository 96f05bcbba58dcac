"""A rollout's tenants as they are: converged, looked at and put back over SSH."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import gevent

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
from engine.rollout.state import Baseline
from engine.rollout.verdict import MemberResult
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

TAKEN_BACK = "The last update is taken back; your assistant is as it was before."
NO_GATEWAY = Baseline(0, 0, 0, 0.0)


@dataclass(frozen=True)
class LiveFleet:
    """Implements :class:`engine.rollout.runner.FleetPort`; the head of `workspace` is the rollout's target."""

    workspace: Workspace
    strategy: Strategy
    sender: Sender = send

    def converge(
        self,
        slugs: Sequence[str],
        *,
        again: frozenset[str],
        seconds: float,
        begun: Callable[[str], bool],
        ended: Callable[[Ended], None],
    ) -> None:
        """Converge these tenants at the same time, as many as the fleet's settings allow."""

        def work(pool: SessionPool, tenant: Tenant) -> None:
            if begun(tenant.slug):
                options = Options(retry=tenant.slug in again)
                ended(_ended(converge_one(self.workspace, pool, tenant, options, self.sender)))

        # A run that is ended by this has its tenant's dead-man; its lock is freed with it.
        with gevent.Timeout(seconds, False):
            map_tenants(self.workspace, self._tenants(slugs), work)

    def look(self, slugs: Sequence[str]) -> Mapping[str, Look]:
        """How these tenants are as their soak begins."""
        return self._ask(slugs, lambda tenant, session: self._look(session, None))

    def compare(self, before: Mapping[str, Baseline]) -> Mapping[str, Look]:
        """How these tenants are against how they were as their soak began."""
        return self._ask(list(before), lambda tenant, session: self._look(session, before[tenant.slug]))

    def roll_back(self, slugs: Sequence[str]) -> Mapping[str, str | None]:
        """Put these tenants back to before this rollout, each under its lock, and tell their owners."""
        outcomes = map_tenants(self.workspace, self._tenants(slugs), self._roll_back_one)
        return {outcome.slug: outcome.error for outcome in outcomes}

    def _roll_back_one(self, pool: SessionPool, tenant: Tenant) -> Outcome:
        target = str(self.workspace.manifest.head)

        def work(job: Job) -> Outcome:
            job.tell(Phase.CONNECT, "connecting")
            with pool.session(tenant) as session:
                outcome = Rollback(job, session, set_to(session.probe().recovery, target, tenant.slug)).run()
                said = self._tell_owner(tenant, session, outcome)
                return replace(outcome, messages=(*outcome.messages, *said))

        return run_job(self.workspace, tenant, "rollback", work, pool.clock)

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
        answers = ask_many(self.workspace, self._tenants(slugs), question)
        return {
            slug: _look_of(answer) if isinstance(answer, TenantryError) else answer
            for slug, answer in zip(slugs, answers, strict=True)
        }

    def _look(self, session: Session, before: Baseline | None) -> Look:
        gateway, status = self.workspace.fleet.settings.gateway, session.probe()
        if gateway is None or status.gateway is None:
            return Look(NO_GATEWAY, ())
        now = _baseline(session, gateway, status, self.strategy.soak_seconds, before)
        found = [*problems(status.gateway, gateway, None), *_services(self.workspace, status)]
        return Look(now, tuple(found if before is None else [*found, *worse(before, now, gateway, self.strategy)]))

    def _tenants(self, slugs: Sequence[str]) -> list[Tenant]:
        return [self.workspace.fleet.tenants[slug] for slug in slugs]


def set_to(found: Sequence[RecoverySet], target: str, slug: str) -> str:
    """The run of the newest recovery set that leads back from `target`; raises :class:`Refused` without one."""
    leading = [item.run for item in found if item.to_version == target and not item.undone]
    if not leading:
        raise Refused(
            f"there is no recovery set that leads back from {target}",
            where=slug,
            hint=f"tenantry restore {slug} puts it back to a backup",
        )
    return leading[-1]


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
            f"{before.error_lines} in as long before the update"
        )
    return found


def _baseline(session: Session, gateway: Gateway, status: Status, seconds: float, before: Baseline | None) -> Baseline:
    """The gateway's process now and its error lines: since the soak began, or else before it was last started."""
    assert status.gateway is not None
    unit = shlex.quote(gateway.unit)
    if before is None:
        until = f"$(systemctl show --value --timestamp=unix -p ActiveEnterTimestamp {unit} | tr -d @)"
        since = f"$((until - {max(1, round(seconds))}))"
    else:
        until, since = f"{int(status.clock) + 1}", f"{int(before.at)}"
    output = session.execute(
        f"until={until}; since={since}; "
        f'journalctl -q --no-pager -o cat -p err -u {unit} --since "@$since" --until "@$until" | wc -l'
    )
    text = output.text.strip()
    if output.status or not text.isdigit():
        raise UnknownState(f"the journal of {gateway.unit} cannot be read", where=session.tenant.slug)
    service = status.gateway.service
    return Baseline(service.main_pid, service.restarts, int(text), status.clock)


def _services(workspace: Workspace, status: Status) -> list[str]:
    """Services that systemd gave up; one that a later version brings is not there yet, and not failed."""
    known = (service.unit for service in workspace.fleet.settings.services)
    return [f"{unit} has failed" for unit in known if status.services[unit].active == "failed"]


def _look_of(error: TenantryError) -> Look:
    """An unreachable tenant is not well; one whose answer could not be read may be."""
    if isinstance(error, Unreachable):
        return Look(None, (f"unreachable: {error.message}",))
    return Look(None, None)


def _ended(outcome: Outcome) -> Ended:
    result = _RESULTS.get(outcome.result, MemberResult.FAILED)
    if result is MemberResult.UPDATED and outcome.exit_code is not ExitCode.DONE:
        result = MemberResult.FAILED
    return Ended(outcome.slug, result, outcome.run, outcome.error, outcome.messages)


def at_target(workspace: Workspace, target: str) -> Workspace:
    """The workspace with a manifest that ends at `target`."""
    return replace(workspace, manifest=workspace.manifest.up_to(Version.parse(target)))
