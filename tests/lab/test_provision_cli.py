"""Provisioning from the command line: confirmed, one at a time, resumable wherever it died."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.errors import ExitCode
from engine.provision.installer import resume_many
from engine.provision.preview import preview
from engine.updater.outcome import Outcome
from tests.lab.cloud_fleet import CloudFleet, cloud_fleet
from tests.lab.conftest import PACKAGES
from tests.lab.light_fleet import LightFleet
from tests.lab.provision_runs import WatchedRun, killed_in, run_whole

HEAD = "2026.10.3"
REPOSITORY = Path(__file__).parents[2]
BOOT_ID = "cat /proc/sys/kernel/random/boot_id"


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LightFleet]:
    """A fleet whose one tenant has no server yet."""
    fleet = LightFleet.create(tmp_path_factory.mktemp("provision") / "fleet", ["maple"])
    shutil.copy(REPOSITORY / "inventory/hosts.py", fleet.root / "inventory")
    try:
        yield fleet
    finally:
        fleet.lab.destroy()


def resume(fleet: LightFleet, slug: str = "maple") -> Outcome:
    workspace = fleet.workspace()
    (outcome,) = resume_many(workspace, [workspace.fleet.tenants[slug]])
    return outcome


def test_a_dry_run_prints_every_phase_of_the_real_run_and_makes_no_call(fleet: LightFleet) -> None:
    before = sorted(str(path) for path in fleet.root.rglob("*"))
    dry = fleet.cli("provision", "maple", "--confirm", "maple", "--dry-run", "--json")
    out, error = dry.communicate()
    assert (dry.returncode, error) == (0, "")
    assert sorted(str(path) for path in fleet.root.rglob("*") if "__pycache__" not in str(path)) == [
        path for path in before if "__pycache__" not in path
    ]
    promised = [call["phase"] for call in json.loads(out)["calls"]]
    real = run_whole(fleet, "maple", "provision")
    assert real.code == 0, real.error
    told = [line.split()[1].rstrip(":") for line in real.lines]
    # A phase with nothing to do is not entered; what is entered was promised, in that order.
    entered = list(dict.fromkeys(told))[:-1]
    assert [phase for phase in dict.fromkeys(promised) if phase in entered] == entered
    assert set(promised) - set(entered) <= {"lock", "render"}
    assert "verify: " in real.out and " 0 failed" in real.out
    assert fleet.marker("maple") == HEAD


def test_exactly_one_of_two_proceeds_and_the_others_touch_nothing(fleet: LightFleet) -> None:
    # However long the others take to start, they find the winner at work.
    stopped = (signal.SIGSTOP, "maple phase-b: ")
    runs = [WatchedRun.start(fleet, "maple", "provision", signal_at=stopped) for _ in range(2)]
    ended = []
    winner = None
    for run in runs:
        if run.reach("phase-b"):
            winner = run
        else:
            ended.append(run.end())
    assert winner is not None
    boot = fleet.run("maple", BOOT_ID)
    # All at once: the winner's host lets go of a connection over which it hears nothing.
    late = [WatchedRun.start(fleet, "maple", command) for command in ("provision", "converge", "resume")]
    pyinfra = subprocess.run(
        [
            str(Path(sys.executable).with_name("pyinfra")),
            "-y",
            "inventory/hosts.py",
            "exec",
            "--",
            "touch /root/touched",
        ],
        cwd=fleet.root,
        env={**os.environ, "NO_COLOR": "1", "PYINFRA_PROGRESS": "off"},
        capture_output=True,
        text=True,
        check=False,
    )
    lost = [*ended, *(run.end() for run in late)]
    winner.process.send_signal(signal.SIGCONT)
    won = winner.end()
    assert won.code == 0, won.error
    for loser in lost:
        assert loser.code == 75, loser.error
        assert f"provision run {winner_run(fleet)} (process {winner.process.pid})" in loser.error
    assert pyinfra.returncode == 1 and "tenant/maple is busy: provision run" in pyinfra.stdout + pyinfra.stderr
    assert fleet.run("maple", BOOT_ID) == boot
    assert fleet.run("maple", "ls /root/touched 2>/dev/null || true") == ""
    assert len(list(fleet.workspace().runs.history(fleet.workspace().fleet.tenants["maple"].subject))) == 2


def winner_run(fleet: LightFleet) -> str:
    latest = fleet.workspace().runs.latest(fleet.workspace().fleet.tenants["maple"].subject)
    assert latest is not None
    return str(latest["run"])


@pytest.mark.parametrize("job", ["converge", "backup"])
def test_a_tenant_that_another_job_holds_is_not_rebuilt(fleet: LightFleet, job: str) -> None:
    workspace = fleet.workspace()
    boot = fleet.run("maple", BOOT_ID)
    with workspace.locks.hold(workspace.fleet.tenants["maple"].subject, job=job, run="run-7"):
        ended = run_whole(fleet, "maple", "provision")
    assert ended.code == 75 and f"{job} run run-7" in ended.error
    assert fleet.run("maple", BOOT_ID) == boot


EARLY = {
    "identity": "",
    "rebuild": "",
    "connect": "phase-a (packages, service account, runtime) is not complete",
    "cloud-init": "phase-a (packages, service account, runtime) is not complete",
    "phase-a": "phase-a (packages, service account, runtime) is not complete",
    "phase-b": "phase-b (secrets, configuration, web layer, personality, gateway) is not complete",
}
"""Phase in which a provisioning dies -> what resume then says; a server that is not there says nothing."""

LATE = ("probe", "apply", "quiesce", "restart", "liveness", "commit", "verify")


def test_a_provisioning_killed_in_any_phase_ends_at_the_head_when_it_is_given_again(fleet: LightFleet) -> None:
    fleet.lab.destroy()
    for phase, words in EARLY.items():
        killed_in(fleet, "maple", "provision", phase)
        if words:
            ended = run_whole(fleet, "maple", "resume")
            assert ended.code == ExitCode.FAILED and words in ended.error, (phase, ended.error)
            assert "tenantry provision maple --confirm maple" in ended.error
    killed_in(fleet, "maple", "provision", LATE[0])
    for phase in LATE[1:]:
        killed_in(fleet, "maple", "resume", phase)
    ended = run_whole(fleet, "maple", "resume")
    assert ended.code == 0, ended.error
    assert fleet.marker("maple") == HEAD
    # What two releases share was done once, over all of these runs.
    assert fleet.run("maple", "cat /srv/light/greeting-runs").splitlines() == ["run"]


def test_resume_completes_the_receipt_that_a_crash_left_out(fleet: LightFleet) -> None:
    fleet.reset("maple")
    fleet.run("maple", "rm /var/lib/tenantry/receipts/provisioned.json")
    boot = fleet.run("maple", BOOT_ID)
    outcome = resume(fleet)
    assert (outcome.error, outcome.to_version) == (None, HEAD)
    assert fleet.run("maple", "ls /var/lib/tenantry/receipts").split() == [
        "phase-a.json",
        "phase-b.json",
        "provisioned.json",
    ]
    assert fleet.run("maple", BOOT_ID) == boot


def test_an_acceptance_check_that_fails_is_the_runs_error(fleet: LightFleet) -> None:
    fleet.change_settings(routes=[{"name": "pages", "url": "http://127.0.0.1:1/"}])
    try:
        outcome = resume(fleet)
    finally:
        fleet.change_settings(routes=None)
    assert outcome.exit_code is ExitCode.FAILED
    assert "the acceptance check found: route pages: answered nothing" in str(outcome.error)
    assert resume(fleet).error is None


def test_a_tenant_that_was_added_from_a_form_is_provisioned(fleet: LightFleet) -> None:
    record = {
        "owner_name": "Ana Birch",
        "business": "Birch 'n' \"Sons\" & {{ co }}",
        "trade": "bakery",
        "role": "client",
        "daily_backup": True,
        "text_updates": False,
        "ssh_user": "ops",
        "provider": {"name": "lab"},
        "forwarding_address": "ana@birch.example",
        "page_host": "birch.example",
    }
    added = fleet.cli("tenant", "add", "birch", "--stdin", stdin=subprocess.PIPE)
    _, error = added.communicate(json.dumps(record))
    assert added.returncode == 0, error
    ended = run_whole(fleet, "birch", "provision")
    assert ended.code == 0, ended.error
    assert fleet.run("birch", "head -1 /srv/light/SOUL.md") == "You answer for Birch 'n' \"Sons\" & {{ co }}.\n"
    assert fleet.marker("birch") == HEAD


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CloudFleet]:
    with cloud_fleet(tmp_path_factory.mktemp("killed"), PACKAGES) as cloud:
        yield cloud


def test_a_server_of_a_cloud_whose_first_contact_was_killed_is_provisioned_again(cloud: CloudFleet) -> None:
    assert preview(cloud.fleet.workspace(), cloud.fleet.workspace().fleet.tenants["maple"])
    for phase in ("rebuild", "connect", "host-keys"):
        killed_in(cloud.fleet, "maple", "provision", phase)
        ended = run_whole(cloud.fleet, "maple", "resume")
        assert ended.code == ExitCode.UNREACHABLE, (phase, ended.error)
        assert "cannot connect" in ended.error or "tenantry provision maple --confirm maple" in ended.error
    ended = run_whole(cloud.fleet, "maple", "provision")
    assert ended.code == 0, ended.error
    assert cloud.run("cat /var/lib/tenantry/version").strip() == HEAD
