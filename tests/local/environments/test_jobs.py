"""The frame of every job on an environment: what fails is that job's end, whatever failed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from engine.environments import life, verbs
from engine.environments.conditions import Verb
from engine.environments.drivers.base import Kind
from engine.environments.hosting import Hosting, open_hosting, run_job
from engine.environments.hosting.jobs import Ended, Job
from engine.environments.inventory_file import INVENTORY
from engine.environments.journal import State
from engine.errors import Busy, InvalidInput, NeedsAttention, Refused
from engine.records import RunResult
from engine.registry.environments import ENVIRONMENTS_FILE, load_environments
from engine.subject import Subject
from tests.fleets import write_whole_fleet
from tests.local.environments.kills import killed_at, pointed
from tests.local.environments.simulated import Store, simulated_drivers
from tests.local.environments.subjects import World, world
from tests.unit.hosted import OWN, TIER, write_hosted_fleet

SUBJECT = Subject("env", OWN)


@pytest.fixture
def hosting(tmp_path: Path) -> Hosting:
    return open_hosting(write_hosted_fleet(write_whole_fleet(tmp_path / "fleet")), tmp_path / "state")


def test_a_journal_that_cannot_be_read_is_the_jobs_error_and_its_record_is_closed(hosting: Hosting) -> None:
    hosting.journal_file.parent.mkdir(parents=True)
    hosting.journal_file.write_bytes(b"not a journal, but long enough to be read as a file of its sort\n" * 20)

    def look(job: Job) -> Ended:
        hosting.journal.subject(job.uuid)
        return job.ended()

    ended = run_job(hosting, SUBJECT, "create", look)
    assert (ended.result, ended.state) == (RunResult.FAILED, None)
    assert "the journal cannot be used" in str(ended.error)
    assert [entry["result"] for entry in hosting.runs.history(SUBJECT)] == ["failed"]


def test_a_refusal_before_anything_began_makes_no_journal(hosting: Hosting) -> None:
    def refuse(job: Job) -> Ended:
        raise Refused("not today")

    ended = run_job(hosting, SUBJECT, "create", refuse)
    assert (ended.result, ended.state, hosting.journal_file.exists()) == (RunResult.FAILED, None, False)


def fleet_world(directory: Path, reach: Callable[[str], None] = lambda point: None) -> tuple[Hosting, World]:
    """A fleet of which the providers are simulated, and its environment."""
    if not (directory / "fleet").exists():
        write_hosted_fleet(write_whole_fleet(directory / "fleet"))
    hosting = open_hosting(directory / "fleet", directory / "state")
    drivers = pointed(simulated_drivers(Store(directory / "provider.json")), reach)
    found = world(hosting.journal_file.parent, drivers, hosting.specifications[OWN])
    return hosting, replace(found, parts=replace(found.parts, before_letting_go=hosting.mark_retired))


def lost_create(subject: World) -> None:
    driver = subject.parts.drivers[Kind.BUCKET]
    driver._driver.store.faults["create", Kind.BUCKET] = ["done"]  # type: ignore[attr-defined]
    with pytest.raises(NeedsAttention):
        subject.create()


JOBS: Mapping[str, tuple[Callable[[World], object], Callable[[World], object]]] = {
    "abandon": (lost_create, lambda subject: life.abandon(subject.parts, OWN)),
    "retire": (World.create, lambda subject: verbs.retire(subject.parts, OWN)),
    "verb": (lost_create, lambda subject: verbs.run(subject.parts, Verb.RECLAIM_UNJOURNALLED_CREATE, OWN)),
}


@pytest.mark.parametrize("job", JOBS)
def test_whoever_is_killed_while_letting_go_has_told_the_inventory(tmp_path: Path, job: str) -> None:
    prepare, work = JOBS[job]
    hosting, subject = fleet_world(tmp_path)
    prepare(subject)
    before = subject.state
    for point in range(1, 100):
        assert killed_at(point, lambda reach: work(fleet_world(tmp_path, reach)[1]))
        if subject.state is not before:
            break
    assert load_environments(hosting.fleet.root).environments[OWN].retired


@pytest.mark.parametrize("job", JOBS)
def test_nothing_is_let_go_of_while_the_inventory_cannot_be_told(tmp_path: Path, job: str) -> None:
    prepare, work = JOBS[job]
    hosting, subject = fleet_world(tmp_path)
    prepare(subject)
    before = (subject.state, subject.parts.journal.effects(OWN), (hosting.fleet.root / ENVIRONMENTS_FILE).read_bytes())
    with hosting.locks.hold(INVENTORY, job="env", run="r"), pytest.raises(Busy):
        work(subject)
    after = (subject.state, subject.parts.journal.effects(OWN), (hosting.fleet.root / ENVIRONMENTS_FILE).read_bytes())
    assert after == before


def test_a_tier_with_planned_members_is_not_given_up(tmp_path: Path) -> None:
    hosting, subject = fleet_world(tmp_path)
    tier = subject.of(hosting.specifications[TIER])
    tier.parts.journal.begin(tier.spec.subject())
    with pytest.raises(InvalidInput, match="only without members"):
        life.abandon(tier.parts, TIER)
    assert tier.state is State.CREATING
