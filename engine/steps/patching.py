"""How a patch step changes its file: copy once, edit purely, replace atomically."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

from pyinfra.api import StringCommand

from engine.errors import StepFailed
from engine.hosts.files import program
from engine.hosts.status import Answer
from engine.steps.context import StepContext
from engine.steps.facts import LARGEST_TEXT_BYTES, ForeignLink, PatchedText
from engine.steps.step import PatchStep, fleet_code

COPIES = "/var/lib/tenantry/copies"


def text_to_edit(step: PatchStep, context: StepContext) -> str | Answer | None:
    """The text of the step's file now, None where it is absent, or UNKNOWN.

    Raises :class:`StepFailed` for a link on the way to it that is not root's alone.
    """
    path = step.path(context.settings)
    found = context.fact(PatchedText, path=path)
    if isinstance(found, ForeignLink):
        raise StepFailed(
            f"step {step.name}: {found.path} is a link that somebody besides root could have made, "
            "so it is not followed",
            where=context.tenant.slug,
            hint="put the file itself there, or let the step name the file that the link leads to",
        )
    text: str | Answer | None = found
    return text


def edit_commands(step: PatchStep, context: StepContext) -> Iterator[Any]:
    """The commands of one edit; raises :class:`StepFailed` where the file cannot be read."""
    path = step.path(context.settings)
    text = text_to_edit(step, context)
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
    before, after = (version.encode(errors="surrogateescape") for version in (text, edited))
    # The new text arrives on standard input; the file keeps its owner, group and mode.
    command = program(
        "edit",
        path,
        digest=hashlib.sha256(before).hexdigest(),
        copy=f"{COPIES}/{step.name}/{path.strip('/').replace('/', '__')}",
        size=len(after),
        limit=LARGEST_TEXT_BYTES,
    )
    yield StringCommand(command, _stdin=after)
