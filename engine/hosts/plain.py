"""pyinfra without its noise: engine errors as one plain line in its CLI, no log of its own in the engine."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyinfra
from pyinfra.api.exceptions import ConnectError, PyinfraError
from pyinfra.context import ContextManager

from engine.errors import CommandTimedOut, TenantryError


class HostError(PyinfraError, OSError):  # type: ignore[misc]
    """What pyinfra takes as the failure of one host: anything that is no OSError would end all of them."""


class HostTimeout(HostError, TimeoutError):
    """The same for a command beyond its bound, which pyinfra reports in its own words."""


class HostUnreachable(ConnectError):  # type: ignore[misc]
    """What pyinfra takes as a host without connection."""


@contextmanager
def plain_errors(kind: type[Exception] = HostError) -> Iterator[None]:
    """In pyinfra's CLI, raise engine errors of the body as `kind`; elsewhere let them pass as they are."""
    try:
        yield
    except TenantryError as error:
        if not pyinfra.is_cli:
            raise
        chosen = HostTimeout if isinstance(error, CommandTimedOut) else kind
        raise chosen(one_line(error)) from error


def one_line(error: TenantryError) -> str:
    """The error and its hint on one line."""
    return " ".join(str(error).replace("\n  hint:", "; hint:").split())


def quiet() -> None:
    """Keep pyinfra's log off this process's output: the engine raises or records itself what is worth saying."""
    logger = logging.getLogger("pyinfra")
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
    logger.propagate = False


@contextmanager
def restored(context: ContextManager, module: Any) -> Iterator[None]:
    """Like ``context.use``, but the old value comes back after an exception too."""
    previous = context.get()
    context.set(module)
    try:
        yield
    finally:
        context.set(previous)
