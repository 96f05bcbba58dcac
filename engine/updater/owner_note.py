"""The owner's message of one run: composed, owed before the commit, delivered after it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from engine.errors import InvalidInput, TenantryError
from engine.hosts.ledger import Ledger
from engine.hosts.session import Session
from engine.hosts.status import OwedNote
from engine.registry.model import Tenant
from engine.registry.settings import Settings
from engine.registry.text import utf16_length
from engine.registry.windows import is_open
from engine.releases.version import Version
from engine.render.notes import check_hand_written, compose, prefix
from engine.updater.assessment import Assessment
from engine.updater.notify import Sender, deliver
from engine.updater.workspace import Workspace


@dataclass
class OwnerNote:
    """What one run says to the owner. `say` takes each thing that became of it, for the person who watches."""

    workspace: Workspace
    tenant: Tenant
    session: Session
    hand_written: str | None
    sender: Sender
    say: Callable[[str], None]

    def remark(self, assessment: Assessment) -> None:
        """Say so where a hand-written text has nothing to go with."""
        if self.hand_written is not None and not assessment.plan.pending:
            self.say("no release is pending, so the hand-written note is not sent")

    def owe(self, assessment: Assessment, notice: str | None = None) -> None:
        """Record the message of the pending releases, before the marker makes them no longer pending.

        `notice` is what else the owner must know.

        A note that an earlier run left for a version the tenant has reached is sent first; if that fails
        again, its notes become part of this message. One for a version the tenant never reached is replaced:
        its releases are still pending, and part of this message anyway.
        """
        earlier = assessment.status.owed.note
        if earlier and not (assessment.marker and Version.parse(earlier.version) <= assessment.marker):
            earlier = None
        if earlier:
            self.deliver(earlier)
            earlier = self.session.probe().owed.note
        if self.tenant.text_updates:
            Ledger(self.session).note(OwedNote(str(assessment.plan.head), self._text(assessment, earlier, notice)))

    def send_owed(self) -> None:
        """Send what is owed now; the marker is written, so nothing here changes the run's result."""
        try:
            note = self.session.probe().owed.note
            if note:
                self.deliver(note)
        except TenantryError as error:
            self.say(f"the owner's note stays as it is recorded on the tenant: {error.message}")

    def deliver(self, note: OwedNote) -> None:
        """Send `note` if there is a way to and the owner is not to be left in peace now; else it stays owed."""
        quiet = self.tenant.quiet_hours
        if quiet and not note.sending and is_open((quiet,), self.workspace.clock.now()):
            hours = f"{quiet.start} to {quiet.end}, {quiet.time_zone}"
            self.say(f"the note for {note.version} stays owed: quiet hours of the owner ({hours})")
            return
        try:
            target = self._target()
        except TenantryError as error:
            self.say(f"the note for {note.version} stays owed: {error.message}")
            return
        self.say(deliver(note, target, Ledger(self.session).note, self.sender))

    def _text(self, assessment: Assessment, earlier: OwedNote | None, notice: str | None) -> str:
        if self.hand_written:
            return self.hand_written
        brand = self._settings.brand
        notes = [release.owner_note for release in assessment.plan.pending]
        if earlier:
            notes.insert(0, earlier.text.removeprefix(prefix(brand, Version.parse(earlier.version))))
        if notice:
            notes.append(notice)
        return compose(brand, assessment.plan.head, notes, self._settings.notify.limit_characters)

    def _target(self) -> str | None:
        name = self._settings.notify.target_secret
        reference = self.tenant.secrets.get(name) if name else None
        if reference is None:
            return None
        try:
            return self.workspace.secrets.resolve(reference).decode().strip()
        except UnicodeDecodeError:
            # Not chained: the error would quote the secret's bytes.
            raise InvalidInput(f"secret {reference} is not UTF-8 text", hint="write one Apprise URL into it") from None

    @property
    def _settings(self) -> Settings:
        return self.workspace.fleet.settings


def check_note(workspace: Workspace, text: str) -> None:
    """Raise :class:`InvalidInput` for a hand-written text that could not be sent; needs no tenant."""
    settings, head = workspace.fleet.settings, workspace.manifest.head
    check_hand_written(text, prefix(settings.brand, head))
    limit = settings.notify.limit_characters
    if utf16_length(text) > limit:
        raise InvalidInput(f"a hand-written note has at most {limit} characters", hint="shorten it")
