"""``tenantry converge``: tenants to the head."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import click

from engine.cli.failures import report_error
from engine.cli.invocation import Choice, Invocation, json_option, parallel_option, tenants_option
from engine.cli.output import print_document, print_line, print_table
from engine.cli.plan import ask_for_plans, digest_of_all, digests_of
from engine.cli.progress import progress
from engine.errors import ExitCode, Refused, TenantryError, most_serious
from engine.registry.model import Tenant
from engine.updater.fleet import converge_many
from engine.updater.outcome import Options, Outcome
from engine.updater.workspace import Workspace


@click.command()
@tenants_option(required=True)
@click.option("--plan", "digest", metavar="DIGEST", help="Refuse if the plan is no longer the one with this digest.")
@click.option("--note", metavar="TEXT", help="Tell the owners this instead of the releases' own notes.")
@parallel_option
@json_option
@click.pass_obj
def converge(
    invocation: Invocation,
    choice: Choice,
    digest: str | None,
    note: str | None,
    parallel: int | None,
    as_json: bool,
) -> ExitCode:
    """Bring tenants to the head of the manifest.

    A tenant at the head whose owner can reach it is left alone. One tenant's failure leaves the others
    untouched; a server that was never provisioned is reported with the command to give.
    """
    workspace = invocation.workspace()
    tenants = choice.of(workspace.fleet)
    options = Options(plan_digests=_plan_digests(workspace, tenants, digest), note=note)
    with progress("converge") as report:
        outcomes = converge_many(replace(workspace, report=report), tenants, options, parallel=parallel)
    return show_outcomes(outcomes, as_json)


def show_outcomes(outcomes: Sequence[Outcome], as_json: bool) -> ExitCode:
    """Print how each tenant's run ended; returns the exit code for all of them."""
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
    return {
        "tenants": [
            {
                "slug": outcome.slug,
                "result": outcome.result.value,
                "exit_code": int(outcome.exit_code),
                "run": outcome.run,
                "from_version": outcome.from_version,
                "to_version": outcome.to_version,
                "steps": list(outcome.steps),
                "files": list(outcome.files),
                "restarted": outcome.restarted,
                "messages": list(outcome.messages),
                "error": outcome.error,
            }
            for outcome in outcomes
        ]
    }


def _plan_digests(workspace: Workspace, tenants: Sequence[Tenant], digest: str | None) -> frozenset[str] | None:
    """What the tenants' plans must still be under their locks; a digest of several is resolved first."""
    if digest is None:
        return None
    if len(tenants) == 1:
        return frozenset({digest})
    answers = ask_for_plans(workspace, tenants)
    digests = digests_of(answers)
    if digests is None:
        raise next(answer for _, answer in answers if isinstance(answer, TenantryError))
    if digest_of_all(digests) != digest:
        raise Refused(f"the plan is now {digest_of_all(digests)}, not {digest}", hint="look at `tenantry plan` again")
    return frozenset(digests.values())


def _show(outcomes: Sequence[Outcome]) -> None:
    print_table(
        ("tenant", "result", "version", "done"),
        [(outcome.slug, outcome.result.value, _versions(outcome), _done(outcome)) for outcome in outcomes],
    )
    for outcome in outcomes:
        for message in outcome.messages:
            print_line(f"{outcome.slug}: {message}")


def _versions(outcome: Outcome) -> str:
    if outcome.to_version is None:
        return ""
    if outcome.from_version == outcome.to_version:
        return outcome.to_version
    return f"{outcome.from_version or 'zero'} -> {outcome.to_version}"


def _done(outcome: Outcome) -> str:
    counted = ((len(outcome.steps), "step"), (len(outcome.files), "file"))
    parts = [f"{count} {noun}{'s' if count > 1 else ''}" for count, noun in counted if count]
    parts += ["restarted"] if outcome.restarted else []
    return ", ".join(parts) or ("" if outcome.error else "nothing to do")
