"""Which provider a tenant's server comes from."""

from __future__ import annotations

from collections.abc import Callable

from engine.errors import InvalidInput
from engine.provision.providers.base import Provider
from engine.provision.providers.hetzner import HetznerProvider
from engine.provision.providers.lab import Lab, LabProvider
from engine.registry.model import Tenant
from engine.updater.workspace import Workspace

LAB = "lab"
HETZNER = "hetzner"


def provider_for(workspace: Workspace, tenant: Tenant, progress: Callable[[str], None]) -> Provider:
    """The provider of `tenant`; contacts nothing. Raises :class:`InvalidInput` for an unknown name."""
    if tenant.provider.name == LAB:
        return LabProvider(lab_of(workspace, progress))
    if tenant.provider.name == HETZNER:
        settings = workspace.fleet.settings.hetzner
        return HetznerProvider(lambda: _token(workspace), settings, workspace.clock, progress)
    raise InvalidInput(
        f"provider {tenant.provider.name!r} cannot build servers in this version",
        where=f"inventory/tenants.yaml: {tenant.slug}",
        hint=f"use provider {LAB} or {HETZNER}",
    )


def lab_of(workspace: Workspace, progress: Callable[[str], None]) -> Lab:
    """The lab of this fleet and state directory."""
    fleet = workspace.fleet
    return Lab(workspace.state_directory, fleet.settings.lab, progress, fleet_root=fleet.root)


def _token(workspace: Workspace) -> str:
    reference = workspace.fleet.settings.hetzner.token
    try:
        # A password manager ends its line; no token has blanks.
        return workspace.secrets.resolve(reference).decode("ascii").strip()
    except UnicodeDecodeError:
        raise InvalidInput(
            f"the token of {reference} is not plain text", where="inventory/fleet.yaml: hetzner.token"
        ) from None
