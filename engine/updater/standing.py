"""How a tenant stands with its recovery, as documents of the public contract say it."""

from __future__ import annotations

import datetime
from dataclasses import asdict
from typing import Any

from engine.clock import iso
from engine.hosts.status import Status


def held_document(status: Status) -> dict[str, Any] | None:
    """Why the tenant is held, or None."""
    held = status.held
    return {**asdict(held), "at": moment(held.at)} if held else None


def armed_document(status: Status) -> dict[str, Any] | None:
    """What the tenant's dead-man is armed for, or None."""
    armed = status.armed
    return {"run": armed.run, "head": armed.head, "recovery_set": armed.set} if armed else None


def recovery_documents(status: Status) -> list[dict[str, Any]]:
    """The tenant's recovery sets, oldest first."""
    return [
        {
            "run": found.run,
            "from_version": found.from_version,
            "to_version": found.to_version,
            "created": moment(found.created),
            "irreversible": list(found.irreversible),
            "state": found.has_state,
            "undone": moment(found.undone) if found.undone is not None else None,
        }
        for found in status.recovery
    ]


def moment(seconds: float) -> str | None:
    """A host's Unix time as a document says it; None where it is no date, such as one in milliseconds."""
    try:
        return iso(datetime.datetime.fromtimestamp(seconds, datetime.UTC))
    except (OSError, OverflowError, ValueError):
        return None
