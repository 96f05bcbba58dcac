"""What a connector needs besides its host: the fleet, where its state is, time and chance."""

from __future__ import annotations

import functools
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine.clock import Clock, SystemClock
from engine.errors import InvalidInput
from engine.hosts.addresses import target_of
from engine.hosts.connection import Connection, connect
from engine.registry.load import load_fleet
from engine.registry.model import Fleet, Settings, Tenant

DATA_KEY = "tenantry_access"
"""Where a pyinfra host's ``connector_data`` holds its :class:`Access` when the engine made it."""


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

    def connect(self, tenant: Tenant) -> Connection:
        """A new connection; see :func:`engine.hosts.connection.connect`."""
        target = target_of(tenant, self.fleet, self.state_dir)
        return connect(target, self.settings.transport, self.clock, self.chance)


def access_from(data: Any) -> Access:
    """The access that a host's data of pyinfra's own inventory describes."""
    root = Path(data["tenantry_fleet"] or ".").resolve()
    return Access(_fleet(root), Path(data["tenantry_state"] or root / "var"))


@functools.lru_cache(maxsize=4)
def _fleet(root: Path) -> Fleet:
    """Every host of an inventory has the same fleet: it is read once."""
    return load_fleet(root)
