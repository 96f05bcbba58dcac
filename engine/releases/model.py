"""Releases and step entries, as frozen values."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any

from engine.errors import InvalidInput
from engine.releases.version import Version


def canonical_json(value: Any) -> str:
    """Return the one JSON text for `value`, frozen mappings included: what digests are taken over."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False, default=dict)


class StepClass(StrEnum):
    """What a step does, and so what it promises (docs/manifest.md)."""

    INSTALL = "install"
    PATCH = "patch"
    UPGRADE = "upgrade"


@dataclass(frozen=True)
class StepEntry:
    """A step's name with the arguments that a release gives it. Equal entries are the same step.

    `where` is the entry's file and line, for messages only.
    """

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    where: str = ""

    @cached_property
    def canonical(self) -> str:
        """The entry as canonical JSON: what equality, order and digests are taken over."""
        return canonical_json([self.name, self.arguments])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StepEntry) and self.canonical == other.canonical

    def __hash__(self) -> int:
        return hash(self.canonical)

    def __str__(self) -> str:
        if not self.arguments:
            return self.name
        return f"{self.name}({', '.join(f'{key}={value}' for key, value in self.arguments.items())})"


@dataclass(frozen=True)
class Release:
    """One numbered record of the manifest. `where` is its file and line, for messages only."""

    version: Version
    title: str
    steps: tuple[StepEntry, ...]
    details: str
    owner_note: str
    where: str = field(default="", compare=False)


@dataclass(frozen=True)
class Manifest:
    """The releases in order; the specification of a tenant."""

    releases: tuple[Release, ...]

    @property
    def head(self) -> Version:
        return self.releases[-1].version

    def __iter__(self) -> Iterator[Release]:
        return iter(self.releases)

    def up_to(self, version: Version) -> Manifest:
        """The manifest as it was when `version` was its head; raises :class:`InvalidInput` for an unknown one."""
        releases = tuple(release for release in self.releases if release.version <= version)
        if not releases or releases[-1].version != version:
            raise InvalidInput(
                f"there is no release {version}",
                where="releases.yaml",
                hint=f"known: {', '.join(str(release.version) for release in self.releases)}",
            )
        return Manifest(releases)


def _nothing_shipped(arguments: Mapping[str, Any]) -> str:
    """The digest of a step that takes nothing to the tenant."""
    return ""


@dataclass(frozen=True)
class StepInfo:
    """What planning and lint need to know about a step, without running any of it.

    `check_arguments` raises :class:`engine.errors.InvalidInput` for arguments the step does not take.
    `writes` gives the keys (such as ``file:/etc/motd``) whose final value the step sets.
    Empty `trades` or `roles` mean every one. `shipped_digest` covers the contents that the step takes to
    a tenant with these arguments, its bundle above all; it is empty for a step that takes nothing.
    """

    name: str
    step_class: StepClass
    check_arguments: Callable[[Mapping[str, Any]], None]
    writes: Callable[[Mapping[str, Any]], frozenset[str]]
    trades: frozenset[str] = frozenset()
    roles: frozenset[str] = frozenset()
    shipped_digest: Callable[[Mapping[str, Any]], str] = _nothing_shipped
