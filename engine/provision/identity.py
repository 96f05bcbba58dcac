"""Whether the server that a provider would rebuild is the one that the registry means."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable
from ipaddress import ip_address, ip_network

from engine.errors import Refused, TenantryError, UnknownState
from engine.provision.providers.base import Provider, Server
from engine.registry.model import Tenant

Resolver = Callable[[str], Iterable[str]]


def resolve_name(name: str) -> tuple[str, ...]:
    """The addresses of a host name; raises OSError."""
    found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    return tuple(dict.fromkeys(str(entry[4][0]) for entry in found))


def check_identity(tenant: Tenant, provider: Provider, resolver: Resolver = resolve_name) -> Server | None:
    """The server that will be rebuilt; None where the provider makes one at an address of its own choice.

    Raises :class:`Refused` or :class:`UnknownState`, naming the registry's value and the provider's, unless
    every address of the registry's record is one of that server.
    """
    try:
        server = provider.find(tenant)
    except TenantryError as error:
        wanted = f"the registry has {tenant.address or 'no address'} for it, and the provider"
        raise type(error)(f"{wanted}: {error.message}", where=tenant.slug, hint=error.hint) from error
    if tenant.address is None:
        return server
    if server is None:
        raise Refused(
            f"the registry has {tenant.address} for it, and the provider has no such server",
            where=tenant.slug,
            hint="create the server, or correct the record; nothing was rebuilt",
        )
    for address in _addresses(tenant, resolver):
        if not any(_belongs(address, public) for public in server.addresses):
            raise Refused(
                f"the registry has {_shown(tenant.address, address)} for it, but the provider's server "
                f"{server.name} has {', '.join(server.addresses) or 'no public address'}",
                where=tenant.slug,
                hint="correct the address or the server's name in the record; nothing was rebuilt",
            )
    return server


def _addresses(tenant: Tenant, resolver: Resolver) -> Iterable[str]:
    wanted = tenant.address or ""
    if _is_address(wanted):
        return (wanted,)
    try:
        return tuple(resolver(wanted))
    except OSError as error:
        raise UnknownState(
            f"the registry has the name {wanted} for it, which has no address now: {error.strerror or error}",
            where=tenant.slug,
            hint="write the server's address into the record; nothing was rebuilt",
        ) from error


def _belongs(address: str, public: str) -> bool:
    bare, network = ip_address(_without_zone(address)), ip_network(_without_zone(public), strict=False)
    return bare.version == network.version and bare in network


def _is_address(text: str) -> bool:
    try:
        ip_address(_without_zone(text))
    except ValueError:
        return False
    return True


def _without_zone(text: str) -> str:
    return text.partition("%")[0]


def _shown(wanted: str, address: str) -> str:
    return wanted if wanted == address else f"{wanted} ({address})"
