"""``tenantry timers``: what this machine does by itself."""

from __future__ import annotations

import os
import pwd
import shlex
import sysconfig
from pathlib import Path
from typing import Any

import click

from engine.cli.invocation import Invocation, json_option
from engine.cli.output import print_document, print_line, print_table, shown
from engine.clock import SystemClock
from engine.errors import ExitCode, InvalidInput, MissingPart, Refused
from engine.registry.load import SETTINGS_FILE, load_settings
from engine.registry.settings import Settings
from engine.timers import job_named
from engine.timers.reports import Contact, Report, read_report
from engine.timers.systemd import UNIT_DIRECTORY, Systemd, check_calendars, machine_systemd, run_here
from engine.timers.units import NEVER, Caller, JobUnits, units_of
from engine.timers.watch import Watch, Watched, report_file

UnitReport = tuple[JobUnits, Report | None, bool]
"""A job's units, the report of its last run, and whether the units are installed as they are shown."""


@click.group()
def timers() -> None:
    """Nightly jobs of this machine, as systemd timers."""


@timers.command()
@json_option
@click.pass_obj
def show(invocation: Invocation, as_json: bool) -> ExitCode:
    """Show the units of every job, whether they are installed, and how the job's last run ended."""
    caller, units = _wanted(invocation)
    here = Systemd(UNIT_DIRECTORY, run_here)
    reports = [
        (
            unit,
            read_report(report_file(invocation.state_directory, unit.job)),
            all(here.has(name, text) for name, text in unit.files),
        )
        for unit in units
    ]
    if as_json:
        print_document(document(caller, reports))
        return ExitCode.DONE
    for unit in units:
        for name, text in unit.files:
            print_line(f"# {UNIT_DIRECTORY / name}", style="cyan")
            for line in text.splitlines():
                print_line(line)
            print_line()
    rows = [(unit.job.name, unit.calendar, "yes" if there else "no", _ended(last)) for unit, last, there in reports]
    print_table(("job", "when", "installed", "last run"), rows)
    return ExitCode.DONE


@timers.command()
@json_option
@click.pass_obj
def install(invocation: Invocation, as_json: bool) -> ExitCode:
    """Install and start the timer of every job, as root. May be given again after settings changed.

    A job whose calendar event is `never` gets none.
    """
    caller, units = _wanted(invocation)
    _require_root(caller, "install")
    if any(unit.job.name == "rehearse" for unit in units):
        _require_rehearsals(invocation, caller)
    removed = machine_systemd().install(units, caller.prefix)
    names = [name for unit in units for name in unit.names]
    return _changed(names, removed, as_json)


@timers.command()
@json_option
@click.pass_obj
def remove(invocation: Invocation, as_json: bool) -> ExitCode:
    """Stop and remove this fleet's timers, as root. A job that runs now is left to its end."""
    caller = caller_of(invocation)
    _require_root(caller, "remove")
    return _changed([], machine_systemd().remove(caller.prefix), as_json)


@timers.command()
@click.argument("job", metavar="JOB")
@json_option
@click.pass_obj
def run(invocation: Invocation, job: str, as_json: bool) -> int:
    """Run JOB as its timer does, and tell the operator what is new about it.

    Its first failure, another failure and its recovery are told, a repeated one is not. The exit code is the job's
    own. With --json, what the job itself prints goes to standard error.
    """
    from engine.updater.notify import send

    settings, names = _settings(invocation)
    contact = _contact(settings, invocation) if settings else None
    watch = Watch(caller_of(invocation), SystemClock(), contact, names, _say, send)
    watched = watch.run(job_named(job), quiet_output=as_json)
    if as_json:
        print_document(run_document(watched))
    return watched.exit_code


def document(caller: Caller, reports: list[UnitReport]) -> dict[str, Any]:
    """The document of ``timers show``."""
    return {
        "fleet_id": caller.id,
        "directory": str(UNIT_DIRECTORY),
        "jobs": [
            {
                "name": unit.job.name,
                "command": list(caller.arguments(*unit.job.arguments)),
                "calendar": unit.calendar,
                "installed": there,
                "units": [{"name": name, "text": text} for name, text in unit.files],
                "last_run": _last_run(last) if last else None,
            }
            for unit, last, there in reports
        ],
    }


def run_document(watched: Watched) -> dict[str, Any]:
    """The document of ``timers run``."""
    report = watched.report
    return {
        "job": report.job,
        **_last_run(report),
        "news": watched.news.value if watched.news else None,
        "delivery": watched.delivery.value if watched.delivery else None,
    }


def _last_run(report: Report) -> dict[str, Any]:
    failed = report.failure is not None
    return {
        "finished_at": report.finished_at,
        "exit_code": report.exit_code,
        "failing_since": report.failing_since if failed else None,
        "errors": list(report.lines) if failed else [],
    }


def _ended(report: Report | None) -> str:
    if report is None:
        return "never"
    if report.failure is None:
        return f"done, {report.finished_at}"
    return f"failed, {report.finished_at}; since {report.failing_since}"


def _changed(installed: list[str], removed: tuple[str, ...], as_json: bool) -> ExitCode:
    if as_json:
        print_document({"installed": installed, "removed": list(removed)})
        return ExitCode.DONE
    for name in installed:
        print_line(f"installed {UNIT_DIRECTORY / name}")
    for name in removed:
        print_line(f"removed {UNIT_DIRECTORY / name}")
    if not installed and not removed:
        print_line("no timer of this fleet is installed")
    return ExitCode.DONE


def _wanted(invocation: Invocation) -> tuple[Caller, tuple[JobUnits, ...]]:
    caller = caller_of(invocation)
    units = units_of(invocation.fleet().settings, caller)
    check_calendars(units, invocation.root)
    return caller, units


def caller_of(invocation: Invocation) -> Caller:
    """How systemd reaches this installation and fleet; raises :class:`MissingPart`."""
    command = Path(sysconfig.get_path("scripts")) / "tenantry"
    if not command.exists():
        raise MissingPart("the command tenantry is not in this environment", where=str(command), hint="make setup")
    return Caller(command, invocation.root, invocation.state_directory, _owner(invocation))


def _owner(invocation: Invocation) -> str | None:
    """Whose records, locks and keys the jobs work with; None for root."""
    places = (invocation.state_directory, invocation.root)
    owner = next((path.stat().st_uid for path in places if path.exists()), os.geteuid())
    try:
        return pwd.getpwuid(owner).pw_name if owner else None
    except KeyError:
        return str(owner)


def _require_root(caller: Caller, what: str) -> None:
    if os.geteuid() != 0:
        raise Refused(
            "only root may change this machine's units",
            hint=f"sudo {shlex.join(caller.arguments('timers', what))}",
        )


def _require_rehearsals(invocation: Invocation, caller: Caller) -> None:
    """Raise :class:`Refused` where every rehearsal of the timer would fail: jobs run as the state directory's owner.

    Not as root instead: what root writes there, such as proofs, that owner could not read any more.
    """
    from engine.provision.servers import LAB

    state = str(invocation.state_directory)
    if caller.user and invocation.fleet().settings.rehearsal.provider.name == LAB:
        raise Refused(
            f"rehearsals in the lab need root, but its timer would run them as {caller.user}",
            where=state,
            hint=f"give the state to root: chown --recursive root {shlex.quote(state)}; "
            f"or have no timer for them: timers.rehearse: {NEVER} in {SETTINGS_FILE}",
        )


def _settings(invocation: Invocation) -> tuple[Settings | None, tuple[str, ...]]:
    """The settings and the slugs, as far as their files can be read: the job itself says what is wrong with them."""
    try:
        settings = load_settings(invocation.root / SETTINGS_FILE)
    except InvalidInput:
        return None, ()
    try:
        return settings, tuple(invocation.fleet().tenants)
    except InvalidInput:
        return settings, ()


def _contact(settings: Settings, invocation: Invocation) -> Contact:
    secrets = settings.secrets
    identity = invocation.state_directory / Path(secrets.age_identity_file).expanduser()
    timers = settings.timers
    return Contact(timers.notify, str(identity), secrets.command_seconds, settings.brand, timers.limit_characters)


def _say(line: str) -> None:
    click.echo(shown(line), err=True)
