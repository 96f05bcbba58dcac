"""The environments and tiers of a fleet as a pyinfra inventory, for pyinfra's own command line."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from engine.hosts.inventory import STATE_VARIABLE, Group
from engine.registry.environments import load_environments


def environment_groups(fleet_root: Path, state_directory: Path | None = None) -> Mapping[str, Group]:
    """Group name -> hosts with their data: ``environments``, ``tiers``, and one group for each project.

    The state directory is `state_directory`, else the environment's ``TENANTRY_STATE_DIR``, else ``var`` in the
    fleet. Raises :class:`engine.errors.InvalidInput` for a file that does not pass its schema.
    """
    root = fleet_root.resolve()
    state = state_directory or Path(os.environ.get(STATE_VARIABLE) or root / "var")
    inventory = load_environments(root)
    groups: dict[str, Group] = {"environments": [], "tiers": []}
    everything = [("tiers", item.uuid, item.project) for item in inventory.tiers.values()]
    everything += [("environments", item.uuid, item.project) for item in inventory.environments.values()]
    for group, uuid, project in everything:
        data = {"tenantry_uuid": uuid, "tenantry_fleet": str(root), "tenantry_state": str(state.resolve())}
        for name in (group, f"project_{project}"):
            groups.setdefault(name.replace("-", "_"), []).append((f"@env/{uuid}", data))
    return groups
