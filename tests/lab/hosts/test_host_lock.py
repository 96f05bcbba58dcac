"""The host-side lock: one run at a time, survivors awaited, effects there once."""

from __future__ import annotations

import gevent
import pytest

from engine.errors import ArchiveRejected, Busy, CommandLost, CommandTimedOut, StaleRun
from engine.hosts import host_lock
from engine.hosts.host_lock import Guarded
from tests.lab.hosts.bare_fleet import BareFleet
from tests.lab.waiting import until

QUICK = {"survivor_poll_seconds": 0.1}
WAITING = "touch /root/started; while [ ! -e /root/go ]; do sleep 0.1; done"


def test_a_later_claim_makes_the_earlier_run_stale(bare: BareFleet):
    with bare.session() as first, bare.session() as second:
        first.claim("run-1")
        first.check("echo x >> /root/n")
        second.claim("run-2")
        with pytest.raises(StaleRun, match="run run-2 has claimed the host after run run-1"):
            first.execute("echo x >> /root/n")
        second.check("echo y >> /root/n")
    assert bare.run("cat /root/n") == "x\ny\n"


def test_the_lock_names_the_run_and_the_command_while_it_is_held(bare: BareFleet):
    with bare.session(**QUICK) as first, bare.session(survivor_seconds=0.5, **QUICK) as second:
        first.claim("run-1")
        holding = gevent.spawn(first.execute, WAITING)
        until(lambda: bare.has("/root/started"), "the command runs")
        status = second.probe()
        assert status.host_lock.held and status.host_lock.run == "run-1"
        with pytest.raises(Busy) as busy:
            second.claim("run-2")
        assert "run-1" in str(busy.value) and WAITING in str(busy.value)
        bare.run("touch /root/go")
        assert holding.get(timeout=30).status == 0
        second.claim("run-2")
        assert second.probe().host_lock.held is False


@pytest.mark.parametrize("chatter", ["", "seq 1 200000; seq 1 200000 >&2; "], ids=["silent", "talking"])
def test_a_command_that_outlives_its_link_ends_once_and_is_awaited(bare: BareFleet, chatter: str):
    """The link is cut in the middle of a long step; the next run waits for it and finds its effect once."""
    command = f"{WAITING}; {chatter}echo x >> /root/n"
    with bare.session(keepalive_seconds=1, dead_link_seconds=3) as session:
        session.claim("run-1")
        cut = gevent.spawn(_cut_when_started, bare)
        with pytest.raises(CommandLost, match="outcome is unknown"):
            session.execute(command, timeout_seconds=30)
        cut.join()
    bare.lab.restore_link("maple")
    with bare.session(**QUICK) as session:
        waiting = gevent.spawn(session.claim, "run-2")
        until(lambda: session.probe().host_lock.held, "the survivor holds the lock")
        assert not waiting.ready() and not bare.has("/root/n")
        bare.run("touch /root/go")
        waiting.get(timeout=30)
        assert session.read_file("/root/n") == b"x\n"
        session.check("true")


def test_a_command_starts_only_when_all_of_its_input_has_come(bare: BareFleet):
    with bare.session() as session:
        session.claim("run-1")
        line = host_lock.guard("run-1", "n1", Guarded("cat > /root/part", "write", stdin_bytes=1000))
        bare_output = bare.run(f"{line}; echo status $?", stdin=b"x" * 999)
        assert "status 121" in bare_output and not bare.has("/root/part")
        session.check("cat > /root/whole", stdin=b"x" * 1000)
    assert bare.run("wc -c < /root/whole").strip() == "1000"
    assert not bare.has("/var/lib/tenantry/input")


def test_a_command_cannot_pretend_to_be_refused(bare: BareFleet):
    with bare.session() as session:
        session.claim("run-1")
        output = session.execute("echo 'tenantry 0123 busy' >&2; exit 121")
    assert output.status == 121


def test_the_probe_neither_takes_nor_makes_the_lock(bare: BareFleet):
    with bare.session() as session:
        assert session.probe().host_lock.held is False
        assert not bare.has("/var/lib/tenantry")


def _cut_when_started(bare: BareFleet) -> None:
    until(lambda: bare.has("/root/started"), "the command runs")
    bare.lab.cut("maple")


class Broken:
    """A sink that cannot take what comes."""

    def write(self, data: bytes) -> None:
        raise ArchiveRejected("no room")


def test_a_direct_command_ends_with_its_link_and_leaves_the_host_free(bare: BareFleet):
    endless = "touch /root/began; while echo noise; do sleep 0.01; done; touch /root/ended"
    with bare.session() as session:
        session.claim("run-1")
        with pytest.raises(ArchiveRejected):
            session.execute(endless, stdout=Broken(), direct=True)
    with bare.session(**QUICK) as session:
        session.claim("run-2")
        assert session.probe().host_lock.held is False
    assert bare.has("/root/began")


def test_a_command_that_prints_without_an_end_is_bounded(bare: BareFleet):
    with bare.session() as session:
        session.claim("run-1")
        with pytest.raises(CommandTimedOut):
            session.execute("exec yes", timeout_seconds=1, direct=True)
