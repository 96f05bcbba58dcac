"""``tenantry sessions``: which personality each conversation speaks with."""

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
from engine.updater.personalities import Speaking, Spoken, ask_conversations

Answers = Sequence[tuple[Tenant, Spoken | TenantryError]]

SHORT = 12
"""Characters of a fingerprint in a table."""


@click.command()
@tenants_option(required=False)
@click.option("--ended", is_flag=True, help="List ended conversations too.")
@parallel_option
@json_option
@click.pass_obj
def sessions(invocation: Invocation, choice: Choice, ended: bool, parallel: int | None, as_json: bool) -> ExitCode:
    """Show which personality each conversation speaks with.

    Read from the prompts that the runtime keeps. Changes nothing, takes no lock. Without a choice it asks every
    tenant.
    """
    workspace = invocation.workspace()
    tenants = choice.of(workspace.fleet)
    with progress("sessions") as report:
        results = ask_many(
            replace(workspace, report=report),
            tenants,
            lambda tenant, session: ask_conversations(workspace, tenant, session, ended=ended),
            parallel=parallel,
        )
    answers = tuple(zip(tenants, results, strict=True))
    if as_json:
        print_document(document(answers))
    else:
        _show(answers)
    errors = [answer for _, answer in answers if isinstance(answer, TenantryError)]
    for error in errors:
        report_error(error)
    return most_serious(error.exit_code for error in errors)


def document(answers: Answers) -> dict[str, Any]:
    """The conversations of each tenant as one document."""
    return {
        "tenants": [answer.document() for _, answer in answers if isinstance(answer, Spoken)],
        "errors": errors_document(answers),
    }


def _show(answers: Answers) -> None:
    for _, answer in answers:
        if isinstance(answer, TenantryError):
            continue
        print_line(f"{answer.slug}: the personality is {_named(answer.fingerprint, answer.version)}")
        rows = [_row(one) for one in answer.conversations]
        if rows:
            print_table(("session", "source", "state", "prompt", "personality"), rows)


def _row(one: Speaking) -> tuple[str, ...]:
    found = one.conversation
    return found.id, found.source, found.state, one.prompt.value, _named(one.fingerprint, one.version)


def _named(fingerprint: str | None, version: str | None) -> str:
    if fingerprint is None:
        return "-"
    return f"{fingerprint[:SHORT]} ({f'since {version}' if version else 'of no version'})"
