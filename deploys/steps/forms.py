"""The forms store: what visitors send from the owner's pages, kept in SQLite."""

from collections.abc import Iterator

from pyinfra.api import StringCommand

from engine.steps import Answer, StepContext, Unit, install, shipped
from engine.steps.contents import all_hold, runs, same_files

UNIT = "tenant-forms.service"
FILES = {"/opt/tenant-forms/server.py": "server.py", f"/etc/systemd/system/{UNIT}": UNIT}


def installed(context: StepContext) -> Answer:
    """Whether the service is ours and runs."""
    bundle = context.fleet_root / "deploys" / "bundles" / "forms"
    return all_hold(runs(context, UNIT), same_files(context, {path: bundle / name for path, name in FILES.items()}))


@install(
    bundle="forms",
    precondition=installed,
    writes=(*(f"file:{path}" for path in FILES), f"unit:{UNIT}"),
    expects=(*shipped(FILES), Unit(UNIT)),
)
def forms(context: StepContext) -> Iterator[StringCommand]:
    yield StringCommand("sh", f"{context.staging}/install.sh")


forms.deploy()
