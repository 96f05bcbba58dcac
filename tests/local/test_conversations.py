"""Prompts of conversations: what the real runtime wrote, found again and given the new personality, nothing else."""

from __future__ import annotations

import os
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engine.conversations import fingerprint, host_script, prompts, spoken
from tests.local.conversing import FOLLOWS, NEW, OLD, VERSIONS, Tenant, form
from tests.local.crashes import dies_at
from tests.local.umasks import own_umask

DAY = 86400


@pytest.fixture
def tenant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tenant]:
    monkeypatch.setattr(host_script, "HOME", str(tmp_path))
    with own_umask():
        yield Tenant(tmp_path)


def renewed(prompt: str, old: str = OLD, new: str = NEW) -> bytes:
    assert prompt.startswith(spoken(old))
    return (spoken(new) + prompt[len(spoken(old)) :]).encode()


@pytest.mark.parametrize("version", VERSIONS)
def test_what_the_runtime_wrote_keeps_every_byte_but_the_personality(tenant: Tenant, version: str):
    tenant.begin("open", form(version))
    before = tenant.rest()
    tenant.change()
    report = tenant.renew()
    assert report == {"renewed": 1, "left": [], "left_count": 0, "reset": [], "problem": ""}
    assert tenant.prompt() == renewed(form(version))
    assert tenant.rest() == before
    assert tenant.renew()["renewed"] == 0


@pytest.mark.parametrize(
    "text",
    [
        OLD.replace("\n", "\r\n"),
        "\n\n" + OLD.strip(),
    ],
)
def test_a_personality_is_known_as_the_runtime_speaks_it(tenant: Tenant, text: str):
    tenant.personality.write_bytes(text.encode())
    tenant.begin("open", form())
    tenant.change()
    assert tenant.renew()["renewed"] == 1
    assert fingerprint(text) == fingerprint(OLD)


def test_a_conversation_of_two_personalities_ago_gets_the_newest(tenant: Tenant):
    tenant.begin("open", form())
    tenant.change("Between.\n")
    tenant.change(NEW)
    assert tenant.renew()["renewed"] == 1
    assert tenant.prompt() == renewed(form())


def test_one_that_began_while_the_restart_was_owed_is_known_as_well(tenant: Tenant):
    tenant.change("Between.\n")
    tenant.begin("open", form().replace(spoken(OLD), "Between."))
    tenant.change(NEW)
    assert tenant.renew()["renewed"] == 1
    assert tenant.prompt() == renewed(form())


def test_a_personality_from_before_the_first_record_is_known_from_the_manifest(tenant: Tenant):
    tenant.begin("open", form())
    tenant.personality.write_text("Edited since.\n")
    tenant.change(NEW)
    assert tenant.renew()["left_count"] == 1
    assert tenant.renew(texts=[OLD])["renewed"] == 1


STRANGE = [
    form().replace("You work for", "You worked for", 1),
    form().replace(FOLLOWS, "You run on something else.", 1),
    form().replace(f"\n\n{FOLLOWS}", f"\n{FOLLOWS}", 1),
    " " + form(),
    spoken(OLD),
    "words of the user, then " + form(),
]


@pytest.mark.parametrize("prompt", STRANGE)
def test_a_prompt_of_another_structure_is_left_and_named(tenant: Tenant, prompt: str):
    tenant.begin("open", prompt)
    tenant.change()
    report = tenant.renew()
    assert (report["renewed"], report["left_count"]) == (0, 1)
    assert report["left"] == [{"id": "open", "source": "api_server", "state": "open", "personality": "unknown"}]
    assert tenant.prompt() == prompt.encode()


def test_a_prompt_that_could_begin_with_two_personalities_is_left(tenant: Tenant):
    longer = f"{spoken(OLD)}\n\n{FOLLOWS} Once more.\n"
    tenant.begin("open", f"{spoken(longer)}\n\n{FOLLOWS} The rest.")
    tenant.change(longer)
    tenant.change(NEW)
    assert tenant.renew()["left_count"] == 1


def test_a_prompt_that_is_no_text_is_left(tenant: Tenant):
    tenant.begin("blob", form().encode())
    tenant.begin("broken", None)
    with tenant.database() as database:
        broken = form().encode() + b"\xff\xfe"
        database.execute("UPDATE sessions SET system_prompt = CAST(? AS TEXT) WHERE id = 'broken'", (broken,))
    tenant.change()
    report = tenant.renew()
    assert [one["id"] for one in report["left"]] == ["blob"]
    # Bytes that are not UTF-8 stand behind the personality: they stay what they are.
    assert tenant.prompt("broken") == renewed(form()) + b"\xff\xfe"


def test_archived_and_resumable_conversations_follow_long_ended_and_other_ones_do_not(tenant: Tenant):
    now = time.time()
    tenant.begin("archived", form(), archived=1)
    tenant.begin("ended", form(), ended_at=now - DAY)
    tenant.begin("long ago", form(), ended_at=now - 31 * DAY)
    tenant.begin("job", "You are a scheduled job.", source="cron")
    tenant.begin("empty", "")
    tenant.begin("none", None)
    tenant.change()
    assert tenant.renew() == {"renewed": 2, "left": [], "left_count": 0, "reset": [], "problem": ""}
    assert tenant.prompt("archived") == tenant.prompt("ended") == renewed(form())
    assert tenant.prompt("long ago") == form().encode()
    assert (tenant.prompt("empty"), tenant.prompt("none")) == (b"", None)


def test_the_database_of_another_profile_stays_byte_for_byte(tenant: Tenant, tmp_path: Path):
    (tmp_path / "profiles/scratch").mkdir(parents=True)
    tenant.begin("open", form())
    scratch = tmp_path / "profiles/scratch/state.db"
    scratch.write_bytes(tenant.path.read_bytes())
    before = scratch.read_bytes()
    tenant.change()
    assert tenant.renew()["renewed"] == 1
    assert scratch.read_bytes() == before
    assert sorted(path.name for path in scratch.parent.iterdir()) == ["state.db"]


@pytest.mark.parametrize("share", [os.link, os.symlink])
def test_a_database_that_another_profile_shares_is_not_touched(
    tenant: Tenant, tmp_path: Path, share: Callable[[Path, Path], None]
):
    tenant.begin("open", form())
    tenant.change()
    if share is os.symlink:
        (tmp_path / "elsewhere.db").write_bytes(b"")
        tenant.path.rename(tmp_path / "elsewhere.db")
        os.symlink(tmp_path / "elsewhere.db", tenant.path)
    else:
        os.link(tenant.path, tmp_path / "second.db")
    assert "not one regular file of one name" in tenant.renew()["problem"]
    assert tenant.prompt() == form().encode()


def test_a_database_of_another_form_is_not_touched_and_said(tenant: Tenant):
    tenant.begin("open", form())
    tenant.change()
    with tenant.database() as database:
        database.execute("ALTER TABLE sessions RENAME COLUMN system_prompt TO prompt")
    assert tenant.renew()["problem"] == "the table sessions has no column system_prompt"
    with tenant.database() as database:
        database.execute("ALTER TABLE sessions RENAME TO kept")
        database.execute("CREATE VIEW sessions AS SELECT * FROM kept")
    assert tenant.renew()["problem"] == "the database has no table sessions"


def test_a_personality_that_the_runtime_would_shorten_is_not_put_in(tenant: Tenant):
    tenant.begin("open", form())
    tenant.change("x" * 20_001)
    assert "20001 characters" in tenant.renew()["problem"]
    assert tenant.prompt() == form().encode()


def test_a_tenant_without_a_conversation_has_nothing_to_renew(tenant: Tenant):
    tenant.path.unlink()
    tenant.change()
    assert tenant.renew() == {"renewed": 0, "left": [], "left_count": 0, "reset": [], "problem": ""}


def test_a_database_that_stays_locked_is_an_error_and_unchanged(tenant: Tenant, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(host_script, "BUSY_SECONDS", 0.1)
    tenant.begin("open", form())
    tenant.change()
    with tenant.database() as holder:
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(sqlite3.DatabaseError, match="locked"):
            tenant.renew()
    assert tenant.prompt() == form().encode()


def test_what_takes_too_long_is_ended_and_changes_nothing(tenant: Tenant, monkeypatch: pytest.MonkeyPatch):
    tenant.begin("open", form())
    tenant.change()
    monkeypatch.setattr(host_script, "SECONDS", 0.0)
    with pytest.raises(OSError, match="not read within"):
        tenant.renew()
    assert tenant.prompt() in (form().encode(), renewed(form()))


def test_what_is_owed_and_the_old_personality_survive_a_death_at_any_point(tenant: Tenant):
    tenant.begin("open", form())
    change = 1
    while dies_at(change, lambda: tenant.change()):
        change += 1
        if tenant.personality.read_text() == NEW:
            assert tenant.owed()["conversations"] is True
    assert change > 3
    change = 1
    while dies_at(change, lambda: tenant.renew()):
        change += 1
        assert tenant.prompt() in (form().encode(), renewed(form()))
    assert tenant.renew()["left_count"] == 0
    assert tenant.prompt() == renewed(form())


def test_what_was_owed_before_stays_owed(tenant: Tenant):
    (tenant.root / "owed.json").write_text('{"restart": ["step x"]}')
    tenant.change()
    assert tenant.owed() == {"restart": ["step x", "conversations"], "conversations": True}


END = """
import json, sqlite3, sys
question = json.load(sys.stdin)
database = sqlite3.connect(question["database"])
for name in question["sessions"]:
    database.execute("DELETE FROM messages WHERE session_id = ?", (name,))
    database.execute("DELETE FROM sessions WHERE id = ?", (name,))
database.commit()
"""


def resets(tenant: Tenant, program: str = END) -> None:
    tenant.settings |= {"policy": "reset", "reset": {"interpreter": [sys.executable, "-I"], "program": program}}


def test_a_reset_ends_the_open_conversations_that_are_not_recognised(tenant: Tenant):
    resets(tenant)
    tenant.begin("known", form())
    tenant.begin("strange", STRANGE[0])
    tenant.begin("put away", STRANGE[0], archived=1)
    tenant.change()
    report = tenant.renew()
    assert (report["renewed"], report["reset"]) == (1, ["strange"])
    assert [one["id"] for one in report["left"]] == ["put away"]
    assert tenant.owed()["notice"] is True
    with tenant.database() as database:
        assert database.execute("SELECT id FROM sessions ORDER BY id").fetchall() == [("known",), ("put away",)]


def test_nothing_is_ended_while_a_tenant_is_put_back(tenant: Tenant):
    resets(tenant)
    tenant.begin("strange", STRANGE[0])
    tenant.change()
    assert tenant.renew(may_reset=False)["left_count"] == 1
    assert "notice" not in tenant.owed()


def test_a_reset_that_fails_is_an_error_in_its_own_words_and_what_was_renewed_can_go_back(tenant: Tenant):
    resets(tenant, "raise SystemExit('no such function')")
    tenant.begin("known", form())
    tenant.begin("strange", STRANGE[0])
    tenant.change()
    with pytest.raises(OSError, match="no such function"):
        tenant.renew()
    assert tenant.prompt("known") == renewed(form())
    tenant.personality.write_text(OLD)
    assert tenant.renew(may_reset=False)["renewed"] == 1
    assert tenant.prompt("known") == form().encode()


def test_the_list_shows_the_personality_of_each_conversation_and_changes_nothing(tenant: Tenant):
    tenant.begin("old", form())
    tenant.change()
    tenant.begin("new", renewed(form()).decode())
    tenant.begin("strange", STRANGE[0], archived=1)
    tenant.begin("gone", None, ended_at=5.0)
    before = kept_files(tenant)
    shown = host_script.show(tenant.settings)
    assert shown["personality"] == fingerprint(NEW)
    assert {one["id"]: (one["state"], one["personality"]) for one in shown["sessions"]} == {
        "old": ("open", fingerprint(OLD)),
        "new": ("open", fingerprint(NEW)),
        "strange": ("archived", "unknown"),
        "gone": ("ended", "none"),
    }
    assert "gone" not in {one["id"] for one in host_script.show(tenant.settings, ended=False)["sessions"]}
    assert kept_files(tenant) == before


def kept_files(tenant: Tenant) -> dict[str, bytes]:
    """All files but SQLite's shared memory, in which every reader notes where it reads."""
    return {
        path.name: path.read_bytes()
        for path in tenant.root.iterdir()
        if path.is_file() and not path.name.endswith("-shm")
    }


def test_the_messages_of_a_renewal():
    quiet = {"renewed": 0, "left": [], "left_count": 0, "reset": [], "problem": ""}
    assert list(prompts.Renewal.of(quiet).messages()) == []
    left = [{"id": f"s{n}", "source": "x", "state": "open", "personality": "unknown"} for n in range(7)]
    busy = prompts.Renewal.of({"renewed": 1, "left": left, "left_count": 7, "reset": ["a", "b"], "problem": ""})
    assert list(busy.messages()) == [
        "the new personality is in the prompt of 1 conversation; what was said stays",
        "2 conversations ended: the form of the prompt was not recognised",
        "7 conversations keep theirs until they end: the form of the prompt was not recognised (s0, s1, s2, s3, s4, …)",
    ]
