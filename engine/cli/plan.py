"""``tenantry plan``: what a converge would do now, without lock or change."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import click

from engine.cli import env_life
from engine.cli.failures import report_error
from engine.cli.invocation import Choice, Invocation, json_option, parallel_option, tenants_option
from engine.cli.output import print_diff, print_document, print_line
from engine.cli.progress import progress
from engine.errors import ExitCode, TenantryError, most_serious
from engine.registry.model import Tenant
from engine.updater.fleet import ask_many
from engine.updater.plan import TenantPlan, plan_tenant
from engine.updater.workspace import Workspace

Answers = Sequence[tuple[Tenant, TenantPlan | TenantryError]]


@click.command()
@tenants_option(required=False)
@click.option("--diff", "with_diff", is_flag=True, help="Show content differences of rendered files.")
@click.option("--exit-code", is_flag=True, help="Exit 3 if changes are pending.")
@parallel_option
@json_option
@click.pass_obj
def plan(
    invocation: Invocation,
    choice: Choice,
    with_diff: bool,
    exit_code: bool,
    parallel: int | None,
    as_json: bool,
) -> ExitCode:
    """Say what a converge would do; touches nothing.

    Takes no lock, so it works while another job holds a tenant. Without a choice, or with --all, it asks every
    tenant and looks at every hosted environment.
    The digest covers what would be done, without clock and message times: `converge --plan DIGEST`
    refuses if anything changed since.
    """
    workspace = invocation.workspace()
    hosted = env_life.of_fleet(invocation) if choice.everyone or not choice.is_made else None
    answers = ask_for_plans(workspace, choice.of(workspace.fleet), with_diff=with_diff, parallel=parallel)
    environments = env_life.ask_for_plans(*hosted) if hosted else ()
    if as_json:
        print_document(document(answers, environments))
    else:
        _show(answers, environments)
    for _, answer in (*answers, *environments):
        if isinstance(answer, TenantryError):
            report_error(answer)
    codes = [_code(answer, exit_code) for _, answer in answers]
    return most_serious([*codes, *(env_life.plan_code(answer, exit_code) for _, answer in environments)])


def ask_for_plans(
    workspace: Workspace, tenants: Sequence[Tenant], *, with_diff: bool = False, parallel: int | None = None
) -> Answers:
    """The plan of each of `tenants`, or the error that stands in its place."""
    with progress("plan") as report:
        reporting = replace(workspace, report=report)
        answers = ask_many(
            reporting,
            tenants,
            lambda tenant, session: plan_tenant(reporting, tenant, session, with_diff=with_diff),
            parallel=parallel,
        )
    return tuple(zip(tenants, answers, strict=True))


def document(answers: Answers, environments: env_life.Answers = ()) -> dict[str, Any]:
    """The plans as one document; its digest is null unless everything could be planned."""
    digests = digests_of(answers, environments)
    return {
        "digest": digest_of_all(digests) if digests is not None else None,
        "tenants": [answer.document() for _, answer in answers if isinstance(answer, TenantPlan)],
        "environments": env_life.plans_document(environments),
        "errors": [*errors_document(answers), *_errors_of(environments)],
    }


def errors_document(answers: Sequence[tuple[Tenant, object]]) -> list[dict[str, Any]]:
    """The tenants that could not be asked, and why."""
    return [_error(tenant.slug, answer) for tenant, answer in answers if isinstance(answer, TenantryError)]


def digests_of(answers: Answers, environments: env_life.Answers = ()) -> dict[str, str] | None:
    """Each plan's digest by slug, or ``env/UUID`` or ``tier/UUID``; None if something could not be planned."""
    digests = {tenant.slug: answer.assessment.digest() for tenant, answer in answers if isinstance(answer, TenantPlan)}
    for subject, plan in environments:
        if not isinstance(plan, TenantryError):
            digests[str(subject)] = plan.digest
    return digests if len(digests) == len(answers) + len(environments) else None


def digest_of_all(digests: Mapping[str, str]) -> str:
    """One digest for several plans; that of a single one is its own."""
    if len(digests) == 1:
        return next(iter(digests.values()))
    text = "\n".join(f"{slug} {digest}" for slug, digest in sorted(digests.items()))
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def _code(answer: TenantPlan | TenantryError, exit_code: bool) -> ExitCode:
    if isinstance(answer, TenantryError):
        return answer.exit_code
    return ExitCode.CHANGES if exit_code and answer.has_changes else ExitCode.DONE


def _error(slug: str, error: TenantryError) -> dict[str, Any]:
    return {"slug": slug, "message": error.message, "hint": error.hint, "exit_code": int(error.exit_code)}


def _errors_of(environments: env_life.Answers) -> list[dict[str, Any]]:
    return [_error(str(subject), answer) for subject, answer in environments if isinstance(answer, TenantryError)]


def _show(answers: Answers, environments: env_life.Answers = ()) -> None:
    for _, answer in answers:
        if isinstance(answer, TenantPlan):
            _show_one(answer.document())
    env_life.show_plans(environments)
    digests = digests_of(answers, environments)
    if digests and len(digests) > 1:
        print_line(f"digest of all: {digest_of_all(digests)}")


def _show_one(plan: Mapping[str, Any]) -> None:
    """One tenant's plan for a person; everything shown is in the document too."""
    print_line(_headline(plan), style="yellow" if plan["changes"] else "green")
    applied = [release for release in plan["releases"] if release["state"] == "applied"]
    if applied and plan["changes"]:
        print_line(f"  releases up to {applied[-1]['version']}: applied, {applied[-1]['reason']}")
    for release in plan["releases"][len(applied) :]:
        reason = f"{release['state']}, {release['reason']}"
        print_line(f"  release {release['version']}: {reason} ({release['title']})")
    for step in plan["steps"]:
        print_line(f"  step {step['entry']} of {', '.join(step['releases'])}: {step['verdict']}")
        if step["irreversible"]:
            print_line("    irreversible: a rollback across it is refused, only a restore leads back", style="yellow")
    for skipped in plan["skipped"]:
        reason = f"{skipped['reason']}: {skipped['detail']}"
        print_line(f"  step {skipped['entry']} of {skipped['release']}: not run, {reason}")
    for file in plan["files"]:
        print_line(f"  file {file['name']} ({file['path']}): differs in {', '.join(file['differs_in'])}")
    _show_rest(plan)


def _headline(plan: Mapping[str, Any]) -> str:
    if not plan["changes"]:
        return f"{plan['slug']}: at {plan['head']}, nothing pending"
    if plan["version"] == plan["head"]:
        return f"{plan['slug']}: at {plan['head']}, changes pending"
    return f"{plan['slug']}: {plan['version'] or 'version zero'} -> {plan['head']}"


def _show_rest(plan: Mapping[str, Any]) -> None:
    _show_recovery(plan)
    owed = plan["owed"]
    for kind, items in (("restart", owed["restart"]), ("reload", owed["reloads"])):
        if items:
            print_line(f"  owed {kind}: {', '.join(items)}")
    for link, target in owed["switches"].items():
        print_line(f"  owed switch: {link} to {target}")
    for version in plan["never_applied"]:
        print_line(f"  release {version} lies below the marker and was never applied here", style="yellow")
    for version in plan["removed"]:
        print_line(f"  release {version} was applied here and is no longer in the manifest", style="yellow")
    if plan["owed_note"]:
        print_line(f"  owed note, sent first: {plan['owed_note']}")
    if plan["owner_note"]:
        print_line(f"  owner note: {plan['owner_note']}")
    for diff in plan["diffs"]:
        print_diff(diff)
    print_line(f"  digest: {plan['digest']}")


def _show_recovery(plan: Mapping[str, Any]) -> None:
    held, armed = plan["held"], plan["armed"]
    if held:
        print_line(f"  held back from {held['head']} since {held['at']}: {held['reason']}", style="yellow")
        print_line(f"  (a newer head releases it, or: tenantry converge {plan['slug']} --retry)")
    if armed:
        print_line(f"  dead-man armed for run {armed['run']}: a converge first puts the tenant back", style="yellow")
