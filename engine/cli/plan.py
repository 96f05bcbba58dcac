"""``tenantry plan``: what a converge would do now, without lock or change."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import click

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

    Takes no lock, so it works while another job holds a tenant. Without a choice it asks every tenant.
    The digest covers what would be done, without clock and message times: `converge --plan DIGEST`
    refuses if anything changed since.
    """
    workspace = invocation.workspace()
    answers = ask_for_plans(workspace, choice.of(workspace.fleet), with_diff=with_diff, parallel=parallel)
    if as_json:
        print_document(document(answers))
    else:
        _show(answers)
    for _, answer in answers:
        if isinstance(answer, TenantryError):
            report_error(answer)
    return most_serious(_code(answer, exit_code) for _, answer in answers)


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


def document(answers: Answers) -> dict[str, Any]:
    """The plans as one document; its digest is null unless every tenant could be planned."""
    digests = digests_of(answers)
    return {
        "digest": digest_of_all(digests) if digests is not None else None,
        "tenants": [answer.document() for _, answer in answers if isinstance(answer, TenantPlan)],
        "errors": errors_document(answers),
    }


def errors_document(answers: Sequence[tuple[Tenant, object]]) -> list[dict[str, Any]]:
    """The tenants that could not be asked, and why."""
    return [
        {
            "slug": tenant.slug,
            "message": answer.message,
            "hint": answer.hint,
            "exit_code": int(answer.exit_code),
        }
        for tenant, answer in answers
        if isinstance(answer, TenantryError)
    ]


def digests_of(answers: Answers) -> dict[str, str] | None:
    """Each tenant's plan digest by slug, or None if one could not be planned."""
    digests = {tenant.slug: answer.assessment.digest() for tenant, answer in answers if isinstance(answer, TenantPlan)}
    return digests if len(digests) == len(answers) else None


def digest_of_all(digests: Mapping[str, str]) -> str:
    """One digest for the plans of several tenants; that of a single tenant is its own."""
    if len(digests) == 1:
        return next(iter(digests.values()))
    text = "\n".join(f"{slug} {digest}" for slug, digest in sorted(digests.items()))
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def _code(answer: TenantPlan | TenantryError, exit_code: bool) -> ExitCode:
    if isinstance(answer, TenantryError):
        return answer.exit_code
    return ExitCode.CHANGES if exit_code and answer.has_changes else ExitCode.DONE


def _show(answers: Answers) -> None:
    for _, answer in answers:
        if isinstance(answer, TenantPlan):
            _show_one(answer.document())
    digests = digests_of(answers)
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
    owed = plan["owed"]
    for kind, items in (("restart", owed["restart"]), ("reload", owed["reloads"])):
        if items:
            print_line(f"  owed {kind}: {', '.join(items)}")
    for link, target in owed["switches"].items():
        print_line(f"  owed switch: {link} to {target}")
    for version in plan["never_applied"]:
        print_line(f"  release {version} lies below the marker and was never applied here", style="yellow")
    if plan["owner_note"]:
        print_line(f"  owner note: {plan['owner_note']}")
    for diff in plan["diffs"]:
        print_diff(diff)
    print_line(f"  digest: {plan['digest']}")
