"""``tenantry backup``: an archive of each tenant, and what would be in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import click

from engine.backups.contents import Included, check_contents, included
from engine.backups.retention import expired
from engine.backups.store import ArchiveStore, StoredArchive, backup_root
from engine.cli.failures import report_error
from engine.cli.invocation import Choice, Invocation, json_option, parallel_option, tenants_option
from engine.cli.output import print_document, print_line, print_table
from engine.cli.progress import progress
from engine.errors import ExitCode, InvalidInput, most_serious
from engine.registry.model import Fleet, Tenant
from engine.registry.settings import Settings
from engine.updater.outcome import Outcome


@click.command()
@tenants_option(required=False)
@click.option("--list-paths", is_flag=True, help="Show what goes into an archive and what stays out; nothing else.")
@click.option("--dry-run", is_flag=True, help="Show which old archives the next success would remove; nothing else.")
@parallel_option
@json_option
@click.pass_obj
def backup(
    invocation: Invocation,
    choice: Choice,
    list_paths: bool,
    dry_run: bool,
    parallel: int | None,
    as_json: bool,
) -> ExitCode:
    """Make an archive of each chosen tenant and remove its oldest ones.

    --all, --role and --trade leave out tenants whose daily_backup is off; a tenant that is named is backed
    up in any case. A failure leaves the tenant's archives as they were.
    """
    if list_paths:
        return _list_paths(invocation.fleet().settings, as_json)
    choice.check(required=True)
    fleet = invocation.fleet()
    tenants = chosen(choice, fleet)
    if dry_run:
        return _dry_run(invocation, fleet, tenants, as_json)
    # pyinfra is slow to import, and what is above needs no host.
    from engine.backups.run import backup_many

    with progress("backup") as report:
        outcomes = backup_many(replace(invocation.workspace(), report=report), tenants, parallel=parallel)
    if as_json:
        print_document(document(outcomes))
    else:
        _show(outcomes)
    for outcome in outcomes:
        if outcome.error:
            report_error(outcome.error)
    return most_serious(outcome.exit_code for outcome in outcomes)


def chosen(choice: Choice, fleet: Fleet) -> tuple[Tenant, ...]:
    """The chosen tenants, without those whose daily backup is off unless they are named."""
    tenants = choice.of(fleet)
    if choice.names:
        return tenants
    daily = tuple(tenant for tenant in tenants if tenant.daily_backup)
    if tenants and not daily:
        raise InvalidInput("no chosen tenant has daily_backup", hint="name a tenant to back it up all the same")
    return daily


def document(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """The outcomes as one document."""
    return {"tenants": [_entry(outcome) for outcome in outcomes]}


def archive_document(item: StoredArchive) -> dict[str, Any]:
    """One archive; what only its manifest knows is null where it is not verified."""
    manifest = item.manifest if item.is_verified else None
    return {
        "archive": item.archive,
        "file": str(item.path),
        "size_bytes": item.size_bytes,
        "verified": item.is_verified,
        "problem": item.problem,
        "digest": manifest.digest if manifest else None,
        "version": manifest.version if manifest else None,
        "run": manifest.run if manifest else None,
        "started_at": manifest.started_at if manifest else None,
        "finished_at": manifest.finished_at if manifest else None,
        "members": manifest.members if manifest else None,
        "uncompressed_bytes": manifest.uncompressed_bytes if manifest else None,
        "databases": len(manifest.databases) if manifest else None,
    }


def size(count: int) -> str:
    """A number of bytes for people."""
    value, unit = float(count), "B"
    for larger in ("KB", "MB", "GB", "TB"):
        if value < 1000:
            break
        value, unit = value / 1000, larger
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"


def _entry(outcome: Outcome) -> dict[str, Any]:
    stored = getattr(outcome, "stored", None)
    return {
        "slug": outcome.slug,
        "result": outcome.result.value,
        "exit_code": int(outcome.exit_code),
        "run": outcome.run,
        "archive": archive_document(stored) if stored else None,
        "removed": list(getattr(outcome, "removed", ())),
        "messages": list(outcome.messages),
        "error": outcome.error,
    }


def _show(outcomes: Sequence[Outcome]) -> None:
    rows = []
    for entry in document(outcomes)["tenants"]:
        archive: Mapping[str, Any] = entry["archive"] or {}
        counts = [size(archive["size_bytes"]), f"{archive['members']} members"] if archive else ["", ""]
        rows.append(
            (
                entry["slug"],
                entry["result"],
                archive.get("archive", ""),
                archive.get("version") or "",
                *counts,
                ", ".join(entry["removed"]),
            )
        )
    print_table(("tenant", "result", "archive", "version", "size", "holds", "removed"), rows)
    for outcome in outcomes:
        for message in outcome.messages:
            print_line(f"{outcome.slug}: {message}")


def _list_paths(settings: Settings, as_json: bool) -> ExitCode:
    check_contents(settings)
    paths = included(settings)
    if as_json:
        print_document(paths_document(paths))
        return ExitCode.DONE
    print_table(
        ("content", "kind", "in", "out, below it"),
        [(item.name, item.kind, item.path, ", ".join(item.exclude)) for item in paths],
    )
    print_line("Nothing else is in an archive: what can be installed again, logs, caches, and sockets are out.")
    return ExitCode.DONE


def paths_document(paths: Sequence[Included]) -> dict[str, Any]:
    """What goes into an archive, as one document."""
    return {
        "contents": [
            {"name": item.name, "kind": item.kind, "path": item.path, "exclude": list(item.exclude)} for item in paths
        ]
    }


def _dry_run(invocation: Invocation, fleet: Fleet, tenants: Sequence[Tenant], as_json: bool) -> ExitCode:
    root, kept = backup_root(fleet.settings, invocation.state_directory), fleet.settings.backup.kept
    found = [(tenant.slug, ArchiveStore(root, tenant.subject).archives()) for tenant in tenants]
    if as_json:
        print_document(retention_document(found, kept))
        return ExitCode.DONE
    rows = [
        (slug, str(len(archives)), ", ".join(item.archive for item in _going(archives, kept)) or "nothing")
        for slug, archives in found
    ]
    print_table(("tenant", "archives", f"the next success would remove, keeping {kept}"), rows)
    return ExitCode.DONE


def retention_document(found: Sequence[tuple[str, Sequence[StoredArchive]]], kept: int) -> dict[str, Any]:
    """What the next success would remove, as one document."""
    return {
        "kept": kept,
        "tenants": [
            {
                "slug": slug,
                "archives": len(archives),
                "verified": sum(item.is_verified for item in archives),
                "would_remove": [archive_document(item) for item in _going(archives, kept)],
            }
            for slug, archives in found
        ],
    }


def _going(archives: Sequence[StoredArchive], kept: int) -> Sequence[StoredArchive]:
    """What retention would take once one more archive is there."""
    return expired(archives, kept - 1)
