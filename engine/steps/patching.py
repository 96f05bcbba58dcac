"""How a patch step changes its file: copy once, edit purely, replace atomically."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyinfra.api import StringCommand

from engine.errors import StepFailed
from engine.hosts.status import Answer
from engine.steps.context import StepContext
from engine.steps.facts import FileText

if TYPE_CHECKING:
    from engine.steps.step import PatchStep

COPIES = "/var/lib/tenantry/copies"

_COPY = """
set -eu
umask 077
mkdir -p {copies}
[ -e {copy} ] || cp -p {path} {copy}
"""

# The new text arrives on standard input; the replaced file keeps its owner, group and mode.
_REPLACE = """
set -eu
temporary=$(mktemp {path}.XXXXXXXX)
trap 'rm -f "$temporary"' EXIT
cat > "$temporary"
chown --reference={path} "$temporary"
chmod --reference={path} "$temporary"
sync "$temporary"
mv -f "$temporary" {path}
sync {directory}
"""


def edit_commands(step: PatchStep, context: StepContext) -> Iterator[Any]:
    """The commands of one edit; raises :class:`StepFailed` where the file cannot be read."""
    path = step.path(context.settings)
    text = context.fact(FileText, path=path)
    if not isinstance(text, str):
        state = "could not be read" if text is Answer.UNKNOWN else "is absent"
        raise StepFailed(
            f"step {step.name}: {path} {state}",
            where=context.tenant.slug,
            hint="look at the file on the host",
        )
    edited = step.edit(text, context.arguments)
    if edited == text:
        return
    copies = f"{COPIES}/{step.name}"
    values = {
        "path": shlex.quote(path),
        "directory": shlex.quote(path.rpartition("/")[0] or "/"),
        "copies": shlex.quote(copies),
        "copy": shlex.quote(f"{copies}/{path.strip('/').replace('/', '__')}"),
    }
    yield StringCommand(_COPY.format(**values))
    yield StringCommand(_REPLACE.format(**values), _stdin=edited.encode(errors="surrogateescape"))
