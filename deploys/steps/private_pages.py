"""Pages that only the owner can read, behind a password that is made on the tenant itself."""

from collections.abc import Iterator

from pyinfra.api import StringCommand

from engine.steps import Answer, Directory, EditableFile, File, StepContext, install
from engine.steps.contents import present

PASSWORD = "/etc/tenant/private-pages.password"
ACCOUNT = "/etc/caddy/private-owner"
PAGES = "/srv/tenant/private"
FIRST_PAGE = f"{PAGES}/index.html"


def installed(context: StepContext) -> Answer:
    """Whether there are a password, its hash and a first page; the page's text belongs to the owner."""
    return present(context, PASSWORD, ACCOUNT, FIRST_PAGE)


# The gateway may write there from its next start on: its unit names the directory.
@install(
    bundle="private_pages",
    precondition=installed,
    writes=(*(f"file:{path}" for path in (PASSWORD, ACCOUNT, FIRST_PAGE)), f"directory:{PAGES}"),
    expects=(
        File(PASSWORD, mode="0600"),
        # A person may add others who may read.
        EditableFile(ACCOUNT, ("owner $",), "0640", "root", "caddy"),
        Directory(PAGES, "2750", "hermes", "caddy"),
        EditableFile(FIRST_PAGE),
    ),
    restart=True,
)
def private_pages(context: StepContext) -> Iterator[StringCommand]:
    # What is there is kept, unless the owner could no longer get in; then it is put aside and made anew.
    yield StringCommand(
        f"if [ -e {ACCOUNT} ] && ! grep -q '^owner [$]' {ACCOUNT}; then mv {ACCOUNT} {ACCOUNT}.aside; fi"
    )
    yield StringCommand("sh", f"{context.staging}/install.sh")
    for path, owner, group, mode in ((PASSWORD, "root", "root", "0600"), (ACCOUNT, "root", "caddy", "0640")):
        yield StringCommand(f"chown {owner}:{group} {path} && chmod {mode} {path}")
    yield StringCommand("systemctl", "try-reload-or-restart", "caddy.service")


private_pages.deploy()
