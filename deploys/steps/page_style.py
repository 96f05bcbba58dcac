"""How pages look: a guide for the assistant, and the blocks that it speaks of."""

from collections.abc import Iterator

from pyinfra.api import StringCommand

from engine.steps import Answer, StepContext, install
from engine.steps.contents import same_files

FILES = {
    "/srv/tenant/style/page-style.md": "style/page-style.md",
    "/srv/tenant/pages/look/blocks.css": "look/blocks.css",
}


def installed(context: StepContext) -> Answer:
    """Whether both are what the fleet says."""
    bundle = context.fleet_root / "deploys" / "bundles" / "page_style"
    return same_files(context, {path: bundle / name for path, name in FILES.items()})


@install(bundle="page_style", precondition=installed, writes=tuple(f"file:{path}" for path in FILES))
def page_style(context: StepContext) -> Iterator[StringCommand]:
    yield StringCommand("sh", f"{context.staging}/install.sh")


page_style.deploy()
