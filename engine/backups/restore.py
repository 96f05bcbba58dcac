"""Restoring a tenant from an archive: in place, onto a new machine, or a single path of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from engine.backups import unpack
from engine.backups.choice import Chosen, choose
from engine.backups.exchange import Exchange, set_of
from engine.backups.scratch import tell_nobody
from engine.errors import (
    CommandLost,
    ExitCode,
    Refused,
    RollbackFailed,
    StaleRun,
    TenantryError,
    UnknownState,
    Unreachable,
)
from engine.hosts.ledger import Ledger
from engine.hosts.pool import SessionPool
from engine.hosts.session import Session
from engine.hosts.status import Status
from engine.provision.installer import Deploys, Provision, require_verified
from engine.records import RunResult
from engine.recovery.assembly import assembled
from engine.registry.model import Tenant
from engine.releases.version import Version
from engine.updater.assessment import version_of_record
from engine.updater.converge import LIVENESS_WORDS, Converge
from engine.updater.events import Phase
from engine.updater.fleet import map_tenants
from engine.updater.job import Job, run_job
from engine.updater.liveness import Restart, wait_for_life
from engine.updater.notify import Sender, send
from engine.updater.outcome import Options, Outcome
from engine.updater.restart import OwedRestart
from engine.updater.safety_net import SafetyNet
from engine.updater.survivors import probe_after_survivors
from engine.updater.workspace import Workspace

# Nothing can or may be done from here, or it was tried.
OUT_OF_REACH = (CommandLost, Unreachable, StaleRun, RollbackFailed)

# The set of a change that some run began, and that none has ended or taken back.
_OPEN = """
opened = moves.read_json(sets.recovery() + "/open.json")
found = opened and moves.read_json(sets.directory_of(opened["run"]) + "/set.json")
RESULT = opened["run"] if found and not (found.get("moved") or found.get("undone")) else None
"""

Mark = Callable[[str], None]
"""Takes the name of a part of a restore when it is over."""


@dataclass(frozen=True)
class Wish:
    """What a person wants restored: an archive (None: the newest verified one), or only what is at `path` in it."""

    archive: str | None = None
    path: str | None = None


@dataclass(frozen=True)
class RestoreOutcome(Outcome):
    """How a restore ended, and of which archive it was."""

    archive: str | None = None


def restore(workspace: Workspace, tenant: Tenant, wish: Wish, *, onto: bool = False, sender: Sender = send) -> Outcome:
    """Restore `tenant`; `onto` rebuilds its server first, destroying what is on it.

    Replaces what is on the tenant: the caller has asked for confirmation. Never raises what the tenant can cause.
    """
    deploys = Deploys.load(workspace.fleet.root)

    def restore_one(pool: SessionPool, tenant: Tenant) -> Outcome:
        def work(job: Job) -> Outcome:
            job.enter(Phase.ARCHIVE, "reading the archive")
            chosen = choose(workspace, tenant, wish.archive, wish.path)
            job.tell(Phase.ARCHIVE, f"archive {chosen.archive} of version {chosen.version or 'zero'} is whole")
            if onto:
                finish = Onto(chosen, hint=blank_words(tenant, chosen)).finish
                return Provision(job, pool, deploys, sender, finish=finish).run()
            job.enter(Phase.CONNECT, "connecting")
            with pool.session(tenant) as session:
                return InPlace(job, session, chosen, sender).run()

        return run_job(workspace, tenant, "restore", work, pool.clock)

    (outcome,) = map_tenants(workspace, [tenant], restore_one)
    return outcome


@dataclass
class InPlace:
    """A restore on the tenant's present server, within a job that holds its lock."""

    job: Job
    session: Session
    chosen: Chosen
    sender: Sender

    def run(self) -> Outcome:
        """Bring the archive, exchange it for what is live, and converge forward; whatever fails is undone."""
        self.job.tell(Phase.PROBE, "asking the tenant")
        probe_after_survivors(self.job, self.session)
        self.session.claim(self.job.run_id)
        status = self.session.probe()
        if status.armed:
            self._finish_rollback(status)
            status = self.session.probe()
        if self.chosen.path:
            self._refuse_unfinished(status)
        outcome = restore_over(self.job, self.session, self.chosen, self.sender, self._marker(status))
        if outcome.error:
            return outcome
        kept = set_of(self.job.run_id)
        way_back = f"what it replaced is in recovery set {kept}: tenantry rollback {outcome.slug} --to {kept}"
        return replace(outcome, messages=(*outcome.messages, way_back))

    def _finish_rollback(self, status: Status) -> None:
        """Finish the rollback of an earlier run. Dead or alive: a restore may be what this tenant needs."""
        net = SafetyNet(self.job, self.session)
        try:
            message = net.finish(status).error.message
        except RollbackFailed as error:
            if self.chosen.path:
                raise
            # Nobody can put it back to that set, and the archive takes the place of everything.
            net.disarm()
            message = f"{error.message}; the restore goes on over what is there"
        self.job.tell(Phase.ROLLBACK, message)

    def _refuse_unfinished(self, status: Status) -> None:
        """Raise :class:`Refused` where one path would come into the middle of a change."""
        run = self.session.run_script(assembled(_OPEN), {}, label="look for a change that is not ended")
        slug = self.job.tenant.slug
        if run or status.owed.switches:
            raise Refused(
                f"run {run} has begun a change that is not ended" if run else "an upgrade of the runtime is owed",
                where=slug,
                hint=f"end it first: tenantry converge {slug}; or take it back: tenantry rollback {slug}",
            )

    def _marker(self, status: Status) -> Version | None:
        """The version of record. One that cannot be read is as good as none: the archive's takes its place."""
        try:
            return version_of_record(self.job.tenant, status)
        except UnknownState as error:
            if self.chosen.path:
                raise
            self.job.tell(Phase.PROBE, f"{error.message}; the archive's takes its place")
            return None


@dataclass
class Onto:
    """What follows the installation of a new server: the archive's version, the archive, then the head.

    `mark` hears of each part that is over. `hint` is what a person is told of a server that the archive did not come
    onto.
    """

    chosen: Chosen
    mark: Mark = lambda part: None
    hint: str = ""

    def finish(self, job: Job, session: Session, sender: Sender) -> Outcome:
        """Everything from phase B to the acceptance check."""
        self.mark("provision")
        try:
            outcome = self._restore(job, session, sender)
        except OUT_OF_REACH:
            raise
        except TenantryError as error:
            error.hint = "; ".join(filter(None, (error.hint, self.hint)))
            raise
        if outcome.error:
            return replace(outcome, result=RunResult.FAILED)
        found = require_verified(job, session)
        self.mark("verify")
        return replace(outcome, messages=(*outcome.messages, f"verify: {found.summary}"))

    def _restore(self, job: Job, session: Session, sender: Sender) -> Outcome:
        version = self.chosen.version
        if version:
            self._reach(version, job, session)
            self.mark("archive's version")
        return restore_over(job, session, self.chosen, sender, version, self.mark, back_words=self.hint)

    def _reach(self, version: Version, job: Job, session: Session) -> None:
        """Converge to the archive's version, of which no owner is told."""
        workspace = job.workspace
        earlier = replace(workspace, manifest=workspace.manifest.up_to(version))
        then = replace(job, workspace=earlier, tenant=replace(job.tenant, text_updates=False))
        outcome = Converge(then, session, Options(retry=True), tell_nobody, claimed=True).run()
        if outcome.error:
            raise TenantryError(
                f"the archive's version {version} cannot be reached: {outcome.error}", where=job.tenant.slug
            )


def blank_words(tenant: Tenant, chosen: Chosen) -> str:
    """What a person is told of a rebuilt server that the archive did not come onto."""
    return (
        "the server is a new installation without the archive's files, which its owner may reach already; once the "
        f"cause is corrected: tenantry restore {tenant.slug} --archive {chosen.archive} --confirm {tenant.slug}"
    )


def restore_over(
    job: Job,
    session: Session,
    chosen: Chosen,
    sender: Sender,
    marker: Version | None,
    mark: Mark = lambda part: None,
    *,
    back_words: str = "",
) -> Outcome:
    """Put the archive over a provisioned tenant at `marker`, in a session that has claimed it.

    An outcome with an error is one of a tenant that was put back. Raises what stopped it before anything was touched,
    and what happened on a host that is out of reach: there the dead-man acts.
    """
    net = SafetyNet(job, session, on_any_failure=True, back_words=back_words)
    exchange = Exchange(job, session, chosen, net)
    try:
        exchange.bring()
        mark("unpack and check")
        outcome = _change(exchange, sender, marker, mark)
    finally:
        _clean(session, job)
    if outcome.error:
        # Where it was put back, the version is the one from before.
        version = str(marker) if marker else None
        return _as_restore(replace(outcome, from_version=version, to_version=version), chosen)
    return _as_restore(outcome, chosen)


def _change(exchange: Exchange, sender: Sender, marker: Version | None, mark: Mark) -> Outcome:
    job, net = exchange.job, exchange.net
    try:
        head = job.workspace.manifest.head
        exchange.carry_out(marker, head)
        exchange.settle(marker if exchange.chosen.path else exchange.chosen.version)
        mark("exchange")
        outcome = _only_path(exchange, marker) if exchange.chosen.path else _forward(exchange, sender, marker)
        mark("converge to the head")
        return outcome
    except TenantryError as error:
        if not exchange.has_begun or isinstance(error, OUT_OF_REACH):
            net.remark()
            raise
        fall = net.roll_back(error)
        return Outcome(
            slug=job.tenant.slug,
            result=RunResult.ROLLED_BACK if fall.is_alive else RunResult.FAILED,
            exit_code=ExitCode.FAILED,
            messages=fall.messages,
            error=str(fall.error),
        )


def _forward(exchange: Exchange, sender: Sender, marker: Version | None) -> Outcome:
    """Bring the restored tenant to the head; its own way back is the restore's.

    The owner of a tenant that was at the head already was told of its releases then.
    """
    job, chosen = exchange.job, exchange.chosen
    if marker == job.workspace.manifest.head:
        job = replace(job, tenant=replace(job.tenant, text_updates=False))
    outcome = Converge(job, exchange.session, Options(retry=True), sender, claimed=True, given_net=exchange.net).run()
    if outcome.error:
        return outcome
    said = f"archive {chosen.archive} of version {chosen.version or 'zero'} is restored"
    return replace(outcome, result=RunResult.RESTORED, messages=(said, *outcome.messages))


def _only_path(exchange: Exchange, marker: Version | None) -> Outcome:
    """End the restore of one path: the gateway as it has to be, the version as it is."""
    job, session, net, chosen = exchange.job, exchange.session, exchange.net, exchange.chosen
    restart = OwedRestart(job, session, net).carry_out() if exchange.stops_gateway else None
    _prove_life(exchange, restart)
    net.confirm()
    # What other runs owe, have open or hold the tenant for is theirs.
    if restart:
        Ledger(session).restarted_for(session.probe().owed, exchange.reason)
    session.run_script(assembled("RESULT = sets.close(PARAMETERS['run'])"), {"run": net.set_run})
    version = str(marker) if marker else None
    return Outcome(
        slug=job.tenant.slug,
        result=RunResult.RESTORED,
        from_version=version,
        to_version=version,
        restarted=restart is not None,
        messages=(f"{chosen.path} is restored from archive {chosen.archive}",),
    )


def _prove_life(exchange: Exchange, restart: Restart | None) -> None:
    job, settings = exchange.job, exchange.job.workspace.fleet.settings
    if settings.gateway is None:
        return
    job.enter(Phase.LIVENESS, LIVENESS_WORDS)
    wait_for_life(
        exchange.session.probe,
        settings.gateway,
        settings.liveness,
        job.clock,
        restart=restart,
        where=job.tenant.slug,
    )


def _clean(session: Session, job: Job) -> None:
    """Remove what was unpacked. Best effort: the next restore does it again, and its room is asked for then."""
    try:
        unpack.clean(session)
    except TenantryError as error:
        job.tell(Phase.UNPACK, f"what was unpacked could not be removed: {error.message}")


def _as_restore(outcome: Outcome, chosen: Chosen) -> RestoreOutcome:
    known = {name: getattr(outcome, name) for name in Outcome.__dataclass_fields__}
    return RestoreOutcome(**known, archive=chosen.archive)
