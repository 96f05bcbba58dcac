"""Mail for the tenant's forwarding address becomes an item in the owner's inbox."""

from collections.abc import Iterator

from pyinfra.api import StringCommand

from engine.steps import Answer, Package, StepContext, Unit, install, shipped
from engine.steps.contents import all_hold, runs, same_files
from engine.steps.packages import PackagesInstalled, require_packages

UNIT = "tenant-mail.service"
PACKAGES = ("python3-aiosmtpd",)
FILES = {"/opt/tenant-mail/server.py": "server.py", f"/etc/systemd/system/{UNIT}": UNIT}


def installed(context: StepContext) -> Answer:
    """Whether the service is ours and runs, on Debian's SMTP library."""
    bundle = context.fleet_root / "deploys" / "bundles" / "mail_intake"
    return all_hold(
        context.fact(PackagesInstalled, names=PACKAGES),
        runs(context, UNIT),
        same_files(context, {path: bundle / name for path, name in FILES.items()}),
    )


# The address itself is in the rendered file /etc/tenant/mail.json, which the service reads for each mail.
@install(
    bundle="mail_intake",
    precondition=installed,
    writes=(*(f"file:{path}" for path in FILES), f"unit:{UNIT}", *(f"package:{name}" for name in PACKAGES)),
    expects=(*shipped(FILES), Unit(UNIT), *(Package(name) for name in PACKAGES)),
)
def mail_intake(context: StepContext) -> Iterator[StringCommand]:
    require_packages(context, *PACKAGES)
    yield StringCommand("sh", f"{context.staging}/install.sh")


mail_intake.deploy()
