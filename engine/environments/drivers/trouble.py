"""Closed words for why a provider taught us nothing or did not do something; its own text is never passed on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum

from engine.environments.drivers.base import Kind
from engine.environments.observation import Unknown
from engine.errors import DispatchLost, DriverRefused

INCOMPLETE = "incomplete"
"""The digest of what is there but has not, or has no longer, the shape that its driver gives it."""


class Trouble(StrEnum):
    """Why an observation is unknown or an effect did not take place."""

    UNREACHABLE = "unreachable"
    NOT_RUNNING = "notRunning"
    UNANSWERED = "unanswered"
    CONNECTION_LOST = "connectionLost"
    TIMED_OUT = "timedOut"
    UNREADABLE = "unreadable"
    CREDENTIAL_REFUSED = "credentialRefused"
    DENIED = "denied"
    TOO_MANY = "tooMany"
    SHUTTING_DOWN = "shuttingDown"
    PROVIDER_FAILED = "providerFailed"
    UNEXPECTED = "unexpectedAnswer"
    FOREIGN = "foreignResource"
    TARGET_MISSING = "targetMissing"
    NOT_EMPTY = "notEmpty"
    HOST_TAKEN = "hostTaken"
    CLAIMS_MISSING = "claimsMissing"


_OF_STATUS = {
    400: Trouble.UNEXPECTED,
    401: Trouble.CREDENTIAL_REFUSED,
    403: Trouble.DENIED,
    408: Trouble.TIMED_OUT,
    429: Trouble.TOO_MANY,
}


def of_status(status: int) -> Trouble:
    """The word for the status of an answer over HTTP that is not success."""
    return _OF_STATUS.get(status, Trouble.PROVIDER_FAILED if status >= 500 else Trouble.UNEXPECTED)


class ProviderTrouble(Exception):
    """A call to a provider failed; `definite` if the provider itself said that it did not do that one call."""

    def __init__(self, word: Trouble, *, definite: bool = False) -> None:
        super().__init__(word)
        self.word = word
        self.definite = definite

    @property
    def unknown(self) -> Unknown:
        return Unknown(str(self.word))


class Effects:
    """Remembers whether anything was sent yet, so that an error can say what is known about the outcome."""

    def __init__(self, kind: Kind, name: str) -> None:
        self._where = f"{kind} {name}"
        self._sent = 0

    def begin(self) -> None:
        """The next call changes something at the provider."""
        self._sent += 1

    def undone(self) -> None:
        """The provider itself said that it did not do the last call."""
        self._sent -= 1

    def refuse(self, word: Trouble) -> DriverRefused | DispatchLost:
        """The error for what must not be done: nothing was done if nothing was sent."""
        if self._sent:
            return DispatchLost(str(word), where=self._where)
        return DriverRefused(str(word), where=self._where)

    def error(self, trouble: ProviderTrouble) -> DriverRefused | DispatchLost:
        """The error to raise instead: refused if nothing was sent, or the only thing sent was said not to be done."""
        if self._sent == 0 or (self._sent == 1 and trouble.definite):
            return DriverRefused(str(trouble.word), where=self._where)
        return DispatchLost(
            str(trouble.word), where=self._where, hint="its outcome is unknown; `tenantry env show` says what to do"
        )


@contextmanager
def looking() -> Iterator[None]:
    """A look between effects: that the provider refuses it says nothing about what was sent before."""
    try:
        yield
    except ProviderTrouble as trouble:
        raise ProviderTrouble(trouble.word) from None


@contextmanager
def effects_on(kind: Kind, name: str) -> Iterator[Effects]:
    """The effects of one call of a driver; a provider's trouble becomes the error that its contract names."""
    effects = Effects(kind, name)
    try:
        yield effects
    except ProviderTrouble as trouble:
        raise effects.error(trouble) from None
