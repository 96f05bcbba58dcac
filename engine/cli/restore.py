"""``tenantry restore``: a tenant's files from one of its archives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from engine.cli.converge import document as outcomes_document
from engine.cli.converge import show_outcomes
from engine.cli.failures import report_error
from engine.cli.invocation import Invocation, json_option, one_tenant
from engine.cli.output import print_document, print_line, print_table
from engine.cli.progress import progress
from engine.errors import ExitCode, TenantryError
from engine.updater.outcome import Outcome

if TYPE_CHECKING:
    from engine.backups.difference import Difference, Finding
    from engine.registry.model import Tenant
    from engine.updater.workspace import Workspace

SHOWN = 200


@click.command()
@click.argument("name", metavar="T")
@click.option("--archive", metavar="ID", help="Of which archive; the newest verified one by default.")
@click.option("--confirm", metavar="T", help="The tenant's slug again: its files are replaced.")
@click.option("--onto", is_flag=True, help="Rebuild the server first: everything on it is destroyed.")
@click.option("--path", metavar="PATH", help="Only this file or directory, inside what an archive holds.")
@click.option("--dry-run", is_flag=True, help="Show file by file what would change; touch nothing, lock nothing.")
@json_option
@click.pass_obj
def restore(
    invocation: Invocation,
    name: str,
    archive: str | None,
    confirm: str | None,
    onto: bool,
    path: str | None,
    dry_run: bool,
    as_json: bool,
) -> ExitCode:
    """Put an archive in the place of a tenant's files, and converge it forward to the head.

    The archive is checked beside the live files before anything is touched. What it replaces is kept in a
    recovery set, and a failure at any point puts that back. With --onto the server is provisioned anew
    first, as `provision` does.
    """
    _check_usage(name, confirm, onto, path, dry_run)
    from engine.backups.restore import Wish
    from engine.backups.restore import restore as restore_tenant

    workspace = invocation.workspace()
    tenant = one_tenant(workspace.fleet, name)
    wish = Wish(archive, path)
    with progress("restore") as report:
        told = replace(workspace, report=report)
        if not dry_run:
            outcome = restore_tenant(told, tenant, wish, onto=onto)
        else:
            answer = _difference(told, tenant, archive, path)
    if dry_run:
        return _show_difference(answer, as_json)
    if as_json:
        print_document(document(outcome))
        if outcome.error:
            report_error(outcome.error)
        return outcome.exit_code
    return show_outcomes([outcome], as_json)


def document(outcome: Outcome) -> dict[str, Any]:
    """The outcome of a restore as one document."""
    (entry,) = outcomes_document([outcome])["tenants"]
    return {"tenants": [{**entry, "archive": getattr(outcome, "archive", None)}]}


def _check_usage(name: str, confirm: str | None, onto: bool, path: str | None, dry_run: bool) -> None:
    if confirm is None and not dry_run:
        what = "this destroys the server of" if onto else "this replaces the files of"
        raise click.UsageError(f"{what} {name}: add --confirm {name}")
    if confirm not in (None, name):
        raise click.UsageError(f"--confirm {confirm} does not name the tenant {name}")
    if onto and path:
        raise click.UsageError("--onto rebuilds the whole server: leave out --path")
    if onto and dry_run:
        raise click.UsageError("--dry-run compares with what is live, which --onto destroys: leave one of them out")


def _difference(
    workspace: Workspace, tenant: Tenant, archive: str | None, path: str | None
) -> Difference | TenantryError:
    from engine.backups.choice import choose
    from engine.backups.difference import difference
    from engine.updater.fleet import ask_many

    chosen = choose(workspace, tenant, archive, path)
    (answer,) = ask_many(workspace, [tenant], lambda tenant, session: difference(tenant, session, chosen))
    return answer


def _show_difference(answer: Difference | TenantryError, as_json: bool) -> ExitCode:
    if isinstance(answer, TenantryError):
        raise answer
    if as_json:
        print_document(answer.document())
        return ExitCode.DONE
    print_line(f"{answer.slug}: archive {answer.archive} of version {answer.version or 'zero'}")
    for title, sort, findings in (
        ("would come", "added", answer.added),
        ("would change", "changed", answer.changed),
        ("would go into the recovery set", "removed", answer.removed),
    ):
        _show_findings(title, answer.counts[sort], findings)
    return ExitCode.DONE


def _show_findings(title: str, count: int, findings: Sequence[Finding]) -> None:
    print_line(f"{count} {title}")
    if findings:
        rows = [(item.path, item.now or "", item.then or "") for item in findings[:SHOWN]]
        print_table(("path", "now", "then"), rows)
    if count > SHOWN:
        print_line(f"… and {count - SHOWN} more; --json shows them")
