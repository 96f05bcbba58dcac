"""``tenantry rollout``: a release through the fleet, wave after wave."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import click

from engine.cli.invocation import Choice, Invocation, json_option, tenants_option
from engine.cli.output import print_document, print_line, print_table
from engine.cli.progress import progress
from engine.errors import ExitCode, most_serious
from engine.records.runs import printable
from engine.rollout.control import Control, prepare, store_of
from engine.rollout.state import Rollout, Stage, WaveStage
from engine.rollout.store import ROLLOUT
from engine.updater.workspace import Workspace

INTERRUPTED = "interrupted"

NOT_BEGUN = "not begun"

EXITS = {
    Stage.HALTED: ExitCode.FAILED,
    Stage.PAUSED: ExitCode.UNREACHABLE,
    Stage.AWAITING_APPROVAL: ExitCode.DEFERRED,
}


@click.group()
def rollout() -> None:
    """Take a release through the fleet in waves.

    A rollout ends with 1 when it halted, 4 when it paused because something cannot be judged, and 5 when it waits
    for approval. When every wave is promoted it ends with 0, or as a converge would for those that are not updated.
    """


@rollout.command()
@tenants_option(required=False)
@click.option("--to", metavar="VERSION", help="The release to reach; the head by default.")
@click.option("--strategy", metavar="NAME", help="A strategy of inventory/fleet.yaml.")
@click.option("--dry-run", is_flag=True, help="Show who would take part in which wave; begin nothing.")
@json_option
@click.pass_obj
def start(
    invocation: Invocation, choice: Choice, to: str | None, strategy: str | None, dry_run: bool, as_json: bool
) -> ExitCode:
    """Begin a rollout and stay with it until it is done, halts, pauses or waits for approval.

    All tenants take part unless some are named; who does is decided once, here. With --json every event is
    a line, and the last line is the rollout.
    """
    workspace = invocation.workspace()
    prepared = prepare(workspace, choice.of(workspace.fleet), to=to, strategy=strategy)
    if dry_run:
        return show(prepared, as_json, NOT_BEGUN)
    return _run(workspace, as_json, lambda control: control.begin(prepared))


@rollout.command()
@json_option
@click.pass_obj
def resume(invocation: Invocation, as_json: bool) -> ExitCode:
    """Go on with the newest rollout: after a crash, after a halt, or to look again at what could not be judged."""
    return _run(invocation.workspace(), as_json, lambda control: control.resume())


@rollout.command()
@click.option("--failed", is_flag=True, required=True, help="Those that failed, were busy or in conversation.")
@json_option
@click.pass_obj
def retry(invocation: Invocation, failed: bool, as_json: bool) -> ExitCode:
    """Converge tenants of the newest rollout once more and go on with it."""
    return _run(invocation.workspace(), as_json, lambda control: control.retry())


@rollout.command()
@json_option
@click.pass_obj
def approve(invocation: Invocation, as_json: bool) -> ExitCode:
    """Let the next wave begin, or promote a wave that paused as it is, and go on."""
    return _run(invocation.workspace(), as_json, lambda control: control.approve())


@rollout.command()
@click.argument("wave")
@json_option
@click.pass_obj
def undo(invocation: Invocation, wave: str, as_json: bool) -> ExitCode:
    """Put the tenants of WAVE back that the rollout changed; again for those that could not be put back.

    Exit 0 once all of them are back; the rollout is over.
    """
    return _run(invocation.workspace(), as_json, lambda control: control.undo(wave), _exit_code_of_undo)


@rollout.command()
@click.option("--reason", metavar="TEXT", default="no reason was given", help="Why; it stands in the rollout's story.")
@json_option
@click.pass_obj
def halt(invocation: Invocation, reason: str, as_json: bool) -> ExitCode:
    """Halt the newest rollout: no further tenant is begun, those that were begun end by themselves."""
    workspace = invocation.workspace()
    halted = Control(workspace, lambda event: None).halt(reason)
    show(halted, as_json, _stage(workspace, halted))
    return ExitCode.DONE


@rollout.command()
@click.argument("name", metavar="[ROLLOUT]", required=False)
@json_option
@click.pass_obj
def status(invocation: Invocation, name: str | None, as_json: bool) -> ExitCode:
    """Show a rollout, the newest by default. Takes no lock and asks no tenant."""
    workspace = invocation.workspace()
    found = store_of(workspace).load(name)
    show(found, as_json, _stage(workspace, found))
    return ExitCode.DONE


@rollout.command()
@json_option
@click.pass_obj
def history(invocation: Invocation, as_json: bool) -> ExitCode:
    """List the rollouts, the oldest first."""
    workspace = invocation.workspace()
    store = store_of(workspace)
    found = [store.load(name) for name in store.names()]
    if as_json:
        print_document({"rollouts": [document(item, _stage(workspace, item)) for item in found]})
        return ExitCode.DONE
    print_table(
        ("rollout", "to", "strategy", "stage", "tenants", "reason"),
        [
            (item.id, item.target, item.strategy_name, _stage(workspace, item), _counted(item), item.reason)
            for item in found
        ],
    )
    return ExitCode.DONE


@rollout.command()
@click.argument("name", metavar="[ROLLOUT]", required=False)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@click.pass_obj
def events(invocation: Invocation, name: str | None, as_json: bool) -> ExitCode:
    """Print the story of a rollout, the newest by default."""
    store = store_of(invocation.workspace())
    for event in store.events(store.load(name).id):
        click.echo(json.dumps(event)) if as_json else print_line(sentence(event))
    return ExitCode.DONE


def exit_code(ended: Rollout) -> ExitCode:
    """The exit code of a command that ran a rollout until it stood so."""
    if ended.stage is Stage.DONE:
        return most_serious(member.result.exit_code for member in ended.members)
    return EXITS[ended.stage]


def _exit_code_of_undo(ended: Rollout) -> ExitCode:
    is_whole = all(wave.stage is not WaveStage.UNDOING for wave in ended.waves)
    return ExitCode.DONE if is_whole else ExitCode.FAILED


def _run(
    workspace: Workspace,
    as_json: bool,
    work: Callable[[Control], Rollout],
    code: Callable[[Rollout], ExitCode] = exit_code,
) -> ExitCode:
    with progress("rollout") as report, _sink(as_json) as sink:
        ended = work(Control(replace(workspace, report=report), sink))
    show(ended, as_json, str(ended.stage), lines=as_json)
    return code(ended)


@contextmanager
def _sink(as_json: bool) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    yield (lambda event: click.echo(json.dumps(event))) if as_json else (lambda event: print_line(sentence(event)))


def _stage(workspace: Workspace, found: Rollout) -> str:
    """The rollout's stage; a running one that no process holds was interrupted."""
    if found.stage is Stage.RUNNING and workspace.locks.holder(ROLLOUT) is None:
        return INTERRUPTED
    return str(found.stage)


def sentence(event: Mapping[str, Any]) -> str:
    """One event of a rollout's story as a line."""
    known = ("at", "rollout", "event")
    details = ", ".join(f"{key} {_worded(value)}" for key, value in event.items() if key not in known and value)
    return printable(f"{event.get('at', '')} {event.get('event', '')}: {details}".removesuffix(": "))


def _worded(value: Any) -> str:
    return " ".join(map(_worded, value)) if isinstance(value, list | tuple) else " ".join(str(value).split())


def show(found: Rollout, as_json: bool, stage: str, *, lines: bool = False) -> ExitCode:
    """Print one rollout."""
    if lines:
        click.echo(json.dumps(document(found, stage)))
        return ExitCode.DONE
    if as_json:
        print_document(document(found, stage))
        return ExitCode.DONE
    print_line(f"rollout {found.id} to {found.target}, strategy {found.strategy_name}: {stage}")
    if found.reason:
        print_line(f"  {found.reason}")
    print_table(
        ("wave", "stage", "tenant", "result", "run", "remarks"),
        [
            (
                wave.name,
                str(wave.stage),
                member.slug,
                str(member.result),
                member.run or "",
                " | ".join(
                    " ".join(text.split()) for text in (*member.problems, member.error or "", *member.messages) if text
                ),
            )
            for wave in found.waves
            for member in wave.members
        ],
    )
    for slug, reason in found.left_out.items():
        print_line(f"left out: {slug}, {reason}")
    return ExitCode.DONE


def document(found: Rollout, stage: str) -> dict[str, Any]:
    """A rollout as a document."""
    return {
        "rollout": found.id,
        "target": found.target,
        "strategy": found.strategy_name,
        "stage": stage,
        "reason": found.reason,
        "started_at": found.started_at,
        "finished_at": found.finished_at,
        "waves": [
            {
                "name": wave.name,
                "stage": str(wave.stage),
                "soak_until": wave.soak_until,
                "tenants": [
                    {
                        "slug": member.slug,
                        "result": str(member.result),
                        "run": member.run,
                        "error": member.error,
                        "messages": list(member.messages),
                        "problems": list(member.problems),
                    }
                    for member in wave.members
                ],
            }
            for wave in found.waves
        ],
        "left_out": dict(found.left_out),
    }


def _counted(found: Rollout) -> str:
    results = [str(member.result) for member in found.members]
    return ", ".join(f"{results.count(result)} {result}" for result in dict.fromkeys(results))
