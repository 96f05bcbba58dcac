"""An operator killed before and after the commits and calls that are about machines and routes, over all real parts.

Whatever is left: a re-run or the fitting verb brings everything or nothing, and nothing is there without its intent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property

import pytest

from engine.environments.conditions import Verb
from engine.environments.drivers.base import Driver, Kind
from engine.environments.hosting import (
    Ended,
    Hosting,
    abandon,
    converge,
    converge_all,
    give_verb,
    retire,
    run_job,
    run_jobs,
)
from engine.environments.hosting.jobs import Work
from engine.environments.journal import State
from engine.environments.orphans import orphans
from engine.subject import Subject
from tests.lab.environments.hosted_fleet import HostedFleet
from tests.lab.environments.visits import Visitor
from tests.lab.lab_tools import traces
from tests.local.environments.kills import counted_commits, killed_at, pointed

MACHINES = ("gateway", "web", "route")
BATCH = 6

# What a creation passes for each of these kinds, and a retirement, as `points` finds them.
CREATE_SAMPLE = (
    "before create gateway",
    "after create gateway",
    "before create web",
    "after create web",
    "before create route",
    "after create route",
)
RETIRE_SAMPLE = ("after delete route", "before delete web", "after delete web", "before delete gateway")


@dataclass(frozen=True)
class Watched(Hosting):
    """What a command opens, with drivers that say when they are called."""

    reach: Callable[[str], None]

    @cached_property
    def drivers(self) -> Mapping[Kind, Driver]:
        return pointed(super().drivers, self.reach)

    @classmethod
    def over(cls, fleet: HostedFleet, reach: Callable[[str], None]) -> Watched:
        plain = fleet.hosting()
        return cls(**{field.name: getattr(plain, field.name) for field in fields(Hosting)}, reach=reach)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostedFleet]:
    fleet = HostedFleet.create(tmp_path_factory.mktemp("killed") / "fleet")
    try:
        fleet.tier("wares")
        assert [ended.error for ended in fleet.converge()] == [None]
        yield fleet
    finally:
        fleet.destroy()


def member(fleet: HostedFleet) -> str:
    """A new environment with machines, whose data lie in the tier."""
    return fleet.environment(release="notes-1", tier="wares")


def killed(fleet: HostedFleet, uuid: str, work: Work, point: int) -> None:
    """Do `work` on `uuid` in a process that is killed at its `point`-th point."""
    assert killed_at(point, lambda reach: run_job(Watched.over(fleet, reach), Subject("env", uuid), "killed", work))


def points(fleet: HostedFleet, uuid: str, work: Work) -> list[str]:
    """Every point of `work`, which is done, in their order."""
    names: list[str] = []
    with counted_commits(names.append):
        ended = run_job(Watched.over(fleet, names.append), Subject("env", uuid), "counted", work)
    assert ended.error is None, ended.error
    return names


def about_machines(names: Sequence[str]) -> list[int]:
    """The numbers, from 1, of the points that are about machines and routes, commits in between included."""
    calls = [number for number, name in enumerate(names, 1) if name.split()[-1] in MACHINES]
    return list(range(calls[0], calls[-1] + 3))


def everything(fleet: HostedFleet, uuids: Sequence[str], work: Work) -> list[Ended]:
    return list(run_jobs(fleet.hosting(), [Subject("env", uuid) for uuid in uuids], "after", work))


def check(fleet: HostedFleet, create_points: Sequence[int], retire_points: Sequence[int]) -> None:
    """Kill creations at `create_points`; go on; kill the retirements of what is ready at `retire_points`; go on."""
    # Some creations cannot be gone on with: others are there instead of them to be retired.
    made, spare = ([member(fleet) for _ in numbers] for numbers in (create_points, retire_points))
    fleet.write()
    for uuid, point in zip(made, create_points, strict=True):
        killed(fleet, uuid, converge, point)
    hosting = fleet.hosting()
    assert orphans(hosting.parts) == ()

    ready, unknown = [], []
    for ended in converge_all(hosting, [Subject("env", uuid) for uuid in made]):
        uuid = ended.subject.id
        if ended.error is None:
            assert ended.state == State.READY and Visitor(hosting, uuid).serves()
            ready.append(uuid)
        else:
            assert "createOutcomeUnknown" in ended.error
            assert hosting.journal.required(uuid).attention == "createOutcomeUnknown"
            unknown.append(uuid)
    assert orphans(hosting.parts) == ()
    gone(fleet, unknown, abandon, give_verb(Verb.RECLAIM_UNJOURNALLED_CREATE))

    more = spare[: max(0, len(retire_points) - len(ready))]
    assert {ended.error for ended in everything(fleet, more, converge)} <= {None}
    ready += more
    for uuid, point in zip(ready, retire_points, strict=False):
        killed(fleet, uuid, retire, point)
    assert orphans(hosting.parts) == ()
    again = [uuid for uuid in ready if hosting.journal.required(uuid).state is not State.TOMBSTONED]
    stopped = [ended for ended in everything(fleet, again, retire) if ended.error is not None]
    assert all("deleteOutcomeUnknown" in str(ended.error) for ended in stopped)
    gone(fleet, [ended.subject.id for ended in stopped], give_verb(Verb.RECLAIM_FAILED_DELETE))

    assert {hosting.journal.required(uuid).state for uuid in (*made, *more)} == {State.TOMBSTONED}
    assert orphans(hosting.parts) == ()
    for driver in hosting.drivers.values():
        assert not [owned for owned in driver.list_owned() if owned.mark.uuid in (*made, *more)]
    assert hosting.lab.list() == ()
    group = f"/{hosting.lab.names.group}"
    assert [trace for trace in traces(hosting.lab) if "/.parent-" not in trace and not trace.endswith(group)] == []
    for uuid in (*made, *spare):
        del fleet.environments[uuid]
    fleet.write()


def gone(fleet: HostedFleet, uuids: Sequence[str], *jobs: Work) -> None:
    """Do `jobs` on `uuids`, which are tombstoned after the last of them."""
    for work in jobs:
        assert [ended.error for ended in everything(fleet, uuids, work)] == [None] * len(uuids)
    assert {fleet.hosting().journal.required(uuid).state for uuid in uuids} <= {State.TOMBSTONED}


@pytest.fixture(scope="module")
def counted(fleet: HostedFleet) -> tuple[list[str], list[str]]:
    """The points of one creation, and of its retirement."""
    uuid = member(fleet)
    fleet.write()
    found = points(fleet, uuid, converge), points(fleet, uuid, retire)
    del fleet.environments[uuid]
    fleet.write()
    return found


def test_a_sample_of_points(fleet: HostedFleet, counted: tuple[list[str], list[str]]) -> None:
    creates, retires = counted
    check(
        fleet, [creates.index(name) + 1 for name in CREATE_SAMPLE], [retires.index(name) + 1 for name in RETIRE_SAMPLE]
    )


@pytest.mark.soak
@pytest.mark.parametrize("offset", range(BATCH))
def test_every_point(fleet: HostedFleet, counted: tuple[list[str], list[str]], offset: int) -> None:
    creates, retires = (about_machines(names)[offset::BATCH] for names in counted)
    check(fleet, creates, retires)
