"""``tenantry offsite``: the copies of archives in the fleet's restic repository."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import click

from engine.backups.copies import Copies, Snapshot
from engine.backups.restic import ResticProgram, shown_repository
from engine.backups.store import ArchiveStore, StoredArchive, backup_root, manifest_path
from engine.cli.failures import report_error
from engine.cli.invocation import Choice, Invocation, json_option, one_tenant, tenants_option
from engine.cli.output import print_document, print_line, print_table
from engine.clock import SystemClock, new_run_id
from engine.errors import ExitCode, Refused, TenantryError, most_serious
from engine.locks.directory import HeldLock, LockDirectory
from engine.registry.load import SETTINGS_FILE
from engine.registry.model import Fleet, Tenant
from engine.updater.workspace import secret_sources


@click.group()
def offsite() -> None:
    """Copies of archives in the fleet's restic repository."""


@offsite.command()
@json_option
@click.pass_obj
def init(invocation: Invocation, as_json: bool) -> ExitCode:
    """Make the repository, once. Refused where there is one already."""
    copies = _copies(invocation)
    copies.create()
    repository = shown_repository(copies.restic.settings)
    if as_json:
        print_document({"repository": repository})
        return ExitCode.DONE
    print_line(f"made the repository {repository}")
    print_line("keep its password elsewhere too: without it no copy can be opened")
    return ExitCode.DONE


@offsite.command("list")
@click.argument("name", required=False, metavar="[T]")
@json_option
@click.pass_obj
def list_(invocation: Invocation, name: str | None, as_json: bool) -> ExitCode:
    """List the copies of the fleet, or of tenant T, the oldest first."""
    copies = _copies(invocation)
    slug = one_tenant(invocation.fleet(), name).slug if name else None
    found = copies.snapshots(slug)
    if as_json:
        print_document(document(shown_repository(copies.restic.settings), found))
        return ExitCode.DONE
    if not found:
        print_line("there is no copy")
        return ExitCode.DONE
    print_table(("tenant", "archive", "snapshot", "sent"), [(c.slug, c.archive, c.id, c.time) for c in found])
    return ExitCode.DONE


@offsite.command()
@tenants_option(required=True)
@json_option
@click.pass_obj
def send(invocation: Invocation, choice: Choice, as_json: bool) -> ExitCode:
    """Send every verified archive of the chosen tenants that is not in the repository yet."""
    copies, fleet = _copies(invocation), invocation.fleet()
    outcomes = [_send(invocation, copies, fleet, tenant) for tenant in choice.of(fleet)]
    if as_json:
        print_document(sent_document(outcomes))
    else:
        print_table(("tenant", "sent"), [(sent.slug, ", ".join(sent.archives) or "nothing") for sent in outcomes])
    for sent in outcomes:
        if sent.error:
            report_error(sent.error)
    return most_serious(sent.error.exit_code if sent.error else ExitCode.DONE for sent in outcomes)


@offsite.command()
@click.argument("name", metavar="T")
@click.argument("archive", metavar="ARCHIVE")
@json_option
@click.pass_obj
def fetch(invocation: Invocation, name: str, archive: str, as_json: bool) -> ExitCode:
    """Bring the copy of an archive of tenant T back, verified, to where `restore` finds it."""
    copies, fleet = _copies(invocation), invocation.fleet()
    tenant = one_tenant(fleet, name)
    store = ArchiveStore(backup_root(fleet.settings, invocation.state_directory), tenant.subject)
    with _held(invocation, tenant):
        stored = copies.fetch(store, archive)
    if as_json:
        print_document(fetched_document(tenant.slug, stored))
        return ExitCode.DONE
    print_line(f"{tenant.slug}: {stored.path}")
    return ExitCode.DONE


def fetched_document(slug: str, stored: StoredArchive) -> dict[str, Any]:
    """The document of ``offsite fetch``."""
    digest = stored.manifest.digest if stored.manifest else None
    return {
        "slug": slug,
        "archive": stored.archive,
        "file": str(stored.path),
        "size_bytes": stored.size_bytes,
        "digest": digest,
    }


@dataclass(frozen=True)
class Sent:
    """What was sent of one tenant, and what ended that early."""

    slug: str
    archives: tuple[str, ...]
    error: TenantryError | None = None


def _send(invocation: Invocation, copies: Copies, fleet: Fleet, tenant: Tenant) -> Sent:
    store = ArchiveStore(backup_root(fleet.settings, invocation.state_directory), tenant.subject)
    sent: list[str] = []
    try:
        with _held(invocation, tenant):
            for item in copies.missing(tenant.slug, store.archives()):
                copies.send(tenant.slug, (item.path, manifest_path(item.path)))
                sent.append(item.archive)
    except TenantryError as error:
        return Sent(tenant.slug, tuple(sent), error)
    return Sent(tenant.slug, tuple(sent))


def _held(invocation: Invocation, tenant: Tenant) -> AbstractContextManager[HeldLock]:
    clock = SystemClock()
    locks = LockDirectory(invocation.state_directory / "locks", clock)
    return locks.hold(tenant.subject, job="offsite", run=new_run_id(clock))


def sent_document(outcomes: Sequence[Sent]) -> dict[str, Any]:
    """The document of ``offsite send``."""
    return {
        "tenants": [
            {
                "slug": sent.slug,
                "sent": list(sent.archives),
                "exit_code": int(sent.error.exit_code if sent.error else ExitCode.DONE),
                "error": str(sent.error) if sent.error else None,
            }
            for sent in outcomes
        ]
    }


def document(repository: str, copies: Sequence[Snapshot]) -> dict[str, Any]:
    """The document of ``offsite list``."""
    return {
        "repository": repository,
        "copies": [
            {"slug": copy.slug, "archive": copy.archive, "snapshot": copy.id, "sent_at": copy.time} for copy in copies
        ],
    }


def _copies(invocation: Invocation) -> Copies:
    fleet = invocation.fleet()
    restic = fleet.settings.backup.restic
    if restic is None:
        raise Refused(
            "this fleet has no offsite repository",
            where=str(invocation.root / SETTINGS_FILE),
            hint="name one as backup.restic: {repository: …, password: …}",
        )
    program = ResticProgram(restic, secret_sources(fleet, invocation.state_directory), invocation.state_directory)
    return Copies(program, fleet.settings.brand)
