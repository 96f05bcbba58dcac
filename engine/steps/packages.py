"""Debian packages that a step needs; a host that has them needs no package index."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from pyinfra.api import StringCommand

from engine.steps.facts import Fact, ask

LOCK_SECONDS = 300

_OPTIONS = f"-o DPkg::Lock::Timeout={LOCK_SECONDS} -o Dpkg::Options::=--force-confold"

# Nobody is there to answer a question; a locally edited configuration file stays, and needrestart only lists.
_INSTALL = """
if ! {there}; then
    export DEBIAN_FRONTEND=noninteractive NEEDRESTART_MODE=l
    apt-get {options} --quiet update
    apt-get {options} --quiet --yes --no-install-recommends install {names}
fi
"""


class PackagesInstalled(Fact):
    """Whether every one of these Debian packages is completely installed."""

    def command(self, names: tuple[str, ...]) -> str:
        return ask(_there(names))


def install_packages(*names: str) -> Iterator[StringCommand]:
    """The command that installs those of `names` that are missing, waiting for another package manager."""
    values = {"there": _there(names), "options": _OPTIONS, "names": shlex.join(names)}
    yield StringCommand("set -eu\n" + _INSTALL.format(**values))


def _there(names: tuple[str, ...]) -> str:
    show = f"dpkg-query --show --showformat='${{db:Status-Status}}\\n' {shlex.join(names)} 2> /dev/null"
    return f'[ "$({show} | grep --count --line-regexp installed)" = {len(names)} ]'
