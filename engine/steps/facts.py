"""Facts that answer with three values, so that a failed question is never taken for a "no"."""

from __future__ import annotations

import base64
import shlex
from dataclasses import dataclass
from typing import Any

from pyinfra.api import FactBase

from engine.hosts.files import program
from engine.hosts.status import Answer

LARGEST_TEXT_BYTES = 2 << 20


class Fact(FactBase):  # type: ignore[misc]
    """A precondition's fact: `command(**arguments)` asks the host, `process(lines)` answers.

    pyinfra returns `default()` when the command fails or is missing; here that is UNKNOWN, which
    stops the run. The command must therefore exit 0 for both "holds" and "does not hold".
    """

    abstract = True

    @staticmethod
    def default() -> Answer:
        return Answer.UNKNOWN

    def process(self, output: list[str]) -> Answer:
        """Read the last line: ``holds`` or ``does not hold``; anything else is unknown."""
        try:
            return Answer(output[-1].strip())
        except ValueError:
            return Answer.UNKNOWN


def ask(condition: str) -> str:
    """A fact's command that answers whether the shell `condition` succeeds."""
    yes, no = shlex.quote(Answer.HOLDS.value), shlex.quote(Answer.DOES_NOT_HOLD.value)
    return f"if {condition}; then echo {yes}; else echo {no}; fi"


class FileText(FactBase):  # type: ignore[misc]
    """The text of a file on the host: a str, None where it is provably absent, UNKNOWN otherwise.

    A link is followed only where root alone decides where it leads; beyond any other one all is UNKNOWN.
    """

    def command(self, path: str) -> str:
        return program("text", path, limit=LARGEST_TEXT_BYTES)

    @staticmethod
    def default() -> Any:
        return Answer.UNKNOWN

    def process(self, output: list[str]) -> Any:
        if output == ["absent"]:
            return None
        if output[:1] != ["present"]:
            return Answer.UNKNOWN
        return base64.b64decode("".join(output[1:])).decode(errors="surrogateescape")


@dataclass(frozen=True)
class ForeignLink:
    """A link on the way to a file that somebody besides root could have made."""

    path: str


class PatchedText(FileText):
    """What :class:`FileText` says, but a :class:`ForeignLink` by its name, so that a patch can refuse it."""

    def process(self, output: list[str]) -> Any:
        return ForeignLink(output[-1]) if output[:1] == ["link"] else super().process(output)
