"""The fleet as a pyinfra inventory, for pyinfra's own CLI."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from engine.hosts.access import Access
from engine.hosts.pool import host_data
from engine.registry.load import load_fleet

STATE_VARIABLE = "TENANTRY_STATE_DIR"

Group = list[tuple[str, dict[str, str]]]


def tenant_groups(fleet_root: Path, state_dir: Path | None = None) -> Mapping[str, Group]:
    """Group name -> hosts with their data: ``tenants``, and one group for each role and trade.

    The state directory is `state_dir`, else the environment's ``TENANTRY_STATE_DIR``, else ``var`` in the
    fleet. Raises :class:`engine.errors.InvalidInput` for a fleet that does not pass its schema.
    """
    root = fleet_root.resolve()
    chosen = state_dir or Path(os.environ.get(STATE_VARIABLE) or root / "var")
    access = Access(load_fleet(root), chosen.resolve())
    groups: dict[str, Group] = {"tenants": []}
    for tenant in access.fleet.tenants.values():
        host = (f"@tenant/{tenant.slug}", host_data(tenant, access))
        for name in dict.fromkeys(("tenants", f"role_{tenant.role}", f"trade_{tenant.trade}")):
            groups.setdefault(name.replace("-", "_"), []).append(host)
    return groups
