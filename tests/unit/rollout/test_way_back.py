"""The way back of a tenant that a rollout has changed."""

from __future__ import annotations

import pytest

from engine.errors import Refused, UnknownState
from engine.hosts.status import Marker, MarkerState, RecoverySet
from engine.releases.version import Version
from engine.rollout.live import way_back
from tests.unit.fleets import make_tenant
from tests.unit.updater.statuses import status

ROLLOUT = "20261129T120000Z-aaaaaaaa"
TARGET = "2026.11.29"


def found(run: str, from_version: str, undone: float | None = None) -> RecoverySet:
    return RecoverySet(run, from_version, TARGET, 0.0, undone=undone)


BEFORE = found("20261122T120000Z-bbbbbbbb", "2026.11.20")
OWN = found("20261129T120001Z-cccccccc", "2026.11.22")
REPAIR = found("20261129T130000Z-dddddddd", TARGET)


AT_TARGET = Marker(MarkerState.PRESENT, Version.parse(TARGET))


def chosen(sets: list[RecoverySet], known: str | None, marker: Marker = AT_TARGET) -> RecoverySet | None:
    return way_back(make_tenant(), status(marker=marker, recovery=sets), known, ROLLOUT, Version.parse(TARGET))


def test_the_known_set_leads_back_whatever_came_since() -> None:
    assert chosen([BEFORE, OWN, REPAIR], OWN.run) is OWN
    # One that an earlier job opened and this rollout went on from.
    assert chosen([BEFORE, REPAIR], BEFORE.run) is BEFORE


def test_an_unknown_one_is_the_oldest_since_the_rollout_began() -> None:
    assert chosen([BEFORE, OWN, REPAIR], None) is OWN
    with pytest.raises(Refused, match="no recovery set of this rollout"):
        chosen([BEFORE], None)


def test_a_repair_at_the_target_does_not_lead_before_the_rollout() -> None:
    with pytest.raises(Refused):
        chosen([BEFORE, REPAIR], OWN.run)


def test_where_a_person_converged_again_after_it_was_put_back_that_way_is_taken() -> None:
    undone = found(OWN.run, "2026.11.22", undone=5.0)
    again = found("20261129T140000Z-eeeeeeee", "2026.11.22")
    assert chosen([BEFORE, undone, again], OWN.run) is again


def test_only_one_that_is_known_to_be_elsewhere_is_back_already() -> None:
    undone = found(OWN.run, "2026.11.22", undone=5.0)
    assert chosen([undone], OWN.run, Marker(MarkerState.PRESENT, Version.parse("2026.11.22"))) is None
    assert chosen([undone], OWN.run, Marker(MarkerState.ABSENT)) is None
    with pytest.raises(UnknownState):
        chosen([undone], OWN.run, Marker(MarkerState.UNREADABLE, problem="half a version"))
