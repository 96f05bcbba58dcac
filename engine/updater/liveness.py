"""Proof that the owner can reach the service."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from engine.clock import Clock
from engine.errors import LivenessFailed
from engine.hosts.status import GatewayState, Status
from engine.registry.settings import Gateway, Liveness

# The host writes a channel's time after the window's own start time was read; clocks of one host agree.
_SAME_MOMENT_SECONDS = 0.5


@dataclass(frozen=True)
class Restart:
    """One restart as the host saw it: the main process before, and when the new one was started."""

    old_pid: int
    started_at: float


def problems(state: GatewayState | None, gateway: Gateway, restart: Restart | None) -> tuple[str, ...]:
    """Everything that stands between the owner and the gateway in one status; empty means alive.

    After a restart the main process must be another one and the channels connected since.
    """
    if state is None:
        return ("the probe says nothing of the gateway",)
    service = state.service
    found = []
    if not service.is_active:
        found.append(f"{gateway.unit} is {service.active} ({service.sub}, result {service.result})")
    if restart and service.is_active and service.main_pid == restart.old_pid:
        found.append(f"{gateway.unit} still runs as process {restart.old_pid}: the restart replaced nothing")
    if not state.port_open:
        found.append(f"port {gateway.port} does not answer")
    found.extend(_channel_problems(state, gateway, restart))
    return tuple(found)


def wait_for_life(
    probe: Callable[[], Status],
    gateway: Gateway,
    liveness: Liveness,
    clock: Clock,
    *,
    restart: Restart | None,
    where: str,
) -> Status:
    """Poll until the gateway is alive and stays the same process; returns the last status.

    Up to ``port_seconds`` for the port, then up to ``channel_seconds`` for the rest. After a restart the
    main process and the unit's restart counter must also stay the same for ``steady_seconds``, so that
    a crash loop that is up between two crashes is not taken for life. Raises :class:`LivenessFailed`.
    """
    status = _poll(
        probe,
        clock,
        liveness.port_seconds,
        liveness.poll_seconds,
        lambda s: bool(s.gateway and s.gateway.port_open),
    )
    deadline = clock.monotonic() + liveness.channel_seconds
    while True:
        steady_since = clock.monotonic()
        process = _process(status)
        while not problems(status.gateway, gateway, restart) and _process(status) == process:
            if restart is None or clock.monotonic() - steady_since >= liveness.steady_seconds:
                return status
            clock.sleep(liveness.poll_seconds)
            status = probe()
        if clock.monotonic() >= deadline or _is_hopeless(status):
            raise _failure(status, gateway, restart, where)
        clock.sleep(liveness.poll_seconds)
        status = probe()


def _channel_problems(state: GatewayState, gateway: Gateway, restart: Restart | None) -> list[str]:
    if gateway.channels and state.report_pid != state.service.main_pid:
        return [f"the channel report is of process {state.report_pid}, the unit runs {state.service.main_pid}"]
    found = []
    for name in gateway.channels:
        channel = state.channels.get(name)
        if channel is None or not channel.is_connected:
            found.append(f"channel {name} is {channel.state if channel else 'not reported'}")
        elif restart and (channel.updated_at is None or channel.updated_at < restart.started_at - _SAME_MOMENT_SECONDS):
            found.append(f"channel {name} has not connected since the restart")
    return found


def _poll(
    probe: Callable[[], Status], clock: Clock, seconds: float, pause: float, done: Callable[[Status], bool]
) -> Status:
    deadline = clock.monotonic() + seconds
    status = probe()
    while not done(status) and clock.monotonic() < deadline and not _is_hopeless(status):
        clock.sleep(pause)
        status = probe()
    return status


def _is_hopeless(status: Status) -> bool:
    """Whether systemd has given the unit up, so that waiting changes nothing."""
    return bool(status.gateway and status.gateway.service.active == "failed")


def _process(status: Status) -> tuple[int, int]:
    service = status.gateway.service if status.gateway else None
    return (service.main_pid, service.restarts) if service else (0, 0)


def _failure(status: Status, gateway: Gateway, restart: Restart | None, where: str) -> LivenessFailed:
    found = problems(status.gateway, gateway, restart) or (f"{gateway.unit} keeps restarting",)
    restarts = status.gateway.service.restarts if status.gateway else 0
    loop = f"; the unit restarted {restarts} times by itself" if restarts else ""
    return LivenessFailed(
        "the owner cannot reach the gateway: " + "; ".join(found) + loop,
        where=where,
        hint=f"journalctl -u {gateway.unit} on the host; the marker was not changed",
    )
