"""What the facts and operations on one environment work with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from engine.environments.drivers.base import CreateRequest, Kind
from engine.errors import InvalidInput

if TYPE_CHECKING:
    # pyinfra loads every connector in every process, and the journal's libraries take a while.
    from engine.environments.effects import Held, Resource
    from engine.environments.journal import Action, EffectRow

TARGET_KEY = "tenantry_target"
"""Where a pyinfra host's ``connector_data`` holds its :class:`Target`."""


class Target(Protocol):
    """One environment behind a pyinfra host."""

    def resource(self, kind: Kind) -> Resource:
        """Its resource of that kind; raises :class:`InvalidInput` where it has none of its own."""

    def effects(self) -> Sequence[EffectRow]:
        """Every effect that is journalled of it."""

    def take(self) -> bool:
        """Take its lock unless it is held already; whether it was taken now. Raises :class:`Busy`."""

    def held(self, action: Action, kind: Kind) -> Held:
        """The pen for an effect on its resource of `kind`; the lock is held by now. Raises what stands against it."""

    def request(self, kind: Kind, intent: str) -> CreateRequest:
        """The request for `kind` under an intent's id."""

    def made(self, kind: Kind) -> None:
        """A resource was made now."""

    def failed(self, error: Exception) -> None:
        """An effect ended with `error`, and the operation ends with it."""


def kind_of(word: str) -> Kind:
    """The kind that `word` names; raises :class:`InvalidInput`."""
    try:
        return Kind(word)
    except ValueError:
        raise InvalidInput(
            f"there is no kind {word!r}" if word else "which kind is not said",
            where="kind",
            hint=f"one of {', '.join(Kind)}, as in kind={Kind.DATABASE}",
        ) from None


def target_of(host: Any) -> Target:
    """The target behind a connected pyinfra host of the ``@env`` connector."""
    target: Target = host.connector_data[TARGET_KEY]
    return target
