"""What the engine writes about a tenant on the tenant: owed work, receipts, digests and the marker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from engine.hosts.session import Session
from engine.hosts.status import Owed, OwedNote
from engine.releases.version import Version

SCRIPT = Path(__file__).with_name("ledger_script.py").read_text()


# What the restart window was for.
WINDOW_DONE: Mapping[str, Any] = {"restart": [], "switches": {}, "conversations": False, "notice": False}


class Ledger:
    """The tenant's own files below ``/var/lib/tenantry``, each replaced atomically and fsynced."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def owe(
        self,
        restart: Sequence[str] = (),
        reloads: Sequence[str] = (),
        switches: Mapping[str, str] | None = None,
    ) -> None:
        """Record work before the mutation that causes it; merged with what is owed already."""
        self._write(owe={"restart": list(restart), "reloads": list(reloads), "switches": dict(switches or {})})

    def note(self, note: OwedNote | None) -> None:
        """Record an owner message that is to be sent, is being sent, or (None) needs nothing more."""
        self._write(note=asdict(note) if note else None)

    def commit(self, version: Version, applied: Mapping[str, str]) -> None:
        """Write the applied digests, then the marker, then clear what the window was owed for; close the change."""
        work = {"version": str(version), "applied": dict(applied), "owed": WINDOW_DONE}
        self._write(commit=work, close={})

    def reloaded(self) -> None:
        """Clear the owed reloads once they are done."""
        self._write(settle={"reloads": []})

    def restarted(self) -> None:
        """Clear what the window was owed for, after a run that leaves the marker where it is; close the change."""
        self._write(settle=WINDOW_DONE, close={})

    def restarted_for(self, owed: Owed, reason: str) -> None:
        """Clear `reason` of the restarts in `owed`; what else is owed, and what is open or held, stays."""
        self._write(settle={"restart": [item for item in owed.restart if item != reason]})

    def receipt(self, name: str, content: Mapping[str, Any]) -> None:
        """Record that a phase of provisioning is complete."""
        self._write(receipt={"name": name, "content": dict(content)})

    def _write(self, **actions: Any) -> None:
        self._session.run_script(SCRIPT, actions)
