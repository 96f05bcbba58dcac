"""A fleet of tiers alone, over the session's parents, of which operators give the commands themselves."""

from __future__ import annotations

import json
import subprocess
import sysconfig
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine.clock import SystemClock
from engine.environments.journal import Database, Journal
from engine.environments.parents import LabParents, ParentKind
from engine.environments.parents.recognition import ParentSeen
from tests.fleets import write_whole_fleet
from tests.unit.hosted import write_environments

COMMAND = Path(sysconfig.get_path("scripts")) / "tenantry"


@dataclass(frozen=True)
class TierFleet:
    """Several state directories, each with locks of its own, on one journal and the same parents."""

    root: Path
    parents_state: Path
    tiers: tuple[str, ...] = field(default_factory=lambda: tuple(str(uuid.uuid4()) for _ in range(4)))

    @property
    def journal_file(self) -> Path:
        return self.root / "shared/journal.db"

    def journal(self) -> Journal:
        return Journal(Database(self.journal_file), SystemClock())

    def write(self, parents: LabParents) -> TierFleet:
        """The fleet on the disk, with the pins of what runs."""
        write_whole_fleet(self.root)
        settings = self.root / "inventory/fleet.yaml"
        settings.write_text(f"{settings.read_text()}environments: {{journal: {self.journal_file}}}\n")
        seen = {kind: parents.observe(kind) for kind in ParentKind}
        lines = ["parents:"]
        for kind, found in seen.items():
            assert isinstance(found, ParentSeen), found
            lines.append(f"  {kind}: {{pin: {json.dumps(found.digest)}}}")
        lines += ["projects:", "  shop: {title: The shop}", "tiers:"]
        lines += [f"  tier-{number}: {{uuid: {tier}, project: shop}}" for number, tier in enumerate(self.tiers)]
        write_environments(self.root, "\n".join([*lines, ""]))
        return self

    def state(self, operator: str) -> Path:
        """The state directory of `operator`, with the parents of everybody."""
        state = self.root / operator
        if not state.exists():
            (state / "lab").mkdir(parents=True)
            (state / "lab/parents").symlink_to(self.parents_state / "lab/parents")
        return state

    def arguments(self, operator: str, *command: str) -> list[str]:
        """The command line of `operator`."""
        return ["-C", str(self.root), "--state-dir", str(self.state(operator)), *command]

    def run(self, operator: str, *command: str) -> tuple[int, Any]:
        """The exit code and the document of a command that `operator` gives."""
        ended = subprocess.run(
            [COMMAND, *self.arguments(operator, *command, "--json")], capture_output=True, text=True, check=False
        )
        assert "Traceback" not in ended.stderr
        return ended.returncode, json.loads(ended.stdout) if ended.stdout else ended.stderr
