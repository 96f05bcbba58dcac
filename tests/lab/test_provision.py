"""Provisioning of light hosts: one lock from the rebuild to the head, receipts, secrets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.errors import ExitCode
from engine.provision.bring_up import provision_missing
from engine.records import RunResult
from engine.updater.events import Event
from tests.lab.light_fleet import LightFleet
from tests.lab.provision_runs import killed_in

CANARY = "c4n4ry-'\"$(id)`\\%-end"


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[LightFleet]:
    """A fleet of its own with one tenant that has a secret and no server yet."""
    fleet = LightFleet.create(tmp_path / "fleet", ["maple"])
    fleet.register(["maple"], maple={"secrets": {"token": "file:secrets/token"}})
    (fleet.root / "secrets").mkdir()
    (fleet.root / "secrets/token").write_text(CANARY)
    (fleet.root / "secrets/token").chmod(0o600)
    yield fleet
    fleet.lab.destroy()


def test_provision_ends_at_the_head_and_a_second_one_starts_from_a_clean_image(fresh: LightFleet):
    (first,) = fresh.provision("maple")
    assert (first.result, first.error) == (RunResult.UPDATED, None)
    assert fresh.marker("maple") == "2026.10.3"
    receipts = fresh.run("maple", "ls /var/lib/tenantry/receipts").split()
    assert receipts == ["phase-a.json", "phase-b.json", "provisioned.json"]
    fresh.run("maple", "touch /root/leftover")
    (second,) = fresh.provision("maple")
    assert second.error is None
    assert fresh.run("maple", "ls /root") == ""


def test_a_secret_arrives_byte_for_byte_and_appears_nowhere_else(fresh: LightFleet):
    (outcome,) = fresh.provision("maple")
    assert outcome.error is None
    path = "/etc/light-secret-token"
    assert fresh.run("maple", f"cat {path}") == CANARY
    assert fresh.run("maple", f"stat -c '%a %U' {path}").strip() == "600 root"
    places = "/etc /home /root /run /srv /tmp /var"
    found = fresh.run("maple", f"grep -rlF -f {path} {places} 2>/dev/null || true").split()
    assert found == [path]
    assert "c4n4ry" not in fresh.run(
        "maple", "journalctl --no-pager; systemctl show '*'; cat /proc/[0-9]*/environ | tr '\\0' '\\n'"
    )
    ours = [file for file in fresh.root.rglob("*") if file.is_file() and not file.is_relative_to(fresh.state / "lab")]
    assert [file.name for file in ours if b"c4n4ry" in file.read_bytes()] == ["token"]


def test_a_secret_that_is_missing_stops_the_run_before_the_server_is_touched(fresh: LightFleet):
    fresh.register(["maple"], maple={"secrets": {"token": "env:TENANTRY_TEST_UNSET"}})
    (outcome,) = fresh.provision("maple")
    assert outcome.exit_code is ExitCode.FAILED and "TENANTRY_TEST_UNSET" in str(outcome.error)
    assert fresh.lab.find("maple") is None


def test_a_secret_that_phase_b_could_not_use_stops_the_run_before_the_server_is_touched(fresh: LightFleet):
    (fresh.root / "secrets/token").write_text("unusable")
    (outcome,) = fresh.provision("maple")
    assert outcome.exit_code is ExitCode.USAGE and "cannot be used" in str(outcome.error)
    assert fresh.lab.find("maple") is None


def test_an_interruption_after_phase_b_is_resumed_without_a_rebuild(fresh: LightFleet):
    assert fresh.provision("maple")[0].error is None
    fresh.run("maple", "cd /var/lib/tenantry && rm receipts/provisioned.json version; touch /root/kept")
    outcome = fresh.converge("maple")
    assert outcome.exit_code is ExitCode.FAILED and "tenantry resume maple" in str(outcome.error)
    workspace = fresh.workspace()
    (resumed,) = provision_missing(workspace, [workspace.fleet.tenants["maple"]])
    assert (resumed.error, fresh.run("maple", "ls /root").strip()) == (None, "kept")


def test_a_job_during_provisioning_is_busy_and_touches_nothing(fresh: LightFleet):
    others = []

    def intrude(event: Event) -> None:
        if event.phase == "phase-b" and not others:
            others.extend([fresh.converge("maple"), *fresh.provision("maple")])

    (outcome,) = fresh.provision("maple", report=intrude)
    assert outcome.error is None
    assert [other.exit_code for other in others] == [ExitCode.BUSY, ExitCode.BUSY]


@pytest.mark.parametrize("phase", ["rebuild", "cloud-init", "phase-a", "phase-b", "apply", "liveness"])
def test_a_killed_provision_is_made_good_by_another(fresh: LightFleet, phase: str):
    killed_in(fresh, "maple", "provision", phase)
    (outcome,) = fresh.provision("maple")
    assert (outcome.error, fresh.marker("maple")) == (None, "2026.10.3")


def test_a_half_provisioned_server_is_not_version_zero(fresh: LightFleet):
    killed_in(fresh, "maple", "provision", "phase-b")
    outcome = fresh.converge("maple")
    assert outcome.exit_code is ExitCode.FAILED and "never provisioned" in str(outcome.error)
