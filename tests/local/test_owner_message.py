"""What the owner is told in one message, what a plan shows of it, and that a message never changes a run's result."""

from __future__ import annotations

import datetime
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pytest

from engine.errors import CommandLost, StaleRun, TenantryError
from engine.hosts.status import FileFacts, Marker, MarkerState, OwedNote
from engine.records import RunResult
from engine.registry.model import Tenant
from engine.registry.settings import Window
from engine.releases.digests import digest_of
from engine.releases.version import Version
from engine.updater.assessment import Assessment, assess, render_at
from engine.updater.converge import Converge
from engine.updater.fleet import check_note
from engine.updater.job import Job
from engine.updater.notify import Delivery
from engine.updater.outcome import Options, Outcome
from engine.updater.owner_note import OwnerNote, Preview, notice_of, preview
from engine.updater.workspace import Workspace, open_workspace
from tests.fleets import HEAD, VERSIONS
from tests.local.ledgers import LocalSession
from tests.local.talking_fleet import NOTICE, write_talking_fleet
from tests.local.test_owner_note import At
from tests.unit.updater.statuses import gateway_state, status

FIRST = VERSIONS[1]
EARLIER = f"Queva updated to {FIRST}: Your assistant knows listings."
RELEASE = "Your assistant speaks plainly."
START = f"Queva updated to {HEAD}: "


@dataclass
class Owner:
    """An owner who is told by a run on a tenant that the second release has reached."""

    workspace: Workspace
    tenant: Tenant
    session: LocalSession
    delivery: Delivery = Delivery.DELIVERED
    sent: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    def send(self, target: str, text: str) -> Delivery:
        self.sent.append(text)
        return self.delivery

    def assessment(self, version: str = FIRST) -> Assessment:
        return assess(self.workspace, self.tenant, replace(self.session.probe(), **at(self.workspace, version)))

    def owe(self, hand_written: str | None = None, version: str = FIRST) -> str | None:
        """The message that a run records before its commit."""
        assessment = self.assessment(version)
        notice = notice_of(self.workspace.fleet.settings, assessment.status.owed)
        session = cast(Any, self.session)
        note = OwnerNote(self.workspace, self.tenant, session, hand_written, self.send, self.said.append)
        note.owe(assessment, notice)
        return self.session.owed.note.text if self.session.owed.note else None

    def preview(self, version: str = FIRST) -> Preview:
        return preview(self.workspace, self.assessment(version))


def at(workspace: Workspace, version: str) -> dict[str, Any]:
    """What a tenant that has reached `version` says of it; its personality is as rendered."""
    applied = {one: workspace.digests[one] for one in VERSIONS if Version.parse(one) <= Version.parse(version)}
    return {"marker": Marker(MarkerState.PRESENT, Version.parse(version)), "applied": applied}


@pytest.fixture
def owner(tmp_path: Path) -> Owner:
    workspace = open_workspace(write_talking_fleet(tmp_path / "fleet"))
    tenant = replace(workspace.fleet.tenants["maple"], text_updates=True, secrets={"hook": "file:hook"})
    home = tmp_path / "home"
    home.mkdir()
    facts = rendered(workspace, tenant)
    session = LocalSession(home, tenant, workspace.fleet.settings, status(rendered=facts, gateway=gateway_state()))
    return Owner(workspace, tenant, session)


def rendered(workspace: Workspace, tenant: Tenant) -> dict[str, FileFacts]:
    (personality,) = render_at(workspace, tenant, workspace.manifest.head)
    return {"personality": FileFacts(digest_of(personality.content), "0644", "root", "root")}


def refused(owner: Owner, **owed: Any) -> None:
    """The message of the second release was refused, and something else is owed."""
    owner.delivery = Delivery.REFUSED
    owner.session.owe(note={"version": FIRST, "text": EARLIER, "sending": False}, **owed)


def test_a_hand_written_text_replaces_the_notes_and_nothing_else(owner: Owner):
    refused(owner, notice=True)
    assert owner.owe(START + "we moved.") == f"{START}Your assistant knows listings. we moved. {NOTICE}"
    refused(owner, notice=True)
    assert owner.owe() == f"{START}Your assistant knows listings. {RELEASE} {NOTICE}"


def test_over_the_limit_the_newest_alone_is_told_and_that_is_said(owner: Owner):
    owner.session.owe(notice=True)
    text = START + "x" * (480 - len(START))
    check_note(owner.workspace, text)
    assert owner.owe(text) == START + NOTICE
    assert owner.said == ["the hand-written note is left out: with what else is new it has more than 480 characters"]


def test_a_hand_written_text_that_goes_with_no_release_is_not_part_of_the_notice(owner: Owner):
    owner.session.owe(notice=True, restart=["conversations"])
    assert owner.owe(START + "again", version=HEAD) == START + NOTICE


def test_an_owner_without_texts_is_not_told_of_ended_conversations_and_the_run_says_so(owner: Owner):
    owner.tenant = replace(owner.tenant, text_updates=False)
    owner.session.owe(notice=True)
    assert owner.owe() is None
    assert owner.said == ["conversations were ended, and the owner is not told: this run sends the owner no texts"]


def test_a_plan_shows_what_is_sent_first_and_then(owner: Owner):
    refused(owner, notice=True)
    shown = owner.preview()
    assert shown == Preview(EARLIER, f"{START}{RELEASE} {NOTICE}")
    owner.delivery = Delivery.DELIVERED
    assert (owner.owe(), owner.sent) == (shown.own, [shown.owed])


@pytest.mark.parametrize("change", [{"secrets": {}}, {"quiet_hours": Window("00:00", "23:59", time_zone="UTC")}])
def test_a_plan_shows_an_earlier_message_that_cannot_be_sent_now_as_a_part_of_the_new_one(
    owner: Owner, change: dict[str, Any]
):
    noon = datetime.datetime(2026, 11, 30, 12, tzinfo=datetime.UTC)
    owner.workspace = replace(owner.workspace, clock=At(noon))
    owner.tenant = replace(owner.tenant, **change)
    refused(owner)
    assert owner.preview() == Preview(None, f"{START}Your assistant knows listings. {RELEASE}")
    assert (owner.preview().own, owner.sent) == (owner.owe(), [])


def test_a_plan_of_a_tenant_at_the_head_shows_what_is_still_owed(owner: Owner):
    assert owner.preview(HEAD) == Preview(None, None)
    refused(owner)
    assert owner.preview(HEAD) == Preview(EARLIER, None)
    owner.session.owe(note={"version": FIRST, "text": EARLIER, "sending": True})
    assert owner.preview(HEAD) == Preview(None, None)


@pytest.mark.parametrize("script", [1, 2])
@pytest.mark.parametrize("error", [CommandLost("the link is gone"), StaleRun("another run has claimed the host")])
def test_an_owed_message_whose_record_is_lost_leaves_an_unchanged_run_unchanged(
    owner: Owner, error: TenantryError, script: int
):
    owner.session.owe(note={"version": HEAD, "text": "text", "sending": False})
    owner.session.lost = {script: error}
    outcome = unchanged(owner)
    assert (outcome.result, outcome.error) == (RunResult.UNCHANGED, None)
    assert outcome.messages == (f"the owner's note stays as it is recorded on the tenant: {error.message}",)
    # Recorded as being sent before it was: so it is not sent again, whatever became of it.
    assert owner.session.owed.note == OwedNote(HEAD, "text", sending=script == 2)
    assert owner.sent == ["text"] * (script - 1)


def test_an_unchanged_run_sends_what_is_owed(owner: Owner):
    owner.session.owe(note={"version": HEAD, "text": "text", "sending": False})
    assert unchanged(owner).messages == (f"the owner was told about {HEAD}",)
    assert (owner.session.owed.note, owner.sent, len(owner.session.claims)) == (None, ["text"], 1)


def unchanged(owner: Owner) -> Outcome:
    """A run on a tenant at the head that has nothing to do but to send what is owed."""
    owner.session.status = replace(owner.session.status, **at(owner.workspace, HEAD))
    record = owner.workspace.runs.start(owner.tenant.subject, job="converge", run="r1", process=1)
    # Whether the gateway is alive is not what these tests ask.
    settings = replace(owner.workspace.fleet.settings, gateway=None)
    workspace = replace(owner.workspace, fleet=replace(owner.workspace.fleet, settings=settings))
    job = Job(workspace, owner.tenant, cast(Any, None), record, owner.workspace.clock)
    return Converge(job, cast(Any, owner.session), Options(), owner.send).run()
