"""``tenantry history`` and ``tenantry logs``: the records of runs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import click

from engine.cli.invocation import Invocation, json_option, one_tenant
from engine.cli.output import print_document, print_line, print_table
from engine.clock import SystemClock
from engine.errors import ExitCode, InvalidInput
from engine.records import RunStore
from engine.subject import Subject

_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]*", re.ASCII)


@click.command()
@click.argument("name", metavar="T")
@json_option
@click.pass_obj
def history(invocation: Invocation, name: str, as_json: bool) -> ExitCode:
    """List the finished runs of a tenant, or of an environment or tier as env/UUID, the oldest first."""
    subject = _subject(invocation, name)
    runs = list(_store(invocation).history(subject))
    if as_json:
        print_document({**_named(subject), "runs": runs})
        return ExitCode.DONE
    if not runs:
        print_line(f"{name}: no run is recorded in {invocation.state_directory}")
        return ExitCode.DONE
    print_table(("run", "job", "result", "from", "to", "started", "ended", "error"), [_row(run) for run in runs])
    return ExitCode.DONE


@click.command()
@click.argument("name", metavar="T")
@click.argument("run", required=False, metavar="[RUN]")
@json_option
@click.pass_obj
def logs(invocation: Invocation, name: str, run: str | None, as_json: bool) -> ExitCode:
    """Print the log of a run of a tenant, or of an environment or tier as env/UUID, the newest one by default."""
    subject = _subject(invocation, name)
    if run is not None and not _RUN_ID.fullmatch(run):
        raise InvalidInput(f"{run!r} is not a run id", hint=f"`tenantry history {name}` lists them")
    log = _store(invocation).log_of(subject, run)
    if log is None:
        wanted = f"run {run}" if run else "any run"
        raise InvalidInput(f"there is no log of {wanted}", where=name, hint=f"`tenantry history {name}` lists the runs")
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    if as_json:
        print_document({**_named(subject), "run": log.parent.name, "lines": lines})
        return ExitCode.DONE
    for line in lines:
        print_line(line)
    return ExitCode.DONE


def _subject(invocation: Invocation, name: str) -> Subject:
    """The tenant of that `name`, or what ``env/UUID``, ``tier/UUID`` or pyinfra's ``@env/UUID`` is."""
    kind, slash, uuid = name.partition("/")
    if not slash:
        return one_tenant(invocation.fleet(), name).subject
    from engine.cli.env import listed_subjects

    for entry in listed_subjects(invocation):
        if entry["uuid"] == uuid and kind in (entry["kind"], "@env"):
            return Subject(entry["kind"], uuid)
    raise InvalidInput(f"unknown: {name}", hint="`tenantry env list` shows all environments and tiers")


def _named(subject: Subject) -> dict[str, str]:
    return {"slug": subject.id} if subject.kind == "tenant" else {"uuid": subject.id, "kind": subject.kind}


def _store(invocation: Invocation) -> RunStore:
    return RunStore(invocation.state_directory / "records", SystemClock())


def _row(run: Mapping[str, Any]) -> tuple[str, ...]:
    keys = ("run", "job", "result", "from_version", "to_version", "started_at", "finished_at")
    error = (run["error"] or "").split("\n", 1)[0]
    return (*(run[key] or "" for key in keys), error)
