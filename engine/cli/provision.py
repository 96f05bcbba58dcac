"""``tenantry provision``: a tenant's server from nothing."""

from __future__ import annotations

from dataclasses import replace

import click

from engine.cli.converge import show_outcomes
from engine.cli.invocation import Invocation, json_option, one_tenant
from engine.cli.progress import progress
from engine.errors import ExitCode
from engine.provision.installer import provision_many


@click.command()
@click.argument("name", metavar="T")
@click.option("--confirm", metavar="T", help="The tenant's slug again: everything on its server is destroyed.")
@json_option
@click.pass_obj
def provision(invocation: Invocation, name: str, confirm: str | None, as_json: bool) -> ExitCode:
    """Rebuild a tenant's server from nothing and bring it to the head.

    Destroys everything on the server. A clean image, phases A and B, the provisioning receipt and the
    convergence are one run under one lock.
    """
    if confirm is None:
        raise click.UsageError(f"this destroys the server of {name}: add --confirm {name}")
    if confirm != name:
        raise click.UsageError(f"--confirm {confirm} does not name the tenant {name}")
    workspace = invocation.workspace()
    tenant = one_tenant(workspace.fleet, name)
    with progress("provision") as report:
        outcomes = provision_many(replace(workspace, report=report), [tenant])
    return show_outcomes(outcomes, as_json)
