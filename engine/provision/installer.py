"""Provisioning: a clean server, phases A and B, then the same convergence as everybody's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from engine.clock import iso
from engine.errors import ExitCode, HostKeyMismatch, InvalidInput, NotProvisioned, VerifyFailed
from engine.hosts.access import FirstContact
from engine.hosts.addresses import address_of
from engine.hosts.known_hosts import known_hosts_file
from engine.hosts.known_hosts import replace as pin_only
from engine.hosts.ledger import Ledger
from engine.hosts.pool import SessionPool
from engine.hosts.session import Session
from engine.provision.arrival import Arrival
from engine.provision.host_keys import OneTimeKey, make_new_keys, use_new_keys
from engine.provision.identity import check_identity
from engine.provision.providers.base import Provider
from engine.provision.providers.lab import ensure_identity
from engine.provision.secrets import secrets_of
from engine.provision.seed import operator_key, render_user_data
from engine.provision.servers import provider_for
from engine.registry.model import Tenant
from engine.releases.version import ZERO
from engine.render.compare import compare
from engine.steps.catalog import load_module
from engine.steps.context import StepContext
from engine.steps.operation import operation_errors
from engine.updater.assessment import PROVISIONED, render_at
from engine.updater.converge import Converge
from engine.updater.events import Phase
from engine.updater.fleet import map_tenants
from engine.updater.job import Job, run_job
from engine.updater.notify import Sender, send
from engine.updater.outcome import Options, Outcome
from engine.updater.rendered import reload_units, write_rendered
from engine.updater.verify import Verdict, Verification, verify
from engine.updater.workspace import Workspace

PHASE_A_DOES = "packages, service account, runtime"
PHASE_B_DOES = "secrets, configuration, web layer, personality, gateway"


def provision_many(
    workspace: Workspace, tenants: Sequence[Tenant], *, parallel: int | None = None, sender: Sender = send
) -> tuple[Outcome, ...]:
    """Rebuild each tenant's server from a clean image and bring it to the head, in one lock each.

    Destroys what is on the servers: the caller has asked for confirmation.
    """
    deploys = Deploys.load(workspace.fleet.root)

    def provision_one(pool: SessionPool, tenant: Tenant) -> Outcome:
        def work(job: Job) -> Outcome:
            return Provision(job, pool, deploys, sender).run()

        return run_job(workspace, tenant, "provision", work, pool.clock)

    return map_tenants(workspace, tenants, provision_one, parallel=parallel)


def resume_many(
    workspace: Workspace, tenants: Sequence[Tenant], *, parallel: int | None = None, sender: Sender = send
) -> tuple[Outcome, ...]:
    """Take each tenant whose phase B is complete from there to the head, in one lock each; nothing is rebuilt."""

    def resume_one(pool: SessionPool, tenant: Tenant) -> Outcome:
        def work(job: Job) -> Outcome:
            job.enter(Phase.CONNECT, "connecting")
            try:
                with pool.session(tenant) as session:
                    return resume(job, session, sender)
            except HostKeyMismatch as error:
                hint = (
                    f"if its first contact never came to an end: {_again(tenant)}; if it did, another machine answers"
                )
                raise HostKeyMismatch(error.message, where=error.where, hint=hint) from error

        return run_job(workspace, tenant, "resume", work, pool.clock)

    return map_tenants(workspace, tenants, resume_one, parallel=parallel)


def resume(job: Job, session: Session, sender: Sender) -> Outcome:
    """Convergence and the acceptance check of a provisioning whose phases are complete.

    Raises :class:`NotProvisioned` naming the phase that is missing.
    """
    receipts = session.probe().receipts
    for phase, what in ((Phase.PHASE_A, PHASE_A_DOES), (Phase.PHASE_B, PHASE_B_DOES)):
        if phase.value not in receipts and PROVISIONED not in receipts:
            raise NotProvisioned(
                f"{phase.value} ({what}) is not complete",
                where=job.tenant.slug,
                hint=_again(job.tenant),
            )
    session.claim(job.run_id)
    if PROVISIONED not in receipts:
        Ledger(session).receipt(PROVISIONED, receipt_of(job))
    return converge_and_verify(job, session, sender)


def converge_and_verify(job: Job, session: Session, sender: Sender) -> Outcome:
    """The last part of a provisioning: to the head, then the acceptance check.

    Raises :class:`VerifyFailed` naming every check that failed.
    """
    # A person who provisions or resumes a tenant tries again what it may be held from.
    outcome = Converge(job, session, Options(retry=True), sender, claimed=True).run()
    if outcome.exit_code is not ExitCode.DONE:
        return outcome
    found = require_verified(job, session)
    return replace(outcome, messages=(*outcome.messages, f"verify: {found.summary}"))


def require_verified(job: Job, session: Session) -> Verification:
    """The acceptance check of a tenant at the head; raises :class:`VerifyFailed` naming every check that failed."""
    job.enter(Phase.VERIFY, "the acceptance check")
    found = verify(job.workspace, job.tenant, session.probe())
    job.tell(Phase.VERIFY, found.summary)
    wrong = [f"{check.name}: {check.detail}" for check in found.checks if check.verdict is Verdict.FAILED]
    if wrong:
        raise VerifyFailed(
            f"it is at {job.workspace.manifest.head}, but the acceptance check found: {'; '.join(wrong)}",
            where=job.tenant.slug,
            hint=f"correct that on the tenant, then: tenantry verify {job.tenant.slug}",
        )
    return found


def receipt_of(job: Job) -> dict[str, Any]:
    """What a receipt holds: the run that completed the phase, and when."""
    return {"run": job.run_id, "at": iso(job.workspace.clock.now())}


@dataclass(frozen=True)
class Deploys:
    """The fleet's two provisioning phases, as its own code defines them."""

    bootstrap: Callable[[StepContext], None]
    tenancy: Callable[[StepContext, Mapping[str, bytes]], None]
    check_secrets: Callable[[Tenant, Mapping[str, bytes]], None]

    @classmethod
    def load(cls, root: Path) -> Deploys:
        """Load ``deploys/bootstrap.py`` (phase A) and ``deploys/tenancy.py`` (phase B).

        The latter may also define ``check_secrets(tenant, secrets)``, which raises for what phase B could not
        use; it is asked before a server is rebuilt.
        """
        tenancy = load_module(root / "deploys" / "tenancy.py")
        check_secrets = getattr(tenancy, "check_secrets", lambda tenant, secrets: None)
        return cls(_function(root, "bootstrap"), _function(root, "tenancy"), check_secrets)


@dataclass(frozen=True)
class Seed:
    """What a new server begins with."""

    user_data: str
    host_key: OneTimeKey | None
    secrets: Mapping[str, bytes]


Finish = Callable[[Job, Session, Sender], Outcome]
"""What is done with a server whose phases are complete, in the session that installed them."""


@dataclass
class Provision:
    """One provisioning within a job that holds the tenant's lock."""

    job: Job
    pool: SessionPool
    deploys: Deploys
    sender: Sender
    finish: Finish = converge_and_verify

    def run(self) -> Outcome:
        """Rebuild, install, converge; raises what stopped it, with no receipt of what is not complete."""
        provider = provider_for(self._workspace, self._tenant, lambda text: self.job.tell(Phase.REBUILD, text))
        self.job.enter(Phase.IDENTITY, "comparing the provider's address with the registry's")
        check_identity(self._tenant, provider)
        # Everything that can be refused is refused before the server is rebuilt.
        seed = self._seed(provider)
        self._rebuild(provider, seed)
        arrival = self._arrival()
        first = FirstContact(seed.host_key.public if seed.host_key else None)
        self.job.enter(Phase.CONNECT, "first contact, only with a server that proves its key")
        with arrival.session(first) as session:
            session.claim(self.job.run_id)
            if seed.host_key:
                self._replace_host_keys(session)
        self.job.enter(Phase.CLOUD_INIT, "waiting for the end of the first boot")
        arrival.await_first_boot(FirstContact())
        with arrival.session(FirstContact()) as session:
            session.claim(self.job.run_id)
            return self._install(session, seed.secrets)

    def _seed(self, provider: Provider) -> Seed:
        secrets = secrets_of(self._tenant, self._workspace.secrets)
        self.deploys.check_secrets(self._tenant, secrets)
        if provider.makes_host_keys:
            ensure_identity(self._workspace.state_directory)
        key = operator_key(self._workspace)
        host_key = None if provider.makes_host_keys else OneTimeKey.make()
        user_data = render_user_data(self._workspace, self._tenant, key, host_key, secrets.values())
        return Seed(user_data, host_key, secrets)

    def _rebuild(self, provider: Provider, seed: Seed) -> None:
        bounds = self._workspace.fleet.settings.provision
        self.job.enter(Phase.REBUILD, "rebuilding the server from a clean image")
        provider.rebuild(self._tenant, seed.user_data)
        provider.wait(self._tenant, bounds.poll_seconds * bounds.polls)

    def _arrival(self) -> Arrival:
        def connect(first: FirstContact) -> AbstractContextManager[Session]:
            return self.pool.session(self._tenant, first)

        bounds = self._workspace.fleet.settings.provision
        return Arrival(
            connect, bounds, self.job.clock, lambda text: self.job.tell(Phase.CONNECT, text), self._tenant.slug
        )

    def _replace_host_keys(self, session: Session) -> None:
        """Over the proven connection: new keys made on the host, pinned here, then put into use there."""
        self.job.enter(Phase.HOST_KEYS, "replacing the one-time host key")
        keys = make_new_keys(session)
        address, port = address_of(self._tenant, self._workspace.state_directory)
        pin_only(known_hosts_file(self._workspace.state_directory, self._tenant.slug), [address], port, keys)
        use_new_keys(session)
        self.job.tell(Phase.HOST_KEYS, f"pinned {', '.join(key.fingerprint for key in keys)}")

    def _install(self, session: Session, secrets: Mapping[str, bytes]) -> Outcome:
        self._phase(session, Phase.PHASE_A, PHASE_A_DOES, self.deploys.bootstrap)
        self._phase(session, Phase.PHASE_B, PHASE_B_DOES, lambda context: self.deploys.tenancy(context, secrets))
        Ledger(session).receipt(PROVISIONED, receipt_of(self.job))
        return self.finish(self.job, session, self.sender)

    def _phase(self, session: Session, phase: Phase, what: str, deploy: Callable[[StepContext], None]) -> None:
        self.job.enter(phase, what)
        context = self._context(session, phase)
        with operation_errors(context, f"{phase.value} ({what})"):
            deploy(context)
        Ledger(session).receipt(phase.value, receipt_of(self.job))

    def _context(self, session: Session, phase: Phase) -> StepContext:
        return StepContext(
            tenant=self._tenant,
            settings=self._workspace.fleet.settings,
            session=session,
            status=session.probe(),
            fleet_root=self._workspace.fleet.root,
            state_directory=self._workspace.state_directory,
            render=lambda: render_zero(self._workspace, self._tenant, session),
            tell=lambda message: self.job.tell(phase, message),
        )

    @property
    def _workspace(self) -> Workspace:
        return self.job.workspace

    @property
    def _tenant(self) -> Tenant:
        return self.job.tenant


def render_zero(workspace: Workspace, tenant: Tenant, session: Session) -> None:
    """Write the rendered set as it is before the first release."""
    differences = tuple(compare(render_at(workspace, tenant, ZERO), session.probe().rendered))
    for difference in differences:
        write_rendered(session, difference)
    reloads = dict.fromkeys(unit for difference in differences for unit in difference.rendered.file.reload)
    session.check("systemctl daemon-reload")
    reload_units(session, tuple(reloads))


def _again(tenant: Tenant) -> str:
    return f"tenantry provision {tenant.slug} --confirm {tenant.slug}"


def _function(root: Path, name: str) -> Callable[..., None]:
    path = root / "deploys" / f"{name}.py"
    function: Callable[..., None] | None = getattr(load_module(path), name, None)
    if function is None:
        raise InvalidInput(f"the file defines no function {name}", where=str(path), hint=f"define {name}(context, …)")
    return function
