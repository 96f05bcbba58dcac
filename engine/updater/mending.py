"""What a converge is given when it shall put a tenant right before its pending steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from engine.hosts.session import Session
from engine.registry.model import Tenant
from engine.releases.version import Version

if TYPE_CHECKING:
    from engine.updater.converge import Converge


class Mending(Protocol):
    """One run's work on what is broken; decided, carried out and proved by whoever knows what that is."""

    @property
    def words(self) -> Sequence[str]:
        """What it will run, for the run's record."""

    @property
    def remarks(self) -> Sequence[str]:
        """What a person should know of what it leaves alone."""

    def decide(self, tenant: Tenant, session: Session) -> bool:
        """Whether there is anything to do; changes nothing, and raises whatever forbids it."""

    def carry_out(self, converge: Converge) -> None:
        """Do it, on a host that is claimed."""

    def prove(self, converge: Converge, version: Version) -> None:
        """Raise if it is not right now that the tenant is about to be at `version`."""


Mender = Callable[[], Mending]
"""Makes the mending of one run; all runs of a command share what it read before."""
