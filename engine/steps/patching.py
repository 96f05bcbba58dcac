"""How a patch step changes its file: copy once, edit purely, replace atomically."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Iterator
from typing import Any

from pyinfra.api import StringCommand

from engine.errors import StepFailed
from engine.hosts.status import Answer
from engine.steps.context import StepContext
from engine.steps.facts import FileText
from engine.steps.step import PatchStep, fleet_code

COPIES = "/var/lib/tenantry/copies"

_COPY = """
set -eu
umask 077
mkdir -p {copies}
[ -e {copy} ] || {{ cp -p {path} {copy}.partial && sync {copy}.partial && mv -f {copy}.partial {copy}; }}
"""

# The new text arrives on standard input; the replaced file keeps its owner, group and mode, a link stays one.
_REPLACE = """
set -eu
path=$(readlink -f -- {path})
[ "$(sha256sum < "$path")" = "{digest}  -" ] || {{ echo "$path was changed by somebody meanwhile" >&2; exit 1; }}
temporary=$(mktemp "$path.XXXXXXXX")
trap 'rm -f "$temporary"' EXIT
cat > "$temporary"
chown --reference="$path" "$temporary"
chmod --reference="$path" "$temporary"
sync "$temporary"
mv -fT "$temporary" "$path"
sync "${{path%/*}}/"
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
    with fleet_code(f"the edit of step {step.name}", StepFailed):
        edited = step.edit(text, context.arguments)
    if edited == text:
        return
    copies = f"{COPIES}/{step.name}"
    values = {
        "path": shlex.quote(path),
        "digest": hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest(),
        "copies": shlex.quote(copies),
        "copy": shlex.quote(f"{copies}/{path.strip('/').replace('/', '__')}"),
    }
    yield StringCommand(_COPY.format(**values))
    yield StringCommand(_REPLACE.format(**values), _stdin=edited.encode(errors="surrogateescape"))
