"""``tenantry release``: the manifest, checked, shown and added to."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from engine.cli.failures import report_error
from engine.cli.invocation import Invocation, json_option
from engine.cli.output import print_document, print_line, print_table
from engine.cli.revisions import workspace_at
from engine.clock import SystemClock, new_run_id
from engine.drift.lint import RULE, expectation_findings
from engine.errors import ExitCode, InvalidInput
from engine.locks import LockDirectory
from engine.records import replace_file
from engine.registry.load import load_fleet
from engine.releases.draft import Draft, with_draft
from engine.releases.lint import lint as lint_manifest
from engine.releases.manifest import MANIFEST_FILE, load_manifest, next_version
from engine.releases.model import Manifest, Release
from engine.releases.version import Version
from engine.steps.catalog import load_catalog
from engine.subject import Subject
from engine.updater.workspace import Workspace


@dataclass(frozen=True)
class Shown:
    """One finding as it is printed: the place, the rule's name and the message."""

    where: str
    rule: str
    message: str


@click.group()
def release() -> None:
    """Check, show and extend the manifest."""


@release.command()
@click.option("--against", metavar="GIT-REF", help="Also find releases that this revision has otherwise.")
@json_option
@click.pass_obj
def lint(invocation: Invocation, against: str | None, as_json: bool) -> ExitCode:
    """Check the manifest: step names, arguments, order, notes, expectations. Exit 2 if anything is wrong.

    With --against, a release that the other revision has already must be the same here: applied
    releases never change.
    """
    findings = find(invocation)
    if not findings:
        findings = [Shown(where, RULE, message) for where, message in expectation_findings(invocation.workspace())]
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


@release.command()
@click.argument("title")
@click.option("--step", "steps", metavar="STEP", multiple=True, help="A step: NAME, or NAME={JSON of its arguments}.")
@click.option("--owner-note", metavar="TEXT", required=True, help="What the owners are told, one line.")
@click.option("--details", metavar="TEXT", default="", help="What it changes, for the operator.")
@click.option("--dry-run", is_flag=True, help="Check the release and print it; write nothing.")
@json_option
@click.pass_obj
def new(
    invocation: Invocation,
    title: str,
    steps: Sequence[str],
    owner_note: str,
    details: str,
    dry_run: bool,
    as_json: bool,
) -> ExitCode:
    """Add a release TITLE to the end of the manifest, with the next version: today's date, or the one after the head.

    The rest of the file stays as it is. A release that lint would refuse is not written.
    """
    entries = [_step_entry(step) for step in steps]
    with nullcontext() if dry_run else _manifest_lock(invocation):
        added, text = _drafted(invocation, title, entries, details, owner_note)
        if not dry_run:
            replace_file(invocation.root / MANIFEST_FILE, text.encode(), mode=0o644)
    if as_json:
        print_document({"version": str(added.version), "file": str(MANIFEST_FILE), "written": not dry_run})
    else:
        print_line(f"{added.version}: {'would be added' if dry_run else 'added'} to {invocation.root / MANIFEST_FILE}")
        print_line("next: tenantry plan --all --diff")
    return ExitCode.DONE


def _manifest_lock(invocation: Invocation) -> AbstractContextManager[object]:
    clock = SystemClock()
    locks = LockDirectory(invocation.state_directory / "locks", clock)
    return locks.hold(Subject("fleet", "manifest"), job="release new", run=new_run_id(clock))


def _drafted(
    invocation: Invocation, title: str, steps: Sequence[str | dict[str, Any]], details: str, owner_note: str
) -> tuple[Release, str]:
    """The new release as it reads, and the whole new file; raises :class:`InvalidInput` for what lint refuses."""
    path = invocation.root / MANIFEST_FILE
    present = load_manifest(path)
    version = next_version(present, SystemClock().now().date())
    text = with_draft(path.read_bytes().decode(), Draft(version, title, steps, details, owner_note), str(path))
    with tempfile.TemporaryDirectory(prefix="tenantry-") as directory:
        candidate = Path(directory) / path.name
        candidate.write_bytes(text.encode())
        try:
            manifest = load_manifest(candidate)
        except InvalidInput as error:
            message = error.message.replace(str(candidate), str(path))
            raise InvalidInput(f"the new release is wrong: {message}", where=str(path), hint=error.hint) from error
    findings = lint_manifest(
        manifest,
        load_catalog(invocation.root).infos,
        limit=load_fleet(invocation.root).settings.notify.limit_characters,
    )
    if findings:
        messages = "; ".join(finding.message for finding in findings)
        raise InvalidInput(f"lint would refuse it: {messages}", where=str(path), hint="nothing was written")
    return manifest.releases[-1], text


def _step_entry(text: str) -> str | dict[str, Any]:
    """A step as it was typed: a name, or a name with arguments."""
    name, equals, arguments = text.partition("=")
    if not equals:
        return name
    try:
        value = json.loads(arguments)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise click.UsageError(
            f'--step {text}: wanted NAME={{JSON object}}, such as \'runtime={{"version": "0.19.0"}}\''
        )
    return {name: value}


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
