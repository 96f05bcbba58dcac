"""Which personalities a tenant has had by its manifest, and what its conversations speak with."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from engine.conversations import fingerprint
from engine.errors import InvalidInput, UnknownState
from engine.updater.personalities import Prompt, ask_conversations, personalities
from engine.updater.workspace import Workspace, open_workspace
from tests.fleets import HEAD, SETTINGS, write_whole_fleet

SESSIONS = """\
    restart: true
gateway:
  unit: gateway.service
  address: 127.0.0.1
  port: 8642
  health_path: /health
  state_file: /srv/state.json
  database: /srv/state.db
  config_file: /srv/config.yaml
  state_directory: /srv
  runtime_link: /opt/current
  channels: [local]
sessions:
  personality: personality
  follows: You run on a runtime.
  table: sessions
  columns: {id: id, prompt: system_prompt, ended: ended_at}
"""
PLAIN, POLITE = "You work for Rosa.\n", "You work for Rosa.\nSpeak plainly.\n"


def fleet(root: Path, sessions: str = SESSIONS) -> Workspace:
    write_whole_fleet(root)
    (root / "inventory/fleet.yaml").write_text(SETTINGS + sessions)
    return open_workspace(root)


class Answering:
    """A session whose host answers every question with one report."""

    def __init__(self, workspace: Workspace, report: dict[str, Any]) -> None:
        self.settings, self.tenant = workspace.fleet.settings, SimpleNamespace(slug="maple")
        self.report = report

    def ask_script(self, script: str, parameters: Any) -> Any:
        return self.report


def ask(workspace: Workspace, **report: Any) -> Any:
    answering: Any = Answering(workspace, {"personality": None, "sessions": [], "problem": "", **report})
    return ask_conversations(workspace, workspace.fleet.tenants["maple"], answering)


def test_each_personality_is_known_by_its_first_version(tmp_path: Path):
    workspace = fleet(tmp_path)
    assert personalities(workspace, workspace.fleet.tenants["maple"]) == {
        fingerprint(PLAIN): (PLAIN, "version zero"),
        fingerprint(POLITE): (POLITE, HEAD),
    }


def test_conversations_are_told_by_what_their_prompt_begins_with(tmp_path: Path):
    marks = {
        "a": fingerprint(POLITE),
        "b": fingerprint(PLAIN),
        "c": fingerprint("Edited."),
        "d": "unknown",
        "e": "none",
    }
    rows = [{"id": name, "source": "", "state": "open", "personality": mark} for name, mark in marks.items()]
    spoken = ask(fleet(tmp_path), personality=fingerprint(POLITE), sessions=rows)
    assert (spoken.version, [(one.prompt, one.version) for one in spoken.conversations]) == (
        HEAD,
        [
            (Prompt.CURRENT, HEAD),
            (Prompt.EARLIER, "version zero"),
            (Prompt.EARLIER, None),
            (Prompt.UNKNOWN, None),
            (Prompt.NONE, None),
        ],
    )


def test_conversations_that_cannot_be_read_are_unknown(tmp_path: Path):
    with pytest.raises(UnknownState, match="no table sessions"):
        ask(fleet(tmp_path), problem="the database has no table sessions")


def test_a_fleet_without_the_section_cannot_be_asked(tmp_path: Path):
    with pytest.raises(InvalidInput, match="does not say how its runtime keeps"):
        ask(fleet(tmp_path, ""))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("    restart: true\n", ""), "no rendered file that owes a restart"),
        (("personality: personality\n", "personality: soul\n"), "'soul' is no rendered file"),
        (("  table: sessions\n", "  table: sessions\n  policy: reset\n"), "nothing says how a conversation is ended"),
        (("ended: ended_at", "ends: ended_at"), "ends"),
    ],
)
def test_a_section_that_cannot_work_is_refused(tmp_path: Path, change: tuple[str, str], message: str):
    with pytest.raises(InvalidInput, match=message):
        fleet(tmp_path, SESSIONS.replace(*change))


def test_a_program_that_is_not_there_is_refused(tmp_path: Path):
    reset = "  policy: reset\n  reset: {interpreter: [python3], program: deploys/end.py, notice: We begin anew.}\n"
    with pytest.raises(InvalidInput, match="the program that ends conversations cannot be read"):
        fleet(tmp_path, SESSIONS + reset)
