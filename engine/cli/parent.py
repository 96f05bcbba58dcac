"""``tenantry parent``: the two stores that every environment's data lies in."""

from __future__ import annotations

from typing import Any

import click

from engine.cli.invocation import Invocation, json_option
from engine.cli.output import print_document, print_table
from engine.environments.observation import Unknown
from engine.environments.parents import LabParents, ParentKind, ParentSeen, recognized
from engine.environments.words import Refusal
from engine.errors import ExitCode, InvalidInput, most_serious
from engine.registry.environments import ENVIRONMENTS_FILE, load_environments
from engine.registry.environments_model import ParentPins


@click.group()
def parent() -> None:
    """The shared PostgreSQL and object store. No command deletes one."""


@parent.command()
@json_option
@click.pass_obj
def observe(invocation: Invocation, as_json: bool) -> ExitCode:
    """Look at both parents by their shape, and hold what runs against its pin.

    Exit 1 for one that is not the pinned one or a named successor, 4 for one that gives no answer.
    """
    pins = load_environments(invocation.root).parents
    if pins is None:
        raise InvalidInput("no parents are named", where=str(invocation.root / ENVIRONMENTS_FILE))
    parents = LabParents(invocation.state_directory, lambda message: None)
    wanted = {ParentKind.POSTGRES: pins.postgres, ParentKind.OBJECTS: pins.objects}
    entries = [_entry(kind, parents.observe(kind), wanted[kind]) for kind in ParentKind]
    if as_json:
        print_document({"parents": entries})
    else:
        rows = [(entry["parent"], entry["verdict"], entry["digest"] or "-", entry["reason"] or "") for entry in entries]
        print_table(("parent", "verdict", "digest", "reason"), rows)
    return most_serious(_CODES[entry["verdict"]] for entry in entries)


_CODES = {
    "recognized": ExitCode.DONE,
    Refusal.PARENT_UNRECOGNIZED.value: ExitCode.FAILED,
    "unknown": ExitCode.UNREACHABLE,
}


def _entry(kind: ParentKind, seen: ParentSeen | Unknown, pins: ParentPins) -> dict[str, Any]:
    if isinstance(seen, Unknown):
        return {"parent": str(kind), "verdict": "unknown", "digest": None, "version": None, "reason": seen.word}
    verdict = "recognized" if recognized(seen, pins) else Refusal.PARENT_UNRECOGNIZED.value
    reason = ", ".join(seen.deviations) or (None if verdict == "recognized" else "neither the pin nor a successor")
    return {
        "parent": str(kind),
        "verdict": verdict,
        "digest": seen.digest,
        "version": seen.version,
        "reason": reason,
    }
