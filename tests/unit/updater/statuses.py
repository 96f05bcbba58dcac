"""Statuses for tests, as a healthy tenant would report them unless told otherwise."""

from typing import Any

from engine.hosts.status import (
    ChannelState,
    GatewayState,
    HistoryState,
    HostLock,
    Marker,
    MarkerState,
    Owed,
    ServiceState,
    Status,
)
from engine.registry.settings import Gateway

GATEWAY = Gateway(
    unit="gateway.service",
    address="127.0.0.1",
    port=8642,
    health_path="/health",
    state_file="/srv/state.json",
    database="/srv/state.db",
    config_file="/srv/config.yaml",
    state_directory="/srv",
    runtime_link="/opt/current",
    channels=("local",),
)


def gateway_state(
    *,
    active: str = "active",
    sub: str = "running",
    main_pid: int = 100,
    restarts: int = 0,
    result: str = "success",
    **changes: Any,
) -> GatewayState:
    """A gateway that is up, connected at 50.0 and spoke last at 0.0."""
    values: dict[str, Any] = {
        "service": ServiceState("loaded", active, sub, main_pid, restarts, result),
        "port_open": True,
        "running_version": "1.0",
        "channels": {"local": ChannelState("connected", 50.0)},
        "report_pid": main_pid,
        "history": HistoryState.READABLE,
        "newest_message": 0.0,
    }
    return GatewayState(**(values | changes))


def status(**changes: Any) -> Status:
    """A provisioned tenant without a marker."""
    values: dict[str, Any] = {
        "marker": Marker(MarkerState.ABSENT),
        "applied": {},
        "receipts": {"provisioned": {}},
        "owed": Owed(),
        "host_lock": HostLock(held=False, run=None),
        "clock": 100.0,
        "boot_id": "b",
        "runtime_version": "1.0",
        "models": {},
        "chat_model_pinned": None,
        "routes": {},
        "services": {},
        "gateway": gateway_state(),
        "rendered": {},
    }
    return Status(**(values | changes))
