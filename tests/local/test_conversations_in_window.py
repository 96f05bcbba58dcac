"""Prompts of conversations follow the personality through the restart window, and back when the tenant is put back."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from engine.conversations import fingerprint
from engine.recovery.assembly import assembled
from tests.local.recovering import Tenant
from tests.local.test_window_script import window

OLD, NEW, REST = "You are stiff.", "You are kind.", "\n\nYou run on a runtime. The rest."


@pytest.fixture
def tenant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tenant:
    """A tenant with an open conversation and a recovery set of run ``r1``, whose personality has just been changed."""
    made = Tenant.create(tmp_path, monkeypatch)
    made.execute(
        "CREATE TABLE sessions (id TEXT PRIMARY KEY, prompt TEXT, ended REAL)",
        f"INSERT INTO sessions VALUES ('open', '{OLD}{REST}', NULL), ('strange', 'Else.', NULL)",
    )
    personality(made).write_text(OLD + "\n")
    made.take("r1")
    made.run(assembled("conversations.owe(PARAMETERS)"), settings(made))
    personality(made).write_text(NEW + "\n")
    return made


def personality(tenant: Tenant) -> Path:
    return tenant.base / "etc/app/personality"


def settings(tenant: Tenant) -> dict[str, Any]:
    return {
        "personality": str(personality(tenant)),
        "database": str(tenant.database),
        "follows": "You run on a runtime.",
        "table": "sessions",
        "id": "id",
        "prompt": "prompt",
        "ended": "ended",
        "archived": None,
        "source": None,
        "longest_characters": 1000,
        "resumable_days": 0,
        "sources": [],
        "policy": "wait",
        "reset": None,
    }


def through_window(tenant: Tenant, **changes: Any) -> dict[str, Any]:
    return window(tenant, conversations={"settings": {**settings(tenant), **changes}, "texts": []})


def prompts(tenant: Tenant) -> dict[str, str]:
    with closing(sqlite3.connect(tenant.database)) as database:
        return dict(database.execute("SELECT id, prompt FROM sessions").fetchall())


def test_prompts_are_renewed_after_the_state_was_saved_and_before_the_start(tenant: Tenant):
    result = through_window(tenant)
    assert result["outcome"] == "restarted"
    assert (result["renewal"]["renewed"], result["renewal"]["left_count"]) == (1, 1)
    assert prompts(tenant) == {"open": NEW + REST, "strange": "Else."}
    with closing(sqlite3.connect(tenant.set_of("r1") / "state/0/state.db")) as saved:
        assert (OLD + REST,) in saved.execute("SELECT prompt FROM sessions").fetchall()


def test_a_tenant_that_is_put_back_speaks_with_the_old_personality_again(tenant: Tenant):
    through_window(tenant)
    undone = tenant.undo("r1")
    assert (undone["state"], undone["problems"]) == ("kept", [])
    assert personality(tenant).read_text() == OLD + "\n"
    assert prompts(tenant) == {"open": OLD + REST, "strange": "Else."}
    known = {path.name for path in (tenant.home / "conversations/known").iterdir()}
    assert known == {fingerprint(OLD), fingerprint(NEW)}


def test_prompts_that_cannot_be_renewed_fail_the_window_and_the_gateway_runs_again(tenant: Tenant):
    personality(tenant).unlink()
    result = through_window(tenant)
    assert result["outcome"] == "refused" and "No such file" in result["problem"]
    assert prompts(tenant)["open"] == OLD + REST
    assert tenant.link.readlink() == Path("/opt/old")
    assert tenant.told()[-1] == "start gateway.service"


def test_an_undo_says_what_kept_the_newer_personality(tenant: Tenant):
    through_window(tenant)
    tenant.execute("ALTER TABLE sessions RENAME TO talks")
    undone = tenant.undo("r1")
    # The form of the state has changed, so it is that of before: with its prompts.
    assert (undone["state"], undone["problems"]) == ("put back", [])
    assert prompts(tenant)["open"] == OLD + REST
