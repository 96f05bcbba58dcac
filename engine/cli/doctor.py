"""``tenantry doctor``: what is missing on this machine and how to get it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import click

from engine.cli.checks import Check, check_machine
from engine.cli.invocation import Invocation, json_option
from engine.cli.output import print_document, print_line, print_table
from engine.errors import ExitCode


@click.command()
@json_option
@click.pass_obj
def doctor(invocation: Invocation, as_json: bool) -> ExitCode:
    """Say what is missing on this machine and how to get it. Exit 1 if something is missing."""
    checks = check_machine(invocation)
    missing = [check for check in checks if not check.ok]
    if as_json:
        print_document(document(checks))
    else:
        print_table(
            ("state", "part", "found"),
            [("ok" if check.ok else "missing", check.name, check.found) for check in checks],
        )
        for check in missing:
            print_line(f"{check.name}: {check.remedy}")
    return ExitCode.FAILED if missing else ExitCode.DONE


def document(checks: Sequence[Check]) -> dict[str, Any]:
    """The checks as one document."""
    return {"ok": all(check.ok for check in checks), "checks": [asdict(check) for check in checks]}
