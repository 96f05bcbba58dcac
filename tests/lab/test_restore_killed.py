"""An operator's process that dies in a restore: the tenant is the old one or the new one, and can be reached."""

from __future__ import annotations

from typing import Any

import pytest

from tests.lab.light_fleet import DEAD_MAN_SOON, PATIENT, LightFleet
from tests.lab.provision_runs import WatchedRun, killed_at
from tests.lab.restores import HEAD, back_up, fill, is_alive, leftovers, seen
from tests.lab.waiting import until

SECONDS = 120

CHANGE = "rm -r /srv/light/diary; echo new > /srv/light/stray; echo bye > /etc/light/greeting; rm -f /srv/light/fault"


def is_settled(fleet: LightFleet) -> bool:
    """Whether nothing acts by itself on the tenant any more."""
    return "deadman" not in leftovers(fleet) and is_alive(fleet)


def prepared(fleet: LightFleet, first: str = "") -> tuple[str, dict[str, Any], dict[str, Any]]:
    """An archive and what was there then, then a tenant that is otherwise now; its id and both."""
    fleet.run("maple", "rm -rf /etc/light")
    assert fleet.converge("maple").error is None
    fill(fleet)
    fleet.run("maple", first or "true")
    archived, archive = seen(fleet), back_up(fleet).archive
    fleet.run("maple", CHANGE)
    return archive, archived, seen(fleet)


def killed(fleet: LightFleet, phase: str, archive: str, *more: str) -> None:
    """A restore dies when `phase` begins, and nothing acts on the tenant any more."""
    fleet.change_settings(**DEAD_MAN_SOON)
    words = f"maple {phase}: "
    killed_at(fleet, words, "restore", "maple", "--confirm", "maple", "--archive", archive, *more)
    until(lambda: is_settled(fleet), f"the tenant is settled after a kill in {phase}", SECONDS)
    assert fleet.marker("maple") == HEAD
    fleet.change_settings(**PATIENT)


@pytest.mark.parametrize(
    "phase", ["archive", "unpack", "recovery", "quiesce", "exchange", "restart", "liveness", "commit"]
)
def test_a_killed_restore_ends_with_the_old_tenant_or_the_new_one(maple: LightFleet, phase: str):
    archive, archived, before = prepared(maple)
    killed(maple, phase, archive)
    assert seen(maple) == (archived if phase == "commit" else before)
    # The same command once more brings it to its end.
    ended = WatchedRun(maple.cli("restore", "maple", "--confirm", "maple"), "maple").end()
    assert ended.code == 0, ended.error
    assert seen(maple) == archived and is_alive(maple) and leftovers(maple) == ""


def test_a_killed_restore_of_one_path_is_undone_too(maple: LightFleet):
    path = ("--path", "/srv/light/diary")
    archive, archived, before = prepared(maple)
    killed(maple, "liveness", archive, *path)
    assert seen(maple) == before
    # What is left of it is nothing that another one waits for.
    assert WatchedRun(maple.cli("restore", "maple", "--confirm", "maple", *path), "maple").end().code == 0
    diary = {name: entry for name, entry in archived["files"].items() if name.startswith("/srv/light/diary")}
    assert diary and seen(maple)["files"] == {**before["files"], **diary}
    assert is_alive(maple) and leftovers(maple) == ""


def test_a_restore_that_dies_while_it_is_undone_is_undone_by_the_tenant(maple: LightFleet):
    archive, _, before = prepared(maple, "echo crash > /srv/light/fault")
    killed(maple, "rollback", archive)
    assert seen(maple) == before
