"""Engine errors in pyinfra's own CLI: one plain line for the host that failed, the others go on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyinfra
from pyinfra.api.exceptions import ConnectError, PyinfraError

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
