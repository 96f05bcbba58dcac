"""The manifest of a copy: it is written last, and what has no whole one is no copy."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from jsonschema import Draft202012Validator

from engine.registry.schema import read_schema

FORMAT = 1
_ID = re.compile(r"(\d{8}T\d{6}Z)-[0-9a-f]{8}", re.ASCII)


@dataclass(frozen=True)
class Dump:
    """The database: `size` in bytes, and how many `rows` each table has, by its name with its schema's."""

    size: int
    sha256: str
    rows: Mapping[str, int]


@dataclass(frozen=True)
class CopiedObject:
    """One object of the bucket: `headers` are those of S3 that are its own, such as its content type."""

    key: str
    size: int
    sha256: str
    headers: Mapping[str, str]
    metadata: Mapping[str, str]


@dataclass(frozen=True)
class Copy:
    """One backup of the environment `uuid`, made under the settings in `specification`; times are UTC, ISO 8601."""

    id: str
    uuid: str
    started: str
    finished: str
    specification: Mapping[str, Any]
    dump: Dump
    objects: tuple[CopiedObject, ...]

    @property
    def size_bytes(self) -> int:
        return self.dump.size + sum(item.size for item in self.objects)


def write(copy: Copy) -> bytes:
    """The manifest of `copy`."""
    return json.dumps({"format": FORMAT, **asdict(copy)}, ensure_ascii=True, sort_keys=True).encode()


def read(content: bytes) -> Copy:
    """The copy that a manifest tells of; raises `ValueError` for anything else."""
    found = json.loads(content)
    error = next(
        Draft202012Validator(read_schema("engine.environments.copies", "manifest.json")).iter_errors(found), None
    )
    if error is not None:
        raise ValueError(error.message)
    del found["format"]
    dump, objects = Dump(**found.pop("dump")), tuple(CopiedObject(**item) for item in found.pop("objects"))
    return Copy(**found, dump=dump, objects=objects)


def moment_of(copy_id: str) -> datetime.datetime | None:
    """When the copy of this id was begun; None for what is no such id."""
    match = _ID.fullmatch(copy_id)
    if match is None:
        return None
    try:
        return datetime.datetime.strptime(match[1], "%Y%m%dT%H%M%SZ").replace(tzinfo=datetime.UTC)
    except ValueError:
        return None
