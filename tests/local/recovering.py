"""A tenant's directories on this machine, and a systemctl that notes what it is told, for the recovery scripts."""

from __future__ import annotations

import os
import sqlite3
import time
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from engine.recovery.assembly import MODULES, assembled
from tests.local.umasks import own_umask

# Units are there and active, as far as they have a file below "there"; a unit is enabled where that file says so.
SYSTEMCTL = """#!/bin/sh
echo "$*" >> {base}/systemctl.log
for unit; do :; done
case "$*" in
  *MainPID*) echo 7;;
  *SubState*) echo running;;
  *ActiveState*) [ -e {base}/there/$unit ] && echo active || echo inactive;;
  *LoadState*) [ -e {base}/there/$unit ] && echo loaded || echo not-found;;
  *UnitFileState*) cat {base}/there/$unit 2>/dev/null || echo disabled;;
  reset-failed*) echo "Unit gateway.service not loaded." >&2; exit 1;;
esac
"""

MESSAGES = "CREATE TABLE messages (content TEXT, timestamp REAL)"


@cache
def modules() -> dict[str, Any]:
    """The modules that :func:`assembled` puts in front of a script, compiled once."""
    space: dict[str, Any] = {}
    exec(assembled(""), space)
    return {name: space[name] for name in MODULES}


@dataclass
class Tenant:
    """One tenant below `base`."""

    base: Path
    scopes: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def create(cls, base: Path, monkeypatch: pytest.MonkeyPatch) -> Tenant:
        """A tenant with a gateway that was silent for long, configuration of several kinds, and an older marker."""
        tenant = cls(base)
        for directory in ("bin", "there", "home", "state", "etc/app", "units"):
            (base / directory).mkdir(parents=True, exist_ok=True)
        program = base / "bin/systemctl"
        program.write_text(SYSTEMCTL.format(base=base))
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
        # Flushing this machine's disks, over and over, proves nothing here.
        monkeypatch.setattr(os, "sync", lambda: None)
        monkeypatch.setattr(os, "fsync", lambda descriptor: None)
        (base / "there/gateway.service").write_text("enabled\n")
        (base / "there/helper.service").write_text("enabled\n")
        tenant.make_files()
        return tenant

    def make_files(self) -> None:
        base = self.base
        self.execute(MESSAGES, "INSERT INTO messages VALUES ('old', 1000)")
        (base / "state/memory").write_text("of the state")
        (base / "state/cache").mkdir()
        (base / "etc/app/main.conf").write_text("old\n")
        (base / "etc/app/main.conf").chmod(0o640)
        (base / "etc/app/link").symlink_to("main.conf")
        (base / "etc/app/sub").mkdir(mode=0o750)
        (base / "etc/app/sub/removed-later").write_text("was there\n")
        (base / "units/helper.service").write_text("[Unit]\n")
        self.link.symlink_to("/opt/old")
        (base / "home/version").write_text("2026.10.1\n")
        (base / "home/applied.json").write_text("{}\n")
        for name in ("version", "applied.json"):
            (base / "home" / name).chmod(0o600)
        directories = [(f"{base}/etc/app", []), (f"{base}/units/helper*", []), (f"{base}/absent", [])]
        self.scopes = [{"path": path, "exclude": exclude} for path, exclude in directories]

    @property
    def state(self) -> Path:
        return self.base / "state"

    @property
    def database(self) -> Path:
        return self.state / "state.db"

    @property
    def link(self) -> Path:
        return self.base / "current"

    @property
    def home(self) -> Path:
        return self.base / "home"

    def set_of(self, run: str) -> Path:
        return self.home / "recovery" / run

    def told(self) -> list[str]:
        """What systemctl was told, without questions."""
        log = self.base / "systemctl.log"
        lines = log.read_text().splitlines() if log.exists() else []
        return [line for line in lines if not line.startswith("show")]

    def execute(self, *statements: str) -> None:
        """Change the gateway's database."""
        connection = sqlite3.connect(self.database)
        for statement in statements:
            connection.execute(statement)
        connection.commit()
        connection.close()

    def say(self, text: str) -> None:
        self.execute(f"INSERT INTO messages VALUES ('{text}', {time.time()})")

    def run(self, script: str, parameters: Any = None) -> Any:
        """Run a script as a host would, with its paths below `base`."""
        space: dict[str, Any] = {**modules(), "PARAMETERS": parameters, "RESULT": None}
        space["sets"].HOME = space["conversations"].HOME = str(self.home)
        space["units"].DIRECTORY = str(self.base / "units")
        space["undo"].NEVER = str(self.base / "units/tenantry-")
        space["dead_man"].MEMORY = str(self.base / "memory.json")
        with own_umask():
            exec(script.removeprefix(assembled("")), space)
        return space["RESULT"]

    def take(self, run: str, **changes: Any) -> Any:
        """Take the recovery set of a run from the marker's version to 2026.10.2."""
        parameters = {
            "run": run,
            "from": "2026.10.1",
            "to": "2026.10.2",
            "gateway": {"unit": "gateway.service", "database": str(self.database)},
            "scopes": self.scopes,
            "states": [{"path": str(self.state), "exclude": ["cache"]}],
            "moved": [],
            "links": [str(self.link)],
            "units": ["helper.service", "extra.service"],
            "quiet": [],
            "reserve_bytes": 0,
            "kept": 3,
            **changes,
        }
        return self.run(assembled("RESULT = sets.take(PARAMETERS)"), parameters)

    def take_state(self, run: str) -> None:
        self.run(assembled("sets.take_state(PARAMETERS)"), run)

    def undo(self, run: str, by: str = "r2") -> Any:
        held = {"head": "2026.10.2", "run": by, "at": 1.0, "reason": "a test", "by": "run"}
        return self.run(assembled("RESULT = undo.undo(PARAMETERS)"), {"set": run, "by": by, "held": held})
