"""Two operators who give the same command at once, over real parents: one proceeds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from engine.cli.app import run
from engine.environments.journal import Action, Outcome, State
from engine.environments.parents import LabParents
from engine.environments.spec import TIER
from tests.lab.environments.tier_fleet import TierFleet
from tests.local.environments.processes import Stopped, stopped_at

FAILED, BUSY = 1, 75


@pytest.fixture
def fleet(tmp_path: Path, parents_state: Path, parents: LabParents) -> TierFleet:
    return TierFleet(tmp_path / "fleet", parents_state).write(parents)


def stopped_after_commit(fleet: TierFleet, number: int, *command: str) -> Stopped:
    """The operator `one`, stopped once so many transactions of the journal were committed."""
    left = [number]

    def chosen(point: str) -> bool:
        left[0] -= point == "after commit"
        return left[0] == 0

    def work(reach: Callable[[str], None]) -> int:
        return run(fleet.arguments("one", *command))

    stopped = stopped_at(chosen, work)
    assert stopped is not None
    return stopped


def once_each(fleet: TierFleet, tier: str, action: Action) -> bool:
    effects = [item for item in fleet.journal().effects(tier) if item.action is action]
    return sorted(item.kind for item in effects) == sorted(TIER) and {item.outcome for item in effects} == {
        Outcome.DONE
    }


def test_with_one_state_directory_the_second_is_busy(fleet: TierFleet) -> None:
    tier = fleet.tiers[0]
    fleet.journal()
    # It began, and has committed the intent of the database: the lock is held.
    first = stopped_after_commit(fleet, 2, "tier", "create", tier)
    before = fleet.journal().effects(tier)
    for command in ("create", "abandon"):
        code, said = fleet.run("one", "tier", command, tier)
        assert code == BUSY, said
    assert fleet.journal().effects(tier) == before
    assert first.go_on() == 0
    assert (fleet.journal().required(tier).state, once_each(fleet, tier, Action.CREATE)) == (State.READY, True)


def test_with_two_on_one_journal_each_effect_is_sent_by_one(fleet: TierFleet) -> None:
    tier = fleet.tiers[0]
    fleet.journal()
    first = stopped_after_commit(fleet, 2, "tier", "create", tier)
    code, document = fleet.run("two", "tier", "create", tier)
    assert (code, "createOutcomeUnknown" in document["subjects"][0]["error"]) == (FAILED, True)
    assert first.go_on() == 0
    assert (fleet.journal().required(tier).state, once_each(fleet, tier, Action.CREATE)) == (State.READY, True)
    code, document = fleet.run("two", "tier", "create", tier)
    assert (code, document["subjects"][0]["done"]) == (0, [])
