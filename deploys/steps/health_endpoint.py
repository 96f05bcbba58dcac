"""One address that says whether every part of the server answers."""

from collections.abc import Iterator

from pyinfra.api import StringCommand

from engine.steps import Answer, StepContext, Unit, install, shipped
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


@install(
    bundle="health_endpoint",
    precondition=installed,
    writes=(*(f"file:{path}" for path in FILES), f"unit:{UNIT}"),
    expects=(*shipped(FILES), Unit(UNIT)),
)
def health_endpoint(context: StepContext) -> Iterator[StringCommand]:
    # The installer takes "not well" for a failure, and that is what a server says while its gateway is stopped for a
    # restore: here any answer is one. The bundle itself is part of a release that tenants have applied.
    yield StringCommand(f"sh {context.staging}/install.sh || curl --silent --output /dev/null http://127.0.0.1:8720/")


health_endpoint.deploy()
