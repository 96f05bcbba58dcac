"""The units of a fleet's jobs, as text."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.registry.safeguards import Timers
from engine.registry.settings import Settings
from engine.timers import JOBS
from engine.timers.units import Caller, quoted, sweep_unit, units_of

CALLER = Caller(Path("/opt/t/bin/tenantry"), Path("/srv/fleet"), Path("/srv/fleet/var"))


def test_each_job_has_a_service_and_a_timer_that_makes_up_for_a_missed_night():
    settings = Settings("Queva", timers=Timers(backup="*-*-* 02:00:00", randomized_delay_seconds=90))
    backup, *_ = units_of(settings, CALLER)
    command = "/opt/t/bin/tenantry -C /srv/fleet --state-dir /srv/fleet/var timers run backup"
    assert f"ExecStart=:{command}\n" in backup.service
    for line in ("OnCalendar=*-*-* 02:00:00", "RandomizedDelaySec=90s", "Persistent=true", "After=time-sync.target"):
        assert f"{line}\n" in backup.timer
    assert "User=" not in backup.service
    # Told to end, the watcher alone is told, and has time to let the job clean up.
    assert "KillMode=mixed\nTimeoutStopSec=150s\n" in backup.service


def test_a_delay_keeps_its_fraction():
    units = units_of(Settings("Q", timers=Timers(randomized_delay_seconds=1.5)), CALLER)
    assert all("RandomizedDelaySec=1500ms\n" in unit.timer for unit in units)


def test_jobs_of_another_users_state_run_as_that_user():
    caller = Caller(CALLER.command, CALLER.root, CALLER.state_directory, user="ops")
    assert all("\nUser=ops\n" in unit.service for unit in units_of(Settings("Q"), caller))


def test_two_fleets_and_two_state_directories_have_units_of_their_own():
    callers = (
        CALLER,
        Caller(CALLER.command, Path("/srv/other"), Path("/srv/other/var")),
        Caller(CALLER.command, CALLER.root, Path("/srv/second")),
        Caller(CALLER.command, Path("/srv/other"), CALLER.state_directory),
    )
    names = [name for caller in callers for unit in units_of(Settings("Q"), caller) for name in unit.names]
    assert len(set(names)) == 4 * 2 * len(JOBS)


def test_the_sweep_is_a_service_that_timers_never_remove():
    caller = Caller(CALLER.command, Path("/srv/100%"), CALLER.state_directory, user="ops")
    name, text = sweep_unit(Settings("Queva"), caller)
    assert (name, name.startswith(caller.prefix)) == (f"tenantry-sweep-{caller.id}.service", False)
    assert '\nUser=ops\nExecStart=:/opt/t/bin/tenantry -C "/srv/100%%" --state-dir /srv/fleet/var sweep\n' in text


@pytest.mark.parametrize(
    ("word", "wanted"),
    [
        ("/plain/path-1.2", "/plain/path-1.2"),
        ("/with space", '"/with space"'),
        ("/100%h", '"/100%%h"'),
        ('/a"b\\c', '"/a\\"b\\\\c"'),
        ("/a\nb", '"/a\\nb"'),
        ("/müll", '"/müll"'),
        ("", '""'),
    ],
)
def test_words_are_quoted_for_systemd(word: str, wanted: str):
    assert quoted(word) == wanted


def test_a_brand_cannot_add_a_line_or_a_specifier():
    (unit, *_) = units_of(Settings("50%i\nUser=evil \\"), CALLER)
    (line,) = [line for line in unit.service.splitlines() if line.startswith("Description=")]
    assert "50%%i User=evil \\ (" in line
