"""The owner's settings: a small service on loopback, and a command for it."""

from collections.abc import Iterator

from pyinfra.api import StringCommand

from engine.steps import Answer, StepContext, Unit, install, shipped
from engine.steps.contents import all_hold, runs, same_files

UNIT = "tenant-settings.service"
FILES = {
    "/opt/tenant-settings/server.py": "server.py",
    "/usr/local/bin/tenant-settings": "tenant-settings",
    f"/etc/systemd/system/{UNIT}": UNIT,
}
MODES = {"/usr/local/bin/tenant-settings": "0755"}


def installed(context: StepContext) -> Answer:
    """Whether the service is ours and runs."""
    bundle = context.fleet_root / "deploys" / "bundles" / "settings_service"
    return all_hold(runs(context, UNIT), same_files(context, {path: bundle / name for path, name in FILES.items()}))


@install(
    bundle="settings_service",
    precondition=installed,
    writes=(*(f"file:{path}" for path in FILES), f"unit:{UNIT}"),
    expects=(*shipped(FILES, MODES), Unit(UNIT)),
)
def settings_service(context: StepContext) -> Iterator[StringCommand]:
    yield StringCommand("sh", f"{context.staging}/install.sh")


settings_service.deploy()
