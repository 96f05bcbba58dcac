"""A fleet of bare lab hosts: nothing but Debian, to see what a connection does on them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from engine.hosts.access import Access
from engine.hosts.pool import SessionPool
from engine.hosts.session import Session
from engine.provision.providers.lab import HostSpec, Lab, ensure_identity
from engine.registry.load import load_fleet
from engine.registry.model import Tenant
from engine.registry.settings import LabSettings

RECORD = """\
  {slug}:
    owner_name: Owner
    business: Business
    trade: {trade}
    role: test
    daily_backup: false
    text_updates: false
    ssh_user: ops
    provider: {{name: lab}}
    forwarding_address: {slug}@example.org
    page_host: {slug}.example.org
"""
INVENTORY = Path(__file__).parents[3] / "inventory" / "hosts.py"


@dataclass(frozen=True)
class BareFleet:
    """Hosts that share one lab; `root` is a fleet directory as pyinfra's CLI wants it."""

    root: Path
    lab: Lab
    slugs: tuple[str, ...]

    @classmethod
    def create(cls, root: Path, *slugs: str) -> BareFleet:
        """Write the fleet directory and switch its hosts on."""
        (root / "inventory").mkdir(parents=True)
        records = [RECORD.format(slug=slug, trade="real-estate") for slug in slugs]
        (root / "inventory/tenants.yaml").write_text("tenants:\n" + "".join(records))
        (root / "inventory/fleet.yaml").write_text("brand: Tenantry\n")
        (root / "inventory/hosts.py").write_text(INVENTORY.read_text())
        lab = Lab(root / "var", LabSettings(), print, fleet_root=root)
        key = ensure_identity(root / "var")
        lab.up([HostSpec.light(slug, key) for slug in slugs])
        lab.wait_ready(slugs)
        return cls(root, lab, slugs)

    def access(self, **transport: Any) -> Access:
        """The way to the hosts, with these bounds of the transport changed."""
        fleet = load_fleet(self.root)
        settings = replace(fleet.settings, transport=replace(fleet.settings.transport, **transport))
        return Access(replace(fleet, settings=settings), self.root / "var")

    @contextmanager
    def session(self, slug: str = "maple", **transport: Any) -> Iterator[Session]:
        """A connected session."""
        access = self.access(**transport)
        tenant = access.tenant(slug)
        with SessionPool(access, [tenant]) as pool, pool.session(tenant) as session:
            yield session

    def tenant_at(self, address: str, port: int = 22, **changes: Any) -> Tenant:
        """Maple as a server that is no lab host: its address is in the registry, its key must be pinned."""
        return replace(self.access().tenant("maple"), address=address, ssh_port=port, **changes)

    def run(self, command: str, slug: str = "maple", *, stdin: bytes = b"") -> str:
        """Run a root shell command inside the host without any connection to it."""
        done = subprocess.run(
            self.lab.shell(slug, ("/bin/sh", "-c", command)), input=stdin, capture_output=True, check=False
        )
        if done.returncode:
            raise AssertionError(f"{command}: {done.returncode} {done.stderr.decode(errors='replace')}")
        return done.stdout.decode(errors="replace")

    def has(self, path: str, slug: str = "maple") -> bool:
        """Whether a file is there on the host."""
        return self.run(f"test -e {path} && echo yes || true", slug) != ""

    def pyinfra(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run pyinfra's own CLI in the fleet directory."""
        return subprocess.run(
            [str(Path(sys.executable).with_name("pyinfra")), *arguments],
            cwd=self.root,
            env={**os.environ, "NO_COLOR": "1", "PYINFRA_PROGRESS": "off"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=60,
        )
