"""The lab as a provider of tenants' servers."""

from __future__ import annotations

from engine.errors import Refused
from engine.provision.providers.base import Server
from engine.provision.providers.lab.lab import Lab
from engine.provision.providers.lab.model import HostSpec, LabHost
from engine.registry.model import Tenant


class LabProvider:
    """Implements `Provider`; a tenant's server is the lab host of the same name.

    A host that is not there yet is made by `rebuild`, because only then it gets its address.
    """

    makes_host_keys = True
    isolated = True

    def __init__(self, lab: Lab) -> None:
        self._lab = lab

    def find(self, tenant: Tenant) -> Server | None:
        host = self._host(tenant)
        return None if host is None else _server(host)

    def create(self, tenant: Tenant, user_data: str) -> Server:
        if self._host(tenant) is not None:
            raise Refused("the lab has this host already", where=tenant.slug)
        (host,) = self._lab.up([_spec(tenant, user_data)])
        return _server(host)

    def rebuild(self, tenant: Tenant, user_data: str) -> Server:
        return _server(self._lab.rebuild(_spec(tenant, user_data)))

    def destroy(self, tenant: Tenant) -> None:
        if self._host(tenant) is not None:
            self._lab.destroy([tenant.slug])

    def wait(self, tenant: Tenant, timeout_seconds: float) -> None:
        self._lab.wait_ready([tenant.slug], timeout_seconds)

    def preview(self, tenant: Tenant) -> tuple[str, ...]:
        host = self._host(tenant)
        place = f"at {host.address}" if host else "at the next free address"
        return (
            f"lab: look for the host {tenant.slug}",
            f"lab: boot {tenant.slug} with an empty disk {place}, its host key pinned before the first boot",
            f"lab: wait until {tenant.slug} answers",
        )

    def _host(self, tenant: Tenant) -> LabHost | None:
        """The tenant's host; raises `Refused` for one of that name that is no tenant's."""
        host = self._lab.find(tenant.slug)
        if host is not None and host.label is not None:
            raise Refused(
                "the lab host of this name belongs to an environment", where=tenant.slug, hint="use another name"
            )
        return host


def _spec(tenant: Tenant, user_data: str) -> HostSpec:
    return HostSpec(tenant.slug, user_data, tenant.ssh_user)


def _server(host: LabHost) -> Server:
    return Server(host.slug, (host.address,), host.running)
