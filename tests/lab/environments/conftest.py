"""Both parents for each module, and environments of which only the names are made up."""

from __future__ import annotations

import secrets
import signal
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
import pytest

from engine.environments.drivers.base import CreateRequest, KeyPair
from engine.environments.drivers.object_keys import ObjectKeys
from engine.environments.drivers.objects import Buckets
from engine.environments.drivers.objects_store import ObjectStore
from engine.environments.drivers.postgres import PostgresDatabases
from engine.environments.drivers.postgres_parent import PostgresParent
from engine.environments.drivers.postgres_roles import PostgresRoles
from engine.environments.names import Names, Owner, names_of
from engine.environments.observation import Mark, Present
from engine.environments.parents import LabParents, ParentKind
from engine.errors import TenantryError
from tests.fleets import write_whole_fleet
from tests.lab.environments.copying import Fleet, Kept

MEMORY = Path("/dev/shm")
DIGEST = "sha256:" + "0123456789abcdef" * 4


@dataclass(frozen=True)
class Child:
    """An environment's (or tier's) storage: what would be asked for, and with which credentials."""

    owner: Owner = Owner.ENVIRONMENT
    tier: Child | None = None
    uuid: str = field(default_factory=lambda: str(uuid.uuid4()))
    password: bytes = field(default_factory=lambda: secrets.token_hex(12).encode())
    pair: KeyPair = field(
        default_factory=lambda: KeyPair(f"AK{secrets.token_hex(9).upper()}", secrets.token_hex(16).encode())
    )

    @property
    def names(self) -> Names:
        return names_of(self.uuid, self.owner)

    @property
    def storage(self) -> Names:
        return self.tier.names if self.tier else self.names

    @property
    def mark(self) -> Mark:
        return Mark(self.uuid, "intent-1")

    def request(self, kind: str) -> CreateRequest:
        more = {
            "database": {},
            "bucket": {},
            "role": {
                "target": self.storage.database,
                "secret": self.password,
                "member_of": self.tier.names.role if self.tier else "",
            },
            "key": {"target": self.storage.bucket, "key_pair": self.pair},
        }[kind]
        return CreateRequest(self.uuid, "intent-1", getattr(self.names, kind), DIGEST, **more)


@dataclass(frozen=True)
class Drivers:
    """The four drivers of the data resources, of environments; tiers are named by their requests."""

    database: PostgresDatabases
    role: PostgresRoles
    bucket: Buckets
    key: ObjectKeys
    made: list[Child] = field(default_factory=list)

    @classmethod
    def over(cls, postgres: PostgresParent, store: ObjectStore) -> Drivers:
        return cls(PostgresDatabases(postgres), PostgresRoles(postgres), Buckets(store), ObjectKeys(store))

    def make(self, child: Child, *kinds: str) -> Child:
        """Make `kinds`, by default all that the child has."""
        self.made.append(child)
        own = ("role", "key") if child.tier else ("database", "role", "bucket", "key")
        for kind in kinds or own:
            seen = getattr(self, kind).create(child.request(kind))
            assert isinstance(seen, Present), (kind, seen)
            assert (seen.digest, seen.mark) == (DIGEST, child.mark), (kind, seen)
        return child


@pytest.fixture(scope="module")
def parents_state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The state directory that a module's parents belong to."""
    state = tmp_path_factory.mktemp("parents")
    with parents_in_memory(state):
        yield state


@contextmanager
def parents_in_memory(state: Path) -> Iterator[None]:
    """Keep what the parents of this state directory write in memory while the body runs.

    On a disk that others keep at work a commit waits for seconds, and a database's for more.
    """
    (state / "lab").mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=MEMORY, prefix="tenantry-parents-") as directory:
        (state / "lab/parents").symlink_to(directory)
        yield


@pytest.fixture(scope="module")
def parents(parents_state: Path) -> Iterator[LabParents]:
    parents = LabParents(parents_state, print, max_connections=24)
    parents.up()
    yield parents
    kill_objects(parents)
    parents.down()


def kill_objects(parents: LabParents) -> None:
    """End the store at once: told to end, it waits a quarter of a minute for its own parts."""
    record = parents.record(ParentKind.OBJECTS)
    if record is not None and record.process is not None:
        record.process.signal(signal.SIGKILL)


@pytest.fixture(scope="module")
def kept(parents: LabParents) -> Kept:
    return Kept.of(parents)


@pytest.fixture
def fleet(tmp_path: Path, kept: Kept) -> Fleet:
    return Fleet(write_whole_fleet(tmp_path / "fleet"), kept)


@pytest.fixture
def drivers(parents: LabParents) -> Iterator[Drivers]:
    drivers = Drivers.over(parents.postgres, parents.objects)
    yield drivers
    # The store writes all its users again for each key that it makes, so no test leaves its own to the next one.
    for child in drivers.made:
        with suppress(TenantryError):
            drivers.key.delete(child.names.key, child.mark)


@pytest.fixture
def admin(parents: LabParents) -> Iterator[psycopg.Connection]:
    with parents.postgres.connection() as connection:
        yield connection


@dataclass(frozen=True)
class Site:
    """Two environments with their own storage, a tier with two members, another tier with one."""

    own: tuple[Child, ...]
    tiers: tuple[Child, ...]
    members: tuple[Child, ...]

    @property
    def logins(self) -> tuple[Child, ...]:
        """Those that can log in to the database; as a tier nobody does."""
        return (*self.own, *self.members)

    @property
    def everybody(self) -> tuple[Child, ...]:
        return (*self.own, *self.tiers, *self.members)


@pytest.fixture(scope="module")
def site(parents: LabParents) -> Site:
    drivers = Drivers.over(parents.postgres, parents.objects)
    own = (drivers.make(Child()), drivers.make(Child()))
    tiers = tuple(drivers.make(Child(Owner.TIER)) for _ in range(2))
    members = tuple(drivers.make(Child(tier=tier)) for tier in (tiers[0], tiers[0], tiers[1]))
    return Site(own, tiers, members)
