"""``tenantry converge``: tenants to the head."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from engine.cli import env_life
from engine.cli.failures import report_error
from engine.cli.invocation import Choice, Invocation, json_option, parallel_option, tenants_option
from engine.cli.output import print_document, print_line, print_table
from engine.cli.plan import ask_for_plans, digest_of_all, digests_of
from engine.cli.progress import progress
from engine.drift.repair import repairer
from engine.errors import ExitCode, Refused, TenantryError, most_serious
from engine.registry.model import Tenant
from engine.updater.fleet import converge_many
from engine.updater.outcome import Options, Outcome
from engine.updater.workspace import Workspace

if TYPE_CHECKING:
    from engine.environments.hosting import Ended, Hosting
    from engine.subject import Subject

    Hosted = tuple[Hosting, Sequence[Subject]]


@click.command()
@tenants_option(required=True)
@click.option("--plan", "digest", metavar="DIGEST", help="Refuse if the plan is no longer the one with this digest.")
@click.option("--repair", is_flag=True, help="First put right what drifted: run again whatever writes it.")
@click.option("--note", metavar="TEXT", help="Tell the owners this instead of the releases' own notes.")
@click.option("--retry", is_flag=True, help="Try again what a rolled-back tenant is held from.")
@parallel_option
@json_option
@click.pass_obj
def converge(
    invocation: Invocation,
    choice: Choice,
    digest: str | None,
    repair: bool,
    note: str | None,
    retry: bool,
    parallel: int | None,
    as_json: bool,
) -> ExitCode:
    """Bring tenants to the head of the manifest, and with --all every hosted environment to its entry.

    A tenant at the head whose owner can reach it is left alone. One tenant's failure leaves the others
    untouched; a server that was never provisioned is reported with the command to give. A tenant whose owner
    cannot reach it afterwards is put back to what it was before, and held. With --repair, what `drift` shows and
    a step, a phase or a template owns is put right first, in the same run.
    """
    if repair and digest is not None:
        raise click.UsageError("a plan shows no repair, so give one of --plan and --repair")
    workspace = invocation.workspace()
    tenants = choice.of(workspace.fleet)
    hosted = env_life.of_fleet(invocation) if choice.everyone else None
    digests = _plan_digests(workspace, tenants, hosted, digest)
    options = Options(plan_digests=digests, note=note, retry=retry)
    with progress("converge") as report:
        reporting = replace(workspace, report=report)
        mender = repairer(reporting) if repair else None
        outcomes = converge_many(reporting, tenants, options, parallel=parallel, mender=mender)
    return show_outcomes(outcomes, as_json, _converge_hosted(hosted, digests) if hosted else ())


def show_outcomes(outcomes: Sequence[Outcome], as_json: bool, environments: Sequence[Ended] | None = None) -> ExitCode:
    """Print how each tenant's run, and each environment's if any were asked for, ended; the exit code for all."""
    hosted = environments or ()
    if as_json:
        print_document(document(outcomes) | ({} if environments is None else _hosted_document(hosted)))
    else:
        _show(outcomes)
        if hosted:
            env_life.show_ended_table(hosted)
    for error in (*(outcome.error for outcome in outcomes), *(ended.error for ended in hosted)):
        if error:
            report_error(error)
    codes = [outcome.exit_code for outcome in outcomes]
    return most_serious([*codes, *(ended.exit_code for ended in hosted)])


def _hosted_document(hosted: Sequence[Ended]) -> dict[str, Any]:
    return {"environments": env_life.ended_document(hosted)}


def document(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """The outcomes of tenants as one document."""
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


def _converge_hosted(hosted: Hosted, digests: frozenset[str] | None) -> tuple[Ended, ...]:
    from engine.environments.hosting import converge_all

    hosting, subjects = hosted
    with progress("converge") as report:
        return converge_all(replace(hosting, report=report), subjects, digests)


def _plan_digests(
    workspace: Workspace, tenants: Sequence[Tenant], hosted: Hosted | None, digest: str | None
) -> frozenset[str] | None:
    """What the plans must still be under their locks; a digest of several is resolved first."""
    if digest is None:
        return None
    if len(tenants) == 1 and not hosted:
        return frozenset({digest})
    answers = ask_for_plans(workspace, tenants)
    environments = env_life.ask_for_plans(*hosted) if hosted else ()
    digests = digests_of(answers, environments)
    if digests is None:
        raise next(answer for _, answer in (*answers, *environments) if isinstance(answer, TenantryError))
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
