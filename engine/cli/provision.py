"""``tenantry provision`` and ``tenantry resume``: a tenant's server from nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import click

from engine.cli.converge import show_outcomes
from engine.cli.invocation import Invocation, json_option, one_tenant
from engine.cli.output import print_document, print_line
from engine.cli.progress import progress
from engine.errors import ExitCode
from engine.provision.installer import provision_many, resume_many
from engine.provision.preview import Call, preview


@click.command()
@click.argument("name", metavar="T")
@click.option("--confirm", metavar="T", help="The tenant's slug again: everything on its server is destroyed.")
@click.option("--dry-run", is_flag=True, help="Print every call that would be made, and make none.")
@json_option
@click.pass_obj
def provision(invocation: Invocation, name: str, confirm: str | None, dry_run: bool, as_json: bool) -> ExitCode:
    """Rebuild a tenant's server from nothing and bring it to the head.

    Destroys everything on the server, after comparing its address at the provider with the registry's. A
    clean image, phases A and B, the provisioning receipt, the convergence and the acceptance check are one
    run under one lock.
    """
    if confirm is None and not dry_run:
        raise click.UsageError(f"this destroys the server of {name}: add --confirm {name}")
    if confirm not in (None, name):
        raise click.UsageError(f"--confirm {confirm} does not name the tenant {name}")
    workspace = invocation.workspace()
    tenant = one_tenant(workspace.fleet, name)
    if dry_run:
        return _show_calls(name, preview(workspace, tenant), as_json)
    with progress("provision") as report:
        outcomes = provision_many(replace(workspace, report=report), [tenant])
    return show_outcomes(outcomes, as_json)


@click.command()
@click.argument("name", metavar="T")
@json_option
@click.pass_obj
def resume(invocation: Invocation, name: str, as_json: bool) -> ExitCode:
    """Go on with an interrupted provisioning from its convergence, without a rebuild.

    For a tenant whose phase B is complete. One that is not there yet is told which phase is missing.
    """
    workspace = invocation.workspace()
    tenant = one_tenant(workspace.fleet, name)
    with progress("resume") as report:
        outcomes = resume_many(replace(workspace, report=report), [tenant])
    return show_outcomes(outcomes, as_json)


def _show_calls(slug: str, calls: Sequence[Call], as_json: bool) -> ExitCode:
    if as_json:
        listing = [{"phase": call.phase.value, "call": call.what} for call in calls]
        print_document({"slug": slug, "calls": listing})
        return ExitCode.DONE
    for call in calls:
        print_line(f"{slug} {call.phase.value}: {call.what}")
    return ExitCode.DONE
