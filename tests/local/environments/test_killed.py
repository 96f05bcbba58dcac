"""An operator killed before and after every commit and every call of creation, retirement and each verb.

Whatever is left: a re-run or the fitting verb brings everything or nothing, no effect lacks its intent, nothing is
sent twice by itself, and the provider's listing minus the journal is empty.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.environments.conditions import Verb, refusal
from engine.environments.drivers.base import Kind
from engine.environments.journal import Action, State
from engine.environments.life import abandon
from engine.environments.orphans import orphans
from engine.environments.spec import OWN_STORAGE
from engine.environments.verbs import look, retire, run
from engine.errors import NeedsAttention
from engine.registry.environments_model import Lifetime
from tests.local.environments.kills import killed_at, pointed
from tests.local.environments.simulated import Store, simulated_drivers
from tests.local.environments.subjects import World, specification, world

Work = Callable[[World], object]
Build = Callable[[Path, Callable[[str], None]], World]

ALL = {*OWN_STORAGE, Kind.ROUTE}
BOUND = 500


def every_kill(directory: Path, build: Build, prepare: Work, work: Work, after: Work) -> int:
    """Kill `work` at each of its points in turn, each on a copy of what `prepare` left; how many there were."""
    (directory / "prepared").mkdir()
    prepare(build(directory / "prepared", lambda point: None))
    for point in range(1, BOUND):
        place = directory / f"{point}"
        shutil.copytree(directory / "prepared", place)
        came = killed_at(point, lambda reach, place=place: work(build(place, reach)))
        after(build(place, lambda point: None))
        shutil.rmtree(place)
        if not came:
            return point - 1
    raise AssertionError("there is no end of points")


def simulated(directory: Path, reach: Callable[[str], None]) -> World:
    store = Store(directory / "provider.json")
    return world(directory, pointed(simulated_drivers(store), reach), specification(lifetime=Lifetime.DURABLE))


def disposable(directory: Path, reach: Callable[[str], None]) -> World:
    return simulated(directory, reach).of(specification())


def sent(subject: World, call: str) -> list[str]:
    path = Path(str(subject.parts.journal.database._path)).with_name("provider.json")
    return Store(path).sent(call)


def nothing_unjournalled(subject: World) -> None:
    assert orphans(subject.parts) == ()
    effects = subject.parts.journal.effects(subject.spec.uuid)
    for action in Action:
        intended = [f"{item.kind}/{item.name}" for item in effects if item.action is action]
        assert not [key for key in sent(subject, action) if sent(subject, action).count(key) > intended.count(key)]
    assert len(sent(subject, "create")) == len(set(sent(subject, "create")))


def present(subject: World) -> set[Kind]:
    return {kind for kind, driver in subject.parts.drivers.items() if driver.list_owned()}


def let_go(subject: World) -> State:
    """Give the one verb whose condition holds, until the subject is gone or retained."""
    for _ in range(3):
        known, _ = look(subject.parts, subject.spec.uuid)
        if known.subject.state in (State.TOMBSTONED, State.RETAINED):
            return known.subject.state
        fitting = [verb for verb in Verb if refusal(verb, known) is None]
        if fitting:
            run(subject.parts, fitting[0], subject.spec.uuid)
        else:
            retire(subject.parts, subject.spec.uuid)
    return subject.state


def nothing(subject: World) -> None:
    """No preparation but the journal itself."""


def test_creation_killed_everywhere(tmp_path: Path) -> None:
    def after(subject: World) -> None:
        nothing_unjournalled(subject)
        try:
            subject.create()
        except NeedsAttention:
            assert subject.attention == "createOutcomeUnknown"
            nothing_unjournalled(subject)
            abandon(subject.parts, subject.spec.uuid)
            assert let_go(subject) is State.TOMBSTONED
            assert present(subject) == set()
        else:
            assert (subject.state, present(subject)) == (State.READY, ALL)
        nothing_unjournalled(subject)

    points = every_kill(tmp_path, disposable, nothing, World.create, after)
    # The beginning; a look, two commits and a call for each resource; the end with its receipt.
    assert points >= 2 * (1 + 7 * 4 + 2)


# The other points take minutes, so they run with the soak tests; those of the verbs are met on real parents too.
@pytest.mark.parametrize("build", [simulated, pytest.param(disposable, marks=pytest.mark.soak)])
def test_retirement_killed_everywhere(tmp_path: Path, build: Build) -> None:
    kept = {Kind.DATABASE, Kind.ROLE, Kind.BUCKET, Kind.KEY} if build is simulated else set()

    def after(subject: World) -> None:
        nothing_unjournalled(subject)
        try:
            reached = subject.state
            if reached not in (State.TOMBSTONED, State.RETAINED):
                reached = retire(subject.parts, subject.spec.uuid)
        except NeedsAttention:
            assert subject.attention == "deleteOutcomeUnknown"
            reached = run(subject.parts, Verb.RECLAIM_FAILED_DELETE, subject.spec.uuid)
        assert reached is (State.RETAINED if kept else State.TOMBSTONED)
        assert present(subject) == kept
        nothing_unjournalled(subject)

    work = lambda subject: retire(subject.parts, subject.spec.uuid)  # noqa: E731
    assert every_kill(tmp_path, build, World.create, work, after) >= 2 * 3 * 5


def _failed_delete(subject: World) -> None:
    subject.create()
    _with_fault(subject, "delete", Kind.BUCKET, lambda: retire(subject.parts, subject.spec.uuid))


def _vanished(subject: World) -> None:
    subject.create()
    driver = subject.parts.drivers[Kind.WEB]
    (owned,) = driver.list_owned()
    driver.delete(owned.name, owned.mark)


def _lost_create(subject: World) -> None:
    _with_fault(subject, "create", Kind.BUCKET, subject.create)


def _with_fault(subject: World, call: str, kind: Kind, work: Callable[[], object]) -> None:
    store: Store = subject.parts.drivers[kind]._driver.store  # type: ignore[attr-defined]
    store.faults[call, kind] = ["done" if call == "create" else "lost"]
    with pytest.raises(NeedsAttention):
        work()


def _retained(subject: World) -> None:
    subject.create()
    retire(subject.parts, subject.spec.uuid)


def _expire(subject: World) -> None:
    subject.clock.sleep(168 * 3600)
    run(subject.parts, Verb.EXPIRE_RETAINED, subject.spec.uuid)


@pytest.mark.soak
@pytest.mark.parametrize(
    ("verb", "build", "prepare"),
    [
        (Verb.RECLAIM, disposable, World.create),
        (Verb.RECLAIM_FAILED_DELETE, disposable, _failed_delete),
        (Verb.RECLAIM_UNJOURNALLED_DELETE, disposable, _vanished),
        (Verb.RECLAIM_UNJOURNALLED_CREATE, disposable, _lost_create),
        (Verb.EXPIRE_RETAINED, simulated, _retained),
    ],
)
def test_a_verb_killed_everywhere(tmp_path: Path, verb: Verb, build: Build, prepare: Work) -> None:
    is_expiry = verb is Verb.EXPIRE_RETAINED

    def work(subject: World) -> None:
        if is_expiry:
            _expire(subject)
        else:
            run(subject.parts, verb, subject.spec.uuid)

    def after(subject: World) -> None:
        if is_expiry:
            subject.clock.sleep(169 * 3600)
        if subject.state is not State.TOMBSTONED:
            known, _ = look(subject.parts, subject.spec.uuid)
            fitting = [item for item in Verb if refusal(item, known) is None]
            assert fitting, f"no verb goes on from {known.subject.state}"
            run(subject.parts, fitting[0], subject.spec.uuid)
        assert (subject.state, present(subject)) == (State.TOMBSTONED, set())
        assert orphans(subject.parts) == ()

    assert every_kill(tmp_path, build, prepare, work, after) >= 30
