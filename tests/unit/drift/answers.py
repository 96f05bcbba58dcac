"""What a tenant that is as it should be answers, and the same with something else put in."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.drift.expected import Expected
from engine.drift.found import Found, FoundPackage, FoundPlace, FoundUnit, FoundValues, Kind
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

EMPTY = Found({}, {}, {}, {}, {}, {}, (), (), 100.0, {"/opt/current": 50.0})


def as_expected(expected: Mapping[str, Expected], **changes: Any) -> Found:
    """The answers with which nothing of `expected` differs."""
    found = replace(EMPTY, places={"/srv/config.yaml": FoundPlace(Kind.FILE)})
    for item in expected.values():
        found = with_one(found, item.expectation)
    return replace(found, **changes)


def with_one(found: Found, wanted: Expectation) -> Found:
    match wanted:
        case File() | EditableFile() | Directory() | Link() | Absent():
            return replace(found, places={**found.places, wanted.path: place(wanted)})
        case Package():
            package = FoundPackage("install", "installed", wanted.version or "1.0")
            return replace(found, packages={**(found.packages or {}), wanted.name: package})
        case Unit():
            return replace(found, units={**(found.units or {}), wanted.name: FoundUnit("loaded", "active", "enabled")})
        case Group():
            return replace(found, groups={**found.groups, wanted.name: wanted.members})
        case Value():
            known = found.values.get(wanted.file, FoundValues({})).values
            values = FoundValues({**known, wanted.name: json.dumps(wanted.value)})
            return replace(found, values={**found.values, wanted.file: values})
    return found


def place(wanted: File | EditableFile | Directory | Link | Absent) -> FoundPlace:
    match wanted:
        case Absent():
            return FoundPlace(Kind.ABSENT)
        case Link():
            return FoundPlace(Kind.LINK, target=wanted.target)
        case Directory():
            return FoundPlace(Kind.DIRECTORY, wanted.mode, wanted.owner, wanted.group)
        case File():
            return FoundPlace(Kind.FILE, wanted.mode, wanted.owner, wanted.group, wanted.digest)
    return FoundPlace(Kind.FILE, wanted.mode or "0600", wanted.owner or "x", wanted.group or "x", "sha256:any")
