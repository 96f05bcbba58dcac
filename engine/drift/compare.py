"""Holds what a tenant reported against what is expected of it, key by key. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from engine.drift.expected import Expected, Owner
from engine.drift.found import Found, FoundPlace, Kind
from engine.hosts.status import Status
from engine.registry.settings import Settings
from engine.steps.expectations import (
    Absent,
    Directory,
    EditableFile,
    Expectation,
    File,
    Group,
    Link,
    Model,
    Package,
    RouteAnswer,
    Unit,
    Value,
)

NOT_THERE = "absent"


class State(StrEnum):
    """Whether something provably is another than expected, or could not be found out."""

    DIFFERS = "differs"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Difference:
    """One key that is not provably as expected: both sides in words, and who owns it."""

    key: str
    state: State
    expected: str
    found: str
    owner: Owner


@dataclass(frozen=True)
class Sides:
    """What is expected and what was found, in words, as far as they differ; `found` None is unknown."""

    expected: str
    found: str | None
    problem: str = ""


def compare(
    expected: Mapping[str, Expected], found: Found, status: Status, settings: Settings
) -> tuple[Difference, ...]:
    """The keys of `expected` that are not provably so, in its order."""
    comparison = Comparison(found, status, settings)
    return tuple(_differences(expected, comparison))


def _differences(expected: Mapping[str, Expected], comparison: Comparison) -> Iterator[Difference]:
    for key, item in expected.items():
        sides = comparison.sides(item.expectation)
        if sides is None:
            continue
        state = State.UNKNOWN if sides.found is None else State.DIFFERS
        found = sides.problem or "it could not be asked" if sides.found is None else sides.found
        yield Difference(key, state, sides.expected, found, item.owner)


@dataclass(frozen=True)
class Comparison:
    """One tenant's answers; `sides` is None for an expectation that holds."""

    found: Found
    status: Status
    settings: Settings

    def sides(self, wanted: Expectation) -> Sides | None:
        """What differs about `wanted`."""
        match wanted:
            case File() | EditableFile() | Directory() | Link() | Absent():
                return _place(wanted, self.found.places[wanted.path])
            case Package():
                return self._package(wanted)
            case Unit():
                return self._unit(wanted)
            case Group():
                return self._group(wanted)
            case Value():
                return self._value(wanted)
            case Model():
                return self._model(wanted)
            case RouteAnswer():
                return self._route(wanted)
        raise TypeError(f"nothing compares {wanted!r}")

    def _package(self, wanted: Package) -> Sides | None:
        words = f"installed {wanted.version}" if wanted.version else "installed"
        if self.found.packages is None:
            return Sides(words, None, "dpkg could not be asked")
        package = self.found.packages.get(wanted.name)
        if package is None:
            return Sides(words, NOT_THERE)
        if package.state != "installed":
            return Sides(words, package.state)
        return None if wanted.version in (None, package.version) else Sides(words, f"installed {package.version}")

    def _unit(self, wanted: Unit) -> Sides | None:
        if self.found.units is None:
            return Sides(_unit_words(wanted), None, "systemd could not be asked")
        unit = self.found.units[wanted.name]
        if unit.load == "not-found":
            return Sides(_unit_words(wanted), NOT_THERE)
        pairs = []
        if wanted.active is not None and (unit.active == "active") is not wanted.active:
            pairs.append(("active" if wanted.active else "inactive", unit.active))
        if wanted.enabled is not None and (unit.enabled in ("enabled", "static")) is not wanted.enabled:
            pairs.append(("enabled" if wanted.enabled else "disabled", unit.enabled or "unknown to systemd"))
        return _sides(pairs)

    def _group(self, wanted: Group) -> Sides | None:
        members = self.found.groups[wanted.name]
        words = "with " + ", ".join(wanted.members) if wanted.members else "there"
        if members is None:
            return Sides(words, NOT_THERE)
        missing = [name for name in wanted.members if name not in members]
        return Sides(words, f"without {', '.join(missing)}") if missing else None

    def _value(self, wanted: Value) -> Sides | None:
        words, values = _text(wanted.value), self.found.values[wanted.file]
        if values.problem:
            return Sides(words, None, values.problem)
        value = values.values.get(wanted.name)
        if value is None:
            return Sides(words, NOT_THERE)
        return None if json.loads(value) == json.loads(words) else Sides(words, value)

    def _model(self, wanted: Model) -> Sides | None:
        model, gateway = self.status.models.get(wanted.purpose), self.settings.gateway
        if model is not None or gateway is None:
            return None if model == wanted.name else Sides(wanted.name, model or NOT_THERE)
        config = self.found.places[gateway.config_file]
        # The probe names no model for a file that it could not read either.
        return Sides(wanted.name, None if config.kind is Kind.UNKNOWN else NOT_THERE, config.problem)

    def _route(self, wanted: RouteAnswer) -> Sides | None:
        answer = self.status.routes.get(wanted.route)
        return None if answer == wanted.status else Sides(str(wanted.status), str(answer or "no answer"))


def _place(wanted: File | EditableFile | Directory | Link | Absent, found: FoundPlace) -> Sides | None:
    kind = _kind_of(wanted)
    if found.kind is Kind.UNKNOWN:
        return Sides(kind, None, found.problem)
    if found.kind is not kind:
        return Sides(kind, f"link to {found.target}" if found.kind is Kind.LINK else found.kind)
    return _sides(list(_aspects(wanted, found)))


def _kind_of(wanted: Expectation) -> Kind:
    match wanted:
        case Directory():
            return Kind.DIRECTORY
        case Link():
            return Kind.LINK
        case Absent():
            return Kind.ABSENT
    return Kind.FILE


def _aspects(wanted: Expectation, found: FoundPlace) -> Iterator[tuple[str, str]]:
    """The pairs of words in which something of the right kind differs."""
    if isinstance(wanted, Link) and found.target != wanted.target:
        yield f"link to {wanted.target}", f"link to {found.target}"
    if isinstance(wanted, File) and wanted.digest not in (None, found.digest):
        yield f"content {wanted.digest}", f"content {found.digest}"
    if isinstance(wanted, EditableFile):
        for fragment in wanted.fragments:
            if fragment in found.missing:
                yield f"holds {fragment!r}", "does not hold it"
    if isinstance(wanted, File | EditableFile | Directory):
        if wanted.mode is not None and int(wanted.mode, 8) != int(found.mode or "0", 8):
            yield f"mode {wanted.mode}", f"mode {found.mode}"
        for aspect, want, have in (("owner", wanted.owner, found.owner), ("group", wanted.group, found.group)):
            if want not in (None, have):
                yield f"{aspect} {want}", f"{aspect} {have}"


def _unit_words(wanted: Unit) -> str:
    words = [("active", "inactive")[not wanted.active]] if wanted.active is not None else []
    return ", ".join([*words, *([("enabled", "disabled")[not wanted.enabled]] if wanted.enabled is not None else [])])


def _sides(pairs: list[tuple[str, str]]) -> Sides | None:
    if not pairs:
        return None
    return Sides(", ".join(expected for expected, _ in pairs), ", ".join(found for _, found in pairs))


def _text(value: Any) -> str:
    return json.dumps(value, default=lambda item: dict(item) if isinstance(item, Mapping) else list(item))
