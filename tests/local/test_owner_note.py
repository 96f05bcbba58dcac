"""An owner's note whose target cannot be read stays owed, and says nothing of the secret."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from engine.hosts.status import OwedNote
from engine.updater.notify import send
from engine.updater.owner_note import OwnerNote
from engine.updater.workspace import open_workspace
from tests.fleets import HEAD, write_whole_fleet


def test_a_target_that_is_no_text_leaves_the_note_owed(tmp_path: Path):
    settings = write_whole_fleet(tmp_path) / "inventory/fleet.yaml"
    settings.write_text(settings.read_text() + "notify: {target_secret: hook}\n")
    (tmp_path / "hook").write_bytes(b"json://canary\xff")
    (tmp_path / "hook").chmod(0o600)
    workspace, said = open_workspace(tmp_path), []
    tenant = replace(workspace.fleet.tenants["maple"], secrets={"hook": "file:hook"})
    OwnerNote(workspace, tenant, cast(Any, None), None, send, said.append).deliver(OwedNote(HEAD, "text"))
    assert said == [f"the note for {HEAD} stays owed: secret file:hook is not UTF-8 text"]
