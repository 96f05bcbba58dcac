"""Connections to the PostgreSQL that all environments share, each of them bounded in time."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import psycopg
from psycopg import errors

from engine.environments.drivers.trouble import ProviderTrouble, Trouble

_T = TypeVar("_T")

_WORDS = {
    "28": Trouble.CREDENTIAL_REFUSED,
    "53300": Trouble.TOO_MANY,
    "42501": Trouble.DENIED,
    "57014": Trouble.TIMED_OUT,
    "57P": Trouble.SHUTTING_DOWN,
    "08": Trouble.CONNECTION_LOST,
}
"""Beginning of the server's state code -> word."""

_PHRASES = {
    "Connection refused": Trouble.UNREACHABLE,
    "authentication failed": Trouble.CREDENTIAL_REFUSED,
    "too many": Trouble.TOO_MANY,
    "remaining connection slots": Trouble.TOO_MANY,
    "permission denied": Trouble.DENIED,
    "no pg_hba.conf entry": Trouble.DENIED,
    "shutting down": Trouble.SHUTTING_DOWN,
    "starting up": Trouble.SHUTTING_DOWN,
    "administrator command": Trouble.SHUTTING_DOWN,
    "timeout expired": Trouble.TIMED_OUT,
}
"""While a connection is made libpq gives no state code, only words; a word that is not here is a lost connection."""


class _Bounded(psycopg.Connection[tuple[Any, ...]]):
    """A connection of which every answer has to come in time, whatever became of the server."""

    answer_seconds = 30.0

    def wait(self, gen: Generator[Any, Any, _T], interval: float = 0.1, timeout: float | None = None) -> _T:
        deadline = time.monotonic() + self.answer_seconds
        try:
            return super().wait(gen, interval, timeout=self.answer_seconds)
        except psycopg.Error:
            if time.monotonic() < deadline:
                raise
            # What it still may answer is of no use: nothing waits for that any more, not even a rollback.
            self.pgconn.finish()
            raise errors.QueryCanceled("no answer in time") from None


@dataclass(frozen=True)
class PostgresParent:
    """Where the shared PostgreSQL is, and the superuser that makes databases and roles there."""

    host: str
    port: int
    user: str
    password: bytes = field(repr=False)
    connect_seconds: int = 5
    answer_seconds: float = 30.0

    @contextmanager
    def connection(self, database: str = "postgres") -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
        """An open connection in which each statement is its own transaction; raises `ProviderTrouble`."""
        try:
            connection = _Bounded.connect(
                host=self.host,
                port=self.port,
                user=self.user,
                password=self.password.decode(),
                dbname=database,
                connect_timeout=self.connect_seconds,
                application_name="tenantry",
                autocommit=True,
                prepare_threshold=None,
                # Nothing of the caller's own environment may change how we connect.
                options=self._options(),
                passfile="/dev/null",
                sslmode="prefer",
            )
        except psycopg.Error as error:
            raise ProviderTrouble(_word(error)) from None
        connection.answer_seconds = self.answer_seconds
        try:
            yield connection
        except psycopg.Error as error:
            raise _trouble(error, connection) from None
        finally:
            connection.close()

    def _options(self) -> str:
        """Words of errors are compared; and what an operator began who is gone must not keep all others waiting.

        An environment makes functions in its own database as it likes. So names mean the server's own things only:
        with any schema in the path, one of its functions may fit a call better and run with all our rights.

        A server may not notice for hours that a network was cut. So it ends by itself a statement for which nobody
        waits any more, and a session that holds locks and says nothing; one may wait for what another of us does.
        """
        patience = int(self.answer_seconds * 1000)
        bounds = {
            "lc_messages": "C",
            "search_path": "",
            "statement_timeout": patience,
            "idle_in_transaction_session_timeout": patience,
            "idle_session_timeout": 5 * patience,
        }
        return " ".join(f"-c {name}={value}" for name, value in bounds.items())


def connection_word(text: str) -> Trouble | None:
    """What the last words of a program of PostgreSQL's say of its connection; None if it is not about that."""
    if "connection to server" in text:
        return next((word for phrase, word in _PHRASES.items() if phrase in text), Trouble.CONNECTION_LOST)
    lost = (
        "server closed the connection",
        "terminating connection",
        "lost synchronization",
        "no connection to the server",
    )
    return Trouble.CONNECTION_LOST if any(phrase in text for phrase in lost) else None


def _trouble(error: psycopg.Error, connection: psycopg.Connection[Any]) -> ProviderTrouble:
    """What an error of a statement means; definite only if the server said so and still talks to us."""
    state = error.diag.sqlstate
    definite = state is not None and state[:2] not in ("08", "57", "58", "XX") and not connection.broken
    return ProviderTrouble(_word(error), definite=definite)


def _word(error: psycopg.Error) -> Trouble:
    if isinstance(error, errors.ConnectionTimeout):
        return Trouble.TIMED_OUT
    state = error.diag.sqlstate or (error.sqlstate if isinstance(error, errors.QueryCanceled) else None)
    if state:
        return next((word for begin, word in _WORDS.items() if state.startswith(begin)), Trouble.PROVIDER_FAILED)
    text = str(error)
    return next((word for phrase, word in _PHRASES.items() if phrase in text), Trouble.CONNECTION_LOST)
