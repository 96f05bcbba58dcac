"""What the engine asks a tenant about its conversations, and what it has done with them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.errors import InvalidInput, UnknownState
from engine.hosts.session import Session
from engine.registry.model import Fleet
from engine.registry.settings import SessionPolicy, Settings

HOST_SCRIPT = Path(__file__).with_name("host_script.py").read_text()
_OWE = HOST_SCRIPT + "\n\nRESULT = owe(PARAMETERS['settings'])\n"
_SHOW = HOST_SCRIPT + "\n\nRESULT = show(PARAMETERS['settings'], PARAMETERS['texts'], PARAMETERS['ended'])\n"

NAMED = 5
"""How many conversations a message names."""


@dataclass(frozen=True)
class Conversation:
    """One conversation: `state` is open, archived or ended; `personality` a fingerprint, ``none`` or ``unknown``."""

    id: str
    source: str
    state: str
    personality: str


@dataclass(frozen=True)
class Conversations:
    """A tenant's conversations; `personality` is the fingerprint of the file, None where there is none."""

    personality: str | None
    conversations: tuple[Conversation, ...]


@dataclass(frozen=True)
class Renewal:
    """What became of the conversations in a restart window.

    `renewed` prompts have the new personality. `left` are open conversations whose prompt was not recognised, at
    most some of `left_count`; `ended` were ended for it. `problem` says why no prompt was changed.
    """

    renewed: int
    left: tuple[Conversation, ...]
    left_count: int
    ended: int
    problem: str

    @classmethod
    def of(cls, report: Any) -> Renewal:
        """From what the window's script reports."""
        left = tuple(_conversation(found) for found in report["left"])
        return cls(report["renewed"], left, report["left_count"], len(report["reset"]), report["problem"])

    def messages(self) -> Iterator[str]:
        """For the person who watches; nothing where there was no conversation to be renewed."""
        if self.problem:
            yield f"conversations keep the personality that they have: {self.problem}"
        if self.renewed:
            yield f"the new personality is in the prompt of {_counted(self.renewed)}; what was said stays"
        if self.ended:
            yield f"{_counted(self.ended)} ended: the form of the prompt was not recognised"
        if self.left_count:
            names = ", ".join(one.id for one in self.left[:NAMED])
            names += ", …" if self.left_count > NAMED else ""
            words = "keeps its personality until it ends" if self.left_count == 1 else "keep theirs until they end"
            yield f"{_counted(self.left_count)} {words}: the form of the prompt was not recognised ({names})"


def is_personality(settings: Settings, path: str) -> bool:
    """Whether the file at `path` on the tenant is the personality that prompts begin with."""
    return settings.sessions is not None and path == _personality(settings)


def check(fleet: Fleet) -> None:
    """Raise :class:`InvalidInput` where the fleet's program that ends conversations cannot be read."""
    if fleet.settings.sessions:
        host_settings(fleet.root, fleet.settings)


def host_settings(root: Path, settings: Settings) -> dict[str, Any]:
    """What the tenant must know to renew its prompts by itself; for a fleet with the section `sessions` only."""
    sessions, gateway = settings.sessions, settings.gateway
    assert sessions and gateway, "the settings were checked to have both"
    columns, reset = sessions.columns, sessions.reset
    return {
        "personality": _personality(settings),
        "database": gateway.database,
        "follows": sessions.follows,
        "table": sessions.table,
        "id": columns.id,
        "prompt": columns.prompt,
        "ended": columns.ended,
        "archived": columns.archived,
        "source": columns.source,
        "longest_characters": sessions.longest_characters,
        "resumable_days": sessions.resumable_days,
        "sources": list(sessions.sources),
        "policy": sessions.policy.value,
        "reset": {"interpreter": list(reset.interpreter), "program": _program(root, reset.program)}
        if reset and sessions.policy is SessionPolicy.RESET
        else None,
    }


def owe(session: Session, root: Path) -> None:
    """Before the personality's file changes: record on the tenant what it was, and that prompts are to follow it."""
    session.run_script(_OWE, {"settings": host_settings(root, session.settings)}, label="record of the personality")


def ask(session: Session, root: Path, texts: Sequence[str], *, ended: bool) -> Conversations:
    """Each conversation with its personality, told from `texts` and those that the tenant remembers.

    Changes nothing. Raises :class:`UnknownState` where the runtime's database cannot be read.
    """
    question = {"settings": host_settings(root, session.settings), "texts": list(texts), "ended": ended}
    found = session.ask_script(_SHOW, question)
    if found["problem"]:
        raise UnknownState(
            f"the conversations cannot be read: {found['problem']}",
            where=session.tenant.slug,
            hint="look at the gateway's database on the host; nothing was changed",
        )
    return Conversations(found["personality"], tuple(_conversation(one) for one in found["sessions"]))


def _conversation(found: Any) -> Conversation:
    return Conversation(str(found["id"]), found["source"], found["state"], found["personality"])


def _personality(settings: Settings) -> str:
    name = settings.sessions.personality if settings.sessions else ""
    return next(file.path for file in settings.rendered if file.name == name)


def _program(root: Path, name: str) -> str:
    try:
        return (root / name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(
            f"the program that ends conversations cannot be read: {error}",
            where=str(root / name),
            hint="correct sessions.reset.program in inventory/fleet.yaml",
        ) from error


def _counted(number: int) -> str:
    return "1 conversation" if number == 1 else f"{number} conversations"
