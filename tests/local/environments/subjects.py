"""One environment over a journal and a provider, as tests of effects, verbs and kills want it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from engine.environments.drivers.base import CreateRequest, Driver, Kind
from engine.environments.journal import Action, Database, Journal, Outcome, State
from engine.environments.life import Parts, create
from engine.environments.names import Owner
from engine.environments.operations.run import PyinfraPerformer
from engine.environments.spec import MEMBER, OWN_STORAGE, Specification
from engine.registry.environments_model import Lifetime
from tests.unit.hosted import OWN
from tests.unit.updater.clocks import FakeClock


def specification(
    uuid: str = OWN, lifetime: Lifetime = Lifetime.DISPOSABLE, *, member: bool = False, stage: str = "trial"
) -> Specification:
    return Specification(uuid, Owner.ENVIRONMENT, lifetime, MEMBER if member else OWN_STORAGE, {"stage": stage})


@dataclass(frozen=True)
class World:
    """A journal, drivers and one environment."""

    parts: Parts
    spec: Specification
    clock: FakeClock

    def request(self, kind: Kind, intent: str) -> CreateRequest:
        return CreateRequest(self.spec.uuid, intent, self.spec.name(kind), self.spec.resource_digest(kind))

    def create(self) -> tuple[Kind, ...]:
        return create(self.parts, self.spec, self.request)

    @property
    def state(self) -> State:
        return self.parts.journal.required(self.spec.uuid).state

    @property
    def attention(self) -> str | None:
        return self.parts.journal.required(self.spec.uuid).attention

    def outcomes(self, action: Action) -> dict[Kind, list[Outcome | None]]:
        found: dict[Kind, list[Outcome | None]] = {}
        for effect in self.parts.journal.effects(self.spec.uuid):
            if effect.action is action:
                found.setdefault(effect.kind, []).append(effect.outcome)
        return found

    def of(self, spec: Specification) -> World:
        return replace(self, spec=spec)


def world(directory: Path, drivers: Mapping[Kind, Driver], spec: Specification | None = None) -> World:
    clock = FakeClock()
    journal = Journal(Database(directory / "journal.db"), clock)
    return World(Parts(journal, drivers, clock, "lease-1", PyinfraPerformer()), spec or specification(), clock)
