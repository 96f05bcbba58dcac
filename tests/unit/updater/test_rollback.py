"""Which recovery set a rollback goes to."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from engine.errors import Refused
from engine.hosts.status import Armed, RecoverySet
from engine.recovery.undo import Undone
from engine.updater.rollback import choose, require_unfinished
from tests.unit.updater.statuses import status

SETS = (
    RecoverySet("r1", None, "2026.10.1", 1.0),
    RecoverySet("r2", "2026.10.1", "2026.10.2", 2.0),
    RecoverySet("r3", "2026.10.2", "2026.10.3", 3.0),
    RecoverySet("r4", "2026.10.2", "2026.10.3", 4.0),
    RecoverySet("r5", "2026.10.3", "2026.10.4", 5.0, undone=6.0),
)


@pytest.mark.parametrize(
    ("to", "run"),
    [(None, "r4"), ("r2", "r2"), ("2026.10.2", "r4"), ("2026.10.02", "r4"), ("2026.10.1", "r2"), ("zero", "r1")],
)
def test_the_newest_that_was_not_undone_or_the_one_that_is_named(to: str | None, run: str):
    assert choose(SETS, to, "maple").run == run


@pytest.mark.parametrize("to", ["2026.10.3", "r5", "r9", "what?"])
def test_one_that_was_undone_or_never_was_is_refused_with_those_that_there_are(to: str):
    with pytest.raises(Refused) as caught:
        choose(SETS, to, "maple")
    assert to in str(caught.value) and "2026.10.1 (run r2" in str(caught.value) and "r5" not in caught.value.hint


def test_an_older_set_is_refused_while_a_later_one_holds_moved_files():
    sets = (*SETS[:2], replace(SETS[2], moved=True), SETS[3])
    with pytest.raises(Refused, match="tenantry rollback maple --to r3") as caught:
        choose(sets, "r2", "maple")
    assert "run r3" in str(caught.value)
    assert choose(sets, "r3", "maple").run == "r3" and choose(sets, None, "maple").run == "r4"
    assert choose((*sets[:2], replace(sets[2], undone=7.0)), "r2", "maple").run == "r2"


def test_a_dead_man_that_was_faster_is_not_taken_for_another_step_back():
    armed, done = status(armed=Armed("r4", "r4", "2026.10.3")), status()
    with pytest.raises(Refused, match="just put itself back from run r4"):
        require_unfinished(armed, done, "maple")
    for asked, claimed in ((armed, armed), (done, done), (done, armed)):
        require_unfinished(asked, claimed, "maple")


def test_without_any_set_the_way_back_is_a_backup():
    with pytest.raises(Refused, match="tenantry restore maple"):
        choose((), None, "maple")


UNDONE = Undone(
    aside="/a/r9",
    state_put_back=False,
    given_back={},
    newer_in=None,
    newer_messages=None,
    changed=(),
    old_pid=1,
    started_at=2.0,
    problems=(),
)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"aside": None}, []),
        ({}, ["what was replaced is kept in /a/r9"]),
        ({"changed": ("/etc/x",)}, ["1 paths were put back; what they were is kept in /a/r9"]),
        ({"state_put_back": True, "newer_in": "/a/r9/state", "newer_messages": 2}, ["its form had changed", "2 newer"]),
        ({"newer_in": "/a/r9/state/0"}, ["came back out of the set; the state since then, with an unknown number of"]),
        ({"given_back": {"/srv": "/a/r9/state/0", "/etc/x": "/a/r9/configuration/1"}}, ["/etc/x in /a/r9/conf"]),
    ],
)
def test_whatever_went_aside_is_named(changes: dict[str, Any], words: list[str]):
    said = "\n".join(replace(UNDONE, **changes).messages)
    assert all(word in said for word in words) and bool(said) == bool(words)
