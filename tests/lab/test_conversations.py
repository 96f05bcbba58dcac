"""A changed personality reaches open conversations of the real runtime, and nothing of what was said is lost."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from engine.conversations import spoken
from engine.errors import ExitCode
from engine.provision.installer import provision_many
from engine.records import RunResult
from engine.updater.fleet import ask_many
from engine.updater.outcome import Outcome
from engine.updater.personalities import Prompt, Spoken, ask_conversations
from tests.lab.reference_fleet import ReferenceFleet, change_yaml

HOME = "/srv/tenant/home"
DATABASE = f"{HOME}/state.db"
SCRATCH = f"{HOME}/profiles/scratch"
SCRATCH_PORT = 8650
FIRST = 3
PLAIN, HABITS = ["plain_language"], ["inbox_habits"]

# A second profile of the same runtime, as a person who tests something would start it.
START_SCRATCH = f"""
set -eu
install -d -o hermes -g hermes -m 0700 {HOME}/profiles {SCRATCH}
install -o hermes -g hermes -m 0600 {HOME}/SOUL.md {SCRATCH}/SOUL.md
sed 's/8642/{SCRATCH_PORT}/' {HOME}/config.yaml > {SCRATCH}/config.yaml
chown hermes:hermes {SCRATCH}/config.yaml
systemd-run --quiet --unit=scratch --uid=hermes --gid=hermes --property=EnvironmentFile=/etc/tenant/gateway.env \\
    --setenv=HOME={HOME} --setenv=HERMES_HOME={HOME} --setenv=PYTHONDONTWRITEBYTECODE=1 --setenv=LANG=C.UTF-8 \\
    /opt/runtime/current/bin/hermes --profile scratch gateway run
curl --silent --fail --retry 60 --retry-delay 1 --retry-all-errors http://127.0.0.1:{SCRATCH_PORT}/health
"""


@dataclass
class Talking(ReferenceFleet):
    """One tenant with several conversations; what became of them, release by release."""

    answers: dict[str, str] = field(default_factory=dict)
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    prompts: dict[str, dict[str, str]] = field(default_factory=dict)
    lists: dict[str, Spoken] = field(default_factory=dict)

    def say(self, session: str, text: str, port: int = 8642) -> str:
        return self.ask("maple", session, text, port)

    def sql(self, statement: str, database: str = DATABASE) -> str:
        """What SQLite answers, as the account that owns the database."""
        return self.run("maple", f"setpriv --reuid hermes --regid hermes --clear-groups sqlite3 {database}", statement)

    def releases(self, *later: Sequence[Any]) -> None:
        """The first releases of the manifest, then one with each of these sequences of steps."""
        releases = [
            {
                "version": f"2026.10.22.{number}",
                "title": "A change",
                "steps": list(steps),
                "details": "For a test.",
                "owner_note": "Something changed.",
            }
            for number, steps in enumerate(later, start=FIRST + 1)
        ]
        self.release(FIRST)
        change_yaml(self.root / "releases.yaml", lambda found: {"releases": found["releases"] + releases})

    def upgrade(self, name: str, *, repair: bool = False) -> Outcome:
        (outcome,) = self.converge("maple", repair=repair)
        self.outcomes[name] = outcome
        rows = json.loads(self.sql(".mode json\nSELECT id, system_prompt FROM sessions;"))
        self.prompts[name] = {row["id"]: row["system_prompt"] for row in rows}
        workspace = self.workspace
        (listed,) = ask_many(
            workspace,
            [workspace.fleet.tenants["maple"]],
            lambda tenant, session: ask_conversations(workspace, tenant, session, ended=True),
        )
        assert isinstance(listed, Spoken), listed
        self.lists[name] = listed
        return outcome

    def change_settings(self, section: str, **changes: Any) -> None:
        change_yaml(self.root / "inventory/fleet.yaml", lambda found: {**found, section: {**found[section], **changes}})

    @property
    def personality(self) -> str:
        return spoken(self.run("maple", f"cat {HOME}/SOUL.md"))

    def received(self) -> list[dict[str, Any]]:
        """What the model was sent last."""
        last = json.loads(self.lab.state.stub_log.read_text().splitlines()[-1])
        messages: list[dict[str, Any]] = last["messages"]
        return messages


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Talking]:
    fleet = Talking.create(tmp_path_factory.mktemp("conversations") / "fleet")
    change_yaml(fleet.root / "inventory/tenants.yaml", lambda found: {"tenants": {"maple": _texting(found)}})
    try:
        fleet.releases()
        workspace = fleet.workspace
        (outcome,) = provision_many(workspace, list(workspace.fleet.tenants.values()))
        assert outcome.error is None
        yield fleet
    finally:
        fleet.lab.destroy()


def _texting(found: Any) -> Any:
    return {**found["tenants"]["maple"], "text_updates": True}


def test_the_story_of_open_conversations(fleet: Talking):
    """One host, walked over several changes; each part asserts before the next begins."""
    first = _begin(fleet)
    _a_busy_one_defers_the_restart_and_nothing_is_changed(fleet)
    _the_next_message_has_the_new_personality_and_the_earlier_turns(fleet, first)
    _another_profile_is_another_database(fleet)
    _one_resumed_after_two_releases_speaks_with_the_newest(fleet)
    _an_edited_template_reaches_them_as_well(fleet)
    _a_repair_of_an_edited_file_reaches_them_as_well(fleet)
    _an_upgrade_of_the_runtime_in_the_same_window(fleet)
    _the_policy_reset_ends_what_is_not_recognised(fleet)
    _a_change_that_is_rolled_back_takes_its_personality_along(fleet)


def _begin(fleet: Talking) -> str:
    personality = fleet.personality
    for name in ("open", "archived", "idle", "strange"):
        assert "turns: 1" in fleet.say(name, f"Hello from {name}")
    fleet.run("maple", START_SCRATCH)
    assert "turns: 1" in fleet.say("test", "Only a test", SCRATCH_PORT)
    fleet.sql("UPDATE sessions SET archived = 1 WHERE id = 'archived';")
    fleet.sql("UPDATE sessions SET ended_at = started_at, end_reason = 'done' WHERE id = 'idle';")
    fleet.sql("UPDATE sessions SET system_prompt = 'Something else.' || system_prompt WHERE id = 'strange';")
    return personality


def _a_busy_one_defers_the_restart_and_nothing_is_changed(fleet: Talking) -> None:
    fleet.releases(PLAIN)
    fleet.change_settings("quiesce", silence_seconds=3600, polls=2)
    before = json.loads(fleet.sql(".mode json\nSELECT id, system_prompt FROM sessions ORDER BY id;"))
    outcome = fleet.upgrade("busy")
    assert (outcome.result, outcome.exit_code) == (RunResult.DEFERRED, ExitCode.DEFERRED)
    assert fleet.prompts["busy"] == {row["id"]: row["system_prompt"] for row in before}
    assert json.loads(fleet.run("maple", "cat /var/lib/tenantry/owed.json"))["conversations"] is True
    # The runtime reads the file for each new conversation; an open one keeps what it has.
    assert "«You are the professional assistant" in fleet.say("open", "Are you there?")
    assert "«You are the plain-spoken assistant" in fleet.say("between", "Good morning")
    fleet.change_settings("quiesce", silence_seconds=1, polls=100)


def _the_next_message_has_the_new_personality_and_the_earlier_turns(fleet: Talking, first: str) -> None:
    old = fleet.prompts["busy"]
    outcome = fleet.upgrade("plain")
    assert (outcome.error, outcome.result, outcome.restarted) == (None, RunResult.UPDATED, True)
    new = fleet.personality
    assert new.startswith("You are the plain-spoken assistant")
    assert "the new personality is in the prompt of 3 conversations; what was said stays" in outcome.messages
    assert (
        "1 conversation keeps its personality until it ends: the form of the prompt was not recognised (strange)"
        in outcome.messages
    )
    answer = fleet.say("open", "And now?")
    assert "«You are the plain-spoken assistant" in answer
    assert "turns: 3 first: «Hello from open» last: «And now?»" in answer
    messages = fleet.received()
    assert messages[0] == {"role": "system", "content": new + old["open"].removeprefix(first)}
    assert [message["role"] for message in messages[1:]] == ["user", "assistant"] * 2 + ["user"]
    assert fleet.prompts["plain"]["strange"] == old["strange"]
    assert "turns: 2 first: «Hello from archived»" in (answer := fleet.say("archived", "Taken up again"))
    assert "plain-spoken" in answer
    listed = {one.conversation.id: (one.conversation.state, one.prompt) for one in fleet.lists["plain"].conversations}
    assert listed == {
        "open": ("open", Prompt.CURRENT),
        "archived": ("archived", Prompt.CURRENT),
        "idle": ("ended", Prompt.CURRENT),
        "between": ("open", Prompt.CURRENT),
        "strange": ("open", Prompt.UNKNOWN),
    }
    assert fleet.lists["plain"].version == "2026.10.22.4"


def _another_profile_is_another_database(fleet: Talking) -> None:
    assert fleet.sql("SELECT id FROM sessions;", f"{SCRATCH}/state.db").split() == ["test"]
    assert "test" not in fleet.prompts["plain"]
    answer = fleet.say("test", "Still a test", SCRATCH_PORT)
    assert "«You are the professional assistant" in answer
    assert "turns: 2" in answer
    fleet.run("maple", "systemctl stop scratch")


def _one_resumed_after_two_releases_speaks_with_the_newest(fleet: Talking) -> None:
    fleet.releases(PLAIN, HABITS)
    outcome = fleet.upgrade("habits")
    assert outcome.error is None
    fleet.sql("UPDATE sessions SET ended_at = NULL, end_reason = NULL WHERE id = 'idle';")
    answer = fleet.say("idle", "I am back")
    assert "turns: 2 first: «Hello from idle»" in answer
    assert fleet.received()[0]["content"].startswith(fleet.personality)
    assert "\n## The inbox\n" in fleet.received()[0]["content"]


def _an_edited_template_reaches_them_as_well(fleet: Talking) -> None:
    template = fleet.root / "templates/personality.md.j2"
    template.write_text(template.read_text().replace("- Say what you did", "- Say in one line what you did"))
    outcome = fleet.upgrade("template")
    assert (outcome.error, outcome.files) == (None, (f"{HOME}/SOUL.md",))
    assert "turns: 4" in fleet.say("open", "And after an edit?")
    assert "- Say in one line what you did" in fleet.received()[0]["content"]


def _a_repair_of_an_edited_file_reaches_them_as_well(fleet: Talking) -> None:
    before = fleet.personality
    fleet.run("maple", f"sed -i '1s/.*/You do as you like./' {HOME}/SOUL.md")
    assert "«You do as you like." in fleet.say("edited", "Hello from edited")
    outcome = fleet.upgrade("repair", repair=True)
    assert (outcome.error, outcome.files, outcome.restarted) == (None, (f"{HOME}/SOUL.md",), True)
    assert fleet.personality == before
    assert "turns: 2 first: «Hello from edited»" in fleet.say("edited", "And now?")
    assert fleet.received()[0]["content"].startswith(before)


def _an_upgrade_of_the_runtime_in_the_same_window(fleet: Talking) -> None:
    fleet.releases(PLAIN, HABITS, [{"runtime": {"version": "0.19.0"}}, "warm_tone"])
    outcome = fleet.upgrade("upgrade")
    assert outcome.error is None
    assert '"version": "0.19.0"' in fleet.run("maple", "curl --silent http://127.0.0.1:8642/health")
    answer = fleet.say("open", "And on a newer runtime?")
    assert "turns: 5 first: «Hello from open»" in answer
    assert fleet.received()[0]["content"].startswith(fleet.personality)
    assert "Be friendly without ceremony" in fleet.personality


def _the_policy_reset_ends_what_is_not_recognised(fleet: Talking) -> None:
    template = fleet.root / "templates/personality.md.j2"
    template.write_text(template.read_text().replace("- Trade:", "- The trade:"))
    fleet.change_settings("sessions", policy="reset")
    outcome = fleet.upgrade("reset")
    assert outcome.error is None
    assert "1 conversation ended: the form of the prompt was not recognised" in outcome.messages
    note = json.loads(fleet.run("maple", "cat /var/lib/tenantry/owed.json"))["note"]["text"]
    assert "Our talk starts fresh; what it knows about you stays." in note
    assert "Hello from strange" in fleet.run("maple", f"cat {HOME}/ended-sessions/*.json")
    answer = fleet.say("strange", "Who are you?")
    assert "«You are the plain-spoken assistant" in answer
    assert "turns: 1 first: «Who are you?»" in answer
    assert "turns: 6" in fleet.say("open", "And you?")


def _a_change_that_is_rolled_back_takes_its_personality_along(fleet: Talking) -> None:
    before = fleet.personality
    for name, old, new in (
        ("personality.md.j2", "- The trade:", "- Their trade:"),
        ("tenant-gateway.service.j2", "ExecStart=/opt/runtime/current/bin/hermes gateway run", "ExecStart=/bin/false"),
    ):
        template = fleet.root / "templates" / name
        assert old in template.read_text()
        template.write_text(template.read_text().replace(old, new))
    outcome = fleet.upgrade("rolled back")
    assert outcome.result is RunResult.ROLLED_BACK, outcome
    assert fleet.personality == before
    assert "turns: 7" in fleet.say("open", "Still the same?")
    assert fleet.received()[0]["content"].startswith(before)
    assert {one.prompt for one in fleet.lists["rolled back"].conversations} == {Prompt.CURRENT}
