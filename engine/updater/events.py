"""What a run tells about itself while it goes on."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


class Phase(StrEnum):
    """The phases of a run in their order (docs/architecture.md)."""

    LOCK = "lock"
    IDENTITY = "identity"
    REBUILD = "rebuild"
    CONNECT = "connect"
    HOST_KEYS = "host-keys"
    CLOUD_INIT = "cloud-init"
    PHASE_A = "phase-a"
    PHASE_B = "phase-b"
    PROBE = "probe"
    PLAN = "plan"
    RECOVERY = "recovery"
    APPLY = "apply"
    RENDER = "render"
    QUIESCE = "quiesce"
    RESTART = "restart"
    LIVENESS = "liveness"
    ROLLBACK = "rollback"
    COMMIT = "commit"
    NOTIFY = "notify"
    VERIFY = "verify"
    ARCHIVE = "archive"
    PUBLISH = "publish"
    OFFSITE = "offsite"
    UNPACK = "unpack"
    EXCHANGE = "exchange"
    DESTROY = "destroy"
    DONE = "done"


@dataclass(frozen=True)
class Event:
    """One thing that happened to `subject` (a slug) in `phase`, in words for a person."""

    subject: str
    phase: Phase
    message: str


class Reporter(Protocol):
    """Receives events; the command line shows them, a test acts on them."""

    def __call__(self, event: Event) -> None:
        """Take note of `event`."""


def silent(event: Event) -> None:
    """A reporter that shows nothing."""
