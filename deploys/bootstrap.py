"""Phase A of provisioning: packages, the service account, directories, the runtime at its pin."""

from __future__ import annotations

from collections.abc import Iterator

from pyinfra.operations import files, server

from engine.steps import Directory, Expectation, File, FileText, Link, Package, Place, StepContext
from engine.steps.packages import require_packages
from engine.steps.step import completion_of, stamp_of
from engine.steps.wheelhouse import virtual_environment

PACKAGES = (
    "ca-certificates",
    "caddy",
    "curl",
    "logrotate",
    "needrestart",
    "python3-aiosmtpd",
    "python3-venv",
    "sqlite3",
    "unattended-upgrades",
    "zstd",
)
RUNTIME_VERSION = "0.18.1"
RUNTIME_DIRECTORY = f"/opt/runtime/{RUNTIME_VERSION}"
RUNTIME_LINK = "/opt/runtime/current"

# A converge restarts the gateway, when nobody is speaking with it.
NEEDRESTART_FILE = "/etc/needrestart/conf.d/50-gateway.conf"
NEEDRESTART = "$nrconf{override_rc}{qr(^tenant-gateway\\.service$)} = 0;\n1;\n"

# (path, owner, group, mode): what the later parts put their files into.
DIRECTORIES = (
    ("/etc/tenant", "root", "root", "0755"),
    ("/etc/caddy/sites", "root", "root", "0755"),
    ("/etc/caddy/site.d", "root", "root", "0755"),
    ("/opt/runtime", "root", "root", "0755"),
    ("/srv/tenant", "root", "root", "0755"),
    ("/srv/tenant/home", "hermes", "hermes", "0700"),
    ("/srv/tenant/home/memories", "hermes", "hermes", "0700"),
    ("/srv/tenant/skills", "root", "root", "0755"),
    ("/srv/tenant/guides", "root", "root", "0755"),
    # The gateway writes pages, the proxy reads them; the group is handed down by the set-group bit.
    ("/srv/tenant/pages", "hermes", "caddy", "2750"),
)


def bootstrap(context: StepContext) -> None:
    """Bring a fresh Debian host to where phase B can start; running it again changes nothing."""
    require_packages(context, *PACKAGES)
    context.session.write_file(NEEDRESTART_FILE, NEEDRESTART.encode(), owner="root", group="root", mode="0644")
    create_account()
    for path, owner, group, mode in DIRECTORIES:
        files.directory(name=f"Directory {path}", path=path, user=owner, group=group, mode=mode)
    install_runtime(context)


def expects(place: Place) -> Iterator[Expectation]:
    """What phase A leaves, for ``tenantry drift``; what a later release moves on is that release's."""
    yield from (Package(name) for name in PACKAGES)
    yield File(NEEDRESTART_FILE, content=NEEDRESTART.encode())
    yield from (Directory(path, mode, owner, group) for path, owner, group, mode in DIRECTORIES)
    yield Link(RUNTIME_LINK, RUNTIME_DIRECTORY)
    yield File(stamp_of(RUNTIME_LINK), content=f"{RUNTIME_VERSION}\n".encode(), mode=None, owner=None, group=None)


def create_account() -> None:
    """The account that the runtime runs as: no password, no shell, no rights outside its home."""
    server.group(name="Group hermes", group="hermes", system=True)
    server.user(
        name="Service account hermes",
        user="hermes",
        group="hermes",
        home="/srv/tenant/home",
        shell="/usr/sbin/nologin",
        system=True,
        create_home=False,
        ensure_home=False,
    )


def install_runtime(context: StepContext) -> None:
    """Install the pinned runtime from the wheelhouse, unless a complete one is there."""
    if not isinstance(context.fact(FileText, path=stamp_of(RUNTIME_DIRECTORY)), str):
        wheelhouse = context.fleet_root / "deploys" / "wheelhouse"
        environment = virtual_environment(
            context,
            RUNTIME_DIRECTORY,
            requirements=wheelhouse / f"runtime-{RUNTIME_VERSION}.txt",
            installer=wheelhouse / "installer.txt",
        )
        server.shell(
            name=f"Runtime {RUNTIME_VERSION}",
            commands=[
                # A directory without its stamp is what an interrupted run left.
                f"rm -rf -- {RUNTIME_DIRECTORY}",
                *environment,
                completion_of(RUNTIME_DIRECTORY),
            ],
        )
    # Only where no upgrade has moved it: phase A runs again on a tenant that is past its pin.
    server.shell(name="Runtime link", commands=[f"[ -e {RUNTIME_LINK} ] || ln -sfn {RUNTIME_DIRECTORY} {RUNTIME_LINK}"])
