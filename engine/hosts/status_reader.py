"""Reads the probe's object strictly: a field that is missing or of another kind is no answer at all.

Every function raises :class:`KeyError`, :class:`TypeError` or :class:`ValueError`.
"""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.errors import InvalidInput
from engine.hosts.status import (
    Armed,
    ChannelState,
    FileFacts,
    GatewayState,
    Held,
    HistoryState,
    HostLock,
    Marker,
    MarkerState,
    Owed,
    OwedNote,
    RecoverySet,
    ServiceState,
    Status,
)
from engine.registry.settings import Settings
from engine.releases.version import Version

_BYTE_ORDER_MARK = "\ufeff"


def read_status(answer: Any, settings: Settings) -> Status:
    """The probe's object as a status."""
    status = Status(
        marker=read_marker(answer["marker"]),
        applied=_texts(_object(answer["applied"], "applied.json")),
        receipts={name: _object(found, f"receipt {name}") for name, found in answer["receipts"].items()},
        owed=read_owed(_object(answer["owed"], "owed.json")),
        host_lock=_host_lock(answer["host_lock"]),
        clock=_number(answer["clock"]),
        boot_id=answer["boot_id"]["text"].strip(),
        runtime_version=None,
        models={},
        chat_model_pinned=None,
        routes={name: _optional_number(code) for name, code in answer["routes"].items()} if settings.routes else {},
        services={unit: _service(found) for unit, found in answer["services"].items()},
        gateway=None,
        rendered={name: _file(found) for name, found in answer["files"].items()},
        held=_held(_object(answer["held"], "held.json")),
        armed=_armed(_object(answer["armed"], "armed.json")),
        recovery=tuple(_set(_object(found, f"set {name}")) for name, found in answer["recovery"].items() if found),
    )
    if settings.gateway is None:
        return status
    found = answer["gateway"]
    return replace(
        status,
        gateway=_gateway(found, status.services[settings.gateway.unit]),
        runtime_version=found["runtime_version"],
        models=_texts(found["config"]["models"]),
        chat_model_pinned=found["config"]["pinned"],
    )


def read_marker(found: Mapping[str, str]) -> Marker:
    """Absent only if the file is; a byte order mark and blanks around the version do no harm."""
    if "error" in found:
        return Marker(MarkerState.UNREADABLE, problem=f"cannot be read: {found['error']}")
    if "text" not in found:
        return Marker(MarkerState.ABSENT)
    text = found["text"].removeprefix(_BYTE_ORDER_MARK).strip()
    if not text:
        return Marker(MarkerState.UNREADABLE, problem="it is empty")
    try:
        return Marker(MarkerState.PRESENT, Version.parse(text))
    except InvalidInput as error:
        return Marker(MarkerState.UNREADABLE, problem=error.message[:200])


def read_owed(content: Mapping[str, Any]) -> Owed:
    """Owed work; an empty object owes nothing."""
    note = content.get("note")
    return Owed(
        restart=tuple(_text(reason) for reason in content.get("restart", [])),
        reloads=tuple(_text(unit) for unit in content.get("reloads", [])),
        switches=_texts(content.get("switches", {})),
        note=OwedNote(_text(note["version"]), _text(note["text"]), note["sending"] is True) if note else None,
        conversations=content.get("conversations", False) is True,
        notice=content.get("notice", False) is True,
    )


def _object(found: Mapping[str, str], name: str) -> dict[str, Any]:
    """The JSON object of a file; empty where the file is absent."""
    if "error" in found:
        raise ValueError(f"{name} cannot be read: {found['error']}")
    try:
        content = json.loads(found["text"]) if "text" in found else {}
    except ValueError as error:
        raise ValueError(f"{name} is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise TypeError(f"{name} is not a JSON object")
    return content


def _held(content: Mapping[str, Any]) -> Held | None:
    if not content:
        return None
    words = (_text(content[name]) for name in ("reason", "by"))
    return Held(_text(content["head"]), _text(content["run"]), _number(content["at"]), *words)


def _armed(content: Mapping[str, Any]) -> Armed | None:
    return Armed(*(_text(content[name]) for name in ("set", "run", "head"))) if content else None


def _set(content: Mapping[str, Any]) -> RecoverySet:
    return RecoverySet(
        run=_text(content["run"]),
        from_version=None if content["from"] is None else _text(content["from"]),
        to_version=_text(content["to"]),
        created=_number(content["created"]),
        irreversible=tuple(_text(step) for step in content["irreversible"]),
        has_state=content["state"] is not None,
        undone=_optional_number(content["undone"]),
        moved=content.get("moved") is True,
    )


def _host_lock(found: Mapping[str, Any]) -> HostLock:
    run = found["text"].partition("\n")[0].strip()
    return HostLock(held=found["held"] is True, run=run or None)


def _service(found: Mapping[str, str]) -> ServiceState:
    return ServiceState(
        load=found["LoadState"],
        active=found["ActiveState"],
        sub=found["SubState"],
        main_pid=int(found.get("MainPID") or 0),
        restarts=int(found.get("NRestarts") or 0),
        result=found.get("Result", ""),
    )


def _gateway(found: Mapping[str, Any], service: ServiceState) -> GatewayState:
    report = found["report"] or {"pid": None, "channels": {}}
    history = found["history"]
    return GatewayState(
        service=service,
        port_open=found["port_open"] is True,
        running_version=found["running_version"],
        channels={
            name: ChannelState(str(channel["state"]), read_time(channel["updated_at"]))
            for name, channel in report["channels"].items()
        },
        report_pid=report["pid"] if isinstance(report["pid"], int) else None,
        history=HistoryState(history["state"]),
        newest_message=_optional_number(history.get("newest")),
    )


def read_time(value: Any) -> float | None:
    """Unix seconds of a number or an ISO 8601 text; a text without a zone is nobody's time, so None."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value) if math.isfinite(value) else None
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.datetime.fromisoformat(value)
    except ValueError:
        return None
    return moment.timestamp() if moment.tzinfo else None


def _file(found: Mapping[str, str]) -> FileFacts:
    if not found:
        return FileFacts(None, None, None, None)
    return FileFacts(_text(found["digest"]), _text(found["mode"]), _text(found["owner"]), _text(found["group"]))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not text")
    return value


def _texts(value: Any) -> dict[str, str]:
    if not isinstance(value, dict):
        raise TypeError(f"{value!r} is not a mapping")
    return {_text(key): _text(item) for key, item in value.items()}


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise TypeError(f"{value!r} is not a number")
    return value


def _optional_number(value: Any) -> Any:
    return None if value is None else _number(value)
