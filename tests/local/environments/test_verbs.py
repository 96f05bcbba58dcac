"""Retirement and the five verbs: their conditions, their order, and what they never do."""

from __future__ import annotations

import datetime
from dataclasses import replace

import pytest

from engine.environments.conditions import Verb
from engine.environments.drivers.base import Kind
from engine.environments.journal import Action, Outcome, State
from engine.environments.life import LETTING_GO, RETENTION, abandon
from engine.environments.orphans import orphans
from engine.environments.verbs import retire, run
from engine.errors import EnvironmentRefused, MissingPart, NeedsAttention, UnknownState
from engine.registry.environments_model import Lifetime
from tests.local.environments.simulated import Store
from tests.local.environments.subjects import World, specification
from tests.unit.hosted import MEMBER

DATA = (Kind.DATABASE, Kind.ROLE, Kind.BUCKET, Kind.KEY)


def give(world: World, verb: Verb) -> State:
    return run(world.parts, verb, world.spec.uuid)


def refused(world: World, *verbs: Verb) -> set[str]:
    """The words with which each of `verbs` is refused, with nothing changed anywhere."""
    journal, words = world.parts.journal, set()
    before = (journal.required(world.spec.uuid), journal.effects(world.spec.uuid))
    for verb in verbs:
        with pytest.raises(EnvironmentRefused) as caught:
            give(world, verb)
        words.add(caught.value.word)
    assert (journal.required(world.spec.uuid), journal.effects(world.spec.uuid)) == before
    return words


def others(*verbs: Verb) -> list[Verb]:
    return [verb for verb in Verb if verb not in verbs]


@pytest.fixture
def durable(subject: World) -> World:
    return subject.of(specification(lifetime=Lifetime.DURABLE))


def test_reclaim_in_its_order(subject: World, store: Store) -> None:
    subject.create()
    calls: list[str] = []
    store.before = calls.append
    epoch = subject.parts.journal.required(subject.spec.uuid).epoch
    assert give(subject, Verb.RECLAIM) is subject.state is State.TOMBSTONED
    row = subject.parts.journal.required(subject.spec.uuid)
    # One epoch for the fence, and one for the tombstone.
    assert (row.epoch, row.tombstoned_at) == (epoch + 2, subject.clock.now())
    assert [key.split("/")[0] for key in store.sent("delete")] == [kind.value for kind in LETTING_GO]
    looked = calls[len(LETTING_GO) :]
    assert looked[:3] == ["observe route", "delete route", "deleted route"]
    assert looked[3:9] == [f"observe {kind}" for kind in LETTING_GO[1:]]
    assert looked[-7:] == [f"observe {kind}" for kind in LETTING_GO]
    assert subject.clock.slept == 5
    assert refused(subject, *Verb) == {"alreadyTombstoned"}


def test_a_disposable_one_goes_at_once(subject: World, store: Store) -> None:
    subject.create()
    assert retire(subject.parts, subject.spec.uuid) is State.TOMBSTONED
    assert store.things() == {}


def test_a_durable_one_keeps_its_data_for_168_hours(durable: World, store: Store) -> None:
    durable.create()
    assert refused(durable, *Verb) == {"retentionApplies"}
    retired_at = durable.clock.now()
    assert retire(durable.parts, durable.spec.uuid) is State.RETAINED
    assert {key.split("/")[0] for key in store.things()} == {kind.value for kind in DATA}
    wait = RETENTION - (durable.clock.now() - retired_at)
    durable.clock.sleep((wait - datetime.timedelta(seconds=1)).total_seconds())
    assert refused(durable, Verb.EXPIRE_RETAINED, Verb.RECLAIM) == {"retentionRunning"}
    durable.clock.sleep(1)
    assert durable.clock.now() == retired_at + datetime.timedelta(hours=168)
    assert refused(durable, *others(Verb.EXPIRE_RETAINED)) == {
        *("retentionApplies", "noFailedDelete", "noUnjournalledDelete", "noUnjournalledCreate")
    }
    assert give(durable, Verb.EXPIRE_RETAINED) is State.TOMBSTONED
    assert store.things() == {}


@pytest.mark.parametrize("fault", ["lost", "done", "refused"])
@pytest.mark.parametrize("kind", LETTING_GO)
def test_a_failed_delete_is_sent_again_by_its_verb_alone(subject: World, store: Store, kind: Kind, fault: str) -> None:
    subject.create()
    store.faults["delete", kind] = [fault]
    with pytest.raises(NeedsAttention):
        retire(subject.parts, subject.spec.uuid)
    sent = store.content()["sent"]
    if fault != "done":
        with pytest.raises(NeedsAttention):
            retire(subject.parts, subject.spec.uuid)
        assert store.content()["sent"] == sent
    assert refused(subject, *others(Verb.RECLAIM_FAILED_DELETE)) == {
        *("deleteFailed", "noUnjournalledDelete", "noUnjournalledCreate", "notRetained")
    }
    assert give(subject, Verb.RECLAIM_FAILED_DELETE) is State.TOMBSTONED
    assert store.things() == {}


def test_a_delete_that_took_place_although_its_answer_was_lost(subject: World, store: Store) -> None:
    subject.create()
    store.faults["delete", Kind.BUCKET] = ["done"]
    with pytest.raises(NeedsAttention):
        retire(subject.parts, subject.spec.uuid)
    assert retire(subject.parts, subject.spec.uuid) is State.TOMBSTONED
    assert store.sent("delete").count(f"bucket/{subject.spec.name(Kind.BUCKET)}") == 1
    assert subject.outcomes(Action.DELETE)[Kind.BUCKET] == [Outcome.DONE]


@pytest.mark.parametrize("kind", [Kind.ROUTE, Kind.WEB])
def test_no_verb_shortens_the_retention(durable: World, store: Store, kind: Kind) -> None:
    durable.create()
    store.faults["delete", kind] = ["lost"]
    with pytest.raises(NeedsAttention):
        retire(durable.parts, durable.spec.uuid)
    assert give(durable, Verb.RECLAIM_FAILED_DELETE) is State.RETAINED
    assert {key.split("/")[0] for key in store.things()} == {kind.value for kind in DATA}


def test_what_vanished_without_a_delete(durable: World, store: Store) -> None:
    durable.create()
    store.put(f"web/{durable.spec.name(Kind.WEB)}", None)
    with pytest.raises(NeedsAttention, match="resourceMissing"):
        retire(durable.parts, durable.spec.uuid)
    assert refused(durable, *others(Verb.RECLAIM_UNJOURNALLED_DELETE)) == {
        *("retentionRunning", "noFailedDelete", "noUnjournalledCreate", "notRetained")
    }
    assert give(durable, Verb.RECLAIM_UNJOURNALLED_DELETE) is State.RETAINED


@pytest.mark.parametrize("kind", LETTING_GO)
@pytest.mark.parametrize("fault", ["lost", "done", "late"])
def test_what_may_have_been_created(subject: World, store: Store, kind: Kind, fault: str) -> None:
    store.faults["create", kind] = [fault]
    with pytest.raises(NeedsAttention):
        subject.create()
    abandon(subject.parts, subject.spec.uuid)
    assert refused(subject, *others(Verb.RECLAIM_UNJOURNALLED_CREATE)) == {
        *("createNotEnded", "noFailedDelete", "noUnjournalledDelete", "notRetained")
    }
    store.before = lambda call: None
    assert give(subject, Verb.RECLAIM_UNJOURNALLED_CREATE) is State.TOMBSTONED
    assert store.things() == {}


def test_what_lands_within_the_settle_time_prevents_the_tombstone(subject: World, store: Store) -> None:
    store.faults["create", Kind.BUCKET] = ["late"]
    with pytest.raises(NeedsAttention):
        subject.create()
    slept = subject.clock.sleep
    subject.clock.sleep = lambda seconds: (slept(seconds), store.land())[0]  # type: ignore[method-assign]
    with pytest.raises(NeedsAttention, match="stillPresent"):
        give(subject, Verb.RECLAIM_UNJOURNALLED_CREATE)
    assert subject.state is State.RECLAIMING
    assert give(subject, Verb.RECLAIM_UNJOURNALLED_CREATE) is State.TOMBSTONED
    assert store.things() == {}


def come_back(store: Store) -> None:
    """Have the bucket come back once after its delete, as where a provider says too early that it is done."""
    (key,) = [key for key in store.things() if key.startswith("bucket/")]
    thing = store.things()[key]

    def again(call: str) -> None:
        if call == "deleted bucket":
            store.before = lambda call: None
            store.put(key, thing)

    store.before = again


def test_what_goes_on_where_something_is_still_present(subject: World, store: Store) -> None:
    subject.create()
    store.faults["delete", Kind.BUCKET] = ["lost"]
    with pytest.raises(NeedsAttention, match="deleteOutcomeUnknown"):
        retire(subject.parts, subject.spec.uuid)
    come_back(store)
    with pytest.raises(NeedsAttention, match="stillPresent"):
        give(subject, Verb.RECLAIM_FAILED_DELETE)
    assert refused(subject, *others(Verb.RECLAIM)) >= {"noFailedDelete"}
    assert give(subject, Verb.RECLAIM) is State.TOMBSTONED
    other = subject.of(specification(MEMBER))
    other.create()
    come_back(store)
    with pytest.raises(NeedsAttention, match="stillPresent"):
        retire(other.parts, MEMBER)
    assert retire(other.parts, MEMBER) is State.TOMBSTONED
    assert store.things() == {}


def test_a_creation_that_goes_on_is_not_reclaimed(subject: World, store: Store) -> None:
    store.faults["create", Kind.ROLE] = ["refused"]
    with pytest.raises(EnvironmentRefused):
        subject.create()
    assert refused(subject, *Verb) >= {"createNotEnded"}
    abandon(subject.parts, subject.spec.uuid)
    with pytest.raises(EnvironmentRefused, match="notCreating"):
        subject.create()
    assert give(subject, Verb.RECLAIM) is State.TOMBSTONED
    assert store.things() == {}


@pytest.mark.parametrize("kind", LETTING_GO)
@pytest.mark.parametrize("nth", [1, 2, 3])
def test_unknown_never_leads_to_a_tombstone(subject: World, store: Store, kind: Kind, nth: int) -> None:
    subject.create()
    seen = 0

    def fail_nth(call: str) -> None:
        nonlocal seen
        seen += call == f"observe {kind}"
        if call == f"observe {kind}" and seen == nth:
            store.faults["observe", kind] = ["unknown"]

    store.before = fail_nth
    # The first look of all is for the conditions, and asks only what is absent.
    if nth > 1:
        with pytest.raises(UnknownState, match="observationUnknown"):
            give(subject, Verb.RECLAIM)
        assert subject.state is State.RECLAIMING
        if nth == 2 and kind is not Kind.ROUTE:
            assert {key.split("/")[0] for key in store.sent("delete")} == {"route"}
    store.before = lambda call: None
    assert give(subject, Verb.RECLAIM) is State.TOMBSTONED


@pytest.mark.parametrize("kind", LETTING_GO)
def test_a_look_alike_survives_every_verb(subject: World, store: Store, kind: Kind) -> None:
    key = f"{kind}/{subject.spec.name(kind)}"
    thing = {"reference": "r", "digest": subject.spec.resource_digest(kind), "mark": None}
    store.put(key, thing)
    with pytest.raises(EnvironmentRefused, match="foreignResource"):
        subject.create()
    abandon(subject.parts, subject.spec.uuid)
    assert give(subject, Verb.RECLAIM) is State.TOMBSTONED
    assert store.things() == {key: thing}


def test_a_look_alike_in_the_place_of_what_was_made(subject: World, store: Store) -> None:
    subject.create()
    key = f"bucket/{subject.spec.name(Kind.BUCKET)}"
    store.put(key, {**store.things()[key], "mark": None})
    for _ in range(2):
        with pytest.raises(NeedsAttention, match="foreignResource"):
            give(subject, Verb.RECLAIM)
    assert key in store.things()


def test_an_operator_who_was_thought_dead_cannot_send(subject: World, store: Store) -> None:
    """It is stopped right before its second effect, another one lets go of everything, and it wakes up."""

    def taken_over(call: str) -> None:
        if call == "observe role":
            store.before = lambda call: None
            abandon(subject.parts, subject.spec.uuid)
            give(subject, Verb.RECLAIM)

    store.before = taken_over
    with pytest.raises(EnvironmentRefused, match="fenced"):
        subject.create()
    assert subject.state is State.TOMBSTONED
    assert store.things() == {}


def test_what_a_fenced_operator_sends_late_is_listed(subject: World, store: Store) -> None:
    """It is stopped between its intent and its request, everything is let go of, and it wakes up and sends."""

    def taken_over(call: str) -> None:
        if call == "create role":
            store.before = lambda call: None
            give(subject, Verb.RECLAIM_UNJOURNALLED_CREATE)
            assert (store.things(), orphans(subject.parts)) == ({}, ())

    store.before = taken_over
    with pytest.raises(EnvironmentRefused, match="fenced"):
        subject.create()
    (orphan,) = orphans(subject.parts)
    (intent,) = [item.id for item in subject.parts.journal.effects(subject.spec.uuid) if item.kind is Kind.ROLE]
    assert (orphan.kind, orphan.owned.mark.intent_id) == (Kind.ROLE, intent)
    assert subject.state is State.TOMBSTONED


def test_a_missing_driver_is_not_an_absent_resource(subject: World, store: Store) -> None:
    subject.create()
    some = {kind: driver for kind, driver in subject.parts.drivers.items() if kind is not Kind.WEB}
    with pytest.raises(MissingPart, match="no driver of kind web"):
        run(replace(subject.parts, drivers=some), Verb.RECLAIM, subject.spec.uuid)
    assert subject.state is State.READY and len(store.things()) == 7


def test_a_member_keeps_nothing_of_its_own(subject: World, store: Store) -> None:
    member = subject.of(specification(lifetime=Lifetime.DURABLE, member=True))
    assert member.create() == (Kind.ROLE, Kind.KEY, Kind.GATEWAY, Kind.WEB, Kind.ROUTE)
    assert retire(member.parts, member.spec.uuid) is State.TOMBSTONED
