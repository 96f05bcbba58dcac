"""Calls of Hetzner's API with the engine's own rules of repetition and its own errors.

A call is repeated where that cannot do a thing twice: always if the API said that it did nothing (rate
limit, locked, conflict), otherwise only if the call merely asks. A call that acts and whose answer is
lost or an error of the service has an unknown outcome, and is never sent again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, TypeVar

import requests
from hcloud import APIException, Client

from engine.clock import Clock
from engine.errors import MissingPart, ProviderRefused, Refused, TenantryError, UnknownState
from engine.registry.settings import Hetzner

T = TypeVar("T")

RATE_LIMITED = "rate_limit_exceeded"
NOT_DONE = frozenset({RATE_LIMITED, "conflict", "locked"})
"""Codes with which the API says that it did nothing and that the same call may succeed later."""

PROTECTED = "protected"

RESET_HEADER = "RateLimit-Reset"
FALLBACK_LIMIT_SECONDS = 1.0
"""How long to wait where a rate limit comes without the time of its end: one request's worth of quota."""


@dataclass(frozen=True)
class Answer:
    """The last answer of the API: its status, and when its rate limit ends (seconds since the epoch)."""

    status: int
    reset: float | None


class HetznerApi:
    """The client, with every call under one policy. `token` is only ever in the Authorization header."""

    def __init__(self, token: str, settings: Hetzner, clock: Clock, tell: Callable[[str], None], *, where: str) -> None:
        self.client = Client(token, settings.endpoint, application_name="tenantry", timeout=settings.request_seconds)
        self._settings = settings
        self._clock = clock
        self._tell = tell
        self._where = where
        self._answer: Answer | None = None
        self._take_over_repetition()

    def ask(self, what: str, call: Callable[[], T]) -> T:
        """Make a call that changes nothing; raises :class:`UnknownState` where no answer can be had."""
        return self._call(what, call, acts=False)

    def act(self, what: str, call: Callable[[], T]) -> T:
        """Make a call that changes something: at most once, unless the API says that it did nothing.

        Raises :class:`ProviderRefused` if nothing was done, :class:`UnknownState` if that is not known.
        """
        return self._call(what, call, acts=True)

    def _take_over_repetition(self) -> None:
        # The client repeats every call by itself, also one that acts and whose answer was lost, and hides
        # the rate limit's header. It has no setting for either, so its inside is adjusted here and only here.
        inner = self.client._client
        inner._retry_max_retries = 0
        inner._session.hooks["response"].append(self._remember)

    def _remember(self, response: requests.Response, *args: Any, **kwargs: Any) -> None:
        reset = response.headers.get(RESET_HEADER, "")
        self._answer = Answer(response.status_code, float(reset) if reset.isdigit() else None)

    def _call(self, what: str, call: Callable[[], T], *, acts: bool) -> T:
        for attempt in range(1, self._settings.attempts + 1):
            self._answer = None
            try:
                return call()
            except APIException as error:
                may_repeat = error.code in NOT_DONE or (not acts and self._is_service_error())
                if not may_repeat or attempt == self._settings.attempts:
                    raise self._error(what, error, acts) from error
                pause, reason = self._pause(error, attempt), f"{error.message} ({error.code})"
            except requests.RequestException as error:
                if acts or attempt == self._settings.attempts:
                    raise self._no_answer(what, type(error).__name__, acts) from error
                pause, reason = self._backoff(attempt), f"no answer ({type(error).__name__})"
            self._tell(f"{what}: {reason}; again in {pause:.1f} s")
            self._clock.sleep(pause)
        raise AssertionError("unreachable")

    def _is_service_error(self) -> bool:
        return self._answer is not None and self._answer.status >= HTTPStatus.INTERNAL_SERVER_ERROR

    def _pause(self, error: APIException, attempt: int) -> float:
        if error.code != RATE_LIMITED:
            return self._backoff(attempt)
        reset = self._answer.reset if self._answer else None
        wait = FALLBACK_LIMIT_SECONDS if reset is None else max(0.0, reset - self._clock.now().timestamp())
        if wait > self._settings.rate_limit_seconds:
            raise ProviderRefused(
                f"Hetzner's rate limit ends in {wait:.0f} s",
                where=self._where,
                hint="give the command again then; the most to wait is hetzner.rate_limit_seconds in fleet.yaml",
            )
        return wait

    def _backoff(self, attempt: int) -> float:
        return float(self._settings.retry_seconds * 2 ** (attempt - 1))

    def _error(self, what: str, error: APIException, acts: bool) -> TenantryError:
        message = f"{what}: Hetzner answered {error.message} ({error.code})"
        status = self._answer.status if self._answer else 0
        if error.code == PROTECTED:
            hint = "switch off the protection of the server in the provider's console"
            return ProviderRefused(message, where=self._where, hint=hint)
        if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            return MissingPart(
                message, where=self._where, hint="the token must be one of the server's project, with read and write"
            )
        if status == HTTPStatus.NOT_FOUND:
            return Refused(message, where=self._where, hint="the server is gone: look into the provider's console")
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return self._no_answer(what, f"{error.message} ({error.code})", acts)
        return ProviderRefused(message, where=self._where, hint="nothing was done; try again when the cause is gone")

    def _no_answer(self, what: str, reason: str, acts: bool) -> UnknownState:
        if acts:
            return UnknownState(
                f"{what}: Hetzner gave no usable answer: {reason}; whether it was done is unknown",
                where=self._where,
                hint="it was not sent again; look into the provider's console, then give the command again",
            )
        return UnknownState(f"{what}: Hetzner gave no usable answer: {reason}", where=self._where, hint="try again")
