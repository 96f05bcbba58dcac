"""Files of the rendered set on a host: written, and what their change owes."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

from engine import conversations
from engine.hosts.ledger import Ledger
from engine.hosts.session import Session
from engine.render.compare import Difference

DAEMON = "daemon"
"""What is owed where systemd itself has to read its units again."""


def owed_by(differences: tuple[Difference, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The restart reasons and reloads that writing these files will owe."""
    files = [difference.rendered.file for difference in differences]
    restart = tuple(f"file {file.name}" for file in files if file.restart)
    reloads = [DAEMON] if any(file.daemon_reload for file in files) else []
    reloads += [unit for file in files for unit in file.reload]
    return restart, tuple(dict.fromkeys(reloads))


def put_in_force(
    session: Session, fleet_root: Path, differences: tuple[Difference, ...], written: Callable[[str], None]
) -> None:
    """Write these files on the host; `written` takes each path that is done.

    All that this owes is recorded before the first write: restarts, reloads, and for the personality the one that is
    there now, which prompts of conversations begin with.
    """
    if any(conversations.is_personality(session.settings, item.rendered.file.path) for item in differences):
        conversations.owe(session, fleet_root)
    restart, reloads = owed_by(differences)
    Ledger(session).owe(restart, reloads=reloads)
    for difference in differences:
        write_rendered(session, difference)
        written(difference.rendered.file.path)


def write_rendered(session: Session, difference: Difference) -> None:
    """Replace one file of the rendered set on the host, atomically."""
    file = difference.rendered.file
    session.write_file(file.path, difference.rendered.content, owner=file.owner, group=file.group, mode=file.mode)


def reload_units(session: Session, owed: tuple[str, ...]) -> None:
    """Carry out owed reloads, systemd itself first, and clear them. A unit that is gone needs none."""
    if not owed:
        return
    session.check("systemctl daemon-reload")
    for unit in owed:
        if unit != DAEMON and not _is_gone(session, unit):
            session.check(f"systemctl reload-or-restart {shlex.quote(unit)}")
    Ledger(session).reloaded()


def _is_gone(session: Session, unit: str) -> bool:
    return (
        session.check(f"systemctl show --property=LoadState --value -- {shlex.quote(unit)}").text.strip() == "not-found"
    )
