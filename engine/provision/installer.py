"""Provisioning: a clean server, phases A and B, then the same convergence as everybody's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.clock import iso
from engine.errors import CommandFailed, InvalidInput
from engine.hosts.ledger import Ledger
from engine.hosts.pool import SessionPool
from engine.hosts.session import Session
from engine.provision.providers.lab import ensure_identity
from engine.provision.secrets import secrets_of
from engine.provision.seed import render_user_data
from engine.provision.servers import provider_for
from engine.registry.model import Tenant
from engine.releases.version import ZERO
from engine.render.compare import compare
from engine.steps.catalog import load_module
from engine.steps.context import StepContext
from engine.steps.operation import operation_errors
from engine.updater.assessment import PROVISIONED, render_at
from engine.updater.converge import Converge, reload_units, write_rendered
from engine.updater.events import Phase
from engine.updater.fleet import map_tenants
from engine.updater.job import Job, run_job
from engine.updater.notify import Sender, send
from engine.updater.outcome import Options, Outcome
from engine.updater.workspace import Workspace

CLOUD_INIT_SECONDS = 900


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

        return run_job(workspace, tenant, "provision", work)

    return map_tenants(workspace, tenants, provision_one, parallel=parallel)


@dataclass(frozen=True)
class Deploys:
    """The fleet's two provisioning phases, as its own code defines them."""

    bootstrap: Callable[[StepContext], None]
    tenancy: Callable[[StepContext, Mapping[str, bytes]], None]

    @classmethod
    def load(cls, root: Path) -> Deploys:
        """Load ``deploys/bootstrap.py`` (phase A) and ``deploys/tenancy.py`` (phase B)."""
        return cls(_function(root, "bootstrap"), _function(root, "tenancy"))


@dataclass
class Provision:
    """One provisioning within a job that holds the tenant's lock."""

    job: Job
    pool: SessionPool
    deploys: Deploys
    sender: Sender

    def run(self) -> Outcome:
        """Rebuild, install, converge; raises what stopped it, with no receipt of what is not complete."""
        tenant, root = self.job.tenant, self.job.workspace.fleet.root
        # Everything that can be refused is refused before the server is rebuilt.
        secrets = secrets_of(tenant, root)
        public_key = ensure_identity(self.job.workspace.state_directory)
        user_data = render_user_data(self.job.workspace, tenant, public_key)
        provider = provider_for(self.job.workspace, tenant, lambda text: self.job.tell(Phase.REBUILD, text))
        self.job.enter(Phase.REBUILD, "rebuilding the server from a clean image")
        provider.rebuild(tenant, user_data)
        self.job.enter(Phase.CLOUD_INIT, "waiting for the first boot")
        provider.wait(tenant, CLOUD_INIT_SECONDS)
        with self.pool.session(tenant) as session:
            self._await_cloud_init(session)
            session.claim(self.job.run_id)
            self._phase(session, Phase.PHASE_A, "packages, service account, runtime", self.deploys.bootstrap)
            self._phase(
                session,
                Phase.PHASE_B,
                "secrets, configuration, web layer, personality, gateway",
                lambda context: self.deploys.tenancy(context, secrets),
            )
            Ledger(session).receipt(PROVISIONED, self._receipt())
            return Converge(self.job, session, Options(), self.sender, claimed=True).run()

    def _await_cloud_init(self, session: Session) -> None:
        output = session.execute("cloud-init status --wait", timeout_seconds=CLOUD_INIT_SECONDS)
        # 2 is cloud-init's "done, with recoverable errors" (cloud-init documentation, exit codes).
        if output.status not in (0, 2):
            text = output.stdout.decode(errors="replace").strip()
            raise CommandFailed(
                f"cloud-init failed: {text}",
                where=self.job.tenant.slug,
                hint="see /var/log/cloud-init.log on the host",
            )

    def _phase(self, session: Session, phase: Phase, what: str, deploy: Callable[[StepContext], None]) -> None:
        self.job.enter(phase, what)
        context = self._context(session)
        with operation_errors(context, f"{phase.value} ({what})"):
            deploy(context)
        Ledger(session).receipt(phase.value, self._receipt())

    def _context(self, session: Session) -> StepContext:
        workspace, tenant = self.job.workspace, self.job.tenant
        return StepContext(
            tenant=tenant,
            settings=workspace.fleet.settings,
            session=session,
            status=session.probe(),
            fleet_root=workspace.fleet.root,
            state_directory=workspace.state_directory,
            render=lambda: render_zero(workspace, tenant, session),
        )

    def _receipt(self) -> dict[str, Any]:
        return {"run": self.job.run_id, "at": iso(self.job.workspace.clock.now())}


def render_zero(workspace: Workspace, tenant: Tenant, session: Session) -> None:
    """Write the rendered set as it is before the first release."""
    differences = tuple(compare(render_at(workspace, tenant, ZERO), session.probe().rendered))
    for difference in differences:
        write_rendered(session, difference)
    reloads = dict.fromkeys(unit for difference in differences for unit in difference.rendered.file.reload)
    session.check("systemctl daemon-reload")
    reload_units(session, tuple(reloads))


def _function(root: Path, name: str) -> Callable[..., None]:
    path = root / "deploys" / f"{name}.py"
    function: Callable[..., None] | None = getattr(load_module(path), name, None)
    if function is None:
        raise InvalidInput(f"the file defines no function {name}", where=str(path), hint=f"define {name}(context, …)")
    return function
