"""``tenantry lab``: real Debian hosts on this machine for the fleet's lab tenants."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import click

from engine.cli import env_life
from engine.cli.converge import document as outcomes_document
from engine.cli.converge import show_outcomes
from engine.cli.invocation import Choice, Invocation, json_option
from engine.cli.lab_parents import parents
from engine.cli.output import print_document, print_line, print_table
from engine.cli.progress import progress, sentences
from engine.errors import ExitCode, InvalidInput, most_serious
from engine.provision.bring_up import bring_up, lab_tenants, provision_missing
from engine.provision.providers.lab import Lab, LabHost
from engine.provision.servers import lab_of
from engine.registry.model import Tenant
from engine.updater.outcome import Outcome
from engine.updater.workspace import Workspace


@click.group()
def lab() -> None:
    """Real Debian hosts on this machine, one for each tenant whose provider is lab."""


lab.add_command(parents)


@lab.command()
@json_option
@click.pass_obj
def prepare(invocation: Invocation, as_json: bool) -> ExitCode:
    """Build the base image, if it is not there."""
    workspace = invocation.workspace()
    with sentences("lab prepare", "lab", "prepare") as tell:
        image = lab_of(workspace, tell).ensure_base()
    if as_json:
        print_document({"image": str(image)})
    else:
        print_line(f"base image: {image}")
    return ExitCode.DONE


@lab.command()
@click.argument("names", nargs=-1, metavar="[T]...")
@click.option(
    "--provision",
    "with_provision",
    is_flag=True,
    help="Also provision hosts that never were, until they are.",
)
@json_option
@click.pass_obj
def up(invocation: Invocation, names: tuple[str, ...], with_provision: bool, as_json: bool) -> ExitCode:
    """Have hosts running, all of the fleet's lab tenants by default, and the model stub.

    Without T also the parents of hosted environments and the machines that they have, if the fleet hosts any.
    Leaves a running host alone. With --provision, a host without the provisioning receipt is rebuilt
    and provisioned; one that gives no answer is not.
    """
    workspace = invocation.workspace()
    tenants = _chosen(workspace, names)
    hosted = None if names else env_life.of_fleet(invocation)
    with sentences("lab up", "lab", "up") as tell:
        hosts = bring_up(workspace, tenants, tell)
        if hosted:
            # Here, because it takes longer to import than most of this group's commands take.
            from engine.environments.hosting.bring_up import bring_up as bring_up_environments

            bring_up_environments(hosted[0], tell)
    outcomes: tuple[Outcome, ...] = ()
    if with_provision:
        with progress("provision") as report:
            outcomes = provision_missing(replace(workspace, report=report), tenants)
    if as_json:
        shown = hosts if not outcomes else _hosts(workspace, tenants)
        print_document(hosts_document(shown) | {"provisioned": outcomes_document(outcomes)["tenants"]})
        return most_serious(outcome.exit_code for outcome in outcomes)
    _show(_hosts(workspace, tenants))
    return show_outcomes(outcomes, as_json=False) if outcomes else ExitCode.DONE


@lab.command()
@click.argument("names", nargs=-1, metavar="[T]...")
@click.option("--destroy", is_flag=True, help="Also remove the disks; without T, of all hosts.")
@json_option
@click.pass_obj
def down(invocation: Invocation, names: tuple[str, ...], destroy: bool, as_json: bool) -> ExitCode:
    """Switch hosts off, all by default; their disks stay. Without hosts the lab leaves the machine.

    Removes no machine of an environment: that is what `env retire` is for.
    """
    workspace = invocation.workspace()
    slugs = _known_hosts(workspace, names) if names else None
    with sentences("lab down", "lab", "down") as tell:
        machine = lab_of(workspace, tell)
        if destroy:
            machine.destroy(_of_tenants(machine.list(), slugs))
        else:
            machine.down(slugs)
        hosts = machine.list()
    _print(hosts, as_json)
    return ExitCode.DONE


@lab.command(name="list")
@json_option
@click.pass_obj
def list_hosts(invocation: Invocation, as_json: bool) -> ExitCode:
    """List the hosts that have a disk."""
    _print(_quiet_lab(invocation.workspace()).list(), as_json)
    return ExitCode.DONE


@lab.command(context_settings={"ignore_unknown_options": True})
@click.argument("name", metavar="T")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[COMMAND]...")
@click.pass_obj
def shell(invocation: Invocation, name: str, command: tuple[str, ...]) -> None:
    """Open a root shell in a running host, or run a command there, network or not."""
    workspace = invocation.workspace()
    (slug,) = _known_hosts(workspace, (name,))
    machine = _quiet_lab(workspace)
    arguments = machine.shell(slug, command) if command else machine.shell(slug)
    # The shell takes this process's place, so that its signals and exit status are the shell's own.
    os.execvp(arguments[0], arguments)


def hosts_document(hosts: Sequence[LabHost]) -> dict[str, Any]:
    """The hosts as one document."""
    return {
        "hosts": [
            {
                "slug": host.slug,
                "running": host.running,
                "address": host.address,
                "port": host.port,
                "ssh_user": host.ssh_user,
                "host_key": host.host_key,
                "pid": host.pid,
                "console_log": str(host.console_log),
            }
            for host in hosts
        ]
    }


def _print(hosts: Sequence[LabHost], as_json: bool) -> None:
    if as_json:
        print_document(hosts_document(hosts))
    else:
        _show(hosts)


def _show(hosts: Sequence[LabHost]) -> None:
    if not hosts:
        print_line("the lab has no hosts")
        return
    print_table(
        ("host", "state", "address", "user"),
        [
            (host.slug, "running" if host.running else "off", f"{host.address}:{host.port}", host.ssh_user)
            for host in hosts
        ],
    )


def _chosen(workspace: Workspace, names: tuple[str, ...]) -> tuple[Tenant, ...]:
    chosen = Choice(names).of(workspace.fleet) if names else ()
    return lab_tenants(workspace.fleet, chosen)


def _hosts(workspace: Workspace, tenants: Sequence[Tenant]) -> tuple[LabHost, ...]:
    machine = _quiet_lab(workspace)
    return tuple(machine.find_required(tenant.slug) for tenant in tenants)


def _known_hosts(workspace: Workspace, names: tuple[str, ...]) -> tuple[str, ...]:
    """`names`, each of which has a disk, be it a tenant's any more or not."""
    known = [host.slug for host in _quiet_lab(workspace).list()]
    unknown = [name for name in names if name not in known]
    if unknown:
        raise InvalidInput(f"the lab has no host {', '.join(unknown)}", hint=f"known: {', '.join(known) or 'none'}")
    return names


def _of_tenants(hosts: Sequence[LabHost], slugs: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """`slugs`, or by default all hosts that are no environment's; raises :class:`InvalidInput` for one that is."""
    labelled = {host.slug for host in hosts if host.label is not None}
    if not labelled:
        return slugs
    if slugs is None:
        return tuple(host.slug for host in hosts if host.label is None)
    if owned := sorted(labelled.intersection(slugs)):
        raise InvalidInput(
            f"machines of environments: {', '.join(owned)}",
            where="lab down --destroy",
            hint="`tenantry env retire UUID` lets go of one, and of what belongs to it",
        )
    return slugs


def _quiet_lab(workspace: Workspace) -> Lab:
    return lab_of(workspace, lambda message: None)
