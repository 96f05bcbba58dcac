"""Debian packages that a step or a phase needs; a host that has them needs no package index."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine.errors import PackagesInterrupted, PackagesLocked, StepFailed
from engine.steps.context import StepContext
from engine.steps.facts import Fact, ask

SCRIPT = Path(__file__).with_name("packages_script.py").read_text()

INSTALL_SECONDS = 1800
"""How long packages may take to arrive and unpack, beyond the wait for another package manager."""


class PackagesInstalled(Fact):
    """Whether every one of these Debian packages is completely installed."""

    def command(self, names: tuple[str, ...]) -> str:
        show = f"dpkg-query --show --showformat='${{db:Status-Status}}\\n' {shlex.join(names)} 2> /dev/null"
        return ask(f'[ "$({show} | grep --count --line-regexp installed)" = {len(names)} ]')


def require_packages(context: StepContext, *names: str) -> None:
    """Install those of `names` that are missing, at once; call it where a step's body runs.

    Nothing asks anybody, a locally edited configuration file stays and is named in the log, and no service
    is restarted by needrestart. Another package manager's locks are waited for up to
    ``provision.package_lock_seconds`` and never deleted; then :class:`PackagesLocked` names who holds them.
    What an interrupted dpkg left is finished only where ``provision.repair_packages`` says so;
    :class:`PackagesInterrupted` otherwise.
    """
    settings = context.settings.provision
    result: Mapping[str, Any] = context.session.run_script(
        SCRIPT,
        {"names": list(names), "lock_seconds": settings.package_lock_seconds, "repair": settings.repair_packages},
        timeout_seconds=settings.package_lock_seconds + INSTALL_SECONDS,
        label=f"install packages {' '.join(names)}",
    )
    if result["waited"]:
        context.tell(f"waited {result['waited']:g} s for another package manager")
    if result["outcome"] != "installed":
        raise _error(result, context)
    if result["repaired"]:
        context.tell("finished what an interrupted dpkg had left")
    if result["installed"]:
        context.tell(f"installed {' '.join(result['installed'])}")
    for path in result["kept"]:
        context.tell(f"kept the host's own version of {path}; the package's is beside it")


def _error(result: Mapping[str, Any], context: StepContext) -> PackagesLocked | PackagesInterrupted | StepFailed:
    where = context.tenant.slug
    if result["outcome"] == "locked":
        return PackagesLocked(
            f"no package could be installed in {context.settings.provision.package_lock_seconds:g} s: "
            f"{result['reason']}",
            where=where,
            hint="give the command again when that has ended; the bound is provision.package_lock_seconds",
        )
    if result["outcome"] == "interrupted":
        return PackagesInterrupted(
            "an earlier dpkg on the host was interrupted, so no package can be installed",
            where=where,
            hint="run `dpkg --configure -a` there, or allow it with provision.repair_packages in fleet.yaml",
        )
    return StepFailed(
        f"{result['what']} ended with status {result['status']}: {' | '.join(result['lines'])}",
        where=where,
        hint="correct the cause and run it again",
    )
