"""What a tenant says about itself: the probe's one JSON object as a frozen value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import Any

from engine.releases.version import Version


class Answer(Enum):
    """The three answers of a probe or precondition. Unknown never means absent or up to date."""

    HOLDS = "holds"
    DOES_NOT_HOLD = "does not hold"
    UNKNOWN = "unknown"

    @classmethod
    def of(cls, value: bool | None) -> Answer:
        """Turn a comparison into an answer; None is unknown."""
        if value is None:
            return cls.UNKNOWN
        return cls.HOLDS if value else cls.DOES_NOT_HOLD


class MarkerState(StrEnum):
    """Whether the version of record could be read."""

    ABSENT = "absent"
    PRESENT = "present"
    UNREADABLE = "unreadable"


@dataclass(frozen=True)
class Marker:
    """The marker file: provably absent, a version, or something that is neither."""

    state: MarkerState
    version: Version | None = None
    problem: str = ""


@dataclass(frozen=True)
class ServiceState:
    """One systemd unit as ``systemctl show`` reports it."""

    load: str
    active: str
    sub: str
    main_pid: int
    restarts: int
    result: str

    @property
    def is_active(self) -> bool:
        return self.active == "active"


@dataclass(frozen=True)
class ChannelState:
    """One messaging platform in the runtime's own report; `updated_at` in Unix seconds."""

    state: str
    updated_at: float | None

    @property
    def is_connected(self) -> bool:
        return self.state == "connected"


class HistoryState(StrEnum):
    """Whether the newest message's time could be read from the runtime's database."""

    READABLE = "readable"
    EMPTY = "empty"
    MISSING = "missing"
    UNREADABLE = "unreadable"


@dataclass(frozen=True)
class GatewayState:
    """The gateway now. `newest_message` in Unix seconds, None where there is none or none is known.

    `report_pid` is the process that wrote the channel report; `running_version` what the process
    that listens on the port says of itself.
    """

    service: ServiceState
    port_open: bool
    running_version: str | None
    channels: Mapping[str, ChannelState]
    report_pid: int | None
    history: HistoryState
    newest_message: float | None


@dataclass(frozen=True)
class FileFacts:
    """One file of the rendered set on the tenant.

    `digest` is ``sha256:…``, None where it is absent, ``link`` where a link stands in its place, or why it
    cannot be read.
    """

    digest: str | None
    mode: str | None
    owner: str | None
    group: str | None


@dataclass(frozen=True)
class OwedNote:
    """An owner message that still has to be sent for `version`; `sending` once an attempt began."""

    version: str
    text: str
    sending: bool = False


@dataclass(frozen=True)
class Owed:
    """Work that a run promised before it mutated anything (invariant 11).

    `restart` names why the gateway must be restarted, `reloads` the units to reload (``daemon`` stands for
    systemd itself), `switches` maps a link to the directory that it must point to after the restart
    window, `note` is an undelivered owner message. `conversations` says that their prompts are to follow a
    personality that changed, `notice` that some ended for it and the owner has not been told.
    """

    restart: tuple[str, ...] = ()
    reloads: tuple[str, ...] = ()
    switches: Mapping[str, str] = field(default_factory=dict)
    note: OwedNote | None = None
    conversations: bool = False
    notice: bool = False


@dataclass(frozen=True)
class Held:
    """Why the tenant is left alone until there is a head newer than `head`, or a person says so.

    `run` is the run that was undone, `at` Unix seconds, `by` who undid it: ``run``, ``dead-man``, ``person`` or
    ``rollout``.
    """

    head: str
    run: str
    at: float
    reason: str
    by: str


@dataclass(frozen=True)
class Armed:
    """The dead-man's order: put the tenant back to the set `set` if nobody confirms `run`, which leads to `head`."""

    set: str
    run: str
    head: str


@dataclass(frozen=True)
class RecoverySet:
    """One recovery set, in short. `created` and `undone` in Unix seconds; versions as texts, None is version zero.

    `irreversible` names the steps that it cannot be put back across; `has_state` whether it holds the state too;
    `moved` whether files were moved into it instead of being copied, as a restore does.
    """

    run: str
    from_version: str | None
    to_version: str
    created: float
    irreversible: tuple[str, ...] = ()
    has_state: bool = False
    undone: float | None = None
    moved: bool = False


@dataclass(frozen=True)
class HostLock:
    """The host-side kernel lock: held by a command of run `run`, if any."""

    held: bool
    run: str | None


@dataclass(frozen=True)
class Status:
    """One probe's whole answer. `clock` is the tenant's Unix time, `boot_id` the kernel's.

    `recovery` are the complete recovery sets, oldest first.
    """

    marker: Marker
    applied: Mapping[str, str]
    receipts: Mapping[str, Mapping[str, Any]]
    owed: Owed
    host_lock: HostLock
    clock: float
    boot_id: str
    runtime_version: str | None
    models: Mapping[str, str]
    chat_model_pinned: bool | None
    routes: Mapping[str, int | None]
    services: Mapping[str, ServiceState]
    gateway: GatewayState | None
    rendered: Mapping[str, FileFacts]
    facts: Mapping[str, Any] = field(default_factory=dict)
    held: Held | None = None
    armed: Armed | None = None
    recovery: tuple[RecoverySet, ...] = ()
