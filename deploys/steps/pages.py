"""The owner's pages: a first page and the common look, served by the proxy at the page host."""

import shlex
from collections.abc import Iterator

from pyinfra.api import StringCommand

from engine.steps import Answer, Directory, EditableFile, Expectation, Place, StepContext, install
from engine.steps.contents import FileDigests, bundle_files, same_files

PAGES = "/srv/tenant/pages"
FIRST_PAGE = f"{PAGES}/index.html"


def installed(context: StepContext) -> Answer:
    """Whether the look is ours and a first page is there; its text belongs to the owner."""
    found = context.fact(FileDigests, paths=(FIRST_PAGE,))
    if not isinstance(found, dict):
        return Answer.UNKNOWN
    if found[FIRST_PAGE] is None:
        return Answer.DOES_NOT_HOLD
    return same_files(context, bundle_files(context, "pages", "look", f"{PAGES}/look"))


def expected(place: Place) -> Iterator[Expectation]:
    yield Directory(f"{PAGES}/look", "2750", "root", "caddy")
    yield from place.tree("look", f"{PAGES}/look", mode="0640", group="caddy")
    yield EditableFile(FIRST_PAGE)


@install(
    bundle="pages", precondition=installed, writes=(f"directory:{PAGES}/look", f"file:{FIRST_PAGE}"), expects=expected
)
def pages(context: StepContext) -> Iterator[StringCommand]:
    business = f"BUSINESS={context.tenant.business}"
    yield StringCommand("env", shlex.quote(business), "sh", f"{context.staging}/install.sh")
    # Handed down by the directory above when it is made, and by nobody afterwards.
    yield StringCommand("chmod", "2750", f"{PAGES}/look")


pages.deploy()
