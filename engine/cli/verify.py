"""``tenantry verify``: the counted acceptance check."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import click

from engine.cli.failures import report_error
from engine.cli.invocation import Choice, Invocation, json_option, parallel_option, tenants_option
from engine.cli.output import print_document, print_line, print_table
from engine.cli.plan import errors_document
from engine.cli.progress import progress
from engine.errors import ExitCode, TenantryError, most_serious
from engine.registry.model import Tenant
from engine.updater.fleet import ask_many
from engine.updater.verify import Verdict, Verification
from engine.updater.verify import verify as verify_tenant

Answers = Sequence[tuple[Tenant, Verification | TenantryError]]


@click.command()
@tenants_option(required=False)
@parallel_option
@json_option
@click.pass_obj
def verify(invocation: Invocation, choice: Choice, parallel: int | None, as_json: bool) -> ExitCode:
    """Check that tenants are what their version says, counted.

    Services, gateway, port, channels, routes, rendered files and the version. Changes nothing, takes no
    lock. Without a choice it checks every tenant.
    """
    workspace = invocation.workspace()
    tenants = choice.of(workspace.fleet)
    with progress("verify") as report:
        results = ask_many(
            replace(workspace, report=report),
            tenants,
            lambda tenant, session: verify_tenant(workspace, tenant, session.probe()),
            parallel=parallel,
        )
    answers = tuple(zip(tenants, results, strict=True))
    if as_json:
        print_document(document(answers))
    else:
        _show(answers)
    for _, answer in answers:
        if isinstance(answer, TenantryError):
            report_error(answer)
    return most_serious(_code(answer) for _, answer in answers)


def document(answers: Answers) -> dict[str, Any]:
    """The checks of each tenant as one document."""
    return {
        "tenants": [answer.document() for _, answer in answers if isinstance(answer, Verification)],
        "errors": errors_document(answers),
    }


def _code(answer: Verification | TenantryError) -> ExitCode:
    if isinstance(answer, TenantryError):
        return answer.exit_code
    return ExitCode.DONE if answer.is_good else ExitCode.FAILED


def _show(answers: Answers) -> None:
    for _, answer in answers:
        if isinstance(answer, TenantryError):
            continue
        print_line(f"{answer.slug}: {answer.summary}", style="green" if answer.is_good else "red")
        rows = [
            (check.verdict.value, check.name, check.detail)
            for check in answer.checks
            if check.verdict is not Verdict.PASSED
        ]
        if rows:
            print_table(("verdict", "check", "found"), rows)
