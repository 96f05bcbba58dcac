"""pyinfra's inventory of this fleet: every tenant, grouped by role and trade."""

from pathlib import Path

from engine.hosts.inventory import tenant_groups

globals().update(tenant_groups(Path(__file__).resolve().parent.parent))
