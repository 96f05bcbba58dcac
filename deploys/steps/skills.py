"""Skills for every owner: forms, invoices, a look back on the week."""

from collections.abc import Iterable, Iterator

from pyinfra.api import StringCommand

from engine.steps import Answer, File, Place, StepContext, install
from engine.steps.contents import bundle_files, same_files

SKILLS = "/srv/tenant/skills"


def installed(context: StepContext) -> Answer:
    """Whether every skill is what the fleet says."""
    return same_files(context, bundle_files(context, "skills", "skills", SKILLS))


def expected(place: Place) -> Iterable[File]:
    return place.tree("skills", SKILLS)


@install(bundle="skills", precondition=installed, writes=(f"directory:{SKILLS}/owner",), expects=expected, restart=True)
def skills(context: StepContext) -> Iterator[StringCommand]:
    yield StringCommand("sh", f"{context.staging}/install.sh")


skills.deploy()
