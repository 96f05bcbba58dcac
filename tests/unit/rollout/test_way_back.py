"""The way back of a tenant that a rollout has changed."""

from __future__ import annotations

import pytest

from engine.errors import Refused
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
    assert way_back([BEFORE, OWN, REPAIR], OWN.run, ROLLOUT, TARGET, "maple") is OWN
    # One that an earlier job opened and this rollout went on from.
    assert way_back([BEFORE, REPAIR], BEFORE.run, ROLLOUT, TARGET, "maple") is BEFORE


def test_an_unknown_one_is_the_oldest_since_the_rollout_began() -> None:
    assert way_back([BEFORE, OWN, REPAIR], None, ROLLOUT, TARGET, "maple") is OWN
    with pytest.raises(Refused, match="no recovery set of this rollout"):
        way_back([BEFORE], None, ROLLOUT, TARGET, "maple")


def test_one_whose_sets_are_all_undone_is_back() -> None:
    undone = found(OWN.run, "2026.11.22", undone=5.0)
    assert way_back([BEFORE, undone], None, ROLLOUT, TARGET, "maple").undone
    assert way_back([undone, REPAIR], None, ROLLOUT, TARGET, "maple") is REPAIR


def test_a_set_that_is_gone_is_no_way_back() -> None:
    with pytest.raises(Refused):
        way_back([BEFORE], "20261129T120001Z-eeeeeeee", "20261129T120000Z-aaaaaaaa", TARGET, "maple")
