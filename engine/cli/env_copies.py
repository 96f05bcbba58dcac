"""Copies of environments and tiers, and new environments that are like another: duplicates and restores."""

from __future__ import annotations

import uuid as uuids
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from engine.cli.env_life import as_recorded, ended_document, opened, run_subjects, show_ended, subjects_of
from engine.cli.failures import report_error
from engine.cli.invocation import Invocation, json_option
from engine.cli.output import print_document, print_line, print_table
from engine.cli.progress import progress
from engine.errors import ExitCode, InvalidInput, Refused, most_serious
from engine.registry.environments_model import Environment
from engine.subject import Subject

if TYPE_CHECKING:
    from engine.environments.copies import Copy
    from engine.environments.hosting import Ended, Hosting


def add_copies(group: click.Group, kind: str, noun: str) -> None:
    """Give `group` the commands that make and list copies of subjects of `kind`, which people call `noun`."""
    group.add_command(_backup(kind, noun))
    group.add_command(_backups(kind, noun))
    group.add_command(_expire(kind, noun))


def new_option(function: Any) -> Any:
    """Give a command that makes a new environment its options."""
    for option in (
        click.option("--no-converge", is_flag=True, help="Write the entry alone; a later converge makes it."),
        click.option("--uuid", "new", metavar="NEW", help="The new environment's uuid; a random one by default."),
    ):
        function = option(function)
    return json_option(function)


@click.command()
@click.argument("uuid", metavar="UUID")
@new_option
@click.pass_obj
def duplicate(invocation: Invocation, uuid: str, new: str | None, no_converge: bool, as_json: bool) -> ExitCode:
    """Make a new environment with the settings of UUID and none of its data.

    Its entry is added to the inventory under a new uuid, without the public name, and converged.
    """
    source = _environment(opened(invocation), uuid)
    return _make(invocation, source, None, new, no_converge, as_json)


@click.command()
@click.argument("uuid", metavar="UUID")
@click.option("--backup", "copy_id", required=True, metavar="ID", help="Which copy of UUID.")
@new_option
@click.pass_obj
def restore(
    invocation: Invocation, uuid: str, copy_id: str, new: str | None, no_converge: bool, as_json: bool
) -> ExitCode:
    """Make a new environment from a copy of UUID, which itself is left as it is.

    Its entry is added to the inventory under a new uuid, without the public name, and converged. There is no
    restore into an environment that exists.
    """
    from engine.environments.hosting import require_copy

    hosting = opened(invocation)
    source = _environment(hosting, uuid)
    require_copy(hosting, uuid, copy_id)
    return _make(invocation, source, copy_id, new, no_converge, as_json)


def record_of(source: Environment, copy_id: str | None) -> dict[str, Any]:
    """The entry of a new environment that is like `source`; a public name belongs to one alone."""
    record: dict[str, Any] = {
        "project": source.project,
        "tenant": source.tenant,
        "stage": source.stage,
        "lifetime": source.lifetime.value,
        "release": source.release,
        "tier": source.tier,
        "access_policy": source.access_policy.value,
        "bootstrap_admin": source.bootstrap_admin,
        "restore": None if copy_id is None else {"environment": source.uuid, "backup": copy_id},
    }
    return {key: value for key, value in record.items() if value is not None}


def copies_document(copies: Sequence[Copy]) -> list[dict[str, Any]]:
    """Copies as a part of a document."""
    return [
        {
            "uuid": copy.uuid,
            "copy": copy.id,
            "started": copy.started,
            "finished": copy.finished,
            "size_bytes": copy.size_bytes,
            "tables": len(copy.dump.rows),
            "rows": sum(copy.dump.rows.values()),
            "objects": len(copy.objects),
            "spec_digest": copy.specification["digest"],
        }
        for copy in copies
    ]


def _backup(kind: str, noun: str) -> click.Command:
    @click.command("backup", help=f"Make a copy of each {noun}'s database and bucket.")
    @click.argument("uuids", nargs=-1, metavar="[UUID]...")
    @click.option("--all", "everyone", is_flag=True, help=f"Every durable {noun} that is ready and owns its data.")
    @json_option
    @click.pass_obj
    def command(invocation: Invocation, uuids: tuple[str, ...], everyone: bool, as_json: bool) -> ExitCode:
        if bool(uuids) == everyone:
            raise click.UsageError("name them, or choose all with --all")
        from engine.environments.hosting import back_up_job

        hosting = as_recorded(invocation)
        subjects = subjects_of(hosting, kind, uuids) if uuids else _with_backup(hosting, kind)
        return show_ended(run_subjects(hosting, subjects, "backup", back_up_job), as_json)

    return command


def _backups(kind: str, noun: str) -> click.Command:
    @click.command("backups", help=f"List the copies of each {noun}, the oldest first; of all by default.")
    @click.argument("uuids", nargs=-1, metavar="[UUID]...")
    @json_option
    @click.pass_obj
    def command(invocation: Invocation, uuids: tuple[str, ...], as_json: bool) -> ExitCode:
        from engine.environments.hosting import list_copies

        hosting = as_recorded(invocation)
        subjects = subjects_of(hosting, kind, uuids)
        listed = copies_document([copy for subject in subjects for copy in list_copies(hosting, subject.id)])
        if as_json:
            print_document({"copies": listed})
        elif not listed:
            print_line("no copies")
        else:
            columns = ("uuid", "copy", "finished", "size_bytes", "rows", "objects")
            print_table(columns, [tuple(str(item[column]) for column in columns) for item in listed])
        return ExitCode.DONE

    return command


def _expire(kind: str, noun: str) -> click.Command:
    @click.command("expire-backups", help=f"Remove the copies of each {noun} that are older than the fleet keeps them.")
    @click.argument("uuids", nargs=-1, required=True, metavar="UUID...")
    @json_option
    @click.pass_obj
    def command(invocation: Invocation, uuids: tuple[str, ...], as_json: bool) -> ExitCode:
        from engine.environments.hosting import expire_job

        hosting = as_recorded(invocation)
        return show_ended(
            run_subjects(hosting, subjects_of(hosting, kind, uuids), "expire-backups", expire_job), as_json
        )

    return command


def _with_backup(hosting: Hosting, kind: str) -> tuple[Subject, ...]:
    from engine.environments.hosting import with_backup

    return tuple(Subject(row.kind, row.uuid) for row in with_backup(hosting) if row.kind == kind)


def _environment(hosting: Hosting, uuid: str) -> Environment:
    found = hosting.entry(uuid)
    if not isinstance(found, Environment):
        raise InvalidInput("this is a tier", where=uuid, hint="name one of its members, or another environment")
    return found


def _make(
    invocation: Invocation, source: Environment, copy_id: str | None, new: str | None, no_converge: bool, as_json: bool
) -> ExitCode:
    """Add an entry like `source`, and have it made."""
    uuid = new or str(uuids.uuid4())
    _add(invocation, uuid, record_of(source, copy_id))
    if not as_json:
        print_line(f"env/{uuid}: added to {invocation.root / 'inventory/environments.yaml'}")
    ended = () if no_converge else _converged(invocation, uuid)
    if as_json:
        print_document({"uuid": uuid, "source": source.uuid, "copy": copy_id, "subjects": ended_document(ended)})
        for item in ended:
            if item.error:
                report_error(item.error)
        return most_serious(item.exit_code for item in ended)
    return ExitCode.DONE if no_converge else show_ended(ended, as_json=False)


def _add(invocation: Invocation, uuid: str, record: Mapping[str, Any]) -> None:
    """Add the entry; one that is there already and says the same is left as it is: the command was given again."""
    from engine.clock import SystemClock
    from engine.environments.inventory_file import add_environment

    there = opened(invocation).inventory.environments.get(uuid)
    if there is None:
        add_environment(invocation.root, invocation.state_directory, SystemClock(), uuid, record)
    elif record_of(there, None) | _restored(there) != record:
        raise Refused("there is another environment under this uuid", where=uuid, hint="choose another one")


def _restored(there: Environment) -> dict[str, Any]:
    if there.restore is None:
        return {}
    return {"restore": {"environment": there.restore.environment, "backup": there.restore.backup}}


def _converged(invocation: Invocation, uuid: str) -> tuple[Ended, ...]:
    from engine.environments.hosting import converge_all

    # Read anew: the entry is in the inventory only now.
    hosting = opened(invocation)
    with progress("converge") as report:
        return converge_all(replace(hosting, report=report), (Subject("env", uuid),))
