"""What a tenant's status means for this fleet: refused, at head, or a plan. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from engine.errors import AheadOfHead, EditedRelease, NotProvisioned, UnknownState
from engine.hosts.status import MarkerState, Status
from engine.registry.model import Tenant
from engine.releases.applied import AppliedCheck, check_applied
from engine.releases.plan import Plan, all_steps, make_plan
from engine.releases.version import Version
from engine.render.compare import Difference, compare
from engine.render.rendered_set import Edit, Rendered
from engine.steps.step import PatchStep
from engine.updater.events import Phase
from engine.updater.workspace import Workspace

PROVISIONED = "provisioned"
PHASE_B = Phase.PHASE_B.value


@dataclass(frozen=True)
class Assessment:
    """The plan of one tenant: pending steps, rendered files that differ, and what is owed already.

    `rendered` is the whole rendered set at the head, `differences` those of its files that the tenant
    has otherwise; files that a pending step will change are compared as they are now.
    """

    tenant: Tenant
    marker: Version | None
    plan: Plan
    rendered: tuple[Rendered, ...]
    differences: tuple[Difference, ...]
    status: Status
    applied: AppliedCheck

    @property
    def has_changes(self) -> bool:
        """Whether a converge would touch the tenant."""
        owed = self.status.owed
        return bool(self.plan.pending or self.differences or owed.restart or owed.reloads or owed.switches)

    def digest(self) -> str:
        """A digest over what would be done; clock and message times are not part of it."""
        content = {
            "tenant": self.tenant.slug,
            "plan": self.plan.digest(),
            "files": [
                [
                    item.rendered.file.path,
                    [[change.aspect, change.found, change.wanted] for change in item.changes],
                ]
                for item in self.differences
            ],
            "owed": [
                self.status.owed.restart,
                self.status.owed.reloads,
                sorted(self.status.owed.switches.items()),
            ],
        }
        return "sha256:" + hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def assess(workspace: Workspace, tenant: Tenant, status: Status) -> Assessment:
    """Compare `status` with the manifest and the rendered set.

    Raises :class:`NotProvisioned`, :class:`AheadOfHead`, :class:`EditedRelease` or :class:`UnknownState`
    where nothing may be changed.
    """
    marker = version_of_record(tenant, status)
    manifest, infos = workspace.manifest, workspace.step_infos
    plan = make_plan(manifest, infos, marker=marker, trade=tenant.trade, role=tenant.role)
    if plan.ahead:
        raise AheadOfHead(
            f"the tenant is at {marker}, above this manifest's head {manifest.head}",
            where=tenant.slug,
            hint="update this checkout; nothing was changed",
        )
    applied = check_applied(manifest, workspace.digests, status.applied, marker)
    _refuse_edited(tenant, applied)
    rendered = workspace.head_sets.pop(tenant.slug, None) or render_at(workspace, tenant, manifest.head)
    return Assessment(tenant, marker, plan, rendered, tuple(compare(rendered, status.rendered)), status, applied)


def render_heads(workspace: Workspace, tenants: Iterable[Tenant]) -> None:
    """Render every tenant at the head, so that a template's fault is found before any connection.

    Raises :class:`InvalidInput` with the template's file and line.
    """
    for tenant in tenants:
        workspace.head_sets[tenant.slug] = render_at(workspace, tenant, workspace.manifest.head)


def version_of_record(tenant: Tenant, status: Status) -> Version | None:
    """The marker's version, or None for a provisioned tenant without one (version zero)."""
    marker = status.marker
    if marker.state is MarkerState.PRESENT:
        return marker.version
    if marker.state is MarkerState.UNREADABLE:
        raise UnknownState(
            f"the marker is unreadable: {marker.problem}",
            where=tenant.slug,
            hint="look at /var/lib/tenantry/version on the host; nothing was changed",
        )
    if PROVISIONED not in status.receipts and PHASE_B in status.receipts:
        raise NotProvisioned(
            "provisioning was interrupted after its last phase: there is no receipt of the whole",
            where=tenant.slug,
            hint=f"tenantry resume {tenant.slug}",
        )
    if PROVISIONED not in status.receipts:
        raise NotProvisioned(
            "the server was never provisioned: it has no marker and no provisioning receipt",
            where=tenant.slug,
            hint=f"tenantry provision {tenant.slug} --confirm {tenant.slug}",
        )
    return None


def render_at(workspace: Workspace, tenant: Tenant, version: Version) -> tuple[Rendered, ...]:
    """The rendered set of `tenant` at `version`, folded through the edits of the releases up to it."""
    return workspace.renderer.render_set(tenant, version, edits_up_to(workspace, tenant, version))


def edits_up_to(workspace: Workspace, tenant: Tenant, version: Version) -> list[Edit]:
    """The edits of rendered files that the releases up to `version` make, in their order."""
    steps = all_steps(workspace.manifest, workspace.step_infos, version, tenant.trade, tenant.role)
    rendered = {place for file in workspace.fleet.settings.rendered for place in (file.name, file.path)}
    edits = []
    for planned in steps:
        step = workspace.catalog[planned.entry.name]
        if isinstance(step, PatchStep) and step.file in rendered:
            edits.append(Edit(step.name, step.file, _edit(step, planned.entry.arguments)))
    return edits


def _edit(step: PatchStep, arguments: Any) -> Callable[[str], str]:
    return partial(step.edit, arguments=arguments)


def _refuse_edited(tenant: Tenant, applied: AppliedCheck) -> None:
    if applied.edited:
        listing = "; ".join(
            f"{edited.version}: applied as {edited.recorded}, now {edited.current}" for edited in applied.edited
        )
        raise EditedRelease(
            f"an applied release was edited: {listing}",
            where=tenant.slug,
            hint="restore the release as it was applied and put the change into a new release",
        )
