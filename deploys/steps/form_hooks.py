"""Hooks of the forms store: each submission becomes an item in the owner's inbox."""

from collections.abc import Iterator

from pyinfra.api import StringCommand

from engine.steps import Answer, StepContext, Unit, install, shipped
from engine.steps.contents import all_hold, runs, same_files

UNIT = "tenant-form-hooks.service"
FILES = {
    "/opt/tenant-forms/hooks.py": "hooks.py",
    "/etc/tenant/form-hooks.d/50-inbox": "50-inbox",
    f"/etc/systemd/system/{UNIT}": UNIT,
}
MODES = {"/etc/tenant/form-hooks.d/50-inbox": "0755"}


def installed(context: StepContext) -> Answer:
    """Whether the service is ours and runs."""
    bundle = context.fleet_root / "deploys" / "bundles" / "form_hooks"
    return all_hold(runs(context, UNIT), same_files(context, {path: bundle / name for path, name in FILES.items()}))


@install(
    bundle="form_hooks",
    precondition=installed,
    writes=(*(f"file:{path}" for path in FILES), f"unit:{UNIT}"),
    expects=(*shipped(FILES, MODES), Unit(UNIT)),
)
def form_hooks(context: StepContext) -> Iterator[StringCommand]:
    yield StringCommand("sh", f"{context.staging}/install.sh")


form_hooks.deploy()
