"""Reads a fleet directory's registry and settings into frozen values."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from engine.errors import InvalidInput
from engine.registry import formats
from engine.registry.freeze import freeze
from engine.registry.model import Fleet, Hold, Pin, Role, Tenant
from engine.registry.safeguards import Backup, Content, ContentKind, Provider, Recovery, Rehearsal, Restic, Timers
from engine.registry.schema import Problem, check, raise_problems, read_schema
from engine.registry.settings import (
    DriftSettings,
    Gate,
    Gateway,
    Hetzner,
    HostingSettings,
    LabSettings,
    Liveness,
    Notify,
    Provisioning,
    Quiesce,
    RenderedFile,
    Route,
    SecretSettings,
    Service,
    SessionColumns,
    SessionPolicy,
    SessionReset,
    Sessions,
    Settings,
    Strategy,
    Transport,
    Window,
)
from engine.registry.yaml_loader import Document, load
from engine.releases.version import Version

SETTINGS_FILE = Path("inventory/fleet.yaml")
TENANTS_FILE = Path("inventory/tenants.yaml")

_SECTIONS: Mapping[str, Callable[..., Any]] = {
    "gateway": Gateway,
    "quiesce": Quiesce,
    "liveness": Liveness,
    "transport": Transport,
    "notify": Notify,
    "provision": Provisioning,
    "hetzner": Hetzner,
    "secrets": SecretSettings,
    "recovery": Recovery,
    "timers": Timers,
    "drift": DriftSettings,
    "lab": LabSettings,
    "environments": HostingSettings,
}
_LISTS: Mapping[str, Callable[..., Any]] = {"services": Service, "routes": Route, "rendered": RenderedFile}
_DATED = ("services", "routes", "rendered")


def load_fleet(root: Path) -> Fleet:
    """Read the fleet directory `root`; raises :class:`InvalidInput` naming file, line and key."""
    fleet = Fleet(root, load_settings(root / SETTINGS_FILE), load_tenants(root / TENANTS_FILE))
    _refuse_unknown_canaries(fleet)
    return fleet


def load_settings(path: Path) -> Settings:
    """Read one settings file; what it leaves out has the default of :class:`Settings`."""
    document = _read(path, "fleet.json")
    settings = {key: _items(value) if key == "services" else value for key, value in document.value.items()}
    raise_problems(document, [*_repetitions(settings), *_bad_dates(settings), *_bad_sessions(settings)])
    read = Settings(**{key: _setting(key, value) for key, value in settings.items()})
    raise_problems(document, list(_hasty_dead_man(read)))
    return read


def load_tenants(path: Path) -> Mapping[str, Tenant]:
    """Read one registry; the tenants keep the order of the file."""
    document = _read(path, "tenants.json")
    records = document.value["tenants"]
    raise_problems(document, [*_shared_servers(records), *_bad_pins(records)])
    return MappingProxyType({slug: _tenant(slug, record) for slug, record in records.items()})


def _refuse_unknown_canaries(fleet: Fleet) -> None:
    for name, strategy in fleet.settings.strategies.items():
        unknown = [slug for slug in strategy.canaries if slug not in fleet.tenants]
        if unknown:
            raise InvalidInput(
                f"strategies.{name}.canaries: there is no tenant {', '.join(unknown)}",
                where=str(fleet.root / SETTINGS_FILE),
                hint=f"known: {', '.join(fleet.tenants) or 'none'}",
            )


def _read(path: Path, schema: str) -> Document:
    if not path.is_file():
        raise InvalidInput(
            "there is no such file",
            where=str(path),
            hint="name a fleet directory with -C: one that holds inventory/, deploys/ and releases.yaml",
        )
    document = load(path)
    check(document, read_schema("engine.registry", schema))
    return document


def _items(services: Sequence[Any]) -> list[Mapping[str, Any]]:
    """A service that every version has may be written as the name of its unit alone."""
    return [{"unit": service} if isinstance(service, str) else service for service in services]


def _content(**item: Any) -> Content:
    return Content(**{**item, "kind": ContentKind(item["kind"])})


def _backup(**section: Any) -> Backup:
    restic = section.pop("restic", None)
    return Backup(**section, restic=Restic(**restic) if restic else None)


def _rehearsal(**section: Any) -> Rehearsal:
    if "provider" in section:
        section["provider"] = _provider(section["provider"])
    return Rehearsal(**section)


def _sessions(**section: Any) -> Sessions:
    reset = section.pop("reset", None)
    columns = SessionColumns(**section.pop("columns"))
    policy = SessionPolicy(section.pop("policy", SessionPolicy.WAIT))
    return Sessions(**section, columns=columns, policy=policy, reset=SessionReset(**reset) if reset else None)


def _provider(record: Mapping[str, Any]) -> Provider:
    options = dict(record)
    return Provider(options.pop("name"), freeze(options))


def _strategies(**section: Any) -> Mapping[str, Strategy]:
    return MappingProxyType({name: _strategy(**strategy) for name, strategy in section.items()})


def _strategy(**strategy: Any) -> Strategy:
    return Strategy(
        **{
            **strategy,
            "waves": tuple(str(wave) for wave in strategy.get("waves", Strategy.waves)),
            "gate": Gate(strategy.get("gate", Strategy.gate)),
            "windows": tuple(Window(**window) for window in strategy.get("windows", ())),
        }
    )


_NESTED: Mapping[str, Callable[..., Any]] = {
    "backup": _backup,
    "rehearsal": _rehearsal,
    "sessions": _sessions,
    "strategies": _strategies,
}


def _setting(key: str, value: Any) -> Any:
    if key in _NESTED:
        return _NESTED[key](**freeze(value))
    if key in _SECTIONS:
        return _SECTIONS[key](**freeze(value))
    if key in _LISTS:
        return tuple(_LISTS[key](**freeze(item)) for item in value)
    if key == "contents":
        return tuple(_content(**freeze(item)) for item in value)
    return freeze(value)


def _repetitions(settings: Mapping[str, Any]) -> Iterator[Problem]:
    unique = (
        ("services", "unit"),
        ("routes", "name"),
        ("rendered", "name"),
        ("rendered", "path"),
        ("contents", "name"),
        ("contents", "path"),
    )
    for section, key in unique:
        yield from _repeated(section, key, settings.get(section, ()))


def _repeated(section: str, key: str, items: Sequence[Mapping[str, Any]]) -> Iterator[Problem]:
    counts = Counter(item[key] for item in items)
    for index, item in enumerate(items):
        if counts[item[key]] > 1:
            yield Problem((section, index, key), f"{item[key]!r} is there {counts[item[key]]} times, wanted once")


def _bad_dates(settings: Mapping[str, Any]) -> Iterator[Problem]:
    for section in _DATED:
        for index, item in enumerate(settings.get(section, ())):
            try:
                Version.parse(item.get("since", "2000.1.1"))
            except InvalidInput as error:
                yield Problem((section, index, "since"), error.message, error.hint)


def _hasty_dead_man(settings: Settings) -> Iterator[Problem]:
    """While a run proves liveness it only asks: a dead-man that waits no longer than that would undo good updates."""
    liveness, seconds = settings.liveness, settings.recovery.dead_man_seconds
    proof = liveness.port_seconds + liveness.channel_seconds + liveness.steady_seconds
    if settings.gateway is not None and seconds <= proof:
        yield Problem(
            ("recovery", "dead_man_seconds"),
            f"{seconds:g} s are not longer than the {proof:g} s that liveness may take",
            "raise it, or lower the bounds of liveness",
        )


def _bad_sessions(settings: Mapping[str, Any]) -> Iterator[Problem]:
    """Prompts are edited while the gateway is stopped, so what changes them must lead to its restart."""
    sessions = settings.get("sessions")
    if sessions is None:
        return
    restarting = [file["name"] for file in settings.get("rendered", ()) if file.get("restart")]
    if sessions["personality"] not in restarting:
        known = ", ".join(restarting) or "none"
        message = f"{sessions['personality']!r} is no rendered file that owes a restart"
        yield Problem(("sessions", "personality"), message, f"files with `restart: true`: {known}")
    if "gateway" not in settings:
        yield Problem(("sessions",), "the fleet has no gateway, whose database they are in", "add the section gateway")
    if sessions.get("policy") == SessionPolicy.RESET and "reset" not in sessions:
        yield Problem(("sessions", "policy"), "nothing says how a conversation is ended", "add the key reset")


def _shared_servers(records: Mapping[str, Mapping[str, Any]]) -> Iterator[Problem]:
    """Two tenants on one server would each undo the other."""
    owners: dict[tuple[str, int], str] = {}
    for slug, record in records.items():
        if "address" not in record:
            continue
        server = (formats.address(record["address"]).lower(), record.get("ssh_port", 22))
        other = owners.setdefault(server, slug)
        if other != slug:
            message = f"{server[0]} with port {server[1]} is the server of {other!r} already"
            yield Problem(("tenants", slug, "address"), message, "give each tenant a server of its own")


def _bad_pins(records: Mapping[str, Mapping[str, Any]]) -> Iterator[Problem]:
    for slug, record in records.items():
        if "pin" in record:
            try:
                Version.parse(record["pin"]["version"])
            except InvalidInput as error:
                yield Problem(("tenants", slug, "pin", "version"), error.message, error.hint)


def _until(record: Mapping[str, Any]) -> dict[str, Any]:
    return {**record, "until": datetime.date.fromisoformat(record["until"])}


def _tenant(slug: str, record: Mapping[str, Any]) -> Tenant:
    address = record.get("address")
    return Tenant(
        slug=slug,
        owner_name=record["owner_name"],
        business=record["business"],
        trade=record["trade"],
        role=Role(record["role"]),
        daily_backup=record["daily_backup"],
        text_updates=record["text_updates"],
        address=None if address is None else formats.address(address),
        ssh_user=record.get("ssh_user", "root"),
        ssh_port=record.get("ssh_port", 22),
        provider=_provider(record["provider"]),
        forwarding_address=record["forwarding_address"],
        page_host=record["page_host"],
        parameters=freeze(record.get("parameters", {})),
        secrets=freeze(record.get("secrets", {})),
        hold=Hold(**_until(record["hold"])) if "hold" in record else None,
        pin=Pin(**_until(record["pin"])) if "pin" in record else None,
        quiet_hours=Window(**freeze(record["quiet_hours"])) if "quiet_hours" in record else None,
    )
