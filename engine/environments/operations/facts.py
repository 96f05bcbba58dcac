"""The observation of a resource as a pyinfra fact: present, absent or unknown."""

from __future__ import annotations

import json

from pyinfra.api import FactBase, StringCommand

from engine.environments.drivers.trouble import Trouble
from engine.environments.observation import Observation, Unknown, from_json

UNANSWERED = Unknown(Trouble.UNANSWERED.value)
"""What is known where the question itself failed."""


class Look(StringCommand):  # type: ignore[misc]
    """The one "command" that the connector answers: what does the provider hold of `kind`?"""

    def __init__(self, kind: str) -> None:
        super().__init__(f"observe {kind}")
        self.kind = kind


class Observed(FactBase):  # type: ignore[misc]
    """What the provider holds of the environment's resource of `kind`; read anew each time.

    pyinfra returns `default()` where a fact fails. Here that is unknown, on which nothing ever acts.
    """

    def command(self, kind: str = "") -> Look:
        return Look(kind)

    @staticmethod
    def default() -> Observation:
        return UNANSWERED

    def process(self, output: list[str]) -> Observation:
        try:
            return from_json(json.loads("\n".join(output)))
        except (ValueError, KeyError, TypeError):
            return UNANSWERED
