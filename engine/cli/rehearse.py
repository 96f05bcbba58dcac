"""``tenantry rehearse``: proof that a tenant's newest archive restores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import click

from engine.backups.proofs import Proof
from engine.cli.backup import chosen
from engine.cli.failures import report_error
from engine.cli.invocation import Choice, Invocation, json_option, tenants_option
from engine.cli.output import print_document, print_line, print_table
from engine.cli.progress import progress
from engine.errors import ExitCode, most_serious
from engine.updater.outcome import Outcome

PROOF_FIELDS = ("archive", "version", "at", "duration_seconds", "phases", "unproven")


@click.command()
@tenants_option(required=True)
@click.option("--archive", metavar="ID", help="Of which archive; the newest verified one by default.")
@click.option(
    "--parallel",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    metavar="N",
    help="How many tenants at once.",
)
@json_option
@click.pass_obj
def rehearse(invocation: Invocation, choice: Choice, archive: str | None, parallel: int, as_json: bool) -> ExitCode:
    """Restore the newest archive on a scratch server, boot it, and verify it.

    The scratch server is converged to the head. It has no way out and made-up secrets, and is destroyed whatever
    happens. The tenant is neither asked nor locked, and its owner gets no message. --all, --role and --trade leave
    out tenants whose daily_backup is off.
    """
    if archive and len(choice.names) != 1:
        raise click.UsageError("--archive is one of a single tenant: name that tenant")
    tenants = chosen(choice, invocation.fleet())
    from engine.backups.rehearsal import rehearse_many

    with progress("rehearse") as report:
        workspace = replace(invocation.workspace(), report=report)
        outcomes = rehearse_many(workspace, tenants, archive=archive, parallel=parallel)
    if as_json:
        print_document(document(outcomes))
    else:
        _show(outcomes)
    for outcome in outcomes:
        if outcome.error:
            report_error(outcome.error)
    return most_serious(outcome.exit_code for outcome in outcomes)


def document(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """The outcomes as one document."""
    return {"tenants": [_entry(outcome) for outcome in outcomes]}


def _entry(outcome: Outcome) -> dict[str, Any]:
    proof: Proof | None = getattr(outcome, "proof", None)
    return {
        "slug": outcome.slug,
        "result": outcome.result.value,
        "exit_code": int(outcome.exit_code),
        "run": outcome.run,
        "proof": proof.document(*PROOF_FIELDS) if proof else None,
        "messages": list(outcome.messages),
        "error": outcome.error,
    }


def _show(outcomes: Sequence[Outcome]) -> None:
    rows = []
    for outcome in outcomes:
        proof: Proof | None = getattr(outcome, "proof", None)
        told = (proof.archive, f"{proof.duration_seconds:.0f} s", ", ".join(proof.unproven)) if proof else ("", "", "")
        rows.append((outcome.slug, outcome.result.value, *told))
    print_table(("tenant", "result", "archive", "took", "unproven"), rows)
    for outcome in outcomes:
        for message in outcome.messages:
            print_line(f"{outcome.slug}: {message}")
