"""pyinfra's inventory of this fleet's hosted environments and tiers, grouped by project; they have no shell."""

from pathlib import Path

from engine.environments.operations.inventory import environment_groups

globals().update(environment_groups(Path(__file__).resolve().parent.parent))
