"""Moves the agent runtime to a version, beside the one that runs."""

import shlex
from collections.abc import Iterator

from pyinfra.api import StringCommand

from engine.steps import Answer, StepContext, upgrade
from engine.steps.wheelhouse import virtual_environment

# Ends with status 1 unless the environment holds the version that was asked for.
CHECK = "import importlib.metadata as m, sys; sys.exit(m.version('hermes-agent') != sys.argv[1])"


def numbers(version: str) -> tuple[int, ...]:
    """A version as numbers, so that 0.19.10 is above 0.19.9."""
    return tuple(int(part) for part in version.split("."))


def at_or_above(context: StepContext) -> Answer:
    """Whether the installed runtime reports the wanted version or a later one."""
    installed = context.status.runtime_version
    if installed is None:
        return Answer.UNKNOWN
    return Answer.of(numbers(installed) >= numbers(context.arguments["version"]))


@upgrade(
    link="/opt/runtime/current",
    directory="/opt/runtime/{version}",
    inputs=("wheelhouse/runtime-{version}.txt", "wheelhouse/installer.txt"),
    precondition=at_or_above,
)
def runtime(context: StepContext, *, version: str) -> Iterator[StringCommand]:
    wheelhouse = context.fleet_root / "deploys" / "wheelhouse"
    directory = f"/opt/runtime/{version}"
    yield from virtual_environment(
        context,
        directory,
        requirements=wheelhouse / f"runtime-{version}.txt",
        installer=wheelhouse / "installer.txt",
    )
    yield StringCommand(f"{directory}/bin/python", "-B", "-c", shlex.quote(CHECK), version)


runtime.deploy()
