"""What is wrong with the expectations that a fleet's steps declare, found before any tenant is asked."""

from __future__ import annotations

from collections.abc import Iterator

from engine.errors import InvalidInput
from engine.releases.model import StepEntry
from engine.updater.workspace import Workspace

RULE = "expects"


def expectation_findings(workspace: Workspace) -> Iterator[tuple[str, str]]:
    """Place and message of each step entry whose `expects` fails or names what the step does not write.

    Asked for one tenant of each trade and role, since a function may answer otherwise for each.
    """
    tenants = {(tenant.trade, tenant.role): tenant for tenant in workspace.fleet.tenants.values()}.values()
    seen: set[StepEntry] = set()
    for release in workspace.manifest:
        for entry in release.steps:
            if entry in seen:
                continue
            seen.add(entry)
            step = workspace.catalog[entry.name]
            messages = []
            for tenant in tenants:
                try:
                    step.expectations(tenant, workspace.fleet.settings, entry.arguments)
                except InvalidInput as error:
                    messages.append(error.message)
            yield from ((entry.where or release.where, message) for message in dict.fromkeys(messages))
