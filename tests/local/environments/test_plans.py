"""A plan says what a converge would do: with the data of what is retired, and where it would stop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from engine.cli.env_life import plan_code
from engine.environments.drivers.base import Kind
from engine.environments.effects import Step
from engine.environments.hosting import Hosting, SubjectPlan, open_hosting, plan_of
from engine.environments.journal import State
from engine.environments.life import DATA, RETENTION
from engine.environments.observation import Unknown
from engine.environments.parents import ParentKind, ParentSeen
from engine.environments.verbs import retire
from engine.errors import ExitCode
from tests.fleets import write_whole_fleet
from tests.local.environments.simulated import Store, simulated_drivers
from tests.local.environments.subjects import World, world
from tests.unit.hosted import OWN, PIN, write_hosted_fleet

HOURS = 3600
PINNED = {kind: ParentSeen(kind, PIN, "1", ()) for kind in ParentKind}


@dataclass(frozen=True)
class Parents:
    """Parents that are seen as they are given."""

    seen: Mapping[ParentKind, ParentSeen | Unknown]

    def observe(self, kind: ParentKind) -> ParentSeen | Unknown:
        return self.seen[kind]


@dataclass(frozen=True)
class Site:
    """A fleet with one environment whose providers are simulated."""

    root: Path
    subject: World

    def hosting(self, seen: Mapping[ParentKind, ParentSeen | Unknown]) -> Hosting:
        hosting = open_hosting(self.root, self.root / "var")
        vars(hosting).update(drivers=self.subject.parts.drivers, parents=Parents(seen))
        object.__setattr__(hosting, "clock", self.subject.clock)
        return hosting

    def plan(self, seen: Mapping[ParentKind, ParentSeen | Unknown] = PINNED) -> SubjectPlan:
        return plan_of(self.hosting(seen), OWN)

    def steps(self) -> dict[Kind, Step]:
        return {item.kind: item.step for item in self.plan().resources}


@pytest.fixture
def site(tmp_path: Path) -> Site:
    root = write_hosted_fleet(write_whole_fleet(tmp_path / "fleet"))
    hosting = open_hosting(root, root / "var")
    drivers = simulated_drivers(Store(tmp_path / "provider.json"))
    found = world(hosting.journal_file.parent, drivers, hosting.specifications[OWN])
    return Site(root, replace(found, parts=replace(found.parts, before_letting_go=hosting.mark_retired)))


def words(plan: SubjectPlan) -> set[str | None]:
    assert {item.step for item in plan.resources} == {Step.STOP}
    return {item.word for item in plan.resources}


def test_data_of_what_is_retired_goes_when_it_was_kept_long_enough(site: Site) -> None:
    site.subject.create()
    site.hosting(PINNED).mark_retired(OWN)
    for hours in (0, 167):
        site.subject.clock.sleep(hours * HOURS)
        assert {kind for kind, step in site.steps().items() if step is Step.DELETE} == set(Kind) - DATA
        # What has yet to retire keeps its data for 168 h from then on, and what is retiring from when it began.
        site.subject.parts.journal.writer(OWN).retire(RETENTION)
    site.subject.clock.sleep(HOURS)
    assert {kind for kind, step in site.steps().items() if step is Step.DELETE} == set(Kind)
    assert retire(site.subject.parts, OWN) is State.TOMBSTONED
    assert site.plan().resources == ()


def test_what_was_never_ready_is_not_retired(site: Site) -> None:
    site.subject.parts.journal.begin(site.subject.spec.subject())
    site.hosting(PINNED).mark_retired(OWN)
    assert words(site.plan()) == {"notReady"}
    assert plan_code(site.plan(), exit_code=True) is ExitCode.FAILED


@pytest.mark.parametrize(("state", "word"), [("abandoned", "notCreating"), ("tombstoned", "alreadyTombstoned")])
def test_what_was_let_go_of_never_comes_back(site: Site, state: str, word: str) -> None:
    site.subject.parts.journal.begin(site.subject.spec.subject()).move(State(state))
    assert words(site.plan()) == {word}


@pytest.mark.parametrize(
    ("parent", "word", "code"),
    [
        (ParentSeen(ParentKind.OBJECTS, "sha256:" + "b" * 64, "1", ()), "parentUnrecognized", ExitCode.FAILED),
        (Unknown("notRunning"), "notRunning", ExitCode.UNREACHABLE),
    ],
)
def test_nothing_is_planned_on_a_parent_that_is_not_recognized(
    site: Site, parent: ParentSeen | Unknown, word: str, code: ExitCode
) -> None:
    plan = site.plan({**PINNED, ParentKind.OBJECTS: parent})
    assert (words(plan), plan_code(plan, exit_code=True)) == ({word}, code)
