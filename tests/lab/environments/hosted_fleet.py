"""A fleet that only hosts environments: no tenants, both parents of its own, and whatever entries a test gives it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from engine.environments.hosting import Ended, Hosting, converge_all, open_hosting
from engine.environments.parents import LabParents, ParentKind, ParentSeen
from tests.cli.conftest import valid
from tests.fleets import SETTINGS, write_whole_fleet
from tests.lab.environments.conftest import parents_in_memory
from tests.lab.reference_fleet import REPOSITORY

PROJECT = "shop"


@dataclass
class HostedFleet:
    """The fleet directory `root` with its state directory in it; entries are written by :meth:`write`."""

    root: Path
    pins: Mapping[str, str]
    memory: ExitStack
    tiers: dict[str, dict[str, Any]] = field(default_factory=dict)
    environments: dict[str, dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def create(cls, root: Path, **settings: Any) -> HostedFleet:
        """Write the fleet and start its parents; `settings` are those of the section `environments`."""
        write_whole_fleet(root, tenants="tenants: {}\n")
        shutil.copytree(REPOSITORY / "deploys/environments", root / "deploys/environments")
        reference = yaml.safe_load((REPOSITORY / "inventory/fleet.yaml").read_text())
        content = {**yaml.safe_load(SETTINGS), "lab": {**reference["lab"]}, "environments": settings}
        content["lab"].pop("model_stub", None)
        (root / "inventory/fleet.yaml").write_text(json.dumps(content))
        memory = ExitStack()
        memory.enter_context(parents_in_memory(root / "var"))
        parents = LabParents(root / "var", print)
        parents.up()
        seen = {kind: parents.observe(kind) for kind in ParentKind}
        pins = {str(kind): found.digest for kind, found in seen.items() if isinstance(found, ParentSeen)}
        return cls(root, pins, memory)

    @property
    def state_directory(self) -> Path:
        return self.root / "var"

    def tier(self, slug: str) -> str:
        """Add a tier; its uuid."""
        self.tiers[slug] = {"uuid": str(uuid.uuid4()), "project": PROJECT}
        return str(self.tiers[slug]["uuid"])

    def environment(self, **more: Any) -> str:
        """Add an environment; its uuid."""
        found = str(uuid.uuid4())
        plain = {"project": PROJECT, "tenant": "maple", "stage": "trial", "lifetime": "disposable"}
        self.environments[found] = {**plain, **more}
        return found

    def write(self) -> None:
        """Write the inventory as it now is."""
        content = {
            "parents": {name: {"pin": digest} for name, digest in self.pins.items()},
            "projects": {PROJECT: {"title": "The shop"}},
            "tiers": self.tiers,
            "environments": self.environments,
        }
        (self.root / "inventory/environments.yaml").write_text(yaml.safe_dump(content, sort_keys=False))

    def hosting(self) -> Hosting:
        """What a command would open."""
        return open_hosting(self.root, self.state_directory)

    def converge(self) -> tuple[Ended, ...]:
        """Converge every entry."""
        self.write()
        hosting = self.hosting()
        return converge_all(hosting, [entry.subject for entry in hosting.entries.values()])

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """What the command line did on this fleet, in a process of its own."""
        program = Path(sys.executable).with_name("tenantry")
        return subprocess.run(
            [str(program), "-C", str(self.root), *arguments],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "NO_COLOR": "1"},
            check=False,
        )

    def document(self, schema: str, *arguments: str, code: int = 0) -> Any:
        """The document that a command prints with ``--json``, which fits its schema."""
        done = self.command(*arguments, "--json")
        assert done.returncode == code, (done.stdout, done.stderr)
        return valid(schema, json.loads(done.stdout))

    def down(self) -> None:
        """End the parents."""
        LabParents(self.state_directory, print).down()

    def destroy(self) -> None:
        """End the parents, and remove all machines."""
        with self.memory:
            self.hosting().lab.destroy()
            self.down()
