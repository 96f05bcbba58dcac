"""When the dead-man acts, by clocks and signs of life of this machine's making, and that it leaves nothing behind."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from engine.recovery.assembly import assembled
from engine.recovery.dead_man import TICK
from tests.local.recovering import Tenant, modules

SECONDS = 60
ARM = {"set": "r1", "run": "r1", "head": "2026.10.2", "seconds": SECONDS, "poll_seconds": 5, "program": "pass\n"}

Clock = Callable[[float], None]


@pytest.fixture
def tenant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tenant:
    """A tenant with the set of run r1, which has claimed the host, a changed file, and an armed dead-man."""
    made = Tenant.create(tmp_path, monkeypatch)
    made.take("r1")
    (made.home / "run").write_text("r1\n")
    (made.home / "lock").write_text("r1\nsome command\n")
    (made.base / "etc/app/main.conf").write_text("new\n")
    made.run(assembled("dead_man.arm(PARAMETERS)"), ARM)
    return made


@pytest.fixture
def pass_time(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Let time since the boot go on by seconds; it stands still otherwise."""
    now = [1000.0]
    real = time.clock_gettime

    def gettime(clock: int) -> float:
        return now[0] if clock == time.CLOCK_BOOTTIME else real(clock)

    def advance(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr(time, "clock_gettime", gettime)
    return advance


def tick(tenant: Tenant) -> str:
    said: str = tenant.run(assembled("RESULT = " + TICK))
    return said


def is_back(tenant: Tenant) -> bool:
    return (tenant.base / "etc/app/main.conf").read_text() == "old\n"


def command_runs(tenant: Tenant) -> None:
    """What the host-side lock notes when another command of the run begins."""
    (tenant.home / "lock").write_text("r1\nanother command\n")
    os.utime(tenant.home / "lock", ns=(0, time.time_ns() + 1_000_000))


def test_arming_lays_down_a_timer_and_disarming_takes_it_away(tenant: Tenant):
    order = json.loads((tenant.home / "deadman/armed.json").read_text())
    assert (order["set"], order["run"], order["seconds"]) == ("r1", "r1", SECONDS)
    assert "OnUnitInactiveSec=5s" in (tenant.base / "units/tenantry-deadman.timer").read_text()
    assert f"{tenant.home}/deadman/tick.py" in (tenant.base / "units/tenantry-deadman.service").read_text()
    assert "enable --now tenantry-deadman.timer" in tenant.told()
    tenant.run(assembled("dead_man.disarm()"))
    assert not (tenant.home / "deadman").exists() and not list((tenant.base / "units").glob("tenantry-*"))
    assert "disable --now tenantry-deadman.timer" in tenant.told()


def test_it_acts_when_no_command_came_for_as_long_as_one_may_take(tenant: Tenant, pass_time: Clock):
    assert tick(tenant) == "not due"
    pass_time(SECONDS - 1)
    assert tick(tenant) == "not due" and not is_back(tenant)
    pass_time(1)
    assert tick(tenant) == "undone" and is_back(tenant)
    held = json.loads((tenant.home / "held.json").read_text())
    assert (held["by"], held["run"], held["head"]) == ("dead-man", "r1", "2026.10.2")
    assert (tenant.home / "run").read_text() == "dead-man-r1\n"
    assert json.loads((tenant.set_of("r1") / "dead-man.json").read_text())["outcome"] == "undone"
    assert not (tenant.home / "deadman").exists() and not list((tenant.base / "units").glob("tenantry-*"))


def test_each_command_and_each_claim_is_a_sign_of_life(tenant: Tenant, pass_time: Clock):
    for sign in (lambda: command_runs(tenant), lambda: (tenant.home / "run").write_text("r2\n")):
        tick(tenant)
        pass_time(SECONDS - 1)
        sign()
        assert tick(tenant) == "not due"
        pass_time(SECONDS - 1)
        assert tick(tenant) == "not due"
    pass_time(1)
    assert tick(tenant) == "undone"


def test_while_a_command_runs_it_only_waits_and_the_time_begins_anew_after_it(tenant: Tenant, pass_time: Clock):
    assert tick(tenant) == "not due"
    with (tenant.home / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        pass_time(10 * SECONDS)
        assert tick(tenant) == "a command runs"
    assert tick(tenant) == "not due" and not is_back(tenant)
    pass_time(SECONDS)
    assert tick(tenant) == "undone"


def test_after_a_restart_of_the_host_it_acts_at_once(tenant: Tenant, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "boot_id").write_text("another\n")
    monkeypatch.setattr(modules()["dead_man"], "BOOT_ID", str(tmp_path / "boot_id"))
    assert tick(tenant) == "undone" and is_back(tenant)


def test_one_that_died_while_it_acted_goes_on_at_once(
    tenant: Tenant, pass_time: Clock, monkeypatch: pytest.MonkeyPatch
):
    tick(tenant)
    pass_time(SECONDS)

    def die(*arguments: Any, **more: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(os, "utime", die)
        with pytest.raises(OSError, match="No space left"):
            tick(tenant)
    # The owner does not wait without a gateway meanwhile.
    assert tenant.told()[-1] == "start gateway.service"
    assert tick(tenant) == "undone" and is_back(tenant)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system for a tenant's configuration that is easily full."""
    if os.geteuid() != 0:
        pytest.skip("mounts a file system")
    (tmp_path / "etc").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(tmp_path / "etc")], check=True)
    try:
        yield tmp_path / "etc"
    finally:
        subprocess.run(["umount", str(tmp_path / "etc")], check=True)


def test_on_a_full_disk_it_tries_ever_less_often_and_says_so(small_disk: Path, tenant: Tenant, pass_time: Clock):
    filler = small_disk / "filler"
    with pytest.raises(OSError, match="No space left"):
        filler.write_bytes(bytes(1 << 20))
    tick(tenant)
    pass_time(SECONDS)

    def attempt() -> bool:
        """Look once; whether the gateway was stopped for it."""
        before = tenant.told().count("stop gateway.service")
        with suppress(OSError):
            tick(tenant)
        return tenant.told().count("stop gateway.service") > before

    assert attempt() and attempt(), "the first failure may be a death: it goes on at once"
    for pause in (60, 300, 900):
        assert not (tenant.home / "held.json").exists()
        pass_time(pause - 1)
        assert not attempt()
        pass_time(1)
        assert attempt()
        assert tenant.told()[-1] == "start gateway.service"
    held = json.loads((tenant.home / "held.json").read_text())
    assert held["by"] == "dead-man" and "No space left" in held["reason"]
    filler.unlink()
    pass_time(3599)
    assert not attempt()
    pass_time(1)
    assert attempt() and is_back(tenant)
    assert "put itself back" in json.loads((tenant.home / "held.json").read_text())["reason"]
    assert not (tenant.home / "deadman").exists()


def test_a_new_order_begins_to_count_anew(tenant: Tenant):
    (tenant.home / "deadman/attempts.json").write_text('{"count": 9, "at": 1e9, "boot_id": ""}')
    tenant.run(assembled("dead_man.arm(PARAMETERS)"), ARM)
    assert not (tenant.home / "deadman/attempts.json").exists()


def test_what_is_aside_is_named_where_the_tenant_is_held(tenant: Tenant, pass_time: Clock):
    tick(tenant)
    pass_time(SECONDS)
    tick(tenant)
    assert str(tenant.home / "aside/dead-man-r1") in json.loads((tenant.home / "held.json").read_text())["reason"]


def test_a_set_that_is_damaged_is_said_and_not_tried_for_ever(tenant: Tenant, pass_time: Clock):
    (tenant.set_of("r1") / "configuration/0/main.conf").write_text("forged")
    tick(tenant)
    pass_time(SECONDS)
    tick(tenant)
    assert "cannot be undone" in json.loads((tenant.home / "held.json").read_text())["reason"]
    assert not (tenant.home / "deadman").exists()


def test_a_timer_that_outlived_its_order_removes_itself(tenant: Tenant):
    (tenant.home / "deadman/armed.json").unlink()
    assert tick(tenant) == "not armed"
    assert not list((tenant.base / "units").glob("tenantry-*"))
