"""Two operators from two lock domains on one environment: one is stopped at each point, and the other does the same.

Whatever they find, each effect is sent by one of them alone.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from engine.environments.journal import Action, Database, Journal, State
from engine.environments.life import create
from engine.environments.names import Owner
from engine.environments.spec import TIER, Specification
from engine.environments.verbs import retire
from engine.errors import EnvironmentRefused, NeedsAttention, RecordFailed
from engine.registry.environments_model import Lifetime
from tests.local.environments.kills import pointed
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


def test_one_who_is_stopped_within_a_commit_holds_up_the_other_who_sends_nothing(tmp_path: Path) -> None:
    first = stopped_at(lambda point: point == "before commit", lambda reach: build(tmp_path, reach).create())
    assert first is not None
    with pytest.raises(RecordFailed, match="nothing is sent"):
        Journal(Database(tmp_path / "journal.db", busy_seconds=0.1), FakeClock()).begin(SPEC.subject())
    assert sent(tmp_path, Action.CREATE) == []
    assert first.go_on() == ENDED
