"""The contract between provisioning and whoever supplies servers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from engine.registry.model import Tenant


@dataclass(frozen=True)
class Server:
    """A server as its provider reports it.

    `host_key` is the public half of the key that the server will prove itself with, as
    ``ssh-ed25519 AAAA…``: known before the first boot, so that nothing is ever trusted on first use.
    It is None where a provider cannot know it.
    """

    slug: str
    address: str
    port: int
    host_key: str | None
    running: bool


class Provider(Protocol):
    """Supplies one server for each tenant.

    Every call observes before it acts and may be repeated after a crash: it then finishes what the
    interrupted call began. A tenant has at most one server with its provider, found by the tenant's
    slug. `user_data` is a cloud-config document; it never holds a secret and never sets host keys.
    """

    def find(self, tenant: Tenant) -> Server | None:
        """Return the tenant's server, running or not; None only if it provably does not exist."""

    def create(self, tenant: Tenant, user_data: str) -> Server:
        """Create and boot the tenant's server; raises `Refused` if there is one already."""

    def rebuild(self, tenant: Tenant, user_data: str) -> Server:
        """Give the tenant an empty server, destroying all that is on the present one.

        The address may change, the host key does. Creates the server where there is none.
        """

    def destroy(self, tenant: Tenant) -> None:
        """Remove the tenant's server and its disk; no server is success."""

    def wait(self, tenant: Tenant, timeout_seconds: float) -> None:
        """Return once first boot is over and SSH answers.

        Raises `Unreachable` if that does not happen in time, `CommandFailed` if first boot failed.
        """
