"""An operator's process that dies in a restore: the tenant is the old one or the new one, and can be reached."""

from __future__ import annotations

import pytest

from tests.lab.light_fleet import DEAD_MAN_SOON, PATIENT, LightFleet
from tests.lab.provision_runs import WatchedRun, killed_at
from tests.lab.restores import HEAD, back_up, fill, is_alive, leftovers, seen
from tests.lab.waiting import until

SECONDS = 120

CHANGE = "rm -r /srv/light/diary; echo new > /srv/light/stray; echo bye > /etc/light/greeting"


def is_settled(fleet: LightFleet) -> bool:
    """Whether nothing acts by itself on the tenant any more."""
    return "deadman" not in leftovers(fleet) and is_alive(fleet)


@pytest.mark.parametrize(
    "phase", ["archive", "unpack", "recovery", "quiesce", "exchange", "restart", "liveness", "commit"]
)
def test_a_killed_restore_ends_with_the_old_tenant_or_the_new_one(maple: LightFleet, phase: str):
    maple.run("maple", "rm -rf /etc/light")
    assert maple.converge("maple").error is None
    fill(maple)
    archived = seen(maple)
    archive = back_up(maple).archive
    maple.run("maple", CHANGE)
    before = seen(maple)
    maple.change_settings(**DEAD_MAN_SOON)
    killed_at(maple, f"maple {phase}: ", "restore", "maple", "--confirm", "maple", "--archive", archive)
    until(lambda: is_settled(maple), f"the tenant is settled after a kill in {phase}", SECONDS)
    now = seen(maple)
    assert now == (archived if phase == "commit" else before)
    assert maple.marker("maple") == HEAD
    # The same command once more brings it to its end.
    maple.change_settings(**PATIENT)
    ended = WatchedRun(maple.cli("restore", "maple", "--confirm", "maple"), "maple").end()
    assert ended.code == 0, ended.error
    assert seen(maple) == archived and is_alive(maple) and leftovers(maple) == ""
