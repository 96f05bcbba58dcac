"""Two operators from two lock domains on one environment: one is stopped at each point, and the other does the same.

Whatever they find, each effect is sent by one of them alone.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from engine.environments.conditions import Verb
from engine.environments.drivers.base import Kind
from engine.environments.journal import Action, Database, Journal, State
from engine.environments.life import abandon, create
from engine.environments.names import Owner
from engine.environments.spec import TIER, Specification
from engine.environments.verbs import retire, run
from engine.errors import EnvironmentRefused, NeedsAttention, RecordFailed
from engine.registry.environments_model import Lifetime
from tests.local.environments.kills import counted_reads, pointed
from tests.local.environments.processes import ENDED, FENCED, REFUSED, nth, stopped_at
from tests.local.environments.simulated import Store, simulated_drivers
from tests.local.environments.subjects import World, world
from tests.unit.hosted import OWN
from tests.unit.updater.clocks import FakeClock

SPEC = Specification(OWN, Owner.ENVIRONMENT, Lifetime.DISPOSABLE, TIER, {"stage": "trial"})
BOUND = 100


def build(directory: Path, reach: Callable[[str], None] = lambda point: None) -> World:
    """The environment as an operator has it who shares journal and provider with others, and no lock."""
    return world(directory, pointed(simulated_drivers(Store(directory / "provider.json")), reach), SPEC)


def sent(directory: Path, action: Action) -> list[str]:
    return Store(directory / "provider.json").sent(action)


def every_stop(
    directory: Path, prepare: Callable[[World], object], work: Callable[[World], object], after: Callable[[Path], None]
) -> int:
    """Stop one operator at each point in turn, let another one work, and the first go on; how many points."""
    (directory / "prepared").mkdir()
    prepare(build(directory / "prepared"))
    for point in range(1, BOUND):
        place = directory / f"{point}"
        shutil.copytree(directory / "prepared", place)
        first = stopped_at(nth(point), lambda reach, place=place: work(build(place, reach)))
        if first is None:
            return point - 1
        with suppress(NeedsAttention, EnvironmentRefused):
            work(build(place))
        assert first.go_on() in (ENDED, REFUSED, FENCED)
        for action in Action:
            assert len(sent(place, action)) == len(set(sent(place, action))), f"{action} was sent twice, point {point}"
        work(build(place))
        after(place)
        shutil.rmtree(place)
    raise AssertionError("there is no end of points")


def test_two_who_create(tmp_path: Path) -> None:
    def work(subject: World) -> None:
        create(subject.parts, subject.spec, subject.request)

    def after(place: Path) -> None:
        assert build(place).state is State.READY
        assert sorted(sent(place, Action.CREATE)) == sorted(f"{kind}/{SPEC.name(kind)}" for kind in TIER)

    # A look, a call and two commits for each resource, and the beginning and the end.
    assert every_stop(tmp_path, lambda subject: None, work, after) >= 4 * 6 + 2


def test_two_who_retire(tmp_path: Path) -> None:
    def work(subject: World) -> None:
        if subject.state is not State.TOMBSTONED:
            retire(subject.parts, OWN)

    def after(place: Path) -> None:
        assert build(place).state is State.TOMBSTONED
        assert Store(place / "provider.json").things() == {}

    assert every_stop(tmp_path, World.create, work, after) >= 4 * 7 + 2


def test_one_who_gives_up_what_another_one_makes(tmp_path: Path) -> None:
    one_lets_go_and_another_makes(tmp_path, lambda subject: abandon(subject.parts, OWN))


@pytest.mark.parametrize("verb", Verb)
def test_one_who_gives_a_verb_on_what_another_one_makes(tmp_path: Path, verb: Verb) -> None:
    one_lets_go_and_another_makes(tmp_path, lambda subject: run(subject.parts, verb, OWN))


def one_lets_go_and_another_makes(directory: Path, work: Callable[[World], object]) -> None:
    """Stop the one at each point of `work` while the other makes the durable environment: what is ready stays."""
    durable = replace(SPEC, lifetime=Lifetime.DURABLE)
    whole = {f"{kind}/{durable.name(kind)}" for kind in TIER}
    for point in range(1, BOUND):
        place = directory / f"{point}"
        place.mkdir()
        build(place).of(durable).parts.journal.begin(durable.subject())
        _lose_the_first_answer(build(place).of(durable))

        def first_work(reach: Callable[[str], None], place: Path = place) -> None:
            with counted_reads(reach):
                work(build(place, reach).of(durable))

        first = stopped_at(nth(point), first_work)
        if first is None:
            return
        other = build(place).of(durable)
        with suppress(NeedsAttention, EnvironmentRefused):
            other.create()
        was_ready = other.state is State.READY
        assert first.go_on() in (ENDED, REFUSED, FENCED)
        if was_ready:
            assert (other.state, set(Store(place / "provider.json").things())) == (State.READY, whole), point
    raise AssertionError("there is no end of points")


def _lose_the_first_answer(subject: World) -> None:
    """Have the first resource made by a request whose answer was lost, so that there is something to let go of."""
    store = Store(Path(str(subject.parts.journal.database._path)).with_name("provider.json"))
    store.faults["create", Kind.DATABASE] = ["done"]
    lossy = replace(
        subject, parts=replace(subject.parts, drivers=pointed(simulated_drivers(store), lambda point: None))
    )
    with pytest.raises(NeedsAttention):
        lossy.create()


def test_one_who_is_stopped_within_a_commit_holds_up_the_other_who_sends_nothing(tmp_path: Path) -> None:
    first = stopped_at(lambda point: point == "before commit", lambda reach: build(tmp_path, reach).create())
    assert first is not None
    with pytest.raises(RecordFailed, match="nothing is sent"):
        Journal(Database(tmp_path / "journal.db", busy_seconds=0.1), FakeClock()).begin(SPEC.subject())
    assert sent(tmp_path, Action.CREATE) == []
    assert first.go_on() == ENDED
