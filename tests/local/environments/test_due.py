"""What the sweep decides, by a clock that somebody else turns."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.environments.conditions import Verb
from engine.environments.drivers.base import Kind
from engine.environments.due import Due, Waiting, due_by_journal
from engine.environments.journal import State
from engine.environments.life import abandon
from engine.environments.spec import Specification
from engine.environments.verbs import retire, run
from engine.errors import NeedsAttention, TenantryError
from engine.registry.environments_model import Lifetime
from engine.subject import Subject
from tests.local.environments.processes import stopped_at
from tests.local.environments.simulated import Store, simulated_drivers
from tests.local.environments.subjects import World, specification, world
from tests.local.environments.test_tiers import tier_spec
from tests.unit.hosted import OWN, TIER

ENV = Subject("env", OWN)
HOUR = 3600


def due(subject: World) -> tuple[Due | Waiting, ...]:
    return due_by_journal(subject.parts.journal, subject.clock.now())


def wait_until_hours(subject: World, hours: float) -> None:
    subject.clock.sleep(hours * HOUR - subject.clock.slept)


@pytest.mark.parametrize(
    ("spec", "who"), [(specification(lifetime=Lifetime.DURABLE), ENV), (tier_spec(), Subject("tier", TIER))]
)
def test_retained_data_is_due_after_168_hours(subject: World, spec: Specification, who: Subject) -> None:
    durable = subject.of(spec)
    durable.create()
    assert due(durable) == ()
    retire(durable.parts, spec.uuid)
    for hours in (1, 100, 168 - 1 / HOUR):
        wait_until_hours(durable, hours)
        assert due(durable) == ()
    wait_until_hours(durable, 168)
    assert due(durable) == (Due(who, "expire-retained"),)
    run(durable.parts, Verb.EXPIRE_RETAINED, spec.uuid)
    assert due(durable) == ()


def test_a_retirement_that_stopped_goes_on_unless_an_outcome_is_unknown(subject: World, store: Store) -> None:
    subject.create()
    store.faults["observe", Kind.BUCKET] = ["unknown"]
    with pytest.raises(TenantryError, match="observationUnknown"):
        retire(subject.parts, OWN)
    assert due(subject) == (Due(ENV, "retire"),)
    store.faults["delete", Kind.BUCKET] = ["lost"]
    with pytest.raises(NeedsAttention):
        retire(subject.parts, OWN)
    assert due(subject) == (Waiting(ENV, State.RETIRING, "deleteOutcomeUnknown"),)


def test_an_abandoned_creation_is_reclaimed_if_every_outcome_is_known(subject: World, store: Store) -> None:
    store.faults["create", Kind.ROLE] = ["refused"]
    with pytest.raises(TenantryError, match="providerRefused"):
        subject.create()
    assert due(subject) == ()
    abandon(subject.parts, OWN)
    assert due(subject) == (Due(ENV, "reclaim"),)
    store.faults["observe", Kind.DATABASE] = ["", "unknown"]
    with pytest.raises(TenantryError, match="observationUnknown"):
        run(subject.parts, Verb.RECLAIM, OWN)
    assert subject.state is State.RECLAIMING
    assert due(subject) == (Due(ENV, "reclaim"),)


def test_an_abandoned_creation_with_an_unknown_outcome_waits(subject: World, store: Store) -> None:
    store.faults["create", Kind.ROLE] = ["lost"]
    with pytest.raises(NeedsAttention):
        subject.create()
    assert due(subject) == (Waiting(ENV, State.CREATING, "createOutcomeUnknown"),)
    abandon(subject.parts, OWN)
    assert due(subject) == (Waiting(ENV, State.ABANDONED, "createNotEnded"),)


def test_an_expiry_that_stopped_goes_on_and_one_that_died_in_a_delete_waits(subject: World, store: Store) -> None:
    durable = subject.of(specification(lifetime=Lifetime.DURABLE))
    durable.create()
    retire(durable.parts, OWN)
    wait_until_hours(durable, 168)
    store.faults["observe", Kind.DATABASE] = ["", "unknown"]
    with pytest.raises(TenantryError, match="observationUnknown"):
        run(durable.parts, Verb.EXPIRE_RETAINED, OWN)
    assert due(durable) == (Due(ENV, "expire-retained"),)
    died = stopped_at(lambda point: point == "delete key", lambda reach: _expire(durable, store, reach))
    assert died is not None
    died.kill()
    assert due(durable) == (Waiting(ENV, State.RECLAIMING, "deleteFailed"),)


def _expire(durable: World, store: Store, reach: object) -> None:
    again = replace(store, before=reach, faults={})  # type: ignore[arg-type]
    there = world(store.path.parent, simulated_drivers(again), durable.spec)
    there.clock.sleep(durable.clock.slept)
    run(there.parts, Verb.EXPIRE_RETAINED, OWN)
