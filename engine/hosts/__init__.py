"""Everything between the engine and a tenant's host: connection, channel, lock, session, probe."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    # `pyinfra … fact engine.hosts.Status` looks here; nobody else should pay for importing pyinfra.
    if name == "Status":
        from engine.hosts.facts import Status

        return Status
    raise AttributeError(name)
