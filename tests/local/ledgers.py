"""A session whose scripts run on this machine, below one directory: for tests of what runs record on a tenant."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from engine.errors import TenantryError
from engine.hosts.probe import Extra
from engine.hosts.status import Owed, Status
from engine.hosts.status_reader import read_owed
from engine.registry.model import Tenant
from engine.registry.settings import Settings
from tests.local.umasks import own_umask
from tests.unit.updater.statuses import status

HOME = "/var/lib/tenantry"


@dataclass
class LocalSession:
    """A tenant's session without a host; `status` is what it answers, but for what is owed.

    `lost` is raised by the script at that number from here on, the first being 1.
    """

    home: Path
    tenant: Tenant
    settings: Settings
    status: Status = field(default_factory=status)
    commands: list[str] = field(default_factory=list)
    claims: list[str] = field(default_factory=list)
    lost: Mapping[int, TenantryError] = field(default_factory=dict)
    scripts: int = 0

    def run_script(self, script: str, parameters: Mapping[str, Any], **more: Any) -> Any:
        self.scripts += 1
        if self.scripts in self.lost:
            raise self.lost[self.scripts]
        space: dict[str, Any] = {"PARAMETERS": dict(parameters)}
        with own_umask():
            exec(script.replace(HOME, str(self.home)), space)
        return space.get("RESULT")

    def probe(self, extra: Extra | None = None) -> Status:
        return replace(self.status, owed=self.owed)

    def claim(self, run_id: str) -> None:
        self.claims.append(run_id)

    def check(self, command: str, **more: Any) -> None:
        self.commands.append(command)

    def write_file(self, path: str, content: bytes, *, owner: str, group: str, mode: str) -> None:
        Path(path).write_bytes(content)

    def owe(self, **owed: Any) -> None:
        """Have something owed already."""
        (self.home / "owed.json").write_text(json.dumps(owed))

    @property
    def owed(self) -> Owed:
        path = self.home / "owed.json"
        return read_owed(json.loads(path.read_text()) if path.exists() else {})
