"""When a restart does not cut into a conversation."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from engine.clock import Clock
from engine.errors import NotQuiet, UnknownState
from engine.hosts.status import GatewayState, HistoryState, Status
from engine.registry.settings import Gateway, Quiesce


class Quietness(Enum):
    """Whether the gateway may be stopped now."""

    QUIET = "quiet"
    IN_CONVERSATION = "in conversation"
    UNKNOWN = "unknown"


def quietness(state: GatewayState, now: float, gateway: Gateway, quiesce: Quiesce) -> Quietness:
    """Judge one status; `now` is the tenant's own clock, in Unix seconds.

    A gateway without a process is quiet: an inactive one, and one between two attempts of systemd to
    start it. An active one whose history cannot be read is unknown, never idle. A newest message in the
    future (a wrong clock or another unit of time) counts as conversation.
    """
    if state.service.active in ("inactive", "failed") or state.service.sub == "auto-restart":
        return Quietness.QUIET
    if state.history is HistoryState.EMPTY:
        return Quietness.QUIET if gateway.empty_history_is_quiet else Quietness.UNKNOWN
    if state.history is not HistoryState.READABLE or state.newest_message is None:
        return Quietness.UNKNOWN
    silence = now - state.newest_message
    is_quiet = silence >= quiesce.silence_seconds
    return Quietness.QUIET if is_quiet else Quietness.IN_CONVERSATION


def wait_for_silence(
    probe: Callable[[], Status],
    gateway: Gateway,
    quiesce: Quiesce,
    clock: Clock,
    *,
    where: str,
    tell: Callable[[str], None],
) -> int:
    """Poll until the gateway is quiet; returns how many polls it took.

    Raises :class:`NotQuiet` after the last poll and :class:`UnknownState` where quietness cannot be told.
    """
    for poll in range(1, quiesce.polls + 1):
        status = probe()
        if status.gateway is None:
            raise UnknownState(
                "the probe says nothing of the gateway",
                where=where,
                hint="check the unit's name in fleet.yaml",
            )
        match quietness(status.gateway, status.clock, gateway, quiesce):
            case Quietness.QUIET:
                return poll
            case Quietness.UNKNOWN:
                raise UnknownState(
                    f"whether the gateway is in conversation is unknown: history {status.gateway.history}",
                    where=where,
                    hint=f"look at {gateway.database} on the host",
                )
        if poll < quiesce.polls:
            tell(f"in conversation, poll {poll} of {quiesce.polls}")
            clock.sleep(quiesce.poll_seconds)
    raise not_quiet(quiesce, where)


def not_quiet(quiesce: Quiesce, where: str) -> NotQuiet:
    """The error of a gateway that stayed in conversation."""
    return NotQuiet(
        f"the gateway was never silent for {quiesce.silence_seconds:g} s in {quiesce.polls} polls; "
        "the restart stays owed",
        where=where,
        hint="converge again at a quieter time",
    )
