"""An operator killed before and after every commit and every driver call, over PostgreSQL and SeaweedFS themselves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from engine.environments.conditions import Verb
from engine.environments.journal import State
from engine.environments.life import abandon
from engine.environments.parents import LabParents
from engine.environments.verbs import retire, run
from engine.errors import NeedsAttention
from engine.registry.environments_model import Lifetime
from tests.lab.environments.data_world import DATA, DataWorld, Reached, build, let_go, no_leak, present
from tests.lab.environments.prepared import PREPARED, lifetime_of
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


@every_step
@pytest.mark.parametrize("verb", PREPARED)
def test_a_verb_killed_everywhere(parents: LabParents, tmp_path: Path, step: int, verb: Verb) -> None:
    is_expiry = verb is Verb.EXPIRE_RETAINED

    def late(subject: DataWorld) -> DataWorld:
        if is_expiry:
            subject.clock.sleep(168 * 3600)
        return subject

    def work(subject: DataWorld) -> None:
        run(late(subject).parts, verb, subject.spec.uuid)

    after = lambda subject: let_go(late(subject))  # noqa: E731
    last = every_kill(parents, tmp_path, PREPARED[verb], work, after, step, lifetime_of(verb))
    assert last > 2 * (1 + 4 * 2 + 2) - step
