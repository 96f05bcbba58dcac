"""Small fleets for tests, written to a directory or built as values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from engine.errors import InvalidInput
from engine.registry.freeze import freeze
from engine.registry.model import Fleet, Role, Tenant
from engine.registry.safeguards import Provider
from engine.registry.settings import RenderedFile, Settings
from engine.releases.model import Manifest, Release, StepClass, StepEntry, StepInfo
from engine.releases.version import Version

TENANT = """\
    owner_name: Mara Lindt
    business: Maple Realty
    trade: real-estate
    role: client
    daily_backup: true
    text_updates: false
    provider: {name: lab}
    forwarding_address: mara@maple.example
    page_host: maple.example.com
"""
"""A valid registry record without its slug; the record of ``maple`` starts on line 3 of `tenants_text`."""


def tenants_text(record: str = TENANT, slug: str = "maple") -> str:
    return f"tenants:\n  {slug}:\n{record}"


def write_fleet(root: Path, *, tenants: str = "", settings: str = "brand: Queva\n") -> Path:
    """Write an inventory below `root` and return `root`."""
    (root / "inventory").mkdir(parents=True, exist_ok=True)
    (root / "inventory/tenants.yaml").write_text(tenants or tenants_text())
    (root / "inventory/fleet.yaml").write_text(settings)
    return root


def make_tenant(**changes: Any) -> Tenant:
    values: dict[str, Any] = {
        "slug": "maple",
        "owner_name": "Mara Lindt",
        "business": "Maple Realty",
        "trade": "real-estate",
        "role": Role.CLIENT,
        "daily_backup": True,
        "text_updates": False,
        "address": None,
        "ssh_user": "root",
        "ssh_port": 22,
        "provider": Provider("lab"),
        "forwarding_address": "mara@maple.example",
        "page_host": "maple.example.com",
    }
    return Tenant(**{**values, **changes})


def make_rendered(name: str = "personality", **changes: Any) -> RenderedFile:
    values: dict[str, Any] = {
        "name": name,
        "template": f"{name}.j2",
        "path": f"/srv/{name}",
        "owner": "root",
        "group": "root",
        "mode": "0644",
    }
    return RenderedFile(**{**values, **changes})


def make_fleet(root: Path, templates: Mapping[str, str], **settings: Any) -> Fleet:
    """Write `templates` below `root` and return a fleet that renders each of those called ``NAME.j2``."""
    for name, text in templates.items():
        file = root / "templates" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text.encode())
    names = [name.removesuffix(".j2") for name in templates if name.endswith(".j2")]
    rendered = settings.pop("rendered", tuple(make_rendered(name) for name in names))
    tenant = make_tenant()
    return Fleet(root, Settings(brand="Queva", rendered=rendered, **settings), {tenant.slug: tenant})


def make_release(version: str, *steps: str | StepEntry, note: str = "") -> Release:
    entries = tuple(StepEntry(step) if isinstance(step, str) else step for step in steps)
    return Release(Version.parse(version), f"Release {version}", entries, "", note)


def make_manifest(*releases: Release) -> Manifest:
    return Manifest(releases)


def entry(name: str, **arguments: Any) -> StepEntry:
    return StepEntry(name, freeze(arguments))


def make_step(
    name: str, *, writes: Iterable[str] = (), takes: Iterable[str] = (), shipped: str = "", **changes: Any
) -> StepInfo:
    """A step that writes the keys `writes`, refuses arguments other than `takes` and ships `shipped`."""
    known, keys = frozenset(takes), frozenset(writes)

    def check_arguments(arguments: Mapping[str, Any]) -> None:
        unknown = set(arguments) - known
        if unknown:
            raise InvalidInput(f"takes no argument {min(unknown)!r}")

    return StepInfo(
        name,
        StepClass.INSTALL,
        check_arguments,
        lambda arguments: keys,
        shipped_digest=lambda arguments: shipped,
        **changes,
    )


def make_catalog(*steps: StepInfo) -> dict[str, StepInfo]:
    return {step.name: step for step in steps}
