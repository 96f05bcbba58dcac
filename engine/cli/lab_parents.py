"""``tenantry lab parents``: the PostgreSQL, the object store and the front of hosted environments, on this machine."""

from __future__ import annotations

from typing import Any

import click

from engine.cli.invocation import Invocation, json_option
from engine.cli.output import print_document, print_table
from engine.cli.progress import sentences
from engine.environments.observation import Unknown
from engine.environments.parents import LabParents, ParentKind, ParentSeen
from engine.environments.parents.front import FrontSeen
from engine.environments.parents.service import ADDRESS
from engine.errors import ExitCode


@click.group()
def parents() -> None:
    """PostgreSQL and the object store that hosted environments share, and the front before them, on loopback."""


@parents.command()
@json_option
@click.pass_obj
def up(invocation: Invocation, as_json: bool) -> ExitCode:
    """Have all running; one that answers is left alone."""
    with sentences("lab parents up", "lab", "parents") as tell:
        made = LabParents(invocation.state_directory, tell)
        made.up()
    return _print(made, as_json)


@parents.command()
@json_option
@click.pass_obj
def show(invocation: Invocation, as_json: bool) -> ExitCode:
    """Show what runs, with the digests that inventory/environments.yaml pins. Exit 4 if one gives no answer."""
    return _print(LabParents(invocation.state_directory, lambda message: None), as_json)


@parents.command()
@json_option
@click.pass_obj
def down(invocation: Invocation, as_json: bool) -> ExitCode:
    """Stop all; their data and routes stay."""
    with sentences("lab parents down", "lab", "parents") as tell:
        made = LabParents(invocation.state_directory, tell)
        made.down()
    _print(made, as_json)
    return ExitCode.DONE


def document(seen: dict[ParentKind, ParentSeen | Unknown], made: LabParents) -> dict[str, Any]:
    """Both parents as one document."""
    return {"parents": [_entry(kind, found, made) for kind, found in seen.items()]}


def front_entry(found: FrontSeen | Unknown, made: LabParents) -> dict[str, Any]:
    """The front as a part of the document."""
    record = made.front.record()
    return {
        "answers": isinstance(found, FrontSeen),
        "unknown": found.word if isinstance(found, Unknown) else None,
        "address": ADDRESS if record else None,
        "port": record.ports["http"] if record else None,
        "pid": record.pid if record and record.process else None,
        "digest": found.digest if isinstance(found, FrontSeen) else None,
        "closed": found.closed if isinstance(found, FrontSeen) else None,
    }


def _entry(kind: ParentKind, found: ParentSeen | Unknown, made: LabParents) -> dict[str, Any]:
    record = made.record(kind)
    return {
        "parent": str(kind),
        "answers": isinstance(found, ParentSeen),
        "unknown": found.word if isinstance(found, Unknown) else None,
        "address": ADDRESS if record else None,
        "port": record.ports[main_port(kind)] if record else None,
        "pid": record.pid if record and record.process else None,
        "digest": found.digest if isinstance(found, ParentSeen) else None,
        "version": found.version if isinstance(found, ParentSeen) else None,
        "deviations": [str(word) for word in found.deviations] if isinstance(found, ParentSeen) else [],
    }


def main_port(kind: ParentKind) -> str:
    """The port among a parent's that environments use."""
    return "postgres" if kind is ParentKind.POSTGRES else "s3"


def _print(made: LabParents, as_json: bool) -> ExitCode:
    seen = {kind: made.observe(kind) for kind in ParentKind}
    front = made.front.observe()
    content = {**document(seen, made), "front": front_entry(front, made)}
    if as_json:
        print_document(content)
    else:
        rows = [_row(entry["parent"], entry, ", ".join(entry["deviations"])) for entry in content["parents"]]
        rows.append(_row("(front)", content["front"], "answersAnyHost" if content["front"]["closed"] is False else ""))
        print_table(("parent", "state", "address", "digest", "deviates"), rows)
    unknown = any(isinstance(found, Unknown) for found in (*seen.values(), front))
    return ExitCode.UNREACHABLE if unknown else ExitCode.DONE


def _row(name: str, entry: dict[str, Any], deviates: str) -> tuple[str, ...]:
    return (
        name,
        "answers" if entry["answers"] else entry["unknown"],
        f"{entry['address']}:{entry['port']}" if entry["port"] else "-",
        entry["digest"] or "-",
        deviates or "-",
    )
