"""The contract between provisioning and whoever supplies servers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from engine.registry.model import Tenant


@dataclass(frozen=True)
class Server:
    """A server as its provider reports it.

    `addresses` are its public ones; an IPv6 one may be a network, such as ``2001:db8:1::/64``, of which
    the server has every address.
    """

    name: str
    addresses: tuple[str, ...]
    running: bool


class Provider(Protocol):
    """Supplies one server for each tenant.

    Every call observes before it acts and may be repeated after a crash. A tenant has at most one server
    with its provider. `user_data` is a cloud-config document without any long-lived secret.
    """

    @property
    def makes_host_keys(self) -> bool:
        """Whether the provider gives a new server its host key and records it before the first boot.

        Where it does not, the user-data carries a one-time key that the server proves at first contact.
        """

    @property
    def isolated(self) -> bool:
        """Whether its servers reach this machine and nothing else, so that a backup may be rehearsed on one."""

    def find(self, tenant: Tenant) -> Server | None:
        """Return the tenant's server, running or not; None only if it provably does not exist.

        Raises `Refused` for several servers of its name, `UnknownState` where there is no answer.
        """

    def create(self, tenant: Tenant, user_data: str) -> Server:
        """Create and boot the tenant's server; raises `Refused` if there is one already."""

    def rebuild(self, tenant: Tenant, user_data: str) -> Server:
        """Give the tenant an empty server at the same address, destroying all that is on the present one.

        Raises `ProviderRefused` if nothing was destroyed, `UnknownState` if that is not known.
        """

    def destroy(self, tenant: Tenant) -> None:
        """Remove the tenant's server and its disk; no server is success."""

    def wait(self, tenant: Tenant, timeout_seconds: float) -> None:
        """Return once the provider says that the server runs; raises `Unreachable` if it does not in time."""

    def preview(self, tenant: Tenant) -> tuple[str, ...]:
        """The calls that `find`, `rebuild` and `wait` make, in words; makes none of them."""
