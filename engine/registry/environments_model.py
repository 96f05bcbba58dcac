"""What `inventory/environments.yaml` says, as frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from engine.subject import Subject


class Lifetime(StrEnum):
    """Whether an environment's data outlives its retirement for a while, or goes with it."""

    DURABLE = "durable"
    DISPOSABLE = "disposable"


class AccessPolicy(StrEnum):
    """Whom an environment's gateway lets in."""

    PRIVATE = "private"
    INVITED = "invited"
    PUBLIC = "public"


@dataclass(frozen=True)
class ParentPins:
    """Digests by which a shared parent is recognized: the pin, and what an operator named to follow it."""

    pin: str
    successors: tuple[str, ...] = ()

    def accepts(self, digest: str) -> bool:
        """Whether a parent that runs `digest` is the one that is meant."""
        return digest == self.pin or digest in self.successors


@dataclass(frozen=True)
class Parents:
    """The two stores that every environment's data lies in. No code path deletes one."""

    postgres: ParentPins
    objects: ParentPins


@dataclass(frozen=True)
class Project:
    """What environments and tiers are grouped by."""

    slug: str
    title: str


@dataclass(frozen=True)
class Tier:
    """A named database and bucket of a project that its member environments share."""

    slug: str
    uuid: str
    project: str
    retired: bool = False

    @property
    def subject(self) -> Subject:
        return Subject("tier", self.uuid)


@dataclass(frozen=True)
class RestoreFrom:
    """The backup that a new environment is seeded from: `environment` is the uuid of its source."""

    environment: str
    backup: str


@dataclass(frozen=True)
class Environment:
    """One hosted environment. `tier` is None for one with storage of its own.

    Everything but `retired` is immutable once the environment has begun to exist.
    """

    uuid: str
    project: str
    tenant: str
    stage: str
    lifetime: Lifetime
    release: str
    tier: str | None = None
    access_policy: AccessPolicy = AccessPolicy.PRIVATE
    hostname: str | None = None
    bootstrap_admin: str | None = None
    restore: RestoreFrom | None = None
    retired: bool = False

    @property
    def subject(self) -> Subject:
        return Subject("env", self.uuid)


@dataclass(frozen=True)
class Environments:
    """The whole file, read and checked; `parents` is None for a fleet that hosts no environments."""

    parents: Parents | None = None
    projects: Mapping[str, Project] = field(default_factory=dict)
    tiers: Mapping[str, Tier] = field(default_factory=dict)
    environments: Mapping[str, Environment] = field(default_factory=dict)

    def members_of(self, tier: str) -> tuple[Environment, ...]:
        """The environments in `tier` that are not retired, in the file's order."""
        return tuple(item for item in self.environments.values() if item.tier == tier and not item.retired)
