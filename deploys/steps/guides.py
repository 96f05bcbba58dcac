"""Guides that every tenant's assistant reads: refreshed whole, an edited one is put back.

Real-estate tenants have one more; the shared ones are everybody's, so the step is never skipped.
"""

import shlex
from collections.abc import Iterable, Iterator

from pyinfra.api import StringCommand

from engine.steps import Answer, File, Place, StepContext, Tenant, install
from engine.steps.contents import bundle_files, same_files

GUIDES = "/srv/tenant/guides"


def parts(tenant: Tenant) -> tuple[str, ...]:
    return ("guides", "real-estate") if tenant.trade == "real-estate" else ("guides",)


def current(context: StepContext) -> Answer:
    """Whether every guide that this tenant has is what the fleet says."""
    found = [bundle_files(context, "guides", part, GUIDES) for part in parts(context.tenant)]
    return same_files(context, {path: file for files in found for path, file in files.items()})


def expected(place: Place) -> Iterable[File]:
    return [file for part in parts(place.tenant) for file in place.tree(part, GUIDES)]


@install(bundle="guides", precondition=current, writes=(f"directory:{GUIDES}",), expects=expected)
def guides(context: StepContext) -> Iterator[StringCommand]:
    trade = shlex.quote(f"TRADE={context.tenant.trade}")
    yield StringCommand("env", trade, "sh", f"{context.staging}/install.sh")


guides.deploy()
