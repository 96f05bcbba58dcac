"""The restart window's script against files of this machine, with a systemctl that only notes what it is told."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from engine.recovery.assembly import assembled
from engine.updater.restart import WINDOW
from tests.local.recovering import Tenant


@pytest.fixture
def tenant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tenant:
    """A tenant whose last message is old, with a recovery set of run ``r1`` and a link to switch."""
    made = Tenant.create(tmp_path, monkeypatch)
    made.take("r1")
    return made


def window(tenant: Tenant, **changes: Any) -> dict[str, Any]:
    parameters = {
        "unit": "gateway.service",
        "database": str(tenant.database),
        "silence_seconds": 90,
        "empty_is_quiet": True,
        "switches": {str(tenant.link): "/opt/new"},
        "set": "r1",
        "conversations": None,
        **changes,
    }
    result: dict[str, Any] = tenant.run(assembled(WINDOW), parameters)
    return result


def test_the_link_is_switched_after_the_state_is_saved_while_the_gateway_is_stopped(tenant: Tenant):
    result = window(tenant)
    assert (result["outcome"], result["old_pid"]) == ("restarted", 7)
    assert tenant.link.readlink() == Path("/opt/new")
    assert (tenant.set_of("r1") / "state/0/state.db").read_bytes() == tenant.database.read_bytes()
    assert [line.split()[0] for line in tenant.told()][-4:] == ["stop", "daemon-reload", "reset-failed", "start"]


def test_a_unit_that_systemd_has_dropped_has_no_failures_to_forget(tenant: Tenant):
    assert window(tenant, set=None)["outcome"] == "restarted"


def test_a_copy_that_fails_says_why_leaves_nothing_and_the_gateway_runs_again(
    tenant: Tenant, monkeypatch: pytest.MonkeyPatch
):
    def full(*arguments: Any, **more: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "utime", full)
    result = window(tenant)
    assert result["outcome"] == "refused" and "No space left on device" in result["problem"]
    assert tenant.link.readlink() == Path("/opt/old")
    assert not (tenant.set_of("r1") / "state").exists()
    assert tenant.told()[-1] == "start gateway.service"


def test_without_room_nothing_is_stopped(tenant: Tenant, monkeypatch: pytest.MonkeyPatch):
    usage = os.statvfs_result((4096, 4096, 10, 0, 0, 0, 0, 0, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda path: usage)
    result = window(tenant)
    assert result["outcome"] == "refused" and "no room" in result["problem"]
    assert not any(line.startswith("stop") for line in tenant.told())


def test_what_an_interrupted_window_left_is_cleared_away(tenant: Tenant):
    (tenant.set_of("r1") / "state.partial").mkdir()
    (tenant.set_of("r1") / "state.partial/0").write_text("half")
    assert window(tenant)["outcome"] == "restarted"
    assert not (tenant.set_of("r1") / "state.partial").exists()


def test_the_state_of_a_second_window_is_not_what_the_set_is_for(tenant: Tenant):
    window(tenant)
    (tenant.state / "later").touch()
    assert window(tenant)["outcome"] == "restarted"
    assert not (tenant.set_of("r1") / "state/0/later").exists()


@pytest.mark.parametrize("content", [b"garbage" * 100, b""])
def test_a_history_that_cannot_be_read_any_more_stops_nothing(tenant: Tenant, content: bytes):
    tenant.database.write_bytes(content)
    assert window(tenant)["outcome"] == "unknown"
    assert not any(line.startswith("stop") for line in tenant.told())
