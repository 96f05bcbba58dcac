"""Guides that every tenant's assistant reads: refreshed whole, an edited one is put back.

Real-estate tenants have one more; the shared ones are everybody's, so the step is never skipped.
"""

import shlex
from collections.abc import Iterator

from pyinfra.api import StringCommand

from engine.steps import Answer, StepContext, install
from engine.steps.contents import bundle_files, same_files

GUIDES = "/srv/tenant/guides"


def current(context: StepContext) -> Answer:
    """Whether every guide that this tenant has is what the fleet says."""
    parts = ["guides", "real-estate"] if context.tenant.trade == "real-estate" else ["guides"]
    files = {path: file for part in parts for path, file in bundle_files(context, "guides", part, GUIDES).items()}
    return same_files(context, files)


@install(bundle="guides", precondition=current, writes=(f"directory:{GUIDES}",))
def guides(context: StepContext) -> Iterator[StringCommand]:
    trade = shlex.quote(f"TRADE={context.tenant.trade}")
    yield StringCommand("env", trade, "sh", f"{context.staging}/install.sh")


guides.deploy()
