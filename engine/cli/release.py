"""``tenantry release``: the manifest, checked and shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import click

from engine.cli.failures import report_error
from engine.cli.invocation import Invocation, json_option
from engine.cli.output import print_document, print_line, print_table
from engine.cli.revisions import workspace_at
from engine.errors import ExitCode, InvalidInput
from engine.registry.load import load_fleet
from engine.releases.lint import lint as lint_manifest
from engine.releases.manifest import MANIFEST_FILE, load_manifest
from engine.releases.model import Manifest, Release
from engine.releases.version import Version
from engine.steps.catalog import load_catalog
from engine.updater.workspace import Workspace


@dataclass(frozen=True)
class Shown:
    """One finding as it is printed: the place, the rule's name and the message."""

    where: str
    rule: str
    message: str


@click.group()
def release() -> None:
    """Check and show the manifest."""


@release.command()
@click.option("--against", metavar="GIT-REF", help="Also find releases that this revision has otherwise.")
@json_option
@click.pass_obj
def lint(invocation: Invocation, against: str | None, as_json: bool) -> ExitCode:
    """Check the manifest: step names, arguments, order, notes. Exit 2 if anything is wrong.

    With --against, a release that the other revision has already must be the same here: applied
    releases never change.
    """
    findings = find(invocation)
    if against is not None and not findings:
        with workspace_at(invocation.root, against) as old:
            findings = edited(invocation.workspace(), old, against)
    if as_json:
        print_document({"findings": [asdict(finding) for finding in findings]})
    else:
        for finding in findings:
            print_line(f"{_relative(finding.where, invocation)}: {finding.message} [{finding.rule}]")
    if findings:
        report_error(f"{len(findings)} findings in {MANIFEST_FILE}")
        return ExitCode.USAGE
    if not as_json:
        print_line(f"{MANIFEST_FILE}: no findings")
    return ExitCode.DONE


@release.command()
@click.argument("version", required=False)
@json_option
@click.pass_obj
def show(invocation: Invocation, version: str | None, as_json: bool) -> ExitCode:
    """Show the releases with their digests, or one of them whole."""
    workspace = invocation.workspace()
    chosen = _chosen(workspace.manifest, version)
    if as_json:
        print_document({"head": str(workspace.manifest.head), "releases": [_document(workspace, r) for r in chosen]})
    elif version is None:
        print_table(
            ("version", "title", "steps", "digest"),
            [
                (
                    str(item.version),
                    item.title,
                    ", ".join(str(step) for step in item.steps),
                    workspace.digests[str(item.version)],
                )
                for item in chosen
            ],
        )
    else:
        _show_whole(_document(workspace, chosen[0]))
    return ExitCode.DONE


def find(invocation: Invocation) -> list[Shown]:
    """The findings of lint in this fleet's manifest; raises :class:`InvalidInput` for an unreadable one."""
    settings = load_fleet(invocation.root).settings
    manifest = load_manifest(invocation.root / MANIFEST_FILE)
    infos = load_catalog(invocation.root).infos
    found = lint_manifest(manifest, infos, limit=settings.notify.limit_characters)
    return [Shown(finding.where, finding.rule.value, finding.message) for finding in found]


def edited(new: Workspace, old: Workspace, revision: str) -> list[Shown]:
    """Releases of `old` that `new` has with another digest or not at all, and new ones below its head."""
    findings = []
    places = {release.version: release.where for release in new.manifest}
    digests = _by_version(new)
    before = _by_version(old)
    for version, digest in before.items():
        if version not in digests:
            message = f"release {version} of {revision} is gone"
            findings.append(Shown(str(MANIFEST_FILE), "removed", message))
        elif digests[version] != digest:
            message = f"release {version} was {digest} in {revision}, is now {digests[version]}"
            findings.append(Shown(places[version], "edited", message))
    for version in digests:
        if version not in before and version <= old.manifest.head:
            message = f"release {version} is not above {old.manifest.head}, the head of {revision}"
            findings.append(Shown(places[version], "inserted", message))
    return findings


def _by_version(workspace: Workspace) -> Mapping[Version, str]:
    return {release.version: workspace.digests[str(release.version)] for release in workspace.manifest}


def _chosen(manifest: Manifest, version: str | None) -> Sequence[Release]:
    if version is None:
        return manifest.releases
    wanted = Version.parse(version)
    chosen = [item for item in manifest if item.version == wanted]
    if not chosen:
        raise InvalidInput(
            f"there is no release {version}",
            where=str(MANIFEST_FILE),
            hint=f"known: {', '.join(str(item.version) for item in manifest)}",
        )
    return chosen


def _document(workspace: Workspace, item: Release) -> dict[str, Any]:
    return {
        "version": str(item.version),
        "title": item.title,
        "digest": workspace.digests[str(item.version)],
        "steps": [{"name": step.name, "arguments": _plain(step.arguments)} for step in item.steps],
        "details": item.details,
        "owner_note": item.owner_note,
    }


def _plain(value: Any) -> Any:
    """A frozen argument as the lists and mappings of a document."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def _show_whole(item: Mapping[str, Any]) -> None:
    print_line(f"{item['version']}: {item['title']}")
    print_line(f"digest: {item['digest']}")
    for step in item["steps"]:
        arguments = ", ".join(f"{key}={value}" for key, value in step["arguments"].items())
        print_line(f"step: {step['name']}({arguments})" if arguments else f"step: {step['name']}")
    print_line(f"owner note: {item['owner_note']}")
    for line in item["details"].splitlines():
        print_line(f"  {line}")


def _relative(where: str, invocation: Invocation) -> str:
    return where.replace(f"{invocation.root}/", "")
