"""timers: documents and refusals. Nothing here changes this machine's units."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from engine.cli.app import COMMANDS
from engine.timers import JOBS
from engine.timers.systemd import Systemd, run_here
from tests.cli.conftest import Tenantry


def test_show_prints_units_that_call_this_installation_on_this_fleet(tenantry: Tenantry):
    document = tenantry.document("timers-show", "timers", "show")
    assert [job["name"] for job in document["jobs"]] == [job.name for job in JOBS]
    for job in document["jobs"]:
        program, *arguments = job["command"]
        assert Path(program).is_file()
        assert arguments[:4] == ["-C", str(tenantry.root), "--state-dir", str(tenantry.state_directory)]
        assert (job["installed"], job["last_run"]) == (False, None)
    result = tenantry("timers", "show")
    assert "Persistent=true" in result.out
    assert not tenantry.state_directory.exists()


def test_a_bad_calendar_is_refused_with_its_file_and_key(tenantry: Tenantry):
    settings = tenantry.root / "inventory/fleet.yaml"
    settings.write_text(settings.read_text() + "timers: {backup: every night}\n")
    result = tenantry("timers", "show")
    assert result.code == 2
    assert "inventory/fleet.yaml: timers.backup: 'every night' is no calendar event" in result.err


def test_running_a_job_ends_as_the_job_does(tenantry: Tenantry):
    (tenantry.root / "inventory/tenants.yaml").write_text("tenants: {maple: 1}\n")
    document = tenantry.document("timers-run", "timers", "run", "backup", code=2)
    assert (document["news"], document["delivery"]) == ("failed", None)
    assert document["errors"]
    assert tenantry("timers", "run", "sweep").code == 2


def test_only_root_changes_units(tenantry: Tenantry, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    result = tenantry("timers", "install")
    assert result.code == 1
    assert "hint: sudo " in result.err
    assert f"-C {tenantry.root} " in result.err


def test_a_rehearsal_that_could_not_reach_the_lab_is_refused_with_what_to_do(
    tenantry: Tenantry, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    given: list[str] = []
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr("engine.cli.timers._owner", lambda invocation: "ops")
    here = Systemd(tmp_path, lambda argv: given.append(argv[1]) or "")
    monkeypatch.setattr("engine.cli.timers.machine_systemd", lambda: here)
    result = tenantry("timers", "install")
    assert (result.code, given) == (1, [])
    assert "need root, but its timer would run them as ops" in result.err
    assert f"chown --recursive root {tenantry.state_directory}" in result.err
    settings = tenantry.root / "inventory/fleet.yaml"
    settings.write_text(settings.read_text() + "timers: {rehearse: never}\n")
    names = tenantry.document("timers-change", "timers", "install")["installed"]
    assert len(names) == 2 * (len(JOBS) - 1) and not [name for name in names if "rehearse" in name]


def test_remove_without_timers_says_so(tenantry: Tenantry, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr("engine.cli.timers.machine_systemd", lambda: Systemd(tmp_path, run_here))
    assert tenantry.document("timers-change", "timers", "remove") == {"installed": [], "removed": []}


def test_every_job_gives_a_command_that_exists():
    missing = [job.name for job in JOBS if job.arguments[0] not in COMMANDS]
    assert not missing
