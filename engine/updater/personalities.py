"""The personalities that a tenant has had by its manifest, and which of them its conversations speak with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from engine import conversations
from engine.conversations import Conversation, fingerprint
from engine.errors import InvalidInput
from engine.hosts.session import Session
from engine.registry.model import Tenant
from engine.releases.version import ZERO
from engine.updater.assessment import render_at
from engine.updater.workspace import Workspace


class Prompt(StrEnum):
    """What the prompt that a conversation goes on with begins with."""

    CURRENT = "current"
    EARLIER = "earlier"
    UNKNOWN = "unknown"
    NONE = "none"


@dataclass(frozen=True)
class Speaking:
    """One conversation, and the personality that it goes on with.

    `version` is the first version of the manifest with this personality, None where no version has it, as where
    somebody edited the file.
    """

    conversation: Conversation
    prompt: Prompt
    fingerprint: str | None
    version: str | None

    def document(self) -> dict[str, Any]:
        found = self.conversation
        return {
            "id": found.id,
            "source": found.source,
            "state": found.state,
            "prompt": self.prompt.value,
            "fingerprint": self.fingerprint,
            "version": self.version,
        }


@dataclass(frozen=True)
class Spoken:
    """A tenant's personality, and its conversations in the order of the runtime's table."""

    slug: str
    fingerprint: str | None
    version: str | None
    conversations: tuple[Speaking, ...]

    def document(self) -> dict[str, Any]:
        return {
            "slug": self.slug,
            "fingerprint": self.fingerprint,
            "version": self.version,
            "sessions": [one.document() for one in self.conversations],
        }


def personalities(workspace: Workspace, tenant: Tenant) -> Mapping[str, tuple[str, str]]:
    """Each personality that `tenant` has at a version of the manifest: by fingerprint its text and first version."""
    sessions = workspace.fleet.settings.sessions
    name = sessions.personality if sessions else ""
    found: dict[str, tuple[str, str]] = {}
    for version in (ZERO, *(release.version for release in workspace.manifest)):
        for rendered in render_at(workspace, tenant, version):
            if rendered.file.name == name:
                text = rendered.content.decode()
                found.setdefault(fingerprint(text), (text, str(version)))
    return found


def ask_conversations(workspace: Workspace, tenant: Tenant, session: Session, *, ended: bool = False) -> Spoken:
    """Which personality each conversation has; those that `ended` are listed where they are asked for.

    Changes nothing. Raises :class:`UnknownState`.
    """
    if workspace.fleet.settings.sessions is None:
        raise InvalidInput(
            "this fleet does not say how its runtime keeps conversations",
            where="inventory/fleet.yaml",
            hint="add the section sessions",
        )
    known = personalities(workspace, tenant)
    found = conversations.ask(session, workspace.fleet.root, [text for text, _ in known.values()], ended=ended)

    def version_of(mark: str | None) -> str | None:
        return known[mark][1] if mark and mark in known else None

    def speaking(one: Conversation) -> Speaking:
        if one.personality in (Prompt.UNKNOWN, Prompt.NONE):
            return Speaking(one, Prompt(one.personality), None, None)
        prompt = Prompt.CURRENT if one.personality == found.personality else Prompt.EARLIER
        return Speaking(one, prompt, one.personality, version_of(one.personality))

    listed = tuple(speaking(one) for one in found.conversations)
    return Spoken(tenant.slug, found.personality, version_of(found.personality), listed)
