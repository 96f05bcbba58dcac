"""The specification of a child or a tier: a value made once, recorded by its digest before anything is dispatched."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engine.environments.binding import Binding, HostedRelease, bind
from engine.environments.drivers.base import Kind
from engine.environments.journal.journal import NewSubject
from engine.environments.names import Names, Owner, names_of
from engine.environments.words import Refusal
from engine.errors import InvalidInput
from engine.registry.environments_model import Environment, Environments, Lifetime, Tier
from engine.registry.freeze import thaw

SHAPE = 1
"""The number of this shape of a specification; another shape has another number and so another digest."""

OWN_STORAGE = (Kind.DATABASE, Kind.ROLE, Kind.BUCKET, Kind.KEY, Kind.GATEWAY, Kind.WEB)
"""The six resources of an environment, in the order in which they are made."""

MEMBER = (Kind.ROLE, Kind.KEY, Kind.GATEWAY, Kind.WEB)
"""What a member of a tier has of its own: a login and a key to the tier's storage, and its machines."""

TIER = (Kind.DATABASE, Kind.ROLE, Kind.BUCKET, Kind.KEY)


@dataclass(frozen=True)
class Specification:
    """What one uuid is, completely. `settings` is everything but the resources' names, which follow from the uuid."""

    uuid: str
    owner: Owner
    lifetime: Lifetime
    kinds: tuple[Kind, ...]
    settings: Mapping[str, Any]

    @property
    def names(self) -> Names:
        return names_of(self.uuid, self.owner)

    def name(self, kind: Kind) -> str:
        """What the resource of `kind` is called; a route has a name without being one of the resources."""
        found: str = getattr(self.names, kind.value)
        return found

    def canonical(self) -> str:
        """The one JSON text of this value: sorted keys, no spaces, nothing but ASCII."""
        return _canonical(
            {
                "shape": SHAPE,
                "uuid": self.uuid,
                "owner": self.owner.name.lower(),
                "lifetime": self.lifetime.value,
                "resources": {kind.value: self.name(kind) for kind in self.kinds},
                **thaw(self.settings),
            }
        )

    @property
    def digest(self) -> str:
        return _digest(self.canonical())

    def resource_digest(self, kind: Kind) -> str:
        """What a resource's mark says it was made from: another specification's is another resource."""
        return _digest(_canonical({"specification": self.digest, "kind": kind.value, "name": self.name(kind)}))

    @property
    def tier(self) -> str | None:
        """The uuid of the tier that an environment is a member of; None for one with storage of its own."""
        storage = self.settings.get("storage", "own")
        return None if storage == "own" else str(storage)

    def subject(self) -> NewSubject:
        """What the journal records of it."""
        kind = "env" if self.owner is Owner.ENVIRONMENT else "tier"
        # A member of a tier owns no data that could be kept after it.
        durable = self.lifetime is Lifetime.DURABLE and Kind.DATABASE in self.kinds
        return NewSubject(self.uuid, kind, self.canonical(), self.digest, durable, self.tier)


def of_environment(
    environment: Environment, inventory: Environments, release: HostedRelease, authority: str
) -> Specification:
    """The specification of `environment`; `authority` is the organization that all of it belongs to.

    Raises :class:`InvalidInput` where the release's keys differ from the engine's.
    """
    binding: Binding = bind(environment, inventory, release)
    settings = {
        "authority": authority,
        "project": environment.project,
        "tenant": environment.tenant,
        "stage": environment.stage,
        # Not the parents' digests: a successor that the operator named must not make another environment of it.
        "storage": "own" if environment.tier is None else inventory.tiers[environment.tier].uuid,
        "release": {"name": release.name, "digest": release.digest},
        "binding": binding,
    }
    kinds = OWN_STORAGE if environment.tier is None else MEMBER
    return Specification(environment.uuid, Owner.ENVIRONMENT, environment.lifetime, kinds, settings)


def of_tier(tier: Tier, authority: str) -> Specification:
    """The specification of `tier`."""
    settings = {"authority": authority, "project": tier.project, "tier": tier.slug}
    return Specification(tier.uuid, Owner.TIER, Lifetime.DURABLE, TIER, settings)


def read(text: str) -> Specification:
    """The specification that the journal recorded as `text`.

    Raises :class:`InvalidInput` for a shape that this engine cannot read whole: nothing is dispatched on a guess.
    """
    try:
        settings = json.loads(text)
        found = Specification(
            uuid=settings.pop("uuid"),
            owner=Owner[settings.pop("owner").upper()],
            lifetime=Lifetime(settings.pop("lifetime")),
            kinds=_kinds(settings.pop("resources")),
            settings=settings,
        )
        settings.pop("shape")
        if found.canonical() == text:
            return found
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _unrecognized() from error
    raise _unrecognized()


def _unrecognized() -> InvalidInput:
    return InvalidInput(
        f"{Refusal.SPEC_UNRECOGNIZED}: the journal holds a specification of another shape",
        hint="use the engine that wrote it; nothing was dispatched",
    )


def _kinds(resources: Mapping[str, str]) -> tuple[Kind, ...]:
    present = {Kind(word) for word in resources}
    return {frozenset(kinds): kinds for kinds in (OWN_STORAGE, MEMBER, TIER)}[frozenset(present)]


def _canonical(value: Mapping[str, Any]) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def _digest(text: str) -> str:
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
