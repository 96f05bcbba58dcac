"""``tenantry tenant``: records of the registry."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import click

from engine.cli.invocation import Invocation, json_option
from engine.cli.output import print_document, print_line
from engine.cli.progress import sentences
from engine.clock import SystemClock
from engine.errors import ExitCode
from engine.provision import create
from engine.provision.registration import parse_record, register
from engine.registry.load import TENANTS_FILE
from engine.registry.model import Tenant

PLAIN = (
    "owner_name",
    "business",
    "trade",
    "role",
    "forwarding_address",
    "page_host",
    "address",
    "ssh_user",
    "ssh_port",
)


@click.group()
def tenant() -> None:
    """Add tenants to the registry."""


@tenant.command()
@click.argument("slug", metavar="T")
@click.option("--stdin", "from_stdin", is_flag=True, help="Read the record from standard input, as one JSON object.")
@click.option("--owner-name", metavar="TEXT")
@click.option("--business", metavar="TEXT")
@click.option("--trade", metavar="TRADE")
@click.option("--role", type=click.Choice(["test", "client"]))
@click.option("--forwarding-address", metavar="MAIL")
@click.option("--page-host", metavar="HOST")
@click.option("--provider", metavar="NAME", help="Where the server comes from: lab or hetzner.")
@click.option("--provider-option", "provider_options", multiple=True, metavar="NAME=TEXT")
@click.option("--address", metavar="ADDRESS", help="Address of a server that is there already.")
@click.option("--create-server", is_flag=True, help="Have the provider create the server, and record its address.")
@click.option("--ssh-user", metavar="USER")
@click.option("--ssh-port", type=int)
@click.option("--daily-backup/--no-daily-backup", default=None)
@click.option("--text-updates/--no-text-updates", default=None)
@click.option("--parameter", "parameters", multiple=True, metavar="NAME=TEXT", help="A value for the templates.")
@click.option("--secret", "secrets", multiple=True, metavar="NAME=REFERENCE", help="Where a secret comes from.")
@json_option
@click.pass_obj
def add(
    invocation: Invocation, /, slug: str, from_stdin: bool, create_server: bool, as_json: bool, **flags: Any
) -> ExitCode:
    """Write a record for tenant T into the registry, checked as a whole.

    The rest of the file stays as it is, comments included. With --stdin the record is one JSON object with
    the keys of the registry, as a self-service page would send it. Nothing is contacted, except with
    --create-server.
    """
    given = {name: value for name, value in flags.items() if value not in (None, ())}
    if from_stdin and given:
        raise click.UsageError(f"--stdin has the whole record; leave out --{next(iter(given)).replace('_', '-')}")
    record = parse_record(sys.stdin.buffer.read()) if from_stdin else _record(given)
    if create_server:
        record = {**record, "address": _created(invocation, slug, record)}
    added = register(invocation.root, invocation.state_directory, SystemClock(), slug, record)
    _show(invocation, added, as_json)
    return ExitCode.DONE


def _record(given: dict[str, Any]) -> dict[str, Any]:
    record: dict[str, Any] = {"daily_backup": True, "text_updates": False, "ssh_user": "ops"}
    record |= {name: given[name] for name in PLAIN if name in given}
    record["provider"] = {
        "name": given.get("provider", "lab"),
        **_pairs("--provider-option", given.get("provider_options", ())),
    }
    for name in ("parameters", "secrets"):
        if name in given:
            record[name] = _pairs(f"--{name[:-1]}", given[name])
    return record


def _pairs(option: str, texts: Sequence[str]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or name in pairs:
            raise click.UsageError(f"{option} {text}: wanted NAME=TEXT, each name once")
        pairs[name] = value
    return pairs


def _created(invocation: Invocation, slug: str, record: dict[str, Any]) -> str:
    with sentences("tenant add", slug, "create") as tell:
        return create.create_server(invocation.workspace(), slug, record, tell)


def _show(invocation: Invocation, added: Tenant, as_json: bool) -> None:
    command = f"tenantry provision {added.slug} --confirm {added.slug}"
    if as_json:
        print_document({"slug": added.slug, "address": added.address, "file": str(TENANTS_FILE), "next": command})
        return
    print_line(f"{added.slug}: added to {invocation.root / TENANTS_FILE}")
    print_line(f"next: {command}")
