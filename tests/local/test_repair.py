"""A personality that somebody edited is put back as a new one would be: conversations are to follow it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from engine.conversations import fingerprint
from engine.drift.check import Checker
from engine.drift.repair import Repair
from engine.drift.repairs import Repairs
from engine.hosts.status import FileFacts
from engine.releases.digests import digest_of
from engine.releases.version import Version
from engine.updater.workspace import open_workspace
from tests.fleets import HEAD
from tests.local.ledgers import LocalSession
from tests.local.talking_fleet import write_talking_fleet
from tests.unit.updater.statuses import status

EDITED = "You do as you like.\n"


def test_a_repair_of_the_personality_owes_it_to_conversations_and_remembers_the_edited_one(tmp_path: Path):
    workspace = open_workspace(write_talking_fleet(tmp_path / "fleet"))
    tenant, home = workspace.fleet.tenants["maple"], tmp_path / "home"
    home.mkdir()
    personality = tmp_path / "fleet/tenant/SOUL.md"
    personality.write_text(EDITED)
    facts = FileFacts(digest_of(EDITED.encode()), "0644", "root", "root")
    session = LocalSession(home, tenant, workspace.fleet.settings, status(rendered={"personality": facts}))
    written: list[str] = []
    converge = SimpleNamespace(session=session, job=SimpleNamespace(tenant=tenant), note_file=written.append)
    repair = Repair(Checker.of(workspace), _repairs=Repairs(files=True), _version=Version.parse(HEAD))
    repair.carry_out(cast(Any, converge))
    assert written == [str(personality)] and personality.read_text() != EDITED
    owed = session.owed
    assert owed.conversations and set(owed.restart) == {"conversations", "file personality"}
    assert [path.name for path in (home / "conversations/known").iterdir()] == [fingerprint(EDITED)]
