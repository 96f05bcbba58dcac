"""What a connector needs besides its host: the fleet, where its state is, time and chance."""

from __future__ import annotations

import functools
import random
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from engine.clock import Clock, SystemClock
from engine.errors import InvalidInput
from engine.hosts.addresses import target_of
from engine.hosts.connection import Connection, connect
from engine.hosts.known_hosts import HostKey, Pins
from engine.registry.load import load_fleet
from engine.registry.model import Fleet, Tenant
from engine.registry.settings import Settings

DATA_KEY = "tenantry_access"
"""Where a pyinfra host's ``connector_data`` holds its :class:`Access` when the engine made it."""


FIRST_CONTACT_KEY = "tenantry_first_contact"
"""Where a pyinfra host's ``connector_data`` holds the :class:`FirstContact` of its next connection."""

ONE_TIME_KEY = Path("the one-time key of this run")
"""What stands for the file of pinned keys in messages about a first contact."""


@dataclass(frozen=True)
class FirstContact:
    """One attempt to reach a server that is being made: made once, because the caller polls.

    Where `key` is given, the host must prove that key and no other; pinned keys do not count.
    """

    key: HostKey | None = None


@dataclass(frozen=True)
class Access:
    """The way to the hosts of one fleet."""

    fleet: Fleet
    state_dir: Path
    clock: Clock = field(default_factory=SystemClock)
    chance: random.Random = field(default_factory=random.Random)

    @property
    def settings(self) -> Settings:
        return self.fleet.settings

    def tenant(self, slug: str) -> Tenant:
        """The tenant of that slug; raises :class:`InvalidInput`."""
        try:
            return self.fleet.tenants[slug]
        except KeyError:
            raise InvalidInput(
                f"there is no tenant {slug!r}", where=str(self.fleet.root / "inventory/tenants.yaml")
            ) from None

    def connect(self, tenant: Tenant, first: FirstContact | None = None) -> Connection:
        """A new connection; see :func:`engine.hosts.connection.connect`."""
        target, bounds = target_of(tenant, self.fleet, self.state_dir), self.settings.transport
        if first:
            bounds = replace(bounds, connect_attempts=1)
            if first.key:
                target = replace(target, pins=Pins((first.key,), ONE_TIME_KEY))
        return connect(target, bounds, self.clock, self.chance)


def access_from(data: Any) -> Access:
    """The access that a host's data of pyinfra's own inventory describes."""
    root = Path(data["tenantry_fleet"] or ".").resolve()
    return Access(_fleet(root), Path(data["tenantry_state"] or root / "var"))


@functools.lru_cache(maxsize=4)
def _fleet(root: Path) -> Fleet:
    """Every host of an inventory has the same fleet: it is read once."""
    return load_fleet(root)
