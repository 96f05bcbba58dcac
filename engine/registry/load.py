"""Reads a fleet directory's registry and settings into frozen values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from engine.errors import InvalidInput
from engine.registry import formats
from engine.registry.freeze import freeze
from engine.registry.model import (
    Fleet,
    Gateway,
    Hetzner,
    LabSettings,
    Liveness,
    Notify,
    Provider,
    Provisioning,
    Quiesce,
    RenderedFile,
    Role,
    Route,
    SecretSettings,
    Service,
    Settings,
    Tenant,
    Transport,
)
from engine.registry.schema import Problem, check, raise_problems, read_schema
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
    "lab": LabSettings,
}
_LISTS: Mapping[str, Callable[..., Any]] = {"services": Service, "routes": Route, "rendered": RenderedFile}


def load_fleet(root: Path) -> Fleet:
    """Read the fleet directory `root`; raises :class:`InvalidInput` naming file, line and key."""
    return Fleet(root, load_settings(root / SETTINGS_FILE), load_tenants(root / TENANTS_FILE))


def load_settings(path: Path) -> Settings:
    """Read one settings file; what it leaves out has the default of :class:`Settings`."""
    document = _read(path, "fleet.json")
    settings = {key: _items(value) if key == "services" else value for key, value in document.value.items()}
    raise_problems(document, [*_repetitions(settings), *_bad_dates(settings)])
    return Settings(**{key: _setting(key, value) for key, value in settings.items()})


def load_tenants(path: Path) -> Mapping[str, Tenant]:
    """Read one registry; the tenants keep the order of the file."""
    document = _read(path, "tenants.json")
    records = document.value["tenants"]
    raise_problems(document, list(_shared_servers(records)))
    return MappingProxyType({slug: _tenant(slug, record) for slug, record in records.items()})


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


def _setting(key: str, value: Any) -> Any:
    if key in _SECTIONS:
        return _SECTIONS[key](**freeze(value))
    if key in _LISTS:
        return tuple(_LISTS[key](**freeze(item)) for item in value)
    return freeze(value)


def _repetitions(settings: Mapping[str, Any]) -> Iterator[Problem]:
    for section, key in (("services", "unit"), ("routes", "name"), ("rendered", "name"), ("rendered", "path")):
        yield from _repeated(section, key, settings.get(section, ()))


def _repeated(section: str, key: str, items: Sequence[Mapping[str, Any]]) -> Iterator[Problem]:
    counts = Counter(item[key] for item in items)
    for index, item in enumerate(items):
        if counts[item[key]] > 1:
            yield Problem((section, index, key), f"{item[key]!r} is there {counts[item[key]]} times, wanted once")


def _bad_dates(settings: Mapping[str, Any]) -> Iterator[Problem]:
    for section in _LISTS:
        for index, item in enumerate(settings.get(section, ())):
            try:
                Version.parse(item.get("since", "2000.1.1"))
            except InvalidInput as error:
                yield Problem((section, index, "since"), error.message, error.hint)


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


def _tenant(slug: str, record: Mapping[str, Any]) -> Tenant:
    options = dict(record["provider"])
    name = options.pop("name")
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
        provider=Provider(name, freeze(options)),
        forwarding_address=record["forwarding_address"],
        page_host=record["page_host"],
        parameters=freeze(record.get("parameters", {})),
        secrets=freeze(record.get("secrets", {})),
    )
