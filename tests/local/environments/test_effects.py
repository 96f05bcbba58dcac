"""One effect over a provider that answers in every way there is."""

from __future__ import annotations

import pytest

from engine.environments.drivers.base import CreateRequest, Kind
from engine.environments.journal import Action, Outcome, State
from engine.environments.life import create
from engine.environments.spec import OWN_STORAGE
from engine.errors import EnvironmentRefused, InvalidInput, NeedsAttention, UnknownState
from tests.local.environments.simulated import Store
from tests.local.environments.subjects import World, specification

ALL = (*OWN_STORAGE, Kind.ROUTE)


def test_a_creation_and_a_second_one_with_nothing_to_do(subject: World, store: Store) -> None:
    assert subject.create() == ALL
    assert subject.state is State.READY
    assert subject.create() == ()
    assert len(store.sent("create")) == len(ALL)
    marks = [thing["mark"]["intent_id"] for thing in store.things().values()]
    assert sorted(marks) == sorted(effect.id for effect in subject.parts.journal.effects(subject.spec.uuid))
    assert [receipt.job for receipt in subject.parts.journal.receipts(subject.spec.uuid)] == ["create"]


@pytest.mark.parametrize("kind", ALL)
def test_what_was_done_although_the_answer_was_lost_is_found(subject: World, store: Store, kind: Kind) -> None:
    store.faults["create", kind] = ["done"]
    with pytest.raises(NeedsAttention) as caught:
        subject.create()
    assert caught.value.word == subject.attention == "createOutcomeUnknown"
    subject.create()
    assert (subject.state, subject.attention) == (State.READY, None)
    assert len(store.sent("create")) == len(ALL)
    assert set(map(tuple, subject.outcomes(Action.CREATE).values())) == {(Outcome.DONE,)}


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("fault", ["lost", "late", "other"])
def test_what_is_not_seen_is_never_sent_again(subject: World, store: Store, kind: Kind, fault: str) -> None:
    store.faults["create", kind] = [fault]
    for _ in range(3):
        with pytest.raises(NeedsAttention):
            subject.create()
    assert store.sent("create").count(f"{kind}/{subject.spec.name(kind)}") == 1
    assert subject.attention == "createOutcomeUnknown"


def test_what_lands_late_is_taken_as_done(subject: World, store: Store) -> None:
    store.faults["create", Kind.BUCKET] = ["late"]
    with pytest.raises(NeedsAttention):
        subject.create()
    store.land()
    subject.create()
    assert subject.state is State.READY


def test_unknown_stops_without_an_intent_and_needs_nobody(subject: World, store: Store) -> None:
    store.faults["observe", Kind.BUCKET] = ["unknown"]
    with pytest.raises(UnknownState):
        subject.create()
    assert subject.attention is None
    assert Kind.BUCKET not in subject.outcomes(Action.CREATE)
    subject.create()
    assert subject.state is State.READY


def test_unknown_with_an_open_intent_needs_attention(subject: World, store: Store) -> None:
    store.faults["create", Kind.BUCKET] = ["done"]
    with pytest.raises(NeedsAttention):
        subject.create()
    store.faults["observe", Kind.BUCKET] = ["unknown"]
    with pytest.raises(NeedsAttention):
        subject.create()


def test_unknown_right_after_the_creation_is_a_lost_outcome(subject: World, store: Store) -> None:
    subject.create()
    assert subject.outcomes(Action.CREATE)[Kind.ROLE] == [Outcome.DONE]
    other = subject.of(specification("9b1deb4d-3b7d-4bad-9bdd-2b0d7b3dcb6d"))
    store.before = lambda call: store.faults.update({("observe", Kind.ROLE): ["x"]}) if call == "created role" else None
    with pytest.raises(NeedsAttention):
        other.create()
    store.before = lambda call: None
    other.create()
    assert other.state is State.READY


def test_a_refused_creation_may_be_given_again(subject: World, store: Store) -> None:
    store.faults["create", Kind.ROLE] = ["refused"]
    with pytest.raises(EnvironmentRefused, match="providerRefused"):
        subject.create()
    subject.create()
    assert subject.outcomes(Action.CREATE)[Kind.ROLE] == [Outcome.REFUSED, Outcome.DONE]


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("mark", [None, {"uuid": "9b1deb4d-3b7d-4bad-9bdd-2b0d7b3dcb6d", "intent_id": "i-1"}, "ours"])
def test_a_look_alike_is_neither_taken_nor_changed(subject: World, store: Store, kind: Kind, mark: object) -> None:
    given = {"uuid": subject.spec.uuid, "intent_id": "i-never-journalled"} if mark == "ours" else mark
    thing = {"reference": "r", "digest": subject.spec.resource_digest(kind), "mark": given}
    store.put(f"{kind}/{subject.spec.name(kind)}", thing)
    for _ in range(2):
        with pytest.raises(EnvironmentRefused, match="foreignResource"):
            subject.create()
    assert store.things()[f"{kind}/{subject.spec.name(kind)}"] == thing
    assert kind not in subject.outcomes(Action.CREATE)


def test_what_vanished_is_not_made_again(subject: World, store: Store) -> None:
    subject.create()
    store.put(f"database/{subject.spec.name(Kind.DATABASE)}", None)
    with pytest.raises(NeedsAttention, match="resourceMissing"):
        subject.create()
    assert len(store.sent("create")) == len(ALL)


def test_what_was_changed_behind_our_back(subject: World, store: Store) -> None:
    subject.create()
    key = f"role/{subject.spec.name(Kind.ROLE)}"
    store.put(key, {**store.things()[key], "digest": "sha256:other"})
    with pytest.raises(NeedsAttention, match="resourceDiffers"):
        subject.create()


def test_a_changed_specification_is_refused(subject: World, store: Store) -> None:
    subject.create()
    with pytest.raises(EnvironmentRefused, match="specificationChanged"):
        subject.of(specification(stage="other")).create()
    assert len(store.sent("create")) == len(ALL)


def test_a_request_that_cannot_be_made_leaves_nothing_uncertain(subject: World, store: Store) -> None:
    def without_web(kind: Kind, intent: str) -> CreateRequest:
        if kind is Kind.WEB:
            raise InvalidInput("the release is not what it was")
        return subject.request(kind, intent)

    with pytest.raises(InvalidInput):
        create(subject.parts, subject.spec, without_web)
    assert subject.outcomes(Action.CREATE)[Kind.WEB] == [Outcome.REFUSED]
    assert not any(key.startswith("web/") for key in store.sent("create"))
    subject.create()
    assert subject.state is State.READY
