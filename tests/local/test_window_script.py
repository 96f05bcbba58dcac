"""The restart window's script against files of this machine, with a systemctl that only notes what it is told."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.updater.converge import WINDOW

SYSTEMCTL = """#!/bin/sh
echo "$*" >> {log}
case "$*" in
  *ActiveState*) echo active;;
  *MainPID*) echo 7;;
  reset-failed*) echo "Unit gateway.service not loaded." >&2; exit 1;;
esac
"""

Window = Callable[..., dict[str, Any]]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "systemctl.log"


@pytest.fixture
def window(tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch) -> Window:
    """Run the script for a gateway whose last message is old, in its own state directory."""
    program = tmp_path / "bin/systemctl"
    program.parent.mkdir()
    program.write_text(SYSTEMCTL.format(log=log))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    database = sqlite3.connect(_state(tmp_path) / "state.db")
    database.execute("CREATE TABLE messages (timestamp REAL)")
    database.execute("INSERT INTO messages VALUES (?)", (time.time() - 1000,))
    database.commit()
    database.close()
    (tmp_path / "current").symlink_to("/opt/old")

    def run(**changes: Any) -> dict[str, Any]:
        parameters = {
            "unit": "gateway.service",
            "database": str(_state(tmp_path) / "state.db"),
            "silence_seconds": 90,
            "empty_is_quiet": True,
            "switches": {str(tmp_path / "current"): "/opt/new"},
            "snapshot": {"source": str(_state(tmp_path)), "directory": str(tmp_path / "snapshots/r2"), "keep": 2},
            **changes,
        }
        space: dict[str, Any] = {"PARAMETERS": parameters}
        exec(compile(WINDOW, "window", "exec"), space)
        result: dict[str, Any] = space["RESULT"]
        return result

    return run


def _state(tmp_path: Path) -> Path:
    directory = tmp_path / "state"
    directory.mkdir(exist_ok=True)
    return directory


def test_the_link_is_switched_after_a_snapshot_while_the_gateway_is_stopped(window: Window, tmp_path: Path, log: Path):
    result = window()
    assert (result["outcome"], result["old_pid"]) == ("restarted", 7)
    assert (tmp_path / "current").readlink() == Path("/opt/new")
    assert (tmp_path / "snapshots/r2/state.db").exists()
    assert [line.split()[0] for line in log.read_text().splitlines()][-4:] == [
        "stop", "daemon-reload", "reset-failed", "start",
    ]  # fmt: skip


def test_a_unit_that_systemd_has_dropped_has_no_failures_to_forget(window: Window):
    assert window(snapshot=None)["outcome"] == "restarted"


def test_a_snapshot_that_fails_says_why_leaves_nothing_and_the_gateway_runs_again(
    window: Window, tmp_path: Path, log: Path
):
    cp = tmp_path / "bin/cp"
    cp.write_text('#!/bin/sh\nmkdir "$4"; echo "No space left on device" >&2; exit 1\n')
    cp.chmod(0o755)
    result = window()
    assert result["outcome"] == "refused" and "No space left on device" in result["problem"]
    assert (tmp_path / "current").readlink() == Path("/opt/old")
    assert os.listdir(tmp_path / "snapshots") == []
    assert log.read_text().splitlines()[-1] == "start gateway.service"


def test_what_an_interrupted_window_left_is_cleared_away(window: Window, tmp_path: Path):
    (tmp_path / "snapshots/r1.partial").mkdir(parents=True)
    assert window()["outcome"] == "restarted"
    assert os.listdir(tmp_path / "snapshots") == ["r2"]


@pytest.mark.parametrize("content", [b"garbage" * 100, b""])
def test_a_history_that_cannot_be_read_any_more_stops_nothing(
    window: Window, tmp_path: Path, log: Path, content: bytes
):
    (_state(tmp_path) / "state.db").write_bytes(content)
    assert window()["outcome"] == "unknown"
    assert "stop" not in log.read_text()
