"""Logs that nothing else rotates are kept for four weeks; the journal stays below a size."""

from collections.abc import Iterator

from pyinfra.api import StringCommand

from engine.steps import Answer, StepContext, Unit, install, shipped
from engine.steps.contents import same_files

FILES = {
    "/etc/logrotate.d/tenant": "logrotate.conf",
    "/etc/systemd/journald.conf.d/tenant.conf": "journald.conf",
}
TIMER = "logrotate.timer"


def installed(context: StepContext) -> Answer:
    """Whether both settings are ours."""
    bundle = context.fleet_root / "deploys" / "bundles" / "log_rotation"
    return same_files(context, {path: bundle / name for path, name in FILES.items()})


@install(
    bundle="log_rotation",
    precondition=installed,
    writes=(*(f"file:{path}" for path in FILES), f"unit:{TIMER}"),
    expects=(*shipped(FILES), Unit(TIMER)),
)
def log_rotation(context: StepContext) -> Iterator[StringCommand]:
    yield StringCommand("sh", f"{context.staging}/install.sh")


log_rotation.deploy()
