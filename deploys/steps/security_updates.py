"""Security updates of Debian, by the host itself, daily; the gateway is never restarted for one."""

from collections.abc import Iterator

from pyinfra.api import StringCommand

from engine.steps import Answer, Fact, Package, StepContext, Unit, install, shipped
from engine.steps.contents import all_hold, same_files
from engine.steps.facts import ask
from engine.steps.packages import PackagesInstalled, require_packages

PACKAGES = ("needrestart", "unattended-upgrades")
FILES = {
    "/etc/apt/apt.conf.d/52tenant-unattended-upgrades": "unattended-upgrades.conf",
    "/etc/needrestart/conf.d/tenant.conf": "needrestart.conf",
}
TIMERS = "apt-daily.timer apt-daily-upgrade.timer"


class TimersRun(Fact):
    """Whether both of apt's timers are active."""

    def command(self) -> str:
        return ask(f'[ "$(systemctl is-active {TIMERS} | grep --count --line-regexp active)" = 2 ]')


def installed(context: StepContext) -> Answer:
    """Whether the packages are there, both settings are ours and the timers run."""
    bundle = context.fleet_root / "deploys" / "bundles" / "security_updates"
    return all_hold(
        context.fact(PackagesInstalled, names=PACKAGES),
        same_files(context, {path: bundle / name for path, name in FILES.items()}),
        context.fact(TimersRun),
    )


@install(
    bundle="security_updates",
    precondition=installed,
    writes=(
        *(f"file:{path}" for path in FILES),
        *(f"unit:{timer}" for timer in TIMERS.split()),
        *(f"package:{name}" for name in PACKAGES),
    ),
    expects=(
        *shipped(FILES),
        *(Unit(timer) for timer in TIMERS.split()),
        *(Package(name) for name in PACKAGES),
    ),
)
def security_updates(context: StepContext) -> Iterator[StringCommand]:
    require_packages(context, *PACKAGES)
    yield StringCommand("sh", f"{context.staging}/install.sh")


security_updates.deploy()
