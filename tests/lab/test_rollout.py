"""A rollout over ten tenants: a broken release halts at its canary, a good one goes through, killed on the way."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from engine.errors import ExitCode
from engine.records import RunStore
from engine.rollout.control import Control, prepare, store_of
from engine.rollout.live import TAKEN_BACK
from engine.rollout.state import Rollout, Stage, WaveStage
from engine.rollout.verdict import MemberResult
from engine.updater.notify import Delivery
from tests.lab.light_fleet import LightFleet
from tests.lab.waiting import until

TEN = ("maple", "birch", "cedar", "elm", "fir", "hazel", "larch", "oak", "pine", "yew")
OLD, BROKEN, GOOD, ILL = "2026.10.3", "2026.10.4", "2026.10.5", "2026.10.6"
STRATEGY = {"canaries": ["maple"], "waves": ["30%", "60%"], "soak_seconds": 2, "error_lines": 5}
HASTY = {**STRATEGY, "wave_seconds": 2}
GOOD_RELEASES: tuple[tuple[str, list[Any]], ...] = (
    (BROKEN, []),
    (GOOD, [{"greeting": {"name": "good", "text": "Good morning"}}]),
)
COMPLAIN = "echo errors > /srv/light/fault; for n in 1 2 3 4 5 6; do curl -s http://127.0.0.1:8642/health; done"
BREAK = 'ExecStart=/usr/bin/python3 -c "raise SystemExit(1)"'


@pytest.fixture(scope="module")
def ten(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LightFleet]:
    """Ten provisioned light hosts at the head."""
    fleet = LightFleet.create(
        tmp_path_factory.mktemp("ten") / "fleet", TEN, strategies={"default": STRATEGY, "hasty": HASTY}
    )
    try:
        outcomes = fleet.provision(*TEN)
        assert all(outcome.error is None for outcome in outcomes), outcomes
        yield fleet
    finally:
        fleet.lab.destroy()


def releases(fleet: LightFleet, *more: tuple[str, list[Any]]) -> None:
    """The light fleet's releases with these behind them."""
    path = fleet.root / "releases.yaml"
    text = path.read_text().split(f'  - version: "{BROKEN}"')[0]
    for version, steps in more:
        text += (
            f'  - version: "{version}"\n    title: {version}\n    steps: {json.dumps(steps)}\n'
            f"    details: {version}\n    owner_note: Note {version}.\n"
        )
    path.write_text(text)


def break_unit_from(fleet: LightFleet, version: str | None) -> None:
    """Let the gateway's unit start nothing from `version` on; None mends it."""
    path = fleet.root / "templates/unit.j2"
    lines = [
        line for line in path.read_text().splitlines() if "at_least" not in line and line not in (BREAK, "{% endif %}")
    ]
    if version:
        index = next(number for number, line in enumerate(lines) if line.startswith("ExecStart="))
        lines[index:index] = [f'{{% if at_least("{version}") %}}', BREAK, "{% endif %}"]
    path.write_text("\n".join(lines) + "\n")


def control(fleet: LightFleet, told: Callable[[Mapping[str, Any]], None]) -> Control:
    return Control(fleet.workspace(), told)


def begin(fleet: LightFleet, told: Callable[[Mapping[str, Any]], None], strategy: str | None = None) -> Rollout:
    workspace = fleet.workspace()
    tenants = tuple(workspace.fleet.tenants.values())
    return control(fleet, told).begin(prepare(workspace, tenants, to=None, strategy=strategy))


def at(event: str, act: Callable[[], object]) -> Callable[[Mapping[str, Any]], None]:
    """What hears a rollout's story, and acts as an `event` is told."""

    def hear(told: Mapping[str, Any]) -> None:
        if told["event"] == event:
            act()

    return hear


def runs(fleet: LightFleet, slug: str) -> list[dict[str, Any]]:
    workspace = fleet.workspace()
    store: RunStore = workspace.runs
    return list(store.history(workspace.fleet.tenants[slug].subject))


def test_a_broken_release_halts_at_its_canary_puts_it_back_and_leaves_nine_untouched(ten: LightFleet):
    releases(ten, (BROKEN, []))
    break_unit_from(ten, BROKEN)
    before = {slug: len(runs(ten, slug)) for slug in TEN}
    told: list[Mapping[str, Any]] = []
    rollout = begin(ten, told.append)
    assert (rollout.stage, rollout.waves[0].members[0].result) == (Stage.HALTED, MemberResult.ROLLED_BACK)
    assert ten.marker("maple") == OLD
    assert ten.is_connected("maple")
    evidence = rollout.waves[0].members[0]
    assert evidence.run and "rolled back, because" in (evidence.error or "")
    (place,) = [message.removeprefix("evidence: ") for message in evidence.messages if message.startswith("evidence: ")]
    assert (ten.root / place).exists(), place
    assert [len(runs(ten, slug)) - before[slug] for slug in TEN] == [1] + [0] * 9
    assert {ten.marker(slug) for slug in TEN} == {OLD}
    assert [event["event"] for event in told] == ["start", "wave", "begun", "tenant", "verdict", "halted"]
    # Resumed, it is left alone: it is held, and only a person's word or a newer head changes that.
    assert control(ten, told.append).resume().stage is Stage.HALTED
    assert len(runs(ten, "maple")) - before["maple"] == 1


def test_a_good_release_goes_through_three_waves_and_is_killed_and_resumed_on_the_way(ten: LightFleet):
    releases(ten, *GOOD_RELEASES)
    break_unit_from(ten, None)
    process = ten.cli("rollout", "start", "--json", start_new_session=True)
    assert process.stdout is not None
    updated = 0
    for line in process.stdout:
        event = json.loads(line)
        updated += event["event"] == "tenant" and event["result"] == "updated"
        # The canary and one of the first wave have ended, others of it are at work.
        if updated == 2:
            os.killpg(process.pid, signal.SIGKILL)
            break
    process.communicate()
    state = store_of(ten.workspace()).load()
    assert state.stage is Stage.RUNNING
    shown = ten.cli("rollout", "status", "--json")
    assert json.loads(shown.communicate()[0])["stage"] == "interrupted"
    resumed = ten.cli("rollout", "resume")
    out, err = resumed.communicate()
    assert resumed.returncode == ExitCode.DONE, err
    assert "every wave is promoted" in out
    assert {ten.marker(slug) for slug in TEN} == {GOOD}
    for slug in TEN:
        reached = [run for run in runs(ten, slug) if run["result"] == "updated" and run["to_version"] == GOOD]
        assert len(reached) <= 1, slug
        assert ten.run(slug, "cat /srv/light/greetings/good").strip() == "Good morning"
    ended = store_of(ten.workspace()).load()
    assert [len(wave.members) for wave in ended.waves] == [1, 3, 3, 3]
    assert all(member.result is MemberResult.UPDATED for member in ended.members)


def test_one_without_a_result_in_the_waves_time_is_silent_and_free_for_others(ten: LightFleet):
    releases(ten, *GOOD_RELEASES, (ILL, ["polite"]))
    path = ten.root / "templates/personality.j2"
    path.write_text(path.read_text() + "{% if at_least('2026.10.6') %}Be brief.\n{% endif %}")
    # Its owner speaks as it is begun: it is not silent before the wave's time is over.
    rollout = begin(ten, at("begun", lambda: ten.say("maple")), "hasty")
    (canary,) = rollout.waves[0].members
    assert (rollout.stage, canary.result) == (Stage.HALTED, MemberResult.SILENT)
    workspace = ten.workspace()
    assert workspace.locks.holder(workspace.fleet.tenants["maple"].subject) is None
    assert ten.marker("maple") == GOOD
    assert ten.is_connected("maple")


def test_one_that_falls_ill_while_it_soaks_is_put_back(ten: LightFleet):
    def hurt() -> None:
        ten.run("maple", "systemctl kill --signal=KILL light-gateway.service")
        until(lambda: restarts() > 0 and ten.is_connected("maple"), "the gateway came back by itself")

    def restarts() -> int:
        return int(ten.run("maple", "systemctl show --value --property=NRestarts light-gateway.service"))

    rollout = begin(ten, at("soak", hurt))
    (canary,) = rollout.waves[0].members
    assert (rollout.stage, canary.result) == (Stage.HALTED, MemberResult.UNHEALTHY)
    assert any("by itself" in problem for problem in canary.problems), canary
    assert canary.error == "put back to where it was"
    assert ten.marker("maple") == GOOD
    assert {ten.marker(slug) for slug in TEN} == {GOOD}


def test_one_that_only_writes_error_lines_while_it_soaks_is_put_back(ten: LightFleet):
    rollout = control(ten, at("soak", lambda: ten.run("maple", COMPLAIN))).retry()
    (canary,) = rollout.waves[0].members
    assert (rollout.stage, canary.result, canary.is_back) == (Stage.HALTED, MemberResult.UNHEALTHY, True), canary
    (problem,) = canary.problems
    found = re.search(r"wrote (\d+) error lines in 2 s, 0 in as long before", problem)
    # Six of the questions above, and those of the look itself.
    assert found and int(found[1]) >= 6, problem
    assert ten.marker("maple") == GOOD
    ten.run("maple", "rm -f /srv/light/fault")


def test_a_wave_is_undone_and_again_for_one_that_was_busy(ten: LightFleet):
    (ten.state / "secrets").mkdir(mode=0o700, exist_ok=True)
    (ten.state / "secrets/hook").write_text("json://127.0.0.1:9/hook")
    (ten.state / "secrets/hook").chmod(0o600)
    ten.register(TEN, birch={"text_updates": True, "secrets": {"hook": "file:var/secrets/hook"}})
    ten.change_settings(notify={"target_secret": "hook"})
    told: list[Mapping[str, Any]] = []
    rollout = control(ten, told.append).retry()
    assert rollout.stage is Stage.DONE, rollout
    assert {ten.marker(slug) for slug in TEN} == {ILL}
    sent: list[str] = []

    def record(target: str, text: str) -> Delivery:
        sent.append(text)
        return Delivery.DELIVERED

    workspace = ten.workspace()
    with workspace.locks.hold(workspace.fleet.tenants["cedar"].subject, job="backup", run="r"):
        part = Control(workspace, told.append, record).undo("wave-1")
    assert (part.waves[1].stage, ten.marker("cedar")) == (WaveStage.UNDOING, ILL)
    assert sent == [text for text in sent if TAKEN_BACK in text] and len(sent) == 1
    undone = Control(ten.workspace(), told.append, record).undo("wave-1")
    assert (undone.stage, undone.waves[1].stage) == (Stage.HALTED, WaveStage.UNDONE)
    assert len(sent) == 1
    members = [member.slug for member in undone.waves[1].members]
    assert {slug for slug in TEN if ten.marker(slug) == GOOD} == set(members)
    for slug in members:
        assert "Be brief." not in ten.run(slug, "cat /srv/light/SOUL.md")
        assert ten.is_connected(slug)


def test_the_whole_story_is_there_afterwards(ten: LightFleet):
    history = ten.cli("rollout", "history", "--json")
    stages = [entry["stage"] for entry in json.loads(history.communicate()[0])["rollouts"]]
    assert stages == ["halted", "done", "halted", "halted"]
    events = ten.cli("rollout", "events", "--json")
    kinds = [json.loads(line)["event"] for line in events.communicate()[0].splitlines()]
    assert kinds[0] == "start"
    assert {"soak", "health", "rollback", "verdict", "retry", "done", "undo"} <= set(kinds)


def test_drift_over_the_ten_is_clean_and_then_names_every_planted_difference(ten: LightFleet):
    clean = ten.cli("drift", "--all", "--exit-code", "--json")
    document = json.loads(clean.communicate()[0])
    assert clean.returncode == ExitCode.DONE, document
    assert [tenant["slug"] for tenant in document["tenants"] if tenant["clean"]] == list(TEN)
    # Each at its own version: a wave was undone.
    assert {tenant["version"] for tenant in document["tenants"]} == {GOOD, ILL}
    plants = {
        "birch": ("echo 'Be rude.' >> /srv/light/SOUL.md", "file:/srv/light/SOUL.md"),
        "cedar": (
            "chmod 0600 /etc/systemd/system/light-gateway.service",
            "file:/etc/systemd/system/light-gateway.service",
        ),
        "elm": (
            "mkdir /etc/systemd/system/light-gateway.service.d; "
            "echo '[Service]' > /etc/systemd/system/light-gateway.service.d/own.conf",
            "drop-in:/etc/systemd/system/light-gateway.service.d/own.conf",
        ),
    }
    for slug, (command, _) in plants.items():
        ten.run(slug, command)
    planted = ten.cli("drift", "--all", "--exit-code", "--json")
    document = json.loads(planted.communicate()[0])
    assert planted.returncode == ExitCode.CHANGES
    found = {tenant["slug"]: [item["key"] for item in tenant["differences"]] for tenant in document["tenants"]}
    assert found == {slug: [plants[slug][1]] if slug in plants else [] for slug in TEN}
