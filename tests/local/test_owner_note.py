"""An owner's note whose target cannot be read stays owed, and says nothing of the secret."""

from __future__ import annotations

import datetime
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from engine.hosts.status import OwedNote
from engine.registry.settings import Window
from engine.updater.notify import Delivery, send
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


@dataclass
class At:
    """A clock that stands still."""

    moment: datetime.datetime

    def now(self) -> datetime.datetime:
        return self.moment

    def monotonic(self) -> float:
        return 0.0

    def sleep(self, seconds: float) -> None:
        raise AssertionError("nobody waits here")


def test_in_quiet_hours_a_note_stays_owed_and_afterwards_it_is_sent(tmp_path: Path):
    settings = write_whole_fleet(tmp_path) / "inventory/fleet.yaml"
    settings.write_text(settings.read_text() + "notify: {target_secret: hook}\n")
    (tmp_path / "hook").write_bytes(b"json://canary")
    (tmp_path / "hook").chmod(0o600)
    sent: list[str] = []

    def sender(target: str, text: str) -> Delivery:
        sent.append(text)
        return Delivery.DELIVERED

    def deliver(moment: str) -> list[str]:
        clock = At(datetime.datetime.fromisoformat(moment))
        workspace, said = open_workspace(tmp_path, clock=clock), []
        night = Window("22:00", "07:00", time_zone="Europe/Berlin")
        tenant = replace(workspace.fleet.tenants["maple"], secrets={"hook": "file:hook"}, quiet_hours=night)
        note = OwnerNote(workspace, tenant, cast(Any, _Ledgerless()), None, sender, said.append)
        note.deliver(OwedNote(HEAD, "text"))
        return said

    (word,) = deliver("2026-11-29T21:30:00+00:00")
    assert word == f"the note for {HEAD} stays owed: quiet hours of the owner (22:00 to 07:00, Europe/Berlin)"
    assert sent == []
    deliver("2026-11-30T06:00:00+00:00")
    assert sent == ["text"]


class _Ledgerless:
    """A session on whose host nothing needs to be remembered."""

    def run_script(self, script: str, parameters: object) -> None:
        return None
