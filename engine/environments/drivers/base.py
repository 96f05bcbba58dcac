"""The contract with a provider of one kind of resource."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from engine.environments.observation import Mark, Observation


class Kind(StrEnum):
    """The six resources of an environment, and the route, which is not one of them."""

    GATEWAY = "gateway"
    WEB = "web"
    DATABASE = "database"
    ROLE = "role"
    BUCKET = "bucket"
    KEY = "key"
    ROUTE = "route"


@dataclass(frozen=True)
class KeyPair:
    """What an object user signs with."""

    access_key: str
    secret_key: bytes = field(repr=False)


@dataclass(frozen=True)
class MachineContent:
    """What a machine is given before its first boot: the directory of its programs, and what they read at boot.

    `binding` is a JSON document with secrets (docs/environments.md).
    """

    bundle: Path
    binding: bytes = field(repr=False)


@dataclass(frozen=True)
class RouteContent:
    """The names that a route answers for, and ``address:port`` of the two machines behind it."""

    hosts: tuple[str, ...]
    gateway: str
    web: str


@dataclass(frozen=True)
class CreateRequest:
    """One resource to be made, of which the intent is journalled already.

    `target` is what a credential opens: the name of the database for a role, of the bucket for a key. For a member
    of a tier that is the tier's, and `member_of` is the tier's role, which then owns what the member makes.
    `secret` is the password of a role that is a login, which a tier's is not; neither it nor `key_pair` is ever logged.
    """

    uuid: str
    intent_id: str
    name: str
    digest: str
    target: str = ""
    member_of: str = ""
    secret: bytes | None = field(default=None, repr=False)
    key_pair: KeyPair | None = field(default=None, repr=False)
    machine: MachineContent | None = None
    route: RouteContent | None = None

    @property
    def mark(self) -> Mark:
        return Mark(self.uuid, self.intent_id)


@dataclass(frozen=True)
class Owned:
    """One resource that carries a mark of ours, for the listing of orphans."""

    name: str
    mark: Mark


class Driver(Protocol):
    """A kind of resource at its provider. No method deletes or changes a parent."""

    kind: Kind
    settle_seconds: float
    """How long a request that was under way is given to take effect before it is looked again, not an upper bound.

    A call is given up after 30 s. What takes effect later than this carries a mark, and is found as an orphan.
    """

    def name(self, uuid: str) -> str:
        """The resource's name, a pure function."""

    def observe(self, name: str) -> Observation:
        """Look; trouble with the provider is `Unknown`, never an error and never `Absent`."""

    def create(self, request: CreateRequest) -> Observation:
        """Make it and say what is there now.

        Raises `DispatchLost` where the outcome is unknown, `DriverRefused` where provably nothing was done. A
        resource of that name that does not carry this request's mark is refused; one that carries it is finished.
        """

    def delete(self, name: str, mark: Mark) -> None:
        """Remove it if it carries `mark`; absent is success. Errors as in `create`; a foreign one is refused."""

    def list_owned(self) -> tuple[Owned, ...]:
        """Everything of this kind that carries a mark; raises `UnknownState` if that cannot be told."""
