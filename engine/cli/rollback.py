"""``tenantry rollback``: a tenant back to a recovery set."""

from __future__ import annotations

from dataclasses import replace

import click

from engine.cli.converge import show_outcomes
from engine.cli.invocation import Invocation, json_option, one_tenant
from engine.cli.progress import progress
from engine.errors import ExitCode
from engine.updater.rollback import roll_back


@click.command()
@click.argument("name", metavar="T")
@click.option("--to", metavar="VERSION|RUN", help="The version to go back to, or the run that took the recovery set.")
@json_option
@click.pass_obj
def rollback(invocation: Invocation, name: str, to: str | None, as_json: bool) -> ExitCode:
    """Put a tenant back to what it was before its last change.

    Configuration goes back; state only where an upgrade changed its form; what visitors and the owner made stays.
    Everything that is replaced is kept aside on the tenant and named. The tenant is then held until there is a newer
    head, or until `tenantry converge T --retry`.
    """
    workspace = invocation.workspace()
    tenant = one_tenant(workspace.fleet, name)
    with progress("rollback") as report:
        outcome = roll_back(replace(workspace, report=report), tenant, to)
    return show_outcomes([outcome], as_json)
