"""An environment of its data resources alone, over a journal and the real parents."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from engine.environments.conditions import Verb, refusal
from engine.environments.drivers.base import CreateRequest, Driver, KeyPair, Kind
from engine.environments.drivers.object_keys import ObjectKeys
from engine.environments.drivers.objects import Buckets
from engine.environments.drivers.objects_store import ObjectStore
from engine.environments.drivers.postgres import PostgresDatabases
from engine.environments.drivers.postgres_parent import PostgresParent
from engine.environments.drivers.postgres_roles import PostgresRoles
from engine.environments.journal import State
from engine.environments.life import create
from engine.environments.names import Owner
from engine.environments.orphans import orphans
from engine.environments.parents import LabParents
from engine.environments.spec import TIER, Specification
from engine.environments.verbs import look, run
from engine.registry.environments_model import Lifetime
from tests.local.environments.kills import pointed
from tests.local.environments.subjects import World, world

DATA = {Kind.DATABASE, Kind.ROLE, Kind.BUCKET, Kind.KEY}


@dataclass(frozen=True)
class Reached:
    """Both parents, with connections that are kept, because making them takes longer than using them."""

    postgres: PostgresParent
    objects: ObjectStore

    @classmethod
    def anew(cls, parents: LabParents) -> Reached:
        """With connections of their own: two processes never speak over one."""
        return cls(parents.postgres, replace(parents.objects))

    @property
    def drivers(self) -> dict[Kind, Driver]:
        return {
            Kind.DATABASE: PostgresDatabases(self.postgres),
            Kind.ROLE: PostgresRoles(self.postgres),
            Kind.BUCKET: Buckets(self.objects),
            Kind.KEY: ObjectKeys(self.objects),
        }


@dataclass(frozen=True)
class DataWorld(World):
    """An environment of its data resources alone."""

    def request(self, kind: Kind, intent: str) -> CreateRequest:
        secret = hashlib.sha256(f"secret of {self.spec.uuid}".encode()).hexdigest()
        targets = {Kind.ROLE: Kind.DATABASE, Kind.KEY: Kind.BUCKET}
        return CreateRequest(
            self.spec.uuid,
            intent,
            self.spec.name(kind),
            self.spec.resource_digest(kind),
            target=self.spec.name(targets[kind]) if kind in targets else "",
            secret=secret.encode() if kind is Kind.ROLE else None,
            key_pair=KeyPair(f"AK{secret[:18].upper()}", secret[:32].encode()) if kind is Kind.KEY else None,
        )

    def create(self) -> tuple[Kind, ...]:
        return create(self.parts, self.spec, self.request)


def build(
    reached: Reached,
    directory: Path,
    reach: Callable[[str], None] = lambda point: None,
    lifetime: Lifetime = Lifetime.DISPOSABLE,
) -> DataWorld:
    """The environment whose journal is in `directory`."""
    found = str(uuid.uuid5(uuid.NAMESPACE_URL, str(directory)))
    spec = Specification(found, Owner.ENVIRONMENT, lifetime, TIER, {"stage": "trial"})
    directory.mkdir(exist_ok=True)
    plain = world(directory, pointed(reached.drivers, reach), spec)
    return DataWorld(plain.parts, plain.spec, plain.clock)


def present(subject: World) -> set[Kind]:
    """The kinds of which the providers list something of this environment."""
    listings = {kind: driver.list_owned() for kind, driver in subject.parts.drivers.items()}
    return {kind for kind, owned in listings.items() if any(item.mark.uuid == subject.spec.uuid for item in owned)}


def no_leak(subject: World) -> None:
    mine = [orphan for orphan in orphans(subject.parts) if orphan.owned.mark.uuid == subject.spec.uuid]
    assert mine == []


def let_go(subject: World) -> None:
    known, _ = look(subject.parts, subject.spec.uuid)
    if known.subject.state is not State.TOMBSTONED:
        fitting = [verb for verb in Verb if refusal(verb, known) is None]
        assert fitting, f"no verb goes on from {known.subject.state}"
        run(subject.parts, fitting[0], subject.spec.uuid)
    assert (subject.state, present(subject)) == (State.TOMBSTONED, set())
    no_leak(subject)
