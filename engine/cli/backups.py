"""``tenantry backups``: the archives that are there."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any

import click

from engine.backups.store import ArchiveStore, StoredArchive, backup_root
from engine.cli.backup import archive_document, size
from engine.cli.invocation import Choice, Invocation, json_option, tenants_option
from engine.cli.output import print_document, print_line, print_table
from engine.clock import SystemClock
from engine.errors import ExitCode

Listing = Sequence[tuple[str, Sequence[StoredArchive]]]


@click.command()
@tenants_option(required=False)
@json_option
@click.pass_obj
def backups(invocation: Invocation, choice: Choice, as_json: bool) -> ExitCode:
    """List the archives of each tenant, the oldest first.

    An archive is verified if it came whole: its manifest is there, and its size is the manifest's. Connects
    to nothing; partial and foreign files are not shown.
    """
    fleet = invocation.fleet()
    root, now = backup_root(fleet.settings, invocation.state_directory), SystemClock().now()
    listing = [(tenant.slug, ArchiveStore(root, tenant.subject).archives()) for tenant in choice.of(fleet)]
    if as_json:
        print_document(document(listing, now))
    else:
        _show(listing, now)
    return ExitCode.DONE


def document(listing: Listing, now: datetime.datetime) -> dict[str, Any]:
    """The archives as one document; ages in seconds."""
    return {
        "tenants": [
            {
                "slug": slug,
                "archives": [
                    {**archive_document(item), "age_seconds": int((now - item.taken_at).total_seconds())}
                    for item in archives
                ],
            }
            for slug, archives in listing
        ]
    }


def age(seconds: float) -> str:
    """A length of time for people, in its largest unit."""
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{int(seconds // length)} {unit}"
    return f"{max(0, int(seconds))} s"


def _show(listing: Listing, now: datetime.datetime) -> None:
    rows = []
    for slug, archives in listing:
        for item in archives:
            version = item.manifest.version or "" if item.manifest and item.is_verified else ""
            old = age((now - item.taken_at).total_seconds())
            rows.append((slug, item.archive, old, size(item.size_bytes), version, item.problem or "yes"))
    if rows:
        print_table(("tenant", "archive", "age", "size", "version", "verified"), rows)
    for slug, archives in listing:
        if not archives:
            print_line(f"{slug}: no archive")
