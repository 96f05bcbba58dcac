"""Where a tenant's server is, and which keys it may prove."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.errors import MissingPart, Unreachable
from engine.hosts import known_hosts
from engine.hosts.known_hosts import HostKey, Pins
from engine.registry.model import Fleet, Tenant


@dataclass(frozen=True)
class Target:
    """All that a connection needs to know. `name` is the tenant's slug."""

    name: str
    address: str
    port: int
    user: str
    identity: Path
    pins: Pins

    def __str__(self) -> str:
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"{self.name} ({self.user}@{host}:{self.port})"


def target_of(tenant: Tenant, fleet: Fleet, state_dir: Path) -> Target:
    """The connection target of `tenant`; raises :class:`Unreachable` if it has no address or key yet."""
    address, port = address_of(tenant, state_dir)
    identity = Path(fleet.settings.identity_file).expanduser()
    return Target(
        name=tenant.slug,
        address=address,
        port=port,
        user=tenant.ssh_user,
        identity=state_dir / identity,
        pins=pins_of(tenant, state_dir, address, port),
    )


def address_of(tenant: Tenant, state_dir: Path) -> tuple[str, int]:
    """The address and port; a lab host's address is what the lab has written about it."""
    if tenant.address is not None:
        return tenant.address, tenant.ssh_port
    record = _lab_record(tenant, state_dir)
    if not isinstance(record.get("address"), str):
        raise Unreachable(
            "the server has no address: it is not running or was never created",
            where=tenant.slug,
            hint="start lab hosts with `tenantry lab up`, or give `address` in inventory/tenants.yaml",
        )
    return record["address"], int(record.get("port", tenant.ssh_port))


def pins_of(tenant: Tenant, state_dir: Path, address: str, port: int) -> Pins:
    """The pinned keys: from the lab for its own hosts, from the tenant's ``known_hosts`` file otherwise."""
    if tenant.address is None:
        host_key = _lab_record(tenant, state_dir).get("host_key")
        if not host_key:
            raise Unreachable("the lab host is still being made", where=tenant.slug, hint="wait for `tenantry lab up`")
        return Pins((HostKey.parse(host_key),), _lab_file(tenant, state_dir))
    return known_hosts.read(known_hosts.known_hosts_file(state_dir, tenant.slug), address, port)


def _lab_file(tenant: Tenant, state_dir: Path) -> Path:
    return state_dir / "lab" / "hosts" / f"{tenant.slug}.json"


def _lab_record(tenant: Tenant, state_dir: Path) -> dict[str, Any]:
    try:
        record = json.loads(_lab_file(tenant, state_dir).read_bytes())
    except (FileNotFoundError, ValueError):
        return {}
    except OSError as error:
        raise MissingPart(
            f"the lab's record cannot be read: {error.strerror}",
            where=str(_lab_file(tenant, state_dir)),
            hint="run the command as the user who runs the lab",
        ) from error
    return record if isinstance(record, dict) else {}
