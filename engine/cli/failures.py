"""How errors are shown: in words, with a hint, never with a traceback."""

from __future__ import annotations

import os
import tempfile
import traceback
from pathlib import Path

import click

from engine.cli.invocation import Invocation
from engine.cli.output import shown
from engine.errors import TenantryError


class Interrupted(Exception):
    """A person ended the command while it worked; the text says on what."""


def report_error(error: TenantryError | str) -> None:
    """Print an error of the engine, or the text of one, to standard error."""
    click.echo(f"error: {shown(_relative(str(error)))}", err=True)


def report_usage(error: click.UsageError) -> None:
    """Print what is wrong with the command line, and how it is used."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
        return
    click.echo(f"error: {shown(error.format_message())}", err=True)
    if error.ctx is not None:
        click.echo(f"  hint: {error.ctx.command_path} --help\n{error.ctx.get_usage()}", err=True)


def report_defect(error: Exception, invocation: Invocation | None) -> None:
    """Print one line about an error that is not ours and keep its traceback in a private file."""
    if os.environ.get("TENANTRY_DEBUG"):
        traceback.print_exception(error)
    log = _keep(error, invocation)
    click.echo(f"internal error: {type(error).__name__}; the traceback is in {log}", err=True)


def _keep(error: Exception, invocation: Invocation | None) -> str:
    text = "".join(traceback.format_exception(error))
    # A state directory that is not there yet is not made for a log.
    has_state = invocation is not None and invocation.state_directory.is_dir()
    directory = invocation.state_directory if invocation and has_state else None
    try:
        return _write(text, directory)
    except OSError:
        try:
            return _write(text, None)
        except OSError:
            return "no file, none could be written; TENANTRY_DEBUG=1 prints it"


def _write(text: str, directory: Path | None) -> str:
    # Private by its mode 0600.
    descriptor, name = tempfile.mkstemp(prefix="internal-error-", suffix=".log", dir=directory)
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write(text)
    return name


def _relative(text: str) -> str:
    """`text` with paths below the current directory as a person would type them."""
    return text.replace(f"{Path.cwd()}/", "")
