"""Operators who give any command at any time to a provider that fails in any way."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.environments.conditions import Verb
from engine.environments.drivers.base import Kind
from engine.environments.journal import Action, Outcome, State
from engine.environments.life import abandon
from engine.environments.orphans import orphans
from engine.environments.verbs import retire, run
from engine.errors import TenantryError
from engine.registry.environments_model import Lifetime
from tests.local.environments.simulated import Store, simulated_drivers
from tests.local.environments.subjects import World, specification, world

KINDS = st.sampled_from((Kind.ROUTE, Kind.GATEWAY, Kind.DATABASE, Kind.BUCKET))
FAULTS = st.one_of(
    st.tuples(st.just("observe"), KINDS, st.just("unknown")),
    st.tuples(st.just("create"), KINDS, st.sampled_from(("refused", "lost", "done", "other"))),
    st.tuples(st.just("delete"), KINDS, st.sampled_from(("refused", "lost", "done"))),
)
COMMANDS = st.sampled_from(("create", "abandon", "retire", "wait", "vanish", *Verb))
STEPS = st.lists(st.tuples(COMMANDS, st.lists(FAULTS, max_size=2)), min_size=3, max_size=9)
DATA = {Kind.DATABASE, Kind.ROLE, Kind.BUCKET, Kind.KEY}


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(STEPS, st.sampled_from(Lifetime))
def test_any_walk(steps: list[tuple[str, list[tuple[str, Kind, str]]]], lifetime: Lifetime) -> None:
    with tempfile.TemporaryDirectory() as directory:
        store = Store(Path(directory) / "provider.json")
        subject = world(Path(directory), simulated_drivers(store), specification(lifetime=lifetime))
        subject.parts.journal.begin(subject.spec.subject())
        for command, faults in steps:
            before = _row(subject), store.things(), len(store.content()["sent"])
            store.faults = {(call, kind): [answer] for call, kind, answer in faults}
            _give(subject, store, command)
            store.faults = {}
            _check(subject, store, command, before)


def _row(subject: World) -> tuple[State, int]:
    row = subject.parts.journal.required(subject.spec.uuid)
    return row.state, row.epoch


def _give(subject: World, store: Store, command: str) -> None:
    try:
        match command:
            case "create":
                subject.create()
            case "abandon":
                abandon(subject.parts, subject.spec.uuid)
            case "retire":
                retire(subject.parts, subject.spec.uuid)
            case "wait":
                subject.clock.sleep(100 * 3600)
            case "vanish":
                store.put(f"web/{subject.spec.name(Kind.WEB)}", None)
            case _:
                run(subject.parts, Verb(command), subject.spec.uuid)
    except TenantryError:
        pass


def _check(
    subject: World, store: Store, command: str, before: tuple[tuple[State, int], dict[str, object], int]
) -> None:
    (state, epoch), things, sent = before
    row = subject.parts.journal.required(subject.spec.uuid)
    effects = subject.parts.journal.effects(subject.spec.uuid)
    for action in Action:
        intended = [f"{item.kind}/{item.name}" for item in effects if item.action is action]
        for key, times in itertools.groupby(sorted(store.sent(action))):
            assert len(list(times)) <= intended.count(key), "an effect without an intent"
    assert len(store.sent("create")) == len(set(store.sent("create"))), "a second create was sent"
    assert row.epoch >= epoch
    if state is State.TOMBSTONED:
        assert (row.state, len(store.content()["sent"])) == (State.TOMBSTONED, sent)
    if row.state is State.TOMBSTONED:
        assert not store.things(), "a tombstone over what is there"
    if row.state is State.READY and command == "create" and state is State.CREATING:
        assert {key.split("/")[0] for key in store.things()} == {kind.value for kind in Kind}
    if row.is_retained(subject.clock.now()):
        data = {key for key in things if key.split("/")[0] in DATA}
        assert data <= set(store.things()), "data went before its time"
    assert orphans(subject.parts) == ()
    assert all(item.outcome is not None for item in effects), "an outcome was left open by a job that ended"
    assert not [item for item in effects if item.outcome is Outcome.DONE and item.reference is None and not item.word]
