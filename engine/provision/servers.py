"""Which provider a tenant's server comes from."""

from __future__ import annotations

from collections.abc import Callable

from engine.errors import InvalidInput
from engine.provision.providers.base import Provider
from engine.provision.providers.lab import Lab, LabProvider
from engine.registry.model import Tenant
from engine.updater.workspace import Workspace

LAB = "lab"


def provider_for(workspace: Workspace, tenant: Tenant, progress: Callable[[str], None]) -> Provider:
    """The provider of `tenant`; raises :class:`InvalidInput` for a name that this version does not know."""
    if tenant.provider.name == LAB:
        return LabProvider(lab_of(workspace, progress))
    raise InvalidInput(
        f"provider {tenant.provider.name!r} cannot build servers in this version",
        where=f"inventory/tenants.yaml: {tenant.slug}",
        hint=f"use provider {LAB}",
    )


def lab_of(workspace: Workspace, progress: Callable[[str], None]) -> Lab:
    """The lab of this fleet and state directory."""
    fleet = workspace.fleet
    return Lab(workspace.state_directory, fleet.settings.lab, progress, fleet_root=fleet.root)
