"""How pages look: a guide for the assistant, and the blocks that it speaks of."""

from collections.abc import Iterator

from pyinfra.api import StringCommand

from engine.steps import Answer, File, StepContext, install
from engine.steps.contents import same_files

GUIDE, BLOCKS = "/srv/tenant/style/page-style.md", "/srv/tenant/pages/look/blocks.css"
FILES = {GUIDE: "style/page-style.md", BLOCKS: "look/blocks.css"}


def installed(context: StepContext) -> Answer:
    """Whether both are what the fleet says."""
    bundle = context.fleet_root / "deploys" / "bundles" / "page_style"
    return same_files(context, {path: bundle / name for path, name in FILES.items()})


@install(
    bundle="page_style",
    precondition=installed,
    writes=tuple(f"file:{path}" for path in FILES),
    expects=(File(GUIDE, FILES[GUIDE]), File(BLOCKS, FILES[BLOCKS], mode="0640", group="caddy")),
)
def page_style(context: StepContext) -> Iterator[StringCommand]:
    yield StringCommand("sh", f"{context.staging}/install.sh")


page_style.deploy()
