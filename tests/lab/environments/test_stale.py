"""An operator from another lock domain, stopped by SIGSTOP while somebody else lets go of everything, who goes on.

Both work from state directories, and so under locks, of their own; what they share is the journal.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from engine.clock import SystemClock
from engine.environments.conditions import Verb
from engine.environments.drivers.base import Kind
from engine.environments.journal import Action, State
from engine.environments.life import abandon
from engine.environments.orphans import Orphan, orphans
from engine.environments.parents import LabParents
from engine.environments.verbs import run
from engine.errors import NeedsAttention
from engine.locks import LockDirectory
from engine.subject import Subject
from tests.lab.environments.conftest import Child, Drivers
from tests.lab.environments.data_world import DATA, DataWorld, Reached, build, present
from tests.local.environments.processes import FENCED, Stopped, stopped_at

KINDS = [Kind.DATABASE, Kind.ROLE, Kind.BUCKET, Kind.KEY]
ALONE = {Kind.DATABASE, Kind.BUCKET}
"""What can be made without what was deleted: a role needs its database, a key its bucket."""


@pytest.fixture(scope="module")
def neighbour(parents: LabParents) -> Child:
    """An environment that nothing here is about."""
    return Drivers.over(parents.postgres, parents.objects).make(Child())


def as_operator(place: Path, name: str, subject: DataWorld, work: Callable[[DataWorld], object]) -> None:
    """Do `work` under the lock of the environment in the state directory `name`."""
    locks = LockDirectory(place / name / "locks", SystemClock())
    with locks.hold(Subject("env", subject.spec.uuid), job="test", run=name):
        work(subject)


def stopped_creation(parents: LabParents, place: Path, point: str) -> Stopped:
    """An operator who creates, and is stopped at `point`."""

    def work(reach: Callable[[str], None]) -> None:
        as_operator(place, "stale", build(Reached.anew(parents), place, reach), DataWorld.create)

    stopped = stopped_at(lambda reached: reached == point, work)
    assert stopped is not None
    return stopped


def reclaimed(parents: LabParents, place: Path, verb: Verb) -> DataWorld:
    """The environment after another operator gave it up and let go of it."""

    def work(subject: DataWorld) -> None:
        abandon(subject.parts, subject.spec.uuid)
        run(subject.parts, verb, subject.spec.uuid)

    subject = build(Reached.anew(parents), place)
    as_operator(place, "other", subject, work)
    assert (subject.state, present(subject), mine(subject)) == (State.TOMBSTONED, set(), [])
    return subject


def mine(subject: DataWorld) -> list[Orphan]:
    return [orphan for orphan in orphans(subject.parts) if orphan.owned.mark.uuid == subject.spec.uuid]


def whole(drivers: Drivers, child: Child) -> set[str]:
    kinds = {kind.value for kind in DATA}
    return {kind for kind in kinds if getattr(drivers, kind).observe(getattr(child.names, kind)).mark == child.mark}


@pytest.mark.parametrize("kind", [Kind.DATABASE, Kind.KEY])
def test_who_was_stopped_before_an_intent_cannot_journal_and_so_cannot_send(
    parents: LabParents, tmp_path: Path, kind: Kind
) -> None:
    stale = stopped_creation(parents, tmp_path, f"after observe {kind}")
    subject = reclaimed(parents, tmp_path, Verb.RECLAIM)
    before = (subject.parts.journal.required(subject.spec.uuid), subject.parts.journal.effects(subject.spec.uuid))
    assert stale.go_on() == FENCED
    after = (subject.parts.journal.required(subject.spec.uuid), subject.parts.journal.effects(subject.spec.uuid))
    assert (after, present(subject), mine(subject)) == (before, set(), [])


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_sent_late_is_listed_and_nothing_else_is_wrong(
    parents: LabParents, drivers: Drivers, neighbour: Child, tmp_path: Path, kind: Kind
) -> None:
    stale = stopped_creation(parents, tmp_path, f"before create {kind}")
    subject = reclaimed(parents, tmp_path, Verb.RECLAIM_UNJOURNALLED_CREATE)
    before = (subject.parts.journal.required(subject.spec.uuid), subject.parts.journal.effects(subject.spec.uuid))
    assert stale.go_on() == FENCED
    after = (subject.parts.journal.required(subject.spec.uuid), subject.parts.journal.effects(subject.spec.uuid))
    assert after == before
    (intent,) = [item.id for item in after[1] if (item.action, item.kind) == (Action.CREATE, kind)]
    found = [(orphan.kind, orphan.owned.name, orphan.owned.mark.intent_id) for orphan in mine(subject)]
    assert found == ([(kind, subject.spec.name(kind), intent)] if kind in ALONE else [])
    assert present(subject) == ({kind} & ALONE)
    assert whole(drivers, neighbour) == {kind.value for kind in DATA}
    for orphan in mine(subject):
        subject.parts.drivers[orphan.kind].delete(orphan.owned.name, orphan.owned.mark)


@pytest.mark.parametrize("kind", sorted(ALONE))
def test_what_lands_within_the_settle_time_is_seen_by_the_second_look(
    parents: LabParents, tmp_path: Path, kind: Kind
) -> None:
    stale = stopped_creation(parents, tmp_path, f"before create {kind}")
    subject = build(Reached.anew(parents), tmp_path)
    ends: list[int] = []
    subject.clock.sleep = lambda seconds: ends.append(stale.go_on())  # type: ignore[method-assign]
    abandon(subject.parts, subject.spec.uuid)
    with pytest.raises(NeedsAttention, match="stillPresent"):
        run(subject.parts, Verb.RECLAIM_UNJOURNALLED_CREATE, subject.spec.uuid)
    assert (ends, subject.state, present(subject)) == ([FENCED], State.RECLAIMING, {kind})
    again = build(Reached.anew(parents), tmp_path)
    run(again.parts, Verb.RECLAIM_UNJOURNALLED_CREATE, subject.spec.uuid)
    assert (again.state, present(again), mine(again)) == (State.TOMBSTONED, set(), [])
