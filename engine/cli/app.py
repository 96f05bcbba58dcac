"""The group of all commands, and how a run of one ends."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import click

from engine.cli.failures import Interrupted, report_defect, report_error, report_usage
from engine.cli.invocation import Invocation
from engine.errors import ExitCode, TenantryError

INTERRUPTED_EXIT = 130


@dataclass(frozen=True)
class Entry:
    """Where a command lives, and its line in the overview: modules are imported only when they are used."""

    module: str
    summary: str


COMMANDS: Mapping[str, Entry] = {
    "plan": Entry("plan", "Say what a converge would do; touches nothing."),
    "render": Entry("render", "Compare rendered files and pending steps of two revisions, without hosts."),
    "converge": Entry("converge", "Bring tenants to the head of the manifest."),
    "rollback": Entry("rollback", "Put a tenant back to what it was before its last change."),
    "provision": Entry("provision", "Rebuild a tenant's server from nothing and bring it to the head."),
    "resume": Entry("provision", "Go on with an interrupted provisioning from its convergence, without a rebuild."),
    "tenant": Entry("tenant", "Add tenants to the registry."),
    "status": Entry("status", "Show what the records say of each tenant; --live asks the tenants."),
    "history": Entry("history", "List the finished runs of a tenant."),
    "logs": Entry("history", "Print the log of a run."),
    "metrics": Entry("metrics", "Print what the records say in Prometheus's text format."),
    "rollout": Entry("rollout", "Take a release through the fleet in waves."),
    "verify": Entry("verify", "Check that tenants are what their version says, counted."),
    "drift": Entry("drift", "Name what is not as a tenant's version says, and since when; touches nothing."),
    "backup": Entry("backup", "Make an archive of each chosen tenant and remove its oldest ones."),
    "backups": Entry("backups", "List the archives of each tenant, the oldest first."),
    "restore": Entry("restore", "Put an archive in the place of a tenant's files, and converge it forward."),
    "rehearse": Entry("rehearse", "Restore the newest archive on a scratch server, boot it, and verify it."),
    "sessions": Entry("sessions", "Show which personality each conversation speaks with."),
    "release": Entry("release", "Check, show and extend the manifest."),
    "offsite": Entry("offsite", "Copies of archives in the fleet's restic repository."),
    "timers": Entry("timers", "Nightly jobs of this machine, as systemd timers."),
    "env": Entry(
        "env", "Hosted environments: what the inventory wants and the journal knows, and what is done to them."
    ),
    "sweep": Entry("sweep", "Finish deletes that are due, and delete what was kept long enough; list orphans."),
    "tier": Entry("tier", "Data tiers: a database and a bucket that member environments share."),
    "parent": Entry("parent", "The shared PostgreSQL and object store. No command deletes one."),
    "lab": Entry("lab", "Real Debian hosts on this machine."),
    "doctor": Entry("doctor", "Say what is missing on this machine and how to get it."),
}


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called, so that help is quick."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"engine.cli.{COMMANDS[cmd_name].module}")
        command: click.Command = getattr(module, cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.summary) for name, entry in COMMANDS.items()])


@click.group(
    cls=LazyGroup,
    epilog="Exit codes: 0 done, 1 failed or refused, 2 usage or invalid input, 3 changes pending or drift "
    "found (with --exit-code), 4 unreachable or unknown, 5 deferred, 75 busy.",
)
@click.option(
    "-C",
    "fleet",
    metavar="FLEET",
    default=".",
    type=click.Path(path_type=Path),
    help="The fleet directory; the current one by default.",
)
@click.option(
    "--state-dir",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Where locks, records and the lab are kept; FLEET/var by default.",
)
@click.version_option(version("tenantry"), prog_name="tenantry")
@click.pass_context
def tenantry(context: click.Context, fleet: Path, state_dir: Path | None) -> None:
    """Bring a fleet of single-tenant servers to the head of its releases, and keep it there."""
    context.obj = Invocation.of(fleet, state_dir)


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code; prints every error and never raises one."""
    context: click.Context | None = None
    try:
        context = tenantry.make_context("tenantry", list(arguments))
        with context:
            return int(tenantry.invoke(context) or ExitCode.DONE)
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.UsageError as error:
        report_usage(error)
        return error.exit_code
    except TenantryError as error:
        report_error(error)
        return error.exit_code
    except Interrupted as interruption:
        click.echo(f"interrupted: {interruption}", err=True)
        return INTERRUPTED_EXIT
    except (KeyboardInterrupt, click.Abort):
        click.echo("interrupted; the same command may be given again", err=True)
        return INTERRUPTED_EXIT
    except BrokenPipeError:
        # The reader left; what is still buffered must not fail at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.FAILED
    except Exception as error:
        report_defect(error, context.obj if context else None)
        return ExitCode.FAILED
