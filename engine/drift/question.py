"""What the one probe of a drift check has to ask, from what is expected. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from engine.hosts.probe import Extra, Part
from engine.registry.settings import Settings
from engine.steps.expectations import (
    Absent,
    Directory,
    EditableFile,
    Expectation,
    File,
    Group,
    Link,
    Package,
    Unit,
    Value,
)
from engine.steps.step import stamp_of

SCRIPT = Path(__file__).with_name("look_script.py").read_text()
PART = "look"


def question(settings: Settings, expected: Iterable[Expectation]) -> Extra:
    """The further question of the probe; its answer is in the status's facts under `PART`.

    Only the answer tells the tenant's version, so `expected` holds what any version expects.
    """
    places: dict[str, list[str]] = {}
    values: dict[str, list[str]] = {}
    groups: list[str] = []
    packages: list[str] = []
    units: list[str] = []
    for item in expected:
        match item:
            case EditableFile():
                places.setdefault(item.path, []).extend(item.fragments)
            case File() | Directory() | Link() | Absent():
                places.setdefault(item.path, [])
            case Value():
                values.setdefault(item.file, []).append(item.name)
            case Group():
                groups.append(item.name)
            case Package():
                packages.append(item.name)
            case Unit():
                units.append(item.name)
    gateway = settings.gateway
    if gateway:
        places.setdefault(gateway.config_file, [])
    wanted: dict[str, Any] = {
        "places": places,
        "values": values,
        "groups": groups,
        "packages": packages,
        "units": list(dict.fromkeys([*units, *([gateway.unit] if gateway else [])])),
        "process": {"unit": gateway.unit, "paths": [gateway.runtime_link, stamp_of(gateway.runtime_link)]}
        if gateway
        else None,
    }
    return Extra(parts=(Part(PART, SCRIPT, wanted),))
