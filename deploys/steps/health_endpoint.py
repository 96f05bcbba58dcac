"""One address that says whether every part of the server answers."""

from collections.abc import Iterator

from pyinfra.api import StringCommand

from engine.steps import Answer, StepContext, install
from engine.steps.contents import all_hold, runs, same_files

UNIT = "tenant-health.service"
FILES = {
    "/opt/tenant-health/server.py": "server.py",
    f"/etc/systemd/system/{UNIT}": UNIT,
}


def installed(context: StepContext) -> Answer:
    """Whether the service is ours and runs."""
    bundle = context.fleet_root / "deploys" / "bundles" / "health_endpoint"
    return all_hold(runs(context, UNIT), same_files(context, {path: bundle / name for path, name in FILES.items()}))


@install(bundle="health_endpoint", precondition=installed, writes=(*(f"file:{path}" for path in FILES), f"unit:{UNIT}"))
def health_endpoint(context: StepContext) -> Iterator[StringCommand]:
    yield StringCommand("sh", f"{context.staging}/install.sh")


health_endpoint.deploy()
