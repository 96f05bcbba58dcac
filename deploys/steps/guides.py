"""Guides that every tenant's assistant reads: refreshed whole, an edited one is put back."""

from collections.abc import Iterator

from pyinfra.api import StringCommand

from engine.steps import Answer, StepContext, install
from engine.steps.contents import bundle_files, same_files

GUIDES = "/srv/tenant/guides"


def current(context: StepContext) -> Answer:
    """Whether every guide is what the fleet says."""
    return same_files(context, bundle_files(context, "guides", "guides", GUIDES))


@install(bundle="guides", precondition=current, writes=(f"directory:{GUIDES}",))
def guides(context: StepContext) -> Iterator[StringCommand]:
    yield StringCommand("sh", f"{context.staging}/install.sh")


guides.deploy()
