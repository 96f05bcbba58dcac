"""The way back of a tenant that a rollout has changed."""

from __future__ import annotations

from engine.hosts.status import RecoverySet
from engine.rollout.live import way_back

ROLLOUT = "20261129T120000Z-aaaaaaaa"
TARGET = "2026.11.29"


def found(run: str, from_version: str, undone: float | None = None) -> RecoverySet:
    return RecoverySet(run, from_version, TARGET, 0.0, undone=undone)


BEFORE = found("20261122T120000Z-bbbbbbbb", "2026.11.20")
OWN = found("20261129T120001Z-cccccccc", "2026.11.22")
REPAIR = found("20261129T130000Z-dddddddd", TARGET)


def test_the_known_set_leads_back_whatever_came_since() -> None:
    assert way_back([BEFORE, OWN, REPAIR], OWN.run, ROLLOUT, TARGET) is OWN
    # One that an earlier job opened and this rollout went on from.
    assert way_back([BEFORE, REPAIR], BEFORE.run, ROLLOUT, TARGET) is BEFORE


def test_an_unknown_one_is_the_oldest_since_the_rollout_began() -> None:
    assert way_back([BEFORE, OWN, REPAIR], None, ROLLOUT, TARGET) is OWN
    assert way_back([BEFORE], None, ROLLOUT, TARGET) is None


def test_a_repair_at_the_target_does_not_lead_before_the_rollout() -> None:
    assert way_back([BEFORE, REPAIR], OWN.run, ROLLOUT, TARGET) is None


def test_where_a_person_converged_again_after_it_was_put_back_that_way_is_taken() -> None:
    undone = found(OWN.run, "2026.11.22", undone=5.0)
    again = found("20261129T140000Z-eeeeeeee", "2026.11.22")
    assert way_back([BEFORE, undone], OWN.run, ROLLOUT, TARGET) is None
    assert way_back([BEFORE, undone, again], OWN.run, ROLLOUT, TARGET) is again
