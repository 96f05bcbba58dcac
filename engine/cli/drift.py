"""``tenantry drift``: what a tenant's version should look like against what the tenant reports."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import click

from engine.cli.failures import report_error
from engine.cli.invocation import Choice, Invocation, json_option, parallel_option, tenants_option
from engine.cli.output import print_document, print_line, print_table
from engine.cli.plan import errors_document
from engine.cli.progress import progress
from engine.drift.check import check_many, remember_all
from engine.drift.compare import State
from engine.drift.report import Drift
from engine.errors import ExitCode, TenantryError, most_serious
from engine.registry.model import Tenant

Answers = Sequence[tuple[Tenant, Drift | TenantryError]]

_DIGEST = re.compile(r"(sha256:[0-9a-f]{12})[0-9a-f]{52}")


@click.command()
@tenants_option(required=False)
@click.option("--exit-code", is_flag=True, help="Exit 3 if drift was found.")
@parallel_option
@json_option
@click.pass_obj
def drift(invocation: Invocation, choice: Choice, exit_code: bool, parallel: int | None, as_json: bool) -> ExitCode:
    """Name what is not as a tenant's version says, and since when; touches nothing.

    What is expected is computed from settings, releases, bundles and templates; the tenant is asked once. Takes no
    lock and changes nothing there. Exit 4 where a tenant, or one thing on it, could not be read: that is never
    clean. `converge --repair` puts right what a step, a phase or a template owns. Without a choice it asks every
    tenant.
    """
    workspace = invocation.workspace()
    tenants = choice.of(workspace.fleet)
    with progress("drift") as report:
        results = check_many(replace(workspace, report=report), tenants, parallel=parallel)
    answers = tuple(zip(tenants, results, strict=True))
    if as_json:
        print_document(document(answers))
    else:
        _show(answers)
    problems: list[TenantryError] = [answer for _, answer in answers if isinstance(answer, TenantryError)]
    problems += remember_all(workspace, answers)
    for problem in problems:
        report_error(problem)
    for _, answer in answers:
        if isinstance(answer, Drift) and code_of(answer, exit_code):
            # On standard error too, where a timer's operator is told from.
            report_error(f"{answer.slug}: {', '.join(item.key for item in answer.differences)}")
    return most_serious([*(problem.exit_code for problem in problems), *(code_of(a, exit_code) for _, a in answers)])


def document(answers: Answers) -> dict[str, Any]:
    """The reports as one document."""
    return {
        "tenants": [answer.document() for _, answer in answers if isinstance(answer, Drift)],
        "errors": errors_document(answers),
    }


def code_of(answer: Drift | TenantryError, exit_code: bool) -> ExitCode:
    """The exit code of one tenant: unknown before drift, and drift only where it was asked for."""
    if isinstance(answer, TenantryError):
        return answer.exit_code
    if answer.count(State.UNKNOWN):
        return ExitCode.UNREACHABLE
    return ExitCode.CHANGES if exit_code and answer.count(State.DIFFERS) else ExitCode.DONE


def _show(answers: Answers) -> None:
    for _, answer in answers:
        if isinstance(answer, TenantryError):
            continue
        print_line(f"{answer.slug}: {answer.summary}", style="green" if answer.is_clean else "red")
        rows = [
            (
                item.difference.key,
                _short(item.difference.expected),
                ("unknown: " if item.difference.state is State.UNKNOWN else "") + _short(item.difference.found),
                str(item.difference.owner),
                item.since,
            )
            for item in answer.sightings
        ]
        if rows:
            print_table(("what", "expected", "found", "owner", "since"), rows)


def _short(text: str) -> str:
    """`text` with digests as short as a person compares them; the document has them whole."""
    return _DIGEST.sub(r"\1…", text)
