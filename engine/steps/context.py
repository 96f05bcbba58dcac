"""What a step may know and use while it runs on one tenant."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.hosts.session import Session
from engine.hosts.status import Status
from engine.registry.model import Tenant
from engine.registry.settings import Settings

if TYPE_CHECKING:
    from pyinfra.api.facts import FactBase


def _nothing_to_render() -> None:
    """Release steps do not render: the rendered set has a phase of its own after them."""


def _unheard(message: str) -> None:
    """Where nobody keeps a log of the run, as in pyinfra's own CLI."""


@dataclass
class StepContext:
    """One step's view of its tenant.

    `status` is read fresh before the step; `staging` is the path of the shipped bundle on the host
    and is set only while an install step runs; `state_directory` is the operator's, for downloads.
    `render` writes the rendered set at version zero while phase B runs. `tell` puts a line into the run's
    log; never a secret.
    """

    tenant: Tenant
    settings: Settings
    session: Session
    status: Status
    fleet_root: Path
    state_directory: Path
    arguments: Mapping[str, Any] = field(default_factory=dict)
    staging: str = ""
    render: Callable[[], None] = _nothing_to_render
    tell: Callable[[str], None] = _unheard

    def fact(self, fact: type[FactBase], **arguments: Any) -> Any:
        """Ask the host; facts are never cached."""
        return self.session.host.get_fact(fact, **arguments)

    def ship(self, directory: Path) -> str:
        """Stream `directory` to the host; returns its path there, removed when the step has ended."""
        path = self.session.stage(directory)
        self._shipped.append(path)
        return path

    def unship(self) -> None:
        """Remove what was shipped; called by the engine whatever the step did."""
        while self._shipped:
            self.session.unstage(self._shipped.pop())
        self.staging = ""

    def __post_init__(self) -> None:
        self._shipped: list[str] = []
