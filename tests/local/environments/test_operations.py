"""Effects as pyinfra operations: what goes in comes out, and nothing else is heard of pyinfra."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import gevent
import gevent.pool
import pytest
from pyinfra.context import ctx_host, ctx_state

from engine.environments.drivers.base import CreateRequest, Driver, Kind
from engine.environments.effects import Held, Resource
from engine.environments.journal import Action, State
from engine.environments.life import LETTING_GO, resources
from engine.environments.observation import Absent, Mark, Observation, Present, Unknown, from_json
from engine.environments.operations.facts import UNANSWERED, Observed
from engine.environments.spec import OWN_STORAGE
from engine.environments.verbs import retire
from engine.errors import EnvironmentRefused, NeedsAttention
from engine.registry.environments_model import Lifetime
from tests.local.environments.simulated import SimulatedDriver, Store, simulated_drivers
from tests.local.environments.subjects import World, specification, world

UUIDS = tuple(f"0c7d3c5e-94a1-4a3f-8f52-3b6f5b1f0a{number:02x}" for number in range(6))


class Failing(SimulatedDriver):
    """A driver that breaks its contract."""

    def observe(self, name: str) -> Observation:
        raise OSError("the cable")


class Waiting(SimulatedDriver):
    """A driver that lets every other job run on before and after each of its calls."""

    def observe(self, name: str) -> Observation:
        gevent.sleep(0)
        return super().observe(name)

    def create(self, request: CreateRequest) -> Observation:
        gevent.sleep(0)
        found = super().create(request)
        gevent.sleep(0)
        return found


def resource(subject: World, kind: Kind) -> Resource:
    (found,) = resources(subject.parts, subject.spec, (kind,))
    return found


def held(subject: World, *, by_verb: bool = False) -> Held:
    return Held(subject.parts.journal, subject.parts.journal.writer(subject.spec.uuid), by_verb)


@pytest.mark.parametrize("seen", [Present("r", "d", Mark("u", "i")), Present("r", "d", None), Absent(), Unknown("w")])
def test_a_fact_is_the_observation_itself(seen: Observation) -> None:
    assert from_json(seen.to_json()) == seen


@pytest.mark.parametrize("output", [[], [""], ["null"], ["{}"], ['{"observation": "gone"}'], ['{"observation": "pre']])
def test_a_fact_is_never_absent_by_default(output: list[str]) -> None:
    assert Observed.default() == UNANSWERED == Observed().process(output)


def test_a_driver_that_breaks_its_contract_taught_us_nothing(subject: World, store: Store) -> None:
    broken = replace(subject.parts, drivers={**subject.parts.drivers, Kind.ROLE: Failing(store, Kind.ROLE)})
    subject = replace(subject, parts=broken)
    assert subject.parts.perform.look(resource(subject, Kind.ROLE)) == UNANSWERED
    with pytest.raises(Exception, match="observationUnknown"):
        subject.create()
    assert Kind.ROLE not in subject.outcomes(Action.CREATE)


def test_nothing_is_heard_of_pyinfra(subject: World, store: Store, capfd: pytest.CaptureFixture[str]) -> None:
    store.faults["create", Kind.BUCKET] = ["refused"]
    with pytest.raises(EnvironmentRefused):
        subject.create()
    store.faults["create", Kind.BUCKET] = ["lost"]
    with pytest.raises(NeedsAttention):
        subject.create()
    assert capfd.readouterr() == ("", "")
    assert (ctx_state.get(), ctx_host.get()) == (None, None)


def test_an_error_of_any_kind_comes_out_as_it_is(subject: World) -> None:
    error = ValueError("the request cannot be made")

    def request(kind: Kind, intent: str) -> CreateRequest:
        raise error

    subject.parts.journal.begin(subject.spec.subject())
    with pytest.raises(ValueError) as caught:
        subject.parts.perform.make(
            held(subject), resource(subject, Kind.ROLE), lambda intent: request(Kind.ROLE, intent)
        )
    assert caught.value is error


def test_each_effect_looks_anew(subject: World, store: Store) -> None:
    calls: list[str] = []
    store.before = calls.append
    subject.create()
    kinds = (*OWN_STORAGE, Kind.ROUTE)
    assert [call for call in calls if call.startswith(("observe", "create "))] == [
        call for kind in kinds for call in (f"observe {kind}", f"create {kind}", f"observe {kind}")
    ]


def test_jobs_that_wait_for_each_other_do_not_mix(tmp_path: Path) -> None:
    def build(uuid: str) -> World:
        directory = tmp_path / uuid
        directory.mkdir()
        store = Store(directory / "provider.json")
        if uuid == UUIDS[2]:
            store.faults["create", Kind.BUCKET] = ["lost"]
        drivers: dict[Kind, Driver] = {kind: Waiting(store, kind) for kind in Kind}
        return world(directory, drivers, specification(uuid))

    def work(subject: World) -> object:
        try:
            return subject.create()
        except NeedsAttention as error:
            return error.where

    subjects = [build(uuid) for uuid in UUIDS]
    ended = list(gevent.pool.Pool(len(subjects)).imap(work, subjects))
    assert ended == [UUIDS[2] if uuid == UUIDS[2] else (*OWN_STORAGE, Kind.ROUTE) for uuid in UUIDS]
    for subject in subjects:
        assert {effect.uuid for effect in subject.parts.journal.effects()} == {subject.spec.uuid}


def test_nothing_is_deleted_before_a_job_lets_go(subject: World, store: Store) -> None:
    subject.create()
    for by_verb in (False, True):
        with pytest.raises(EnvironmentRefused, match="notLettingGo"):
            subject.parts.perform.remove(held(subject, by_verb=by_verb), (resource(subject, Kind.BUCKET),))
    assert store.sent("delete") == []


def test_data_that_are_retained_stay_whoever_asks(tmp_path: Path, store: Store) -> None:
    subject = world(tmp_path, simulated_drivers(store), specification(lifetime=Lifetime.DURABLE))
    subject.create()
    _stopped_while(subject, store, "delete web", lambda: retire(subject.parts, subject.spec.uuid))
    assert subject.state is State.RETIRING
    with pytest.raises(EnvironmentRefused, match="retentionRunning"):
        subject.parts.perform.remove(held(subject, by_verb=True), (resource(subject, Kind.DATABASE),))
    assert f"database/{subject.spec.name(Kind.DATABASE)}" in store.things()


def test_one_unknown_of_several_stops_all_of_them(subject: World, store: Store) -> None:
    subject.create()
    held_ = Held(subject.parts.journal, subject.parts.journal.writer(subject.spec.uuid).fence(State.RECLAIMING), True)
    store.faults["observe", Kind.DATABASE] = ["unknown"]
    with pytest.raises(Exception, match="observationUnknown: database"):
        subject.parts.perform.remove(held_, resources(subject.parts, subject.spec, LETTING_GO))
    assert store.sent("delete") == []


def _stopped_while(subject: World, store: Store, call: str, work: Callable[[], object]) -> None:
    def stop(reached: str) -> None:
        if reached == call:
            raise KeyboardInterrupt

    store.before = stop
    with pytest.raises(KeyboardInterrupt):
        work()
    store.before = lambda reached: None
