"""A server for a tenant that is about to be registered."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from ipaddress import ip_network
from typing import Any

from engine.errors import InvalidInput, UnknownState
from engine.provision.host_keys import OneTimeKey
from engine.provision.registration import check_record
from engine.provision.seed import operator_key, render_user_data
from engine.provision.servers import provider_for
from engine.updater.workspace import Workspace

STAND_IN_ADDRESS = "192.0.2.1"
"""A documentation address: it stands in the record while that is checked, before there is a server."""


def create_server(workspace: Workspace, slug: str, record: Mapping[str, Any], tell: Callable[[str], None]) -> str:
    """Have the provider of `record` create a server; returns its address.

    The record is checked first. The server is plain: provisioning rebuilds it. Raises :class:`Refused` if the
    provider has a server of that name.
    """
    if "address" in record:
        raise InvalidInput("the record has an address already", where=slug, hint="leave out one of the two")
    tenant = check_record(workspace.fleet.root, slug, {**record, "address": STAND_IN_ADDRESS}).tenant
    provider = provider_for(workspace, tenant, tell)
    if provider.makes_host_keys:
        raise InvalidInput(
            f"provider {tenant.provider.name} makes its servers when they are provisioned",
            where=slug,
            hint="leave out --create-server",
        )
    user_data = render_user_data(workspace, tenant, operator_key(workspace), OneTimeKey.make())
    tell("creating the server")
    server = provider.create(tenant, user_data)
    tell(f"created, with {', '.join(server.addresses)}")
    return _preferred(server.addresses, slug)


def _preferred(addresses: tuple[str, ...], slug: str) -> str:
    """The IPv4 address if there is one; else the first host of the IPv6 network."""
    networks = sorted((ip_network(address, strict=False) for address in addresses), key=lambda item: item.version)
    if not networks:
        raise UnknownState("the new server has no public address", where=slug, hint="look at it with the provider")
    first = networks[0]
    return str(first.network_address if first.num_addresses == 1 else first[1])
