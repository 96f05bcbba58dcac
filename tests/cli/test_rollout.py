"""rollout: membership without hosts, and what is refused before anything is touched."""

from __future__ import annotations

import json

import pytest

from engine.clock import SystemClock
from engine.locks import LockDirectory
from engine.registry.settings import Strategy
from engine.rollout.state import Member, Rollout, Stage, Wave, WaveStage
from engine.rollout.store import ROLLOUT, RolloutStore
from engine.rollout.verdict import MemberResult
from tests.cli.conftest import Tenantry, valid
from tests.fleets import HEAD

STRATEGIES = """
strategies:
  slow:
    canaries: [harbor]
    waves: ["50%"]
    soak_seconds: 5
    windows: [{start: "22:00", end: "04:00", time_zone: Europe/Berlin}]
"""


def add_settings(tenantry: Tenantry, text: str) -> None:
    path = tenantry.root / "inventory/fleet.yaml"
    path.write_text(path.read_text() + text)


def add_to_tenant(tenantry: Tenantry, slug: str, text: str) -> None:
    path = tenantry.root / "inventory/tenants.yaml"
    path.write_text(path.read_text().replace(f"  {slug}:\n", f"  {slug}:\n    {text}\n"))


def keep(tenantry: Tenantry, stage: Stage, wave: WaveStage = WaveStage.STOPPED) -> RolloutStore:
    store = RolloutStore(tenantry.state_directory / "rollouts", SystemClock())
    member = Member("maple", MemberResult.ROLLED_BACK, "run-1", "the owner cannot reach the gateway")
    waves = (Wave("canaries", (member,), wave), Wave("wave-1", (Member("harbor"),)))
    store.save(Rollout("r1", HEAD, "default", Strategy(), waves, "2026-11-29T12:00:00Z", stage=stage, reason="why"))
    store.tell("r1", "start", target=HEAD, waves=[["maple"], ["harbor"]])
    return store


def test_a_dry_run_shows_the_waves_and_writes_nothing(tenantry: Tenantry):
    add_settings(tenantry, STRATEGIES)
    document = tenantry.document("rollout", "rollout", "start", "--dry-run")
    assert [[member["slug"] for member in wave["tenants"]] for wave in document["waves"]] == [["harbor"], ["maple"]]
    assert (document["target"], document["strategy"]) == (HEAD, "slow")
    assert not (tenantry.state_directory / "rollouts").exists()


def test_without_strategies_the_built_in_one_begins_with_the_test_role(tenantry: Tenantry):
    document = tenantry.document("rollout", "rollout", "start", "--dry-run", "--to", "2026.10.22.2")
    assert [wave["name"] for wave in document["waves"]] == ["canaries", "wave-1"]
    assert document["waves"][0]["tenants"][0]["slug"] == "maple"
    assert document["target"] == "2026.10.22.2"


def test_hold_pin_and_an_old_proof_leave_tenants_out_with_their_reason(tenantry: Tenantry):
    add_to_tenant(tenantry, "maple", "hold: {reason: moving house, until: 2999-01-01}")
    document = tenantry.document("rollout", "rollout", "start", "--dry-run")
    assert document["left_out"] == {"maple": "on hold until 2999-01-01: moving house"}
    add_to_tenant(tenantry, "harbor", 'pin: {version: "2026.10.22", reason: asked for it, until: 2999-01-01}')
    result = tenantry("rollout", "start", "--dry-run")
    assert result.code == 1
    assert "asked for it" in result.err
    document = tenantry.document("rollout", "rollout", "start", "--dry-run", "--to", "2026.10.22")
    assert [wave["tenants"][0]["slug"] for wave in document["waves"]] == ["harbor"]
    add_settings(tenantry, "rehearsal: {block_after_days: 7}\n")
    assert "no restore of it was ever proven" in tenantry("rollout", "start", "--dry-run", "--to", "2026.10.22").err


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("strategies: {slow: {canaries: [mapel]}}", "there is no tenant mapel"),
        ('strategies: {slow: {waves: ["120%"]}}', "a count such as 5"),
        ("strategies: {slow: {error_percent: 101}}", "error_percent"),
        ('strategies: {slow: {windows: [{start: "24:00", end: "04:00"}]}}', "a quoted time of day"),
        ('strategies: {slow: {windows: [{start: "22:00", end: "04:00", time_zone: Berlin}]}}', "a time zone such as"),
    ],
)
def test_a_wrong_strategy_is_refused_with_its_place(tenantry: Tenantry, text: str, wanted: str):
    add_settings(tenantry, f"{text}\n")
    result = tenantry("rollout", "start", "--dry-run")
    assert result.code == 2
    assert "inventory/fleet.yaml" in result.err
    assert wanted in result.err


def test_unknown_names_are_usage_errors_that_name_the_known_ones(tenantry: Tenantry):
    assert "no strategy 'fast'" in tenantry("rollout", "start", "--strategy", "fast").err
    assert HEAD in tenantry("rollout", "start", "--to", "2026.1.1").err
    assert tenantry("rollout", "status").code == 2
    keep(tenantry, Stage.HALTED)
    assert "known: r1" in tenantry("rollout", "status", "r2").err
    assert "known: canaries, wave-1" in tenantry("rollout", "undo", "wave-7").err
    assert tenantry("rollout", "retry").code == 2


def test_one_rollout_a_fleet_at_a_time(tenantry: Tenantry):
    keep(tenantry, Stage.PAUSED)
    result = tenantry("rollout", "start")
    assert result.code == 1
    assert "rollout r1 to 2026.10.23 is not finished: paused" in result.err
    with LockDirectory(tenantry.state_directory / "locks", SystemClock()).hold(ROLLOUT, job="rollout start", run="r1"):
        assert tenantry("rollout", "start").code == 75
        assert tenantry("rollout", "resume").code == 75


def test_a_running_rollout_without_a_process_is_shown_as_interrupted(tenantry: Tenantry):
    keep(tenantry, Stage.RUNNING, WaveStage.CONVERGING)
    assert tenantry.document("rollout", "rollout", "status")["stage"] == "interrupted"
    with LockDirectory(tenantry.state_directory / "locks", SystemClock()).hold(ROLLOUT, job="rollout start", run="r1"):
        assert tenantry.document("rollout", "rollout", "status")["stage"] == "running"
        assert tenantry("rollout", "halt", "--reason", "lunch").code == 0
    assert RolloutStore(tenantry.state_directory / "rollouts", SystemClock()).halt_asked("r1") == "lunch"


def test_halt_ends_what_nobody_runs_and_then_there_is_nothing_to_halt(tenantry: Tenantry):
    keep(tenantry, Stage.PAUSED)
    assert tenantry.document("rollout", "rollout", "halt", "--reason", "lunch")["stage"] == "halted"
    assert tenantry.document("rollout", "rollout", "status")["reason"] == "a person halted it: lunch"
    assert tenantry("rollout", "halt").code == 1
    assert tenantry("rollout", "approve").code == 1


def test_an_undone_rollout_cannot_go_on(tenantry: Tenantry):
    keep(tenantry, Stage.HALTED, WaveStage.UNDONE)
    for verb in (("resume",), ("retry", "--failed")):
        result = tenantry("rollout", *verb)
        assert result.code == 1
        assert "canaries was undone" in result.err


def test_history_and_events_tell_the_story(tenantry: Tenantry):
    keep(tenantry, Stage.HALTED)
    (entry,) = tenantry.document("rollout-history", "rollout", "history")["rollouts"]
    assert (entry["rollout"], entry["reason"]) == ("r1", "why")
    (line,) = tenantry("rollout", "events", "--json").out.splitlines()
    assert valid("rollout-event", json.loads(line))["target"] == HEAD
    assert "start: target 2026.10.23" in tenantry("rollout", "events").out
    assert "1 rolled-back, 1 waiting" in tenantry("rollout", "history").out
    assert "the owner cannot reach the gateway" in tenantry("rollout", "status").out
