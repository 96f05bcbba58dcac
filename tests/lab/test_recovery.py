"""Broken releases on real hosts: whatever happens after the restart, the owner ends with a gateway that answers."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.errors import ExitCode
from engine.hosts.session import Session
from engine.records import RunResult
from engine.updater.events import Event, Phase
from engine.updater.outcome import Options
from tests.lab.light_fleet import ARMED_WITHOUT_SET, DEAD_MAN_SOON, HASTY, PATIENT, LightFleet
from tests.lab.provision_runs import killed_at
from tests.lab.waiting import until

GOOD, BROKEN, MENDED = "2026.10.1", "2026.10.2", "2026.10.3"
RETRY = Options(retry=True)
FIRST = (GOOD, [{"configure": {"text": '{"greeting": "hello"}'}}])

FORMS = {
    "bad configuration": '{"greeting": ',
    "a crash loop": '{"fault": "crash-loop"}',
    "a channel that never connects": '{"fault": "no-channel"}',
}

# Everything of the tenant that a rollback answers for, without times.
LOOK = """
cd /; find etc/light etc/systemd/system opt/light/current srv/light/SOUL.md -printf '%p %y %m %u:%g %l\\n' | sort
find etc/light etc/systemd/system srv/light/SOUL.md -type f -exec sha256sum {} + | sort
cat var/lib/tenantry/version var/lib/tenantry/applied.json
"""


@pytest.fixture
def good(maple: LightFleet) -> Iterator[LightFleet]:
    """The tenant at a first, good release."""
    maple.write_releases(FIRST)
    assert maple.converge("maple").error is None
    yield maple


def break_release(fleet: LightFleet, text: str, *steps: Any) -> None:
    """Publish a release after which the gateway has this configuration; nobody is patient with it."""
    fleet.change_settings(**HASTY)
    fleet.write_releases(FIRST, (BROKEN, [*steps, {"configure": {"text": text}}]))


def mend_release(fleet: LightFleet) -> None:
    """Publish a newer head that is good."""
    fleet.change_settings(**PATIENT)
    steps = [{"configure": {"text": '{"greeting": "mended"}'}}]
    fleet.write_releases(FIRST, (BROKEN, []), (MENDED, steps))


def look(fleet: LightFleet) -> str:
    return fleet.run("maple", LOOK)


def held(fleet: LightFleet) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        fleet.run("maple", "cat /var/lib/tenantry/held.json 2>/dev/null || echo {}").replace("\n", "")
    )
    return found


def assert_answers(fleet: LightFleet) -> None:
    """The owner can reach the gateway, and nothing of the way back is left armed."""
    assert '"ok"' in fleet.run("maple", "curl -s http://127.0.0.1:8642/health")
    assert fleet.is_connected("maple")
    assert fleet.run("maple", "systemctl is-active light-gateway").strip() == "active"
    assert fleet.run("maple", "ls /var/lib/tenantry/deadman 2>/dev/null || true") == ""
    assert "deadman" not in fleet.run(
        "maple", "systemctl list-units --all --plain 'tenantry-*'; ls /etc/systemd/system"
    )


# By itself


@pytest.mark.parametrize("text", FORMS.values(), ids=FORMS.keys())
def test_a_broken_release_is_rolled_back_by_itself_and_held(good: LightFleet, text: str):
    before = look(good)
    good.say("maple", "remember me", age_seconds=1000)
    break_release(good, text)
    outcome = good.converge("maple")
    assert (outcome.result, outcome.exit_code) == (RunResult.ROLLED_BACK, ExitCode.FAILED)
    assert (outcome.from_version, outcome.to_version) == (GOOD, GOOD)
    assert look(good) == before
    assert_answers(good)
    assert "remember me" in good.run("maple", "sqlite3 /srv/light/state.db 'SELECT content FROM messages'")

    (named,) = [message for message in outcome.messages if message.startswith("evidence: ")]
    evidence = Path(named.removeprefix("evidence: "))
    assert {"journal.txt", "unit.txt", "health.txt", "status-before.json", "status-after.json"} == {
        path.name for path in evidence.iterdir()
    }
    assert "light-gateway" in (evidence / "journal.txt").read_text()

    assert (held(good)["head"], held(good)["run"], held(good)["by"]) == (BROKEN, outcome.run, "run")
    again = good.converge("maple")
    assert again.exit_code is ExitCode.FAILED and f"held back from {BROKEN}" in str(again.error)
    assert str(outcome.run) in str(again.error) and "--retry" in str(again.error)
    assert look(good) == before

    mend_release(good)
    assert good.converge("maple").error is None
    assert good.marker("maple") == MENDED and held(good) == {}


def test_a_retry_after_the_cause_is_gone(good: LightFleet):
    break_release(good, '{"greeting": "again"}')
    good.run("maple", "echo no-channel > /srv/light/fault")
    outcome = good.converge("maple")
    assert outcome.result is RunResult.FAILED and "afterwards too" in str(outcome.error)
    good.run("maple", "rm /srv/light/fault")
    good.change_settings(**PATIENT)
    assert good.converge("maple", options=RETRY).error is None
    assert good.marker("maple") == BROKEN and held(good) == {}
    assert_answers(good)


def test_a_release_that_lays_down_a_unit_leaves_none_behind(good: LightFleet):
    before = look(good)
    command = (
        "printf '[Service]\\nExecStart=/bin/sleep 1000\\n[Install]\\nWantedBy=multi-user.target\\n'"
        " > /etc/systemd/system/light-extra.service; systemctl enable --now light-extra"
    )
    break_release(
        good, FORMS["bad configuration"],
        {"script": {"command": command, "effect": "/etc/systemd/system/light-extra.service"}},
    )  # fmt: skip
    assert good.converge("maple").result is RunResult.ROLLED_BACK
    assert look(good) == before
    assert good.run("maple", "systemctl is-active light-extra || true").strip() == "inactive"


# By the dead-man


@pytest.mark.parametrize("text", ['{"fault": "no-channel"}', '{"greeting": "fine"}'], ids=["broken", "good"])
def test_a_killed_operator_process_after_the_restart_is_made_good_by_the_tenant(good: LightFleet, text: str):
    before = look(good)
    break_release(good, text)
    good.change_settings(**DEAD_MAN_SOON)
    killed_at(good, "maple liveness:", "converge", "maple")
    until(lambda: held(good) != {} and "deadman" not in good.run("maple", "ls /var/lib/tenantry"), "undone", 90)
    assert held(good)["by"] == "dead-man"
    until(lambda: good.is_connected("maple"), "the gateway is connected")
    assert look(good) == before
    assert_answers(good)
    again = good.converge("maple")
    assert again.exit_code is ExitCode.FAILED and "nobody confirmed run" in str(again.error)
    mend_release(good)
    assert good.converge("maple").error is None


@pytest.mark.parametrize("moment", [Phase.RESTART, Phase.LIVENESS, "confirmation"])
def test_a_link_that_is_cut_at_any_point_after_arming(
    good: LightFleet, monkeypatch: pytest.MonkeyPatch, moment: Phase | str
):
    before = look(good)
    break_release(good, '{"greeting": "fine"}')
    good.change_settings(**DEAD_MAN_SOON)

    def cut(event: Event) -> None:
        if event.phase is moment:
            good.lab.cut("maple")

    def cut_and_renew(session: Session) -> None:
        good.lab.cut("maple")
        renew(session)

    renew = Session.renew
    try:
        if moment == "confirmation":
            monkeypatch.setattr(Session, "renew", cut_and_renew)
        lost = good.converge("maple", report=cut)
        assert lost.exit_code is ExitCode.UNREACHABLE
        until(lambda: held(good) != {} and "deadman" not in good.run("maple", "ls /var/lib/tenantry"), "undone", 90)
    finally:
        good.lab.restore_link("maple")
    assert look(good) == before
    assert good.marker("maple") == GOOD


def test_a_run_that_wakes_up_after_the_dead_man_acted_is_refused(good: LightFleet):
    before = look(good)
    break_release(good, '{"greeting": "fine"}')
    good.change_settings(**DEAD_MAN_SOON)
    process = good.cli("converge", "maple", "--json", signal_at=(signal.SIGSTOP, "maple liveness:"))
    until(lambda: held(good) != {} and "deadman" not in good.run("maple", "ls /var/lib/tenantry"), "undone", 90)
    os.kill(process.pid, signal.SIGCONT)
    output, errors = process.communicate(timeout=60)
    assert process.returncode in (ExitCode.FAILED, ExitCode.UNREACHABLE), (output, errors)
    assert good.marker("maple") == GOOD and look(good) == before


def test_a_plain_run_finishes_what_a_killed_one_left_armed(good: LightFleet):
    before = look(good)
    break_release(good, '{"fault": "no-channel"}')
    killed_at(good, "maple liveness:", "converge", "maple")
    outcome = good.converge("maple")
    assert (outcome.result, outcome.exit_code) == (RunResult.ROLLED_BACK, ExitCode.FAILED)
    assert look(good) == before
    assert_answers(good)
    assert held(good)["head"] == BROKEN


def test_a_look_of_the_dead_man_that_has_just_begun_ends_with_it(good: LightFleet):
    break_release(good, '{"fault": "no-channel"}')
    killed_at(good, "maple liveness:", "converge", "maple")
    # A look takes a moment; this one lasts.
    good.run(
        "maple",
        "cd /etc/systemd/system; sed -i 's,^ExecStart=.*,ExecStart=/bin/sleep 600,' tenantry-deadman.service; "
        "systemctl daemon-reload; systemctl stop tenantry-deadman.service; "
        "systemctl start --no-block tenantry-deadman.service",
    )
    assert good.converge("maple").result is RunResult.ROLLED_BACK
    assert_answers(good)


@pytest.mark.parametrize("words", ["putting the tenant back", "proving that the owner can reach the gateway again"])
def test_a_process_that_is_killed_in_a_rollback(good: LightFleet, words: str):
    before = look(good)
    break_release(good, '{"fault": "no-channel"}')
    killed_at(good, words, "converge", "maple")
    outcome = good.converge("maple")
    assert outcome.exit_code is ExitCode.FAILED, outcome
    assert look(good) == before
    assert_answers(good)


# State


def test_an_upgrade_that_changes_the_form_of_the_state_and_newer_messages(good: LightFleet):
    good.say("maple", "old", age_seconds=1000)
    break_release(good, '{"fault": "no-channel"}', {"gateway": {"version": "2.0"}})
    said: list[str] = []

    def talk(event: Event) -> None:
        if event.phase is Phase.ROLLBACK and not said:
            said.append("new")
            good.say("maple", "new", age_seconds=-1)

    outcome = good.converge("maple", report=talk)
    assert outcome.result is RunResult.ROLLED_BACK, outcome
    content = good.run(
        "maple", "sqlite3 /srv/light/state.db 'SELECT content FROM messages; PRAGMA table_info(messages)'"
    )
    assert "old" in content and "new" not in content and "mood" not in content
    (named,) = [message for message in outcome.messages if "newer messages" in message]
    assert "1 newer messages" in named and str(outcome.run) in named
    aside = f"/var/lib/tenantry/aside/{outcome.run}/state"
    found = good.run("maple", f"for d in {aside}/*/state.db; do sqlite3 $d 'SELECT content FROM messages'; done")
    assert found.split() == ["old", "new"]
    assert good.run("maple", "readlink /opt/light/current").strip() == "/opt/light/1.0"
    assert_answers(good)


# Refused


def test_without_room_for_the_set_nothing_is_changed_and_the_figures_are_named(good: LightFleet):
    before = look(good)
    good.change_settings(recovery={"reserve_mebibytes": 100_000_000})
    break_release(good, '{"greeting": "fine"}')
    outcome = good.converge("maple")
    assert outcome.exit_code is ExitCode.FAILED
    assert "MiB needed" in str(outcome.error) and "MiB free" in str(outcome.error)
    assert look(good) == before and good.owed("maple")["restart"] == []


def test_there_is_no_way_back_across_an_irreversible_step(good: LightFleet):
    break_release(good, '{"fault": "no-channel"}', "migrate")
    plan = good.cli("plan", "maple", "--json")
    output, _ = plan.communicate(timeout=60)
    steps = {step["entry"]: step["irreversible"] for step in json.loads(output)["tenants"][0]["steps"]}
    assert steps["migrate"] is True and sum(steps.values()) == 1
    outcome = good.converge("maple")
    assert outcome.result is RunResult.FAILED and "tenantry restore maple" in str(outcome.error)
    assert good.run("maple", "cat /etc/light/gateway.json") == '{"fault": "no-channel"}'
    assert good.run("maple", "ls /var/lib/tenantry/deadman 2>/dev/null || true") == ""
    refused = good.cli("rollback", "maple")
    _, errors = refused.communicate(timeout=60)
    assert refused.returncode == ExitCode.FAILED and "migrate" in errors and "tenantry restore maple" in errors
    mend_release(good)
    assert good.converge("maple").error is None


# A person's decision


def test_a_person_rolls_back_what_was_good_and_takes_it_up_again(good: LightFleet):
    before = look(good)
    good.write_releases(FIRST, (BROKEN, ["polite", {"gateway": {"version": "1.1"}}]))
    assert good.converge("maple").error is None
    good.say("maple", "since then", age_seconds=1000)
    process = good.cli("rollback", "maple", "--json")
    output, errors = process.communicate(timeout=120)
    assert process.returncode == ExitCode.DONE, errors
    (document,) = json.loads(output)["tenants"]
    assert (document["result"], document["from_version"], document["to_version"]) == ("rolled-back", BROKEN, GOOD)
    assert look(good) == before and good.marker("maple") == GOOD
    assert "since then" in good.run("maple", "sqlite3 /srv/light/state.db 'SELECT content FROM messages'")
    assert_answers(good)
    assert (held(good)["by"], held(good)["head"]) == ("person", BROKEN)
    assert "held back" in str(good.converge("maple").error)
    assert good.converge("maple", options=RETRY).error is None
    assert good.marker("maple") == BROKEN and held(good) == {}


def test_a_rollback_to_a_version_and_to_one_that_no_set_leads_to(good: LightFleet):
    before = look(good)
    second = (BROKEN, [{"configure": {"text": "{}"}}])
    good.write_releases(FIRST, second)
    assert good.converge("maple").error is None
    good.write_releases(FIRST, second, (MENDED, ["polite"]))
    assert good.converge("maple").error is None
    refused = good.cli("rollback", "maple", "--to", "2020.1.1")
    _, errors = refused.communicate(timeout=60)
    assert refused.returncode == ExitCode.FAILED and GOOD in errors and BROKEN in errors
    # Whether this gateway is in conversation cannot be known any more.
    good.run("maple", "rm /srv/light/state.db*")
    done = good.cli("rollback", "maple", "--to", GOOD)
    _, errors = done.communicate(timeout=120)
    assert done.returncode == ExitCode.DONE, errors
    assert "in conversation is unknown" in errors and "because a person says so" in errors
    assert look(good) == before
    # The set of the first release is left, and behind that nothing.
    done = good.cli("rollback", "maple")
    _, errors = done.communicate(timeout=120)
    assert done.returncode == ExitCode.DONE and good.marker("maple") is None, errors
    nothing = good.cli("rollback", "maple")
    _, errors = nothing.communicate(timeout=60)
    assert nothing.returncode == ExitCode.FAILED and "no recovery set" in errors


def test_a_person_who_is_killed_in_a_rollback_leaves_a_tenant_that_answers(good: LightFleet):
    good.write_releases(FIRST, (BROKEN, [{"configure": {"text": "{}"}}]))
    assert good.converge("maple").error is None
    killed_at(good, "proving that the owner", "rollback", "maple")
    # The set is closed; the one before it is not what this person means.
    again = good.cli("rollback", "maple", "--json")
    output, errors = again.communicate(timeout=120)
    assert again.returncode == ExitCode.DONE, errors
    (document,) = json.loads(output)["tenants"]
    assert (document["result"], document["to_version"]) == ("rolled-back", GOOD)
    # It is this person's word now, which no resumed rollout goes over as it does over a dead-man's.
    assert held(good)["by"] == "person"
    assert good.marker("maple") == GOOD
    assert_answers(good)


def test_a_person_s_rollback_goes_past_an_armed_one_that_nobody_can_finish(good: LightFleet):
    before = look(good)
    good.write_releases(FIRST, (BROKEN, [{"configure": {"text": "{}"}}]))
    assert good.converge("maple").error is None
    good.run("maple", ARMED_WITHOUT_SET)
    refused = good.cli("rollback", "maple", "--json")
    assert refused.wait(timeout=120) == ExitCode.FAILED
    process = good.cli("rollback", "maple", "--to", GOOD, "--json")
    output, errors = process.communicate(timeout=120)
    assert process.returncode == ExitCode.DONE, errors
    assert json.loads(output)["tenants"][0]["to_version"] == GOOD
    assert look(good) == before and good.marker("maple") == GOOD
    assert_answers(good)


def test_a_person_s_rollback_finishes_an_armed_one_before_it_goes_further_back(good: LightFleet):
    before = look(good)
    second = (BROKEN, [{"configure": {"text": "{}"}}])
    good.write_releases(FIRST, second)
    assert good.converge("maple").error is None
    good.write_releases(FIRST, second, (MENDED, [{"configure": {"text": '{"fault": "no-channel"}'}}]))
    killed_at(good, "maple liveness:", "converge", "maple")
    process = good.cli("rollback", "maple", "--to", GOOD, "--json")
    output, errors = process.communicate(timeout=120)
    assert process.returncode == ExitCode.DONE, errors
    (document,) = json.loads(output)["tenants"]
    assert document["to_version"] == GOOD and "was never confirmed" in document["messages"][0]
    assert look(good) == before and good.marker("maple") == GOOD
    assert_answers(good)
