"""What a fleet's lab tenants need before they can be converged: running hosts, provisioned once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from engine.errors import InvalidInput, TenantryError
from engine.provision.installer import provision_many, resume_many
from engine.provision.providers.lab import HostSpec, LabHost, ensure_identity
from engine.provision.seed import operator_key, render_user_data
from engine.provision.servers import LAB, lab_of
from engine.registry.model import Fleet, Tenant
from engine.updater.assessment import PHASE_B, PROVISIONED
from engine.updater.fleet import ask_many
from engine.updater.outcome import Outcome, failed
from engine.updater.workspace import Workspace

READY_SECONDS = 300


def lab_tenants(fleet: Fleet, chosen: Sequence[Tenant] = ()) -> tuple[Tenant, ...]:
    """The lab tenants of `fleet`, or `chosen`; raises :class:`InvalidInput` for one of another provider."""
    others = [tenant for tenant in chosen if tenant.provider.name != LAB]
    if others:
        raise InvalidInput(
            f"not a lab tenant: {', '.join(tenant.slug for tenant in others)}",
            hint=f"their provider in inventory/tenants.yaml is not {LAB}",
        )
    return tuple(tenant for tenant in chosen or fleet.tenants.values() if tenant.provider.name == LAB)


def bring_up(workspace: Workspace, tenants: Sequence[Tenant], progress: Callable[[str], None]) -> tuple[LabHost, ...]:
    """Have the hosts of `tenants` and the model stub running, their first boots over.

    A running host is left alone. A fleet without lab tenants needs no lab, and no machine that can host one.
    """
    if not tenants:
        return ()
    lab = lab_of(workspace, progress)
    # First, because it refuses a machine that cannot host a lab, before anything is written.
    lab.ensure_base()
    ensure_identity(workspace.state_directory)
    key = operator_key(workspace)
    specs = [HostSpec(tenant.slug, render_user_data(workspace, tenant, key), tenant.ssh_user) for tenant in tenants]
    lab.up(specs)
    progress("waiting until first boots are over and SSH answers")
    lab.wait_ready([tenant.slug for tenant in tenants], READY_SECONDS)
    return tuple(lab.find_required(tenant.slug) for tenant in tenants)


def provision_missing(workspace: Workspace, tenants: Sequence[Tenant]) -> tuple[Outcome, ...]:
    """Provision those of the running lab `tenants` that provably have no provisioning receipt.

    One whose phases are complete is resumed instead. A tenant that gives no answer is not rebuilt: its
    outcome is the error. Provisioned ones have no outcome.
    """
    answers = ask_many(workspace, tenants, lambda tenant, session: frozenset(session.probe().receipts))
    outcomes: list[Outcome] = []
    fresh: list[Tenant] = []
    complete: list[Tenant] = []
    for tenant, answer in zip(tenants, answers, strict=True):
        if isinstance(answer, TenantryError):
            outcomes.append(failed(tenant.slug, answer))
        elif PROVISIONED not in answer:
            (complete if PHASE_B in answer else fresh).append(tenant)
    outcomes += provision_many(workspace, fresh) if fresh else ()
    outcomes += resume_many(workspace, complete) if complete else ()
    return tuple(outcomes)
