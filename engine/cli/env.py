"""``tenantry env``: hosted environments."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from engine.cli.env_copies import add_copies, duplicate, restore
from engine.cli.env_life import add_life
from engine.cli.invocation import Invocation, json_option
from engine.cli.output import print_document, print_line, print_table
from engine.clock import SystemClock, iso
from engine.environments.words import WAYS_ON
from engine.errors import ExitCode, InvalidInput

if TYPE_CHECKING:
    from engine.environments.journal import EffectRow, Journal, SubjectRow
    from engine.registry.environments_model import Environments

PLANNED = "planned"
"""The state of an entry of the inventory that the journal does not know."""


@click.group()
def env() -> None:
    """Hosted environments: what the inventory wants and the journal knows, and what is done to them."""


@env.command("list")
@json_option
@click.pass_obj
def list_(invocation: Invocation, as_json: bool) -> ExitCode:
    """List every environment and tier of the inventory and of the journal; connects to nothing."""
    listed = listed_subjects(invocation)
    if as_json:
        print_document({"subjects": listed})
        return ExitCode.DONE
    if not listed:
        print_line("no environment in inventory/environments.yaml, none in the journal")
        return ExitCode.DONE
    columns = ("uuid", "kind", "project", "state", "attention", "retained_until")
    print_table(columns, [tuple(entry[column] or "" for column in columns) for entry in listed])
    return ExitCode.DONE


@env.command()
@click.argument("uuid", metavar="UUID")
@json_option
@click.pass_obj
def show(invocation: Invocation, uuid: str, as_json: bool) -> ExitCode:
    """Show what the journal knows of an environment or tier: every intent and what became of it."""
    return show_subject(invocation, uuid, as_json)


add_life(env, "env", "environment")
add_copies(env, "env", "environment")
env.add_command(duplicate)
env.add_command(restore)


def show_subject(invocation: Invocation, uuid: str, as_json: bool) -> ExitCode:
    """Print what the journal knows of one environment or tier."""
    journal = _journal(invocation)
    subjects = _subjects(journal)
    found = next((entry for entry in entries(_inventory(invocation), subjects) if entry["uuid"] == uuid), None)
    if found is None:
        raise InvalidInput(f"unknown environment: {uuid}", hint="`tenantry env list` shows all")
    shown = document(found, subjects.get(uuid), journal)
    if as_json:
        print_document(shown)
        return ExitCode.DONE
    for key in ("uuid", "kind", "project", "state", "attention", "epoch", "spec_digest", "retained_until"):
        if shown[key] is not None:
            print_line(f"{key.replace('_', ' ')}: {shown[key]}")
    if shown["goes_on_with"]:
        print_line(f"goes on with: {shown['goes_on_with']}")
    columns = ("action", "kind", "name", "intended_at", "outcome", "word")
    if shown["effects"]:
        print_table(columns, [tuple(effect[column] or "" for column in columns) for effect in shown["effects"]])
    return ExitCode.DONE


def listed_subjects(invocation: Invocation) -> list[dict[str, Any]]:
    """Every environment and tier of the inventory and of the journal."""
    return entries(_inventory(invocation), _subjects(_journal(invocation)))


def entries(inventory: Environments, subjects: Mapping[str, SubjectRow]) -> list[dict[str, Any]]:
    """The inventory in the file's order, then what the journal alone knows."""
    wanted = {item.uuid: ("env", item.project) for item in inventory.environments.values()}
    wanted.update({item.uuid: ("tier", item.project) for item in inventory.tiers.values()})
    listed = [_entry(uuid, kind, project, subjects.get(uuid)) for uuid, (kind, project) in wanted.items()]
    alone = [row for uuid, row in subjects.items() if uuid not in wanted]
    return listed + [_entry(row.uuid, row.kind, None, row) for row in alone]


def document(entry: Mapping[str, Any], row: SubjectRow | None, journal: Journal | None) -> dict[str, Any]:
    """One subject with its effects and receipts, as one document."""
    effects = journal.effects(row.uuid) if row and journal else ()
    receipts = journal.receipts(row.uuid) if row and journal else ()
    return {
        **entry,
        "goes_on_with": WAYS_ON[row.attention] if row and row.attention else None,
        "epoch": row.epoch if row else None,
        "spec_digest": row.spec_digest if row else None,
        "effects": [_effect(effect) for effect in effects],
        "receipts": [
            {"job": item.job, "at": iso(item.at), "result": item.result, "word": item.word} for item in receipts
        ],
    }


def _entry(uuid: str, kind: str, project: str | None, row: SubjectRow | None) -> dict[str, Any]:
    return {
        "uuid": uuid,
        "kind": kind,
        "project": project,
        "state": row.state.value if row else PLANNED,
        "attention": row.attention.value if row and row.attention else None,
        "attention_kind": row.attention_kind.value if row and row.attention_kind else None,
        "retired_at": _maybe(row.retired_at if row else None),
        "retained_until": _maybe(row.retained_until if row else None),
    }


def _effect(effect: EffectRow) -> dict[str, Any]:
    return {
        "intent": effect.id,
        "epoch": effect.epoch,
        "action": effect.action.value,
        "kind": effect.kind.value,
        "name": effect.name,
        "digest": effect.digest,
        "intended_at": iso(effect.intended_at),
        "outcome": effect.outcome.value if effect.outcome else None,
        "reference": effect.reference,
        "word": effect.word,
        "ended_at": _maybe(effect.ended_at),
    }


def _maybe(moment: datetime.datetime | None) -> str | None:
    return None if moment is None else iso(moment)


def _inventory(invocation: Invocation) -> Environments:
    from engine.registry.environments import load_environments

    return load_environments(invocation.root)


def _journal(invocation: Invocation) -> Journal | None:
    """The journal, or None where there is none yet: a command that only looks makes no file."""
    path = invocation.fleet().settings.environments.journal_file(invocation.state_directory)
    if not path.exists():
        return None
    from engine.environments.journal import Database, Journal

    return Journal(Database(path), SystemClock())


def _subjects(journal: Journal | None) -> dict[str, SubjectRow]:
    return {} if journal is None else {row.uuid: row for row in journal.subjects()}
