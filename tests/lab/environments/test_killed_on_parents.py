"""An operator killed before and after every commit and every driver call, over PostgreSQL and SeaweedFS themselves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from engine.environments.conditions import Verb
from engine.environments.drivers.base import Kind
from engine.environments.effects import Resource
from engine.environments.journal import Action, Outcome, State
from engine.environments.life import abandon
from engine.environments.parents import LabParents
from engine.environments.verbs import retire, run
from engine.errors import NeedsAttention
from engine.registry.environments_model import Lifetime
from tests.lab.environments.data_world import DATA, DataWorld, Reached, build, let_go, no_leak, present
from tests.local.environments.kills import killed_at

BOUND = 200

# Every point of every job takes minutes. Points come in fours, two of a commit or of a call each, so an odd step
# meets all kinds of them.
every_step = pytest.mark.parametrize("step", [17, pytest.param(1, marks=pytest.mark.soak)])


def every_kill(
    parents: LabParents,
    directory: Path,
    prepare: Callable[[DataWorld], object],
    work: Callable[[DataWorld], object],
    after: Callable[[DataWorld], object],
    step: int,
    lifetime: Lifetime = Lifetime.DISPOSABLE,
) -> int:
    """Kill `work` at every `step`-th of its points, each time on an environment of its own; the last one it came to."""
    kept = Reached.anew(parents)
    for point in range(1, BOUND, step):
        place = directory / f"{point}"
        prepare(build(kept, place, lifetime=lifetime))
        # The child reaches the parents by itself: two processes never speak over one connection.
        came = killed_at(point, lambda reach, place=place: work(build(Reached.anew(parents), place, reach, lifetime)))
        after(build(kept, place, lifetime=lifetime))
        if not came:
            return point - step
    raise AssertionError("there is no end of points")


@every_step
def test_creation_killed_everywhere(parents: LabParents, tmp_path: Path, step: int) -> None:
    def after(subject: DataWorld) -> None:
        no_leak(subject)
        try:
            subject.create()
        except NeedsAttention:
            assert subject.attention == "createOutcomeUnknown"
            abandon(subject.parts, subject.spec.uuid)
        else:
            assert (subject.state, present(subject)) == (State.READY, DATA)
            assert subject.create() == ()
        let_go(subject)

    last = every_kill(parents, tmp_path, lambda subject: None, DataWorld.create, after, step)
    assert last > 2 * (1 + 4 * 4 + 2) - step


@every_step
def test_retirement_killed_everywhere(parents: LabParents, tmp_path: Path, step: int) -> None:
    def work(subject: DataWorld) -> None:
        retire(subject.parts, subject.spec.uuid)

    def after(subject: DataWorld) -> None:
        no_leak(subject)
        try:
            if subject.state is not State.TOMBSTONED:
                work(subject)
        except NeedsAttention:
            assert subject.attention == "deleteOutcomeUnknown"
        let_go(subject)

    last = every_kill(parents, tmp_path, DataWorld.create, work, after, step)
    assert last > 2 * (1 + 4 * 5 + 2) - step


def _resource(subject: DataWorld, kind: Kind) -> Resource:
    spec = subject.spec
    return Resource(subject.parts.drivers[kind], spec.name(kind), spec.resource_digest(kind), subject.parts.credential)


def _lost_delete(subject: DataWorld) -> None:
    subject.create()
    writer = subject.parts.journal.writer(subject.spec.uuid).retire(None)
    writer.conclude(writer.intend(_resource(subject, Kind.BUCKET).intent(Action.DELETE)), Outcome.LOST)


def _vanished(subject: DataWorld) -> None:
    subject.create()
    driver, name = subject.parts.drivers[Kind.KEY], subject.spec.name(Kind.KEY)
    (mark,) = (owned.mark for owned in driver.list_owned() if owned.name == name)
    driver.delete(name, mark)


def _lost_create(subject: DataWorld) -> None:
    writer = subject.parts.journal.begin(subject.spec.subject())
    intent = writer.intend(_resource(subject, Kind.DATABASE).intent(Action.CREATE))
    subject.parts.drivers[Kind.DATABASE].create(subject.request(Kind.DATABASE, intent))


def _retained(subject: DataWorld) -> None:
    subject.create()
    retire(subject.parts, subject.spec.uuid)


@every_step
@pytest.mark.parametrize(
    ("verb", "prepare"),
    [
        (Verb.RECLAIM, DataWorld.create),
        (Verb.RECLAIM_FAILED_DELETE, _lost_delete),
        (Verb.RECLAIM_UNJOURNALLED_DELETE, _vanished),
        (Verb.RECLAIM_UNJOURNALLED_CREATE, _lost_create),
        (Verb.EXPIRE_RETAINED, _retained),
    ],
)
def test_a_verb_killed_everywhere(
    parents: LabParents, tmp_path: Path, step: int, verb: Verb, prepare: Callable[[DataWorld], object]
) -> None:
    is_expiry = verb is Verb.EXPIRE_RETAINED

    def late(subject: DataWorld) -> DataWorld:
        if is_expiry:
            subject.clock.sleep(168 * 3600)
        return subject

    def work(subject: DataWorld) -> None:
        run(late(subject).parts, verb, subject.spec.uuid)

    lifetime = Lifetime.DURABLE if is_expiry else Lifetime.DISPOSABLE
    last = every_kill(parents, tmp_path, prepare, work, lambda subject: let_go(late(subject)), step, lifetime)
    assert last > 2 * (1 + 4 * 2 + 2) - step
