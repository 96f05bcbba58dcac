"""Programs for the owner and the operator: the inbox, and an overview of the server."""

from collections.abc import Iterator

from pyinfra.api import StringCommand

from engine.steps import Answer, Directory, Group, StepContext, install, shipped
from engine.steps.contents import same_files

PROGRAMS = ("tenant-inbox", "tenant-overview")
FILES = {f"/usr/local/bin/{name}": name for name in PROGRAMS}
INBOX = "/srv/tenant/inbox"
READERS = "tenant-inbox"


def installed(context: StepContext) -> Answer:
    """Whether each program is ours; the inbox is made before them."""
    bundle = context.fleet_root / "deploys" / "bundles" / "helper_programs"
    return same_files(context, {path: bundle / name for path, name in FILES.items()})


# The gateway's process is in the inbox's group from its next start on.
@install(
    bundle="helper_programs",
    precondition=installed,
    writes=(*(f"file:{path}" for path in FILES), f"directory:{INBOX}", f"group:{READERS}"),
    expects=(
        *shipped(FILES, dict.fromkeys(FILES, "0755")),
        *(Directory(path, "2770", "hermes", READERS) for path in (INBOX, f"{INBOX}/done")),
        Group(READERS, ("hermes",)),
    ),
    restart=True,
)
def helper_programs(context: StepContext) -> Iterator[StringCommand]:
    yield StringCommand("sh", f"{context.staging}/install.sh")


helper_programs.deploy()
