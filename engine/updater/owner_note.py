"""The owner's message of one run: composed, previewed, owed before the commit, delivered after it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from engine.errors import InvalidInput, TenantryError
from engine.hosts.ledger import Ledger
from engine.hosts.session import Session
from engine.hosts.status import Owed, OwedNote
from engine.registry.model import Tenant
from engine.registry.settings import Settings
from engine.registry.text import utf16_length
from engine.registry.windows import is_open
from engine.releases.version import Version
from engine.render.notes import check_hand_written, compose, prefix
from engine.updater.assessment import Assessment
from engine.updater.notify import Sender, deliver
from engine.updater.workspace import Workspace


@dataclass(frozen=True)
class Message:
    """What one run has to tell the owner besides the notes of its releases.

    `earlier` is an owed message that could not be sent, `hand_written` replaces the releases' notes, `notice` tells
    of conversations that were ended.
    """

    earlier: OwedNote | None = None
    hand_written: str | None = None
    notice: str | None = None

    def text(self, settings: Settings, assessment: Assessment) -> str:
        """The message as it is sent, oldest part first; over the limit the newest alone is kept."""
        head = assessment.plan.head
        parts = [_body(settings, self.earlier.text, Version.parse(self.earlier.version))] if self.earlier else []
        parts += self._own(settings, assessment)
        parts += [self.notice] if self.notice else []
        return compose(settings.brand, head, parts, settings.notify.limit_characters)

    def leaves_out(self, settings: Settings, assessment: Assessment) -> bool:
        """Whether the limit leaves no room for the hand-written text."""
        whole = self.text(settings, assessment)
        own = self._own(settings, assessment)
        return self.hand_written is not None and any(part.strip() not in whole for part in own)

    def _own(self, settings: Settings, assessment: Assessment) -> list[str]:
        plan = assessment.plan
        if self.hand_written and plan.pending:
            return [_body(settings, self.hand_written, plan.head)]
        return [release.owner_note for release in plan.pending]


@dataclass(frozen=True)
class Preview:
    """What a converge would send now: `owed`, an earlier message as it stands, and then `own`, that of the run."""

    owed: str | None
    own: str | None


def preview(workspace: Workspace, assessment: Assessment) -> Preview:
    """What a converge without a hand-written text would send, were nothing refused and no conversation ended."""
    settings, tenant, owed = workspace.fleet.settings, assessment.tenant, assessment.status.owed
    earlier = _still_owed(assessment)
    if earlier and earlier.sending:
        earlier = None
    is_tried = not _is_quiet(workspace, tenant) and _target_reference(settings, tenant) is not None
    notice = notice_of(settings, owed) if assessment.has_changes else None
    own = None
    if tenant.text_updates and (assessment.plan.pending or notice):
        own = Message(earlier=None if is_tried else earlier, notice=notice).text(settings, assessment)
    return Preview(owed=earlier.text if earlier and is_tried else None, own=own)


def notice_of(settings: Settings, owed: Owed, *, has_ended: bool = False) -> str | None:
    """What the owner is told of conversations that were ended: by this run, or by one that could not tell of it."""
    sessions = settings.sessions
    return sessions.reset.notice if sessions and sessions.reset and (owed.notice or has_ended) else None


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
        earlier = _still_owed(assessment)
        if earlier:
            self.deliver(earlier)
            earlier = self.session.probe().owed.note
        if self.tenant.text_updates:
            self._record(assessment, Message(earlier, self.hand_written, notice))
        elif notice:
            self.say("conversations were ended, and the owner is not told: this run sends the owner no texts")

    def send_owed(self, claim: Callable[[], None] = lambda: None) -> None:
        """Send what is owed, on a host that `claim` has claimed; nothing here changes the run's result."""
        try:
            claim()
            note = self.session.probe().owed.note
            if note:
                self.deliver(note)
        except TenantryError as error:
            self.say(f"the owner's note stays as it is recorded on the tenant: {error.message}")

    def deliver(self, note: OwedNote) -> None:
        """Send `note` if there is a way to and the owner is not to be left in peace now; else it stays owed."""
        quiet = self.tenant.quiet_hours
        if quiet and not note.sending and _is_quiet(self.workspace, self.tenant):
            hours = f"{quiet.start} to {quiet.end}, {quiet.time_zone}"
            self.say(f"the note for {note.version} stays owed: quiet hours of the owner ({hours})")
            return
        try:
            target = self._target()
        except TenantryError as error:
            self.say(f"the note for {note.version} stays owed: {error.message}")
            return
        self.say(deliver(note, target, Ledger(self.session).note, self.sender))

    def _record(self, assessment: Assessment, message: Message) -> None:
        if message.leaves_out(self._settings, assessment):
            limit = self._settings.notify.limit_characters
            self.say(f"the hand-written note is left out: with what else is new it has more than {limit} characters")
        text = message.text(self._settings, assessment)
        Ledger(self.session).note(OwedNote(str(assessment.plan.head), text))

    def _target(self) -> str | None:
        reference = _target_reference(self._settings, self.tenant)
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


def _still_owed(assessment: Assessment) -> OwedNote | None:
    """The owed message of a version that the tenant has reached; any other one is replaced by the run's own."""
    note, marker = assessment.status.owed.note, assessment.marker
    return note if note and marker and Version.parse(note.version) <= marker else None


def _body(settings: Settings, text: str, version: Version) -> str:
    """What a message about `version` says after its prefix."""
    return text.removeprefix(prefix(settings.brand, version))


def _is_quiet(workspace: Workspace, tenant: Tenant) -> bool:
    quiet = tenant.quiet_hours
    return quiet is not None and is_open((quiet,), workspace.clock.now())


def _target_reference(settings: Settings, tenant: Tenant) -> str | None:
    """Where the tenant's message target is kept, None without one."""
    name = settings.notify.target_secret
    return tenant.secrets.get(name) if name else None
