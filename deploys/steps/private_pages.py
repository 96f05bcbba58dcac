"""Pages that only the owner can read, behind a password that is made on the tenant itself."""

from collections.abc import Iterator

from pyinfra.api import StringCommand

from engine.steps import Answer, StepContext, install
from engine.steps.contents import present

PASSWORD = "/etc/tenant/private-pages.password"
ACCOUNT = "/etc/caddy/private-owner"
FIRST_PAGE = "/srv/tenant/private/index.html"


def installed(context: StepContext) -> Answer:
    """Whether there are a password, its hash and a first page; the page's text belongs to the owner."""
    return present(context, PASSWORD, ACCOUNT, FIRST_PAGE)


# The gateway may write there from its next start on: its unit names the directory.
@install(
    bundle="private_pages",
    precondition=installed,
    writes=tuple(f"file:{path}" for path in (PASSWORD, ACCOUNT, FIRST_PAGE)),
    restart=True,
)
def private_pages(context: StepContext) -> Iterator[StringCommand]:
    yield StringCommand("sh", f"{context.staging}/install.sh")


private_pages.deploy()
