"""Proof that the owner can reach the service, judged from statuses."""

import pytest

from engine.errors import LivenessFailed
from engine.hosts.status import ChannelState
from engine.registry.settings import Liveness
from engine.updater.liveness import Restart, problems, wait_for_life
from tests.unit.updater.clocks import FakeClock
from tests.unit.updater.statuses import GATEWAY, gateway_state, status

RESTART = Restart(old_pid=1, started_at=40.0)


def test_a_healthy_gateway_has_no_problem():
    assert problems(gateway_state(), GATEWAY, None) == ()
    assert problems(gateway_state(), GATEWAY, RESTART) == ()


@pytest.mark.parametrize(
    ("state", "restart", "words"),
    [
        (gateway_state(active="failed", result="start-limit-hit"), None, "start-limit-hit"),
        (gateway_state(port_open=False), None, "port 8642 does not answer"),
        (
            gateway_state(channels={"local": ChannelState("retrying", 50.0)}),
            None,
            "channel local is retrying",
        ),
        (gateway_state(channels={}), None, "channel local is not reported"),
        (gateway_state(report_pid=99), None, "of process 99"),
        (gateway_state(main_pid=1), RESTART, "replaced nothing"),
        (gateway_state(channels={"local": ChannelState("connected", 10.0)}), RESTART, "since the restart"),
        (gateway_state(channels={"local": ChannelState("connected", None)}), RESTART, "since the restart"),
        (None, None, "says nothing"),
    ],
)
def test_what_stands_between_the_owner_and_the_gateway(state, restart, words):
    (problem,) = problems(state, GATEWAY, restart)
    assert words in problem


def run(states, restart=RESTART):
    """Feed one status a poll; the last one stays."""
    clock = FakeClock()
    remaining = list(states)

    def probe():
        state = remaining.pop(0) if len(remaining) > 1 else remaining[0]
        return status(gateway=state)

    wait_for_life(probe, GATEWAY, Liveness(), clock, restart=restart, where="maple")
    return clock.slept


def test_without_a_restart_a_healthy_gateway_is_believed_at_once():
    assert run([gateway_state()], restart=None) == 0


def test_after_a_restart_the_process_must_stay_for_five_seconds():
    assert run([gateway_state()]) == 5


def test_a_slow_channel_is_waited_for():
    slow = gateway_state(channels={"local": ChannelState("connecting", None)})
    assert run([slow] * 10 + [gateway_state()]) > 5


def test_a_crash_loop_that_is_up_between_crashes_is_not_life():
    looping = [gateway_state(main_pid=100 + n, restarts=n) for n in range(2000)]
    with pytest.raises(LivenessFailed) as caught:
        run(looping)
    assert "restarted" in caught.value.message


def test_a_channel_that_never_connects_ends_within_its_bound():
    with pytest.raises(LivenessFailed) as caught:
        run([gateway_state(channels={"local": ChannelState("retrying", 50.0)})])
    assert "channel local is retrying" in caught.value.message


def test_a_unit_that_systemd_gave_up_is_not_waited_for():
    clock = FakeClock()
    with pytest.raises(LivenessFailed):
        wait_for_life(
            lambda: status(gateway=gateway_state(active="failed", port_open=False)),
            GATEWAY,
            Liveness(),
            clock,
            restart=RESTART,
            where="maple",
        )
    assert clock.slept == 0
