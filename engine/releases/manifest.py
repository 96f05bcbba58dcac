"""Reads the manifest: the ordered list of releases that specifies a tenant."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from engine.errors import InvalidInput
from engine.registry.freeze import freeze
from engine.registry.schema import Problem, check, raise_problems, read_schema
from engine.registry.yaml_loader import Document, load
from engine.releases.model import Manifest, Release, StepEntry
from engine.releases.version import Version

MANIFEST_FILE = Path("releases.yaml")


def load_manifest(path: Path) -> Manifest:
    """Read the manifest at `path`.

    Raises :class:`InvalidInput` naming file, line and key for anything the schema does not allow, a
    version that is none, and versions that are equal or out of order.
    """
    if not path.is_file():
        raise InvalidInput(
            "there is no such file",
            where=str(path),
            hint="name a fleet directory with -C: one that holds inventory/, deploys/ and releases.yaml",
        )
    document = load(path)
    check(document, read_schema("engine.releases", "releases.json"))
    raise_problems(document, list(_version_problems(document.value["releases"])))
    records = enumerate(document.value["releases"])
    return Manifest(tuple(_release(document, index, record) for index, record in records))


def next_version(manifest: Manifest, today: datetime.date) -> Version:
    """Return the version for a release made `today`: above the head, the bare date where that is free."""
    bare = Version.parse(f"{today.year}.{today.month}.{today.day}")
    if manifest.head < bare:
        return bare
    date, sequence = manifest.head.key[:3], manifest.head.key[3:]
    following = sequence[0] + 1 if sequence else 1
    return Version.parse(".".join(str(part) for part in (*date, following)))


def _version_problems(records: list[dict[str, Any]]) -> Iterator[Problem]:
    previous: Version | None = None
    for index, record in enumerate(records):
        path = ("releases", index, "version")
        try:
            version = Version.parse(record["version"])
        except InvalidInput as error:
            yield Problem(path, error.message, error.hint)
            continue
        if previous is not None and version <= previous:
            yield Problem(path, *_disorder(previous, version))
        previous = version


def _disorder(previous: Version, version: Version) -> tuple[str, str]:
    if version == previous:
        return f"{version} equals {previous} before it", "give each release a version of its own"
    return f"{version} stands after {previous}", "order the releases by version, the oldest first"


def _release(document: Document, index: int, record: Mapping[str, Any]) -> Release:
    path = ("releases", index)
    steps = enumerate(record["steps"])
    return Release(
        version=Version.parse(record["version"]),
        title=record["title"],
        steps=tuple(_entry(document, (*path, "steps", number), step) for number, step in steps),
        details=record["details"],
        owner_note=record["owner_note"],
        where=_place(document, path),
    )


def _entry(document: Document, path: tuple[str | int, ...], step: str | Mapping[str, Any]) -> StepEntry:
    where = _place(document, path)
    if isinstance(step, str):
        return StepEntry(step, where=where)
    ((name, arguments),) = step.items()
    return StepEntry(name, freeze(arguments), where=where)


def _place(document: Document, path: tuple[str | int, ...]) -> str:
    return f"{document.file}:{document.line_of(path)}"
