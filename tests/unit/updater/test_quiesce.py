"""When a restart does not cut into a conversation."""

import dataclasses

import pytest

from engine.errors import ExitCode, NotQuiet, UnknownState
from engine.hosts.status import HistoryState
from engine.registry.settings import Quiesce
from engine.updater.quiesce import Quietness, quietness, wait_for_silence
from tests.unit.updater.clocks import FakeClock
from tests.unit.updater.statuses import GATEWAY, gateway_state, status

NOW = 1_790_000_000.0


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"newest_message": NOW - 90}, Quietness.QUIET),
        ({"newest_message": NOW - 89.9}, Quietness.IN_CONVERSATION),
        ({"newest_message": NOW + 600}, Quietness.IN_CONVERSATION),
        ({"newest_message": NOW * 1000}, Quietness.IN_CONVERSATION),
        ({"history": HistoryState.MISSING, "newest_message": None}, Quietness.UNKNOWN),
        ({"history": HistoryState.UNREADABLE, "newest_message": None}, Quietness.UNKNOWN),
        ({"history": HistoryState.EMPTY, "newest_message": None}, Quietness.QUIET),
    ],
)
def test_an_active_gateway(changes, expected):
    assert quietness(gateway_state(**changes), NOW, GATEWAY, Quiesce()) is expected


def test_an_empty_history_is_unknown_unless_it_is_declared_quiet():
    strict = dataclasses.replace(GATEWAY, empty_history_is_quiet=False)
    state = gateway_state(history=HistoryState.EMPTY, newest_message=None)
    assert quietness(state, NOW, strict, Quiesce()) is Quietness.UNKNOWN


@pytest.mark.parametrize("active", ["inactive", "failed"])
def test_an_inactive_gateway_is_quiet_whatever_its_history(active):
    state = gateway_state(active=active, history=HistoryState.MISSING, newest_message=None)
    assert quietness(state, NOW, GATEWAY, Quiesce()) is Quietness.QUIET


def test_a_gateway_between_two_attempts_to_start_has_nobody_to_disturb():
    state = gateway_state(active="activating", sub="auto-restart", history=HistoryState.MISSING, newest_message=None)
    assert quietness(state, NOW, GATEWAY, Quiesce()) is Quietness.QUIET


def test_a_gateway_that_is_starting_is_not_inactive():
    state = gateway_state(active="activating", history=HistoryState.MISSING, newest_message=None)
    assert quietness(state, NOW, GATEWAY, Quiesce()) is Quietness.UNKNOWN


def wait(newest_message_at):
    clock = FakeClock()

    def probe():
        now = NOW + clock.slept
        return status(clock=now, gateway=gateway_state(newest_message=newest_message_at(now)))

    polls = wait_for_silence(probe, GATEWAY, Quiesce(), clock, where="maple", tell=lambda message: None)
    return polls, clock.slept


def test_it_waits_until_the_conversation_has_been_silent_long_enough():
    assert wait(lambda now: NOW - 50) == (4, 45)


def test_a_silent_gateway_is_not_waited_for():
    assert wait(lambda now: NOW - 1000) == (1, 0)


def test_a_conversation_that_never_ends_defers_the_run_after_forty_polls():
    slept = FakeClock()

    def probe():
        return status(clock=NOW + slept.slept, gateway=gateway_state(newest_message=NOW + slept.slept - 30))

    with pytest.raises(NotQuiet) as caught:
        wait_for_silence(probe, GATEWAY, Quiesce(), slept, where="maple", tell=lambda message: None)
    assert caught.value.exit_code is ExitCode.DEFERRED
    assert slept.slept == 39 * 15


def test_an_unknown_history_stops_at_once():
    with pytest.raises(UnknownState):
        wait_for_silence(
            lambda: status(gateway=gateway_state(history=HistoryState.UNREADABLE, newest_message=None)),
            GATEWAY,
            Quiesce(),
            FakeClock(),
            where="maple",
            tell=lambda message: None,
        )
