"""Timers on a host's own systemd: installed, made up for after a missed night, changed, removed."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from engine.provision.providers.lab import Lab
from engine.registry.safeguards import Timers
from engine.registry.settings import Settings
from engine.timers import JOBS
from engine.timers.systemd import Systemd, run_here
from engine.timers.units import Caller, units_of
from tests.lab.lab_tools import inside, light, start
from tests.lab.waiting import until

COMMAND = Path("/opt/100% of it/tenantry")
PREPARE = f"""
mkdir -p '{COMMAND.parent}' /srv/seen
chown ops /srv/seen
cat > '{COMMAND}' <<'END'
#!/bin/sh
printf '%s|' "$(id -un)" "$@" >> /srv/seen/calls
echo >> /srv/seen/calls
END
chmod 755 '{COMMAND}'
"""
CALLER = Caller(COMMAND, Path("/srv/a fleet"), Path("/var/lib/a $HOME"), user="ops")


def units(**timers: object):
    return units_of(Settings("Queva", timers=Timers(randomized_delay_seconds=0, **timers)), CALLER)


def systemd_of(lab: Lab, directory: Path) -> Systemd:
    """The host's systemd; its directory of units is a copy of `directory` whenever a command is given."""

    def run(argv: Sequence[str]) -> str:
        copy = "rm -f tenantry-*; tar -xf -"
        packed = subprocess.run(("tar", "-cC", str(directory), "."), capture_output=True, check=True).stdout
        unpack = lab.shell("timers", ("/bin/sh", "-c", f"cd /etc/systemd/system && {{ {copy}; }}"))
        subprocess.run(unpack, input=packed, check=True)
        return run_here(lab.shell("timers", tuple(argv)))

    return Systemd(directory, run)


def test_a_missed_night_runs_at_the_next_boot_and_a_removed_timer_does_not(lab: Lab, tmp_path: Path):
    start(lab, "timers")
    inside(lab, "timers", PREPARE)
    later = {"rehearse": "2099-01-01", "drift": "2099-01-01"}
    # Half a day away, so that it is not due by itself meanwhile.
    nightly = f"*-*-* {(datetime.now(UTC).hour + 12) % 24:02}:00:00 UTC"
    systemd_of(lab, tmp_path).install(units(backup=nightly, **later), CALLER.prefix)
    timer = f"{CALLER.prefix}backup.timer"
    assert inside(lab, "timers", f"systemctl is-active {timer}").strip() == "active"
    assert not calls(lab), "a timer does not make up for nights before it was installed"

    # The machine was off for two nights.
    inside(lab, "timers", f"touch -d '2 days ago' /var/lib/systemd/timers/stamp-{timer}")
    lab.down(["timers"])
    lab.up([light(lab, "timers")])
    lab.wait_ready(["timers"])
    until(lambda: len(calls(lab)) == 1, "what was missed has run", 60)
    assert calls(lab) == ["ops|-C|/srv/a fleet|--state-dir|/var/lib/a $HOME|timers|run|backup|"]

    systemd = systemd_of(lab, tmp_path)
    systemd.install(units(backup="2098-01-01", **later), CALLER.prefix)
    assert "2098-01-01" in inside(lab, "timers", f"systemctl show --property=TimersCalendar {timer}")
    assert "2098" in inside(lab, "timers", f"systemctl show --property=NextElapseUSecRealtime {timer}")

    removed = systemd.remove(CALLER.prefix)
    assert len(removed) == 2 * len(JOBS)
    assert CALLER.prefix not in inside(lab, "timers", "systemctl list-unit-files; systemctl list-timers --all")
    assert CALLER.prefix not in inside(
        lab, "timers", "ls /var/lib/systemd/timers /etc/systemd/system/timers.target.wants"
    )
    assert systemd.remove(CALLER.prefix) == ()


def calls(lab: Lab) -> list[str]:
    return inside(lab, "timers", "cat /srv/seen/calls 2>/dev/null || true").splitlines()
