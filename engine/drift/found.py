"""What a tenant reported for drift, read strictly: a field that is missing or of another kind is no answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

from engine.errors import ProbeFailed

T = TypeVar("T")


class Kind(StrEnum):
    """What is at a path."""

    ABSENT = "absent"
    FILE = "file"
    DIRECTORY = "directory"
    LINK = "link"
    OTHER = "something else"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class FoundPlace:
    """What is at one path. `missing` are the fragments that were asked for and that a file does not hold."""

    kind: Kind
    mode: str | None = None
    owner: str | None = None
    group: str | None = None
    digest: str | None = None
    missing: tuple[str, ...] = ()
    target: str | None = None
    problem: str = ""


@dataclass(frozen=True)
class FoundValues:
    """The values of one configuration file as JSON texts; `problem` says why they could not be read."""

    values: Mapping[str, str]
    problem: str = ""


@dataclass(frozen=True)
class FoundPackage:
    """A package as dpkg knows it: what was chosen for it, its state, its version."""

    want: str
    state: str
    version: str


@dataclass(frozen=True)
class FoundUnit:
    """A unit as systemd knows it."""

    load: str
    active: str
    enabled: str


@dataclass(frozen=True)
class Downgrade:
    """A package's newest change, to a lower version, by dpkg's log."""

    from_version: str
    to_version: str
    at: str


@dataclass(frozen=True)
class Found:
    """All answers. None stands for a question that could not be answered.

    `process_started` and `changed` (the paths that the process came from) are Unix seconds; a group that is not
    there has None.
    """

    places: Mapping[str, FoundPlace]
    values: Mapping[str, FoundValues]
    groups: Mapping[str, tuple[str, ...] | None]
    packages: Mapping[str, FoundPackage] | None
    downgraded: Mapping[str, Downgrade] | None
    units: Mapping[str, FoundUnit] | None
    drop_ins: tuple[str, ...]
    failed: tuple[str, ...] | None
    process_started: float | None
    changed: Mapping[str, float]


def read_found(answer: Any, where: str) -> Found:
    """The raw object of ``look_script.py``; raises :class:`ProbeFailed` if it is no whole answer."""
    try:
        return _read(answer)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ProbeFailed(
            f"the probe gave no whole answer on drift: {type(error).__name__} {error}",
            where=where,
            hint="its state is unknown; look at python3 on the host",
        ) from error


def _read(answer: Mapping[str, Any]) -> Found:
    process = answer["process"] or {"started": None, "changed": {}}
    return Found(
        places={path: _place(found) for path, found in answer["places"].items()},
        values={
            path: FoundValues(dict(found.get("found", {})), found.get("error", ""))
            for path, found in answer["values"].items()
        },
        groups={name: None if found is None else tuple(found) for name, found in answer["groups"].items()},
        packages=_mapped(answer["packages"], lambda found: FoundPackage(**found)),
        downgraded=_mapped(answer["downgraded"], lambda found: Downgrade(found["from"], found["to"], found["at"])),
        units=_mapped(
            answer["units"],
            lambda found: FoundUnit(found["LoadState"], found["ActiveState"], found.get("UnitFileState", "")),
        ),
        drop_ins=tuple(answer["drop_ins"]),
        failed=None if answer["failed"] is None else tuple(answer["failed"]),
        process_started=process["started"],
        changed=dict(process["changed"]),
    )


def _mapped(found: Mapping[str, Any] | None, read: Callable[[Any], T]) -> dict[str, T] | None:
    return None if found is None else {name: read(item) for name, item in found.items()}


def _place(found: Mapping[str, Any]) -> FoundPlace:
    return FoundPlace(
        kind=Kind(found["kind"]),
        mode=found.get("mode"),
        owner=found.get("owner"),
        group=found.get("group"),
        digest=found.get("digest"),
        missing=tuple(found.get("missing", ())),
        target=found.get("target"),
        problem=found.get("error", ""),
    )
