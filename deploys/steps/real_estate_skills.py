"""Skills for selling and letting homes; on real-estate tenants only."""

from collections.abc import Iterable, Iterator

from pyinfra.api import StringCommand

from engine.steps import Answer, File, Place, StepContext, install
from engine.steps.contents import bundle_files, same_files

SKILLS = "/srv/tenant/skills/real-estate"


def installed(context: StepContext) -> Answer:
    """Whether every skill is what the fleet says."""
    return same_files(context, bundle_files(context, "real_estate_skills", "real-estate", SKILLS))


def expected(place: Place) -> Iterable[File]:
    return place.tree("real-estate", SKILLS)


@install(
    bundle="real_estate_skills",
    precondition=installed,
    writes=(f"directory:{SKILLS}",),
    expects=expected,
    trades=("real-estate",),
    restart=True,
)
def real_estate_skills(context: StepContext) -> Iterator[StringCommand]:
    yield StringCommand("sh", f"{context.staging}/install.sh")


real_estate_skills.deploy()
