"""What a provisioning would do, call by call, without making one of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from engine.errors import TenantryError
from engine.hosts.addresses import address_of
from engine.provision.host_keys import OneTimeKey
from engine.provision.installer import PHASE_A_DOES, PHASE_B_DOES, Deploys
from engine.provision.providers.base import Provider
from engine.provision.seed import TEMPLATE, render_user_data
from engine.provision.servers import provider_for
from engine.registry.model import Tenant
from engine.releases.plan import make_plan
from engine.updater.assessment import render_at
from engine.updater.events import Phase
from engine.updater.workspace import Workspace

STAND_IN_KEY = "ssh-ed25519 AAAA operator"


@dataclass(frozen=True)
class Call:
    """One thing that a provisioning would do, in the phase that does it."""

    phase: Phase
    what: str


def preview(workspace: Workspace, tenant: Tenant) -> tuple[Call, ...]:
    """Every call in its order; contacts nothing, follows no secret and writes nothing.

    Raises :class:`InvalidInput` for what a provisioning would refuse by itself, such as an unusable
    template of the user-data.
    """
    Deploys.load(workspace.fleet.root)
    provider = provider_for(workspace, tenant, lambda text: None)
    host_key = None if provider.makes_host_keys else OneTimeKey.make()
    user_data = render_user_data(workspace, tenant, STAND_IN_KEY, host_key)
    return (
        *_server(tenant, provider, len(user_data.encode())),
        *_first_contact(workspace, tenant, provider),
        *_phases(workspace, tenant),
        *_convergence(workspace, tenant),
    )


def _server(tenant: Tenant, provider: Provider, size: int) -> Iterator[Call]:
    find, *rebuild = provider.preview(tenant)
    yield Call(Phase.LOCK, f"hold the lock of {tenant.slug} from here to the end")
    yield Call(Phase.IDENTITY, find)
    if tenant.address:
        yield Call(Phase.IDENTITY, f"stop unless that server has the registry's address {tenant.address}")
    for name, reference in tenant.secrets.items():
        yield Call(Phase.IDENTITY, f"fetch secret {name} from {reference}")
    yield Call(Phase.REBUILD, f"render {TEMPLATE}: {size} bytes")
    for call in rebuild:
        yield Call(Phase.REBUILD, call)


def _first_contact(workspace: Workspace, tenant: Tenant, provider: Provider) -> Iterator[Call]:
    bounds = workspace.fleet.settings.provision
    try:
        address, port = address_of(tenant, workspace.state_directory)
    except TenantryError:
        address, port = "the address that it gets", tenant.ssh_port
    proof = "the key that the lab gave it" if provider.makes_host_keys else "the one-time key of the user-data"
    yield Call(
        Phase.CONNECT,
        f"ssh {tenant.ssh_user}@{address} port {port} every {bounds.poll_seconds:g} s, at most {bounds.polls} times, "
        f"until it proves {proof}",
    )
    if not provider.makes_host_keys:
        yield Call(Phase.HOST_KEYS, "make new host keys on the server, pin them here, put them into use")
    yield Call(Phase.CLOUD_INIT, f"cloud-init status --wait, at most {bounds.cloud_init_seconds:g} s")


def _phases(workspace: Workspace, tenant: Tenant) -> Iterator[Call]:
    yield Call(Phase.PHASE_A, f"deploys/bootstrap.py: {PHASE_A_DOES}")
    yield Call(Phase.PHASE_B, f"deploys/tenancy.py: {PHASE_B_DOES}")
    for name in tenant.secrets:
        yield Call(Phase.PHASE_B, f"secret {name}, over standard input")


def _convergence(workspace: Workspace, tenant: Tenant) -> Iterator[Call]:
    plan = make_plan(workspace.manifest, workspace.step_infos, marker=None, trade=tenant.trade, role=tenant.role)
    yield Call(Phase.PROBE, "ask the tenant")
    yield Call(Phase.RECOVERY, "take a recovery set, if anything is to be changed")
    for planned in plan.steps:
        releases = ", ".join(str(version) for version in planned.releases)
        yield Call(Phase.APPLY, f"step {planned.entry} of {releases}")
    for rendered in render_at(workspace, tenant, plan.head):
        yield Call(Phase.RENDER, f"{rendered.file.path} from {rendered.file.template}, where it differs")
    gateway = workspace.fleet.settings.gateway
    if gateway:
        yield Call(Phase.QUIESCE, "wait for silence, if a restart is owed")
        yield Call(Phase.RESTART, f"restart {gateway.unit}, if it is owed")
        yield Call(Phase.LIVENESS, f"wait for port {gateway.port} and the channels {', '.join(gateway.channels)}")
    yield Call(Phase.COMMIT, f"version {plan.head}")
    yield Call(Phase.VERIFY, "the acceptance check")
