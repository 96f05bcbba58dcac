"""``tenantry tier``: data tiers that environments share."""

from __future__ import annotations

from typing import Any

import click

from engine.cli.env import listed_subjects, show_subject
from engine.cli.env_copies import add_copies
from engine.cli.env_life import add_life
from engine.cli.invocation import Invocation, json_option
from engine.cli.output import print_document, print_line, print_table
from engine.errors import ExitCode, InvalidInput
from engine.registry.environments import load_environments


@click.group()
def tier() -> None:
    """Data tiers: a database and a bucket that member environments share."""


@tier.command("list")
@json_option
@click.pass_obj
def list_(invocation: Invocation, as_json: bool) -> ExitCode:
    """List every tier of the inventory and of the journal with its members; connects to nothing."""
    listed = _tiers(invocation)
    if as_json:
        print_document({"tiers": listed})
    elif not listed:
        print_line("no tier in inventory/environments.yaml, none in the journal")
    else:
        columns = ("slug", "uuid", "project", "state", "attention", "retained_until")
        rows = [(*(tier[column] or "" for column in columns), str(len(tier["members"]))) for tier in listed]
        print_table((*columns, "members"), rows)
    return ExitCode.DONE


@tier.command()
@click.argument("uuid", metavar="UUID")
@json_option
@click.pass_obj
def show(invocation: Invocation, uuid: str, as_json: bool) -> ExitCode:
    """Show what the journal knows of a tier: every intent and what became of it."""
    if uuid not in [tier["uuid"] for tier in _tiers(invocation)]:
        raise InvalidInput(f"unknown tier: {uuid}", hint="`tenantry tier list` shows all")
    return show_subject(invocation, uuid, as_json)


add_life(tier, "tier", "tier")
add_copies(tier, "tier", "tier")


def _tiers(invocation: Invocation) -> list[dict[str, Any]]:
    inventory = load_environments(invocation.root)
    slugs = {tier.uuid: tier.slug for tier in inventory.tiers.values()}
    return [
        {
            **{key: value for key, value in entry.items() if key != "kind"},
            "slug": slugs.get(entry["uuid"]),
            "members": [item.uuid for item in inventory.members_of(slugs.get(entry["uuid"], ""))],
        }
        for entry in listed_subjects(invocation)
        if entry["kind"] == "tier"
    ]
