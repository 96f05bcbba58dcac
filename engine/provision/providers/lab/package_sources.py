"""Where the base image's packages come from: this machine's own package sources, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable

from engine.errors import MissingPart
from engine.provision.providers.lab.commands import Commands

_FORMAT = "$(REPO_URI)|$(RELEASE)|$(COMPONENT)|$(ORIGIN)"
_CARRIED_OPTIONS = ("Acquire::http::", "Acquire::https::", "Acquire::Check-", "Acquire::Retries")


def source_lines(targets: str, suite: str) -> tuple[str, ...]:
    """Choose the machine's sources of a Debian suite from what ``apt-get indextargets`` printed.

    Sources of other publishers are left out; where the machine has not fetched its lists yet, the
    publisher is not known and the release's name alone decides.
    """
    wanted = (suite, f"{suite}-updates", f"{suite}-security")
    chosen = []
    for line in targets.splitlines():
        address, release, component, origin = line.split("|")
        known = origin and not origin.startswith("$")
        if release in wanted and component == "main" and (not known or origin == "Debian"):
            chosen.append(f"deb {address} {release} main")
    return tuple(dict.fromkeys(chosen))


def carried_options(configuration: str) -> tuple[str, ...]:
    """Choose the lines of ``apt-config dump`` that say how this machine reaches its sources."""
    return tuple(line.rstrip(";") for line in configuration.splitlines() if line.startswith(_CARRIED_OPTIONS))


def of_machine(suite: str, commands: Commands) -> tuple[str, ...]:
    """Return this machine's sources of `suite`; raises `MissingPart` if it has none."""
    targets = commands.run("apt-get", "indextargets", "--format", _FORMAT, "Created-By: Packages")
    return _required(source_lines(targets, suite), suite)


def _required(lines: Iterable[str], suite: str) -> tuple[str, ...]:
    found = tuple(lines)
    if not any(line.split()[2] == suite for line in found):
        raise MissingPart(
            f"this machine has no package source for Debian {suite}",
            where="apt sources",
            hint=f"add a source of Debian {suite} main, then: apt-get update",
        )
    return found
