"""``tenantry render``: the plan for CI, without access to hosts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click

from engine.cli.invocation import Choice, Invocation, json_option, tenants_option
from engine.cli.output import print_diff, print_document, print_line
from engine.cli.revisions import workspace_at
from engine.errors import ExitCode
from engine.registry.model import Tenant
from engine.releases.plan import make_plan
from engine.releases.version import Version
from engine.render.compare import text_diff
from engine.render.rendered_set import Rendered
from engine.updater.assessment import render_at
from engine.updater.workspace import Workspace


@dataclass(frozen=True)
class FileChange:
    """One rendered file in the old and the new revision; None where a revision does not have it."""

    path: str
    old: Rendered | None
    new: Rendered | None

    @property
    def kind(self) -> str:
        if self.old is None:
            return "added"
        if self.new is None:
            return "removed"
        return (
            "unchanged"
            if (self.old.digest, self._meta(self.old)) == (self.new.digest, self._meta(self.new))
            else "changed"
        )

    def diff(self, revision: str) -> tuple[str, ...]:
        """The unified diff from `revision` to what is there now."""
        lines = text_diff(self.path, self.old.content if self.old else None, self.new.content if self.new else b"")
        labels = (f"{self.path} ({revision})" if self.old else "/dev/null", self.path if self.new else "/dev/null")
        # The first two lines name a tenant's file and the wanted one; here they are two revisions.
        return (f"--- {labels[0]}", f"+++ {labels[1]}", *lines[2:]) if len(lines) > 1 else lines

    @staticmethod
    def _meta(rendered: Rendered) -> tuple[str, str, str]:
        return rendered.file.owner, rendered.file.group, rendered.file.mode


@dataclass(frozen=True)
class Comparison:
    """What changes for one tenant from `old_head` (None: it is new, or nothing is compared) to `head`."""

    slug: str
    old_head: Version | None
    head: Version | None
    steps: tuple[str, ...]
    files: tuple[FileChange, ...]

    @property
    def has_changes(self) -> bool:
        return bool(self.steps) or any(file.kind != "unchanged" for file in self.files)


@click.command()
@tenants_option(required=False)
@click.option("--against", metavar="GIT-REF", help="Compare with this revision of the fleet's repository.")
@click.option("--exit-code", is_flag=True, help="Exit 3 if anything changes against the revision.")
@json_option
@click.pass_obj
def render(invocation: Invocation, choice: Choice, against: str | None, exit_code: bool, as_json: bool) -> ExitCode:
    """Compare rendered files and pending steps of two revisions, without hosts.

    Without --against it lists what the head renders for each tenant and all its steps. With it, the old
    revision is read as a fleet of its own, and a tenant counts as standing at that revision's head.
    """
    workspace = invocation.workspace()
    tenants = choice.of(workspace.fleet)
    if against is None:
        comparisons = [compare_tenant(workspace, tenant, None) for tenant in tenants]
    else:
        with workspace_at(invocation.root, against) as old:
            comparisons = [compare_tenant(workspace, tenant, old) for tenant in tenants]
            if not choice.is_made:
                comparisons += _left(workspace, old)
    if as_json:
        print_document(document(comparisons, against))
    else:
        _show(comparisons, against)
    changed = against is not None and any(comparison.has_changes for comparison in comparisons)
    return ExitCode.CHANGES if exit_code and changed else ExitCode.DONE


def compare_tenant(workspace: Workspace, tenant: Tenant, old: Workspace | None) -> Comparison:
    """Compare `tenant` in both fleets; without an old one, or an old record, everything is new."""
    before = old.fleet.tenants.get(tenant.slug) if old else None
    old_head = old.manifest.head if old and before else None
    plan = make_plan(workspace.manifest, workspace.step_infos, marker=old_head, trade=tenant.trade, role=tenant.role)
    old_files = render_at(old, before, old.manifest.head) if old and before else ()
    new_files = render_at(workspace, tenant, workspace.manifest.head)
    steps = tuple(str(planned.entry) for planned in plan.steps)
    return Comparison(tenant.slug, old_head, workspace.manifest.head, steps, tuple(_paired(old_files, new_files)))


def document(comparisons: Sequence[Comparison], against: str | None) -> dict[str, Any]:
    """The comparisons as one document; diffs are there only where two revisions are compared."""
    return {
        "against": against,
        "tenants": [
            {
                "slug": comparison.slug,
                "old_head": str(comparison.old_head) if comparison.old_head else None,
                "head": str(comparison.head) if comparison.head else None,
                "changes": comparison.has_changes,
                "steps": list(comparison.steps),
                "files": [_file_document(file, against) for file in comparison.files],
            }
            for comparison in comparisons
        ],
    }


def _file_document(file: FileChange, against: str | None) -> dict[str, Any]:
    return {
        "path": file.path,
        "change": file.kind,
        "old_digest": file.old.digest if file.old else None,
        "digest": file.new.digest if file.new else None,
        "diff": list(file.diff(against)) if against is not None else [],
    }


def _left(workspace: Workspace, old: Workspace) -> list[Comparison]:
    """Tenants that only the old revision has: what it rendered for them is no longer anybody's."""
    gone = [tenant for slug, tenant in old.fleet.tenants.items() if slug not in workspace.fleet.tenants]
    return [
        Comparison(
            tenant.slug,
            old.manifest.head,
            None,
            (),
            tuple(_paired(render_at(old, tenant, old.manifest.head), ())),
        )
        for tenant in gone
    ]


def _paired(old: Sequence[Rendered], new: Sequence[Rendered]) -> Iterator[FileChange]:
    before = {rendered.file.path: rendered for rendered in old}
    after = {rendered.file.path: rendered for rendered in new}
    for path in {**before, **after}:
        yield FileChange(path, before.get(path), after.get(path))


def _show(comparisons: Sequence[Comparison], against: str | None) -> None:
    for entry in document(comparisons, against)["tenants"]:
        if against is None:
            _show_whole(entry)
        elif not entry["changes"]:
            print_line(f"{entry['slug']}: nothing changes against {against}", style="green")
        else:
            _show_changes(entry)


def _show_whole(entry: Mapping[str, Any]) -> None:
    print_line(f"{entry['slug']}: {entry['head']}")
    for step in entry["steps"]:
        print_line(f"  step {step}")
    for file in entry["files"]:
        print_line(f"  file {file['path']} {file['digest']}")


def _show_changes(entry: Mapping[str, Any]) -> None:
    print_line(f"{entry['slug']}: {entry['old_head'] or 'new'} -> {entry['head'] or 'gone'}", style="yellow")
    for step in entry["steps"]:
        print_line(f"  step {step}: pending")
    for file in entry["files"]:
        if file["change"] != "unchanged":
            print_line(f"  file {file['path']}: {file['change']}")
            print_diff(file["diff"])
