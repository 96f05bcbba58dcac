"""The light fleet with servers of (a local) Hetzner Cloud: what runs is the production path."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.provision.providers.lab import HostSpec, Lab, ensure_identity
from engine.registry.settings import LabSettings
from tests.lab.fake_hetzner import TOKEN, FakeHetzner
from tests.lab.light_fleet import LightFleet

SLUG = "maple"


@dataclass
class CloudFleet:
    """A fleet of one tenant, whose server is the lab host that `service` knows under its name."""

    fleet: LightFleet
    service: FakeHetzner

    @property
    def address(self) -> str:
        return self.service.lab.find_required(SLUG).address

    def register(self, **changes: Any) -> None:
        """Write the tenant's record, with its server's address and `changes`."""
        record = {"provider": {"name": "hetzner"}, "address": self.address, **changes}
        self.fleet.register([SLUG], **{SLUG: record})

    def run(self, command: str, **options: Any) -> str:
        """Run a root shell command inside the host, whether its network is up or not."""
        return self.fleet.run_in(self.service.lab, SLUG, command, **options)


@contextmanager
def cloud_fleet(root: Path, packages: tuple[str, ...], **settings: Any) -> Iterator[CloudFleet]:
    """A fleet below `root` with one server that runs Debian and was never provisioned."""
    ensure_identity(root / "cloud")
    lab = Lab(root / "cloud", LabSettings(packages=packages), print)
    try:
        with FakeHetzner(lab).serving() as service:
            fleet = LightFleet.create(root / "fleet", [])
            ensure_identity(fleet.state)
            token = fleet.root / "hetzner-token"
            token.write_text(f"{TOKEN}\n")
            token.chmod(0o600)
            hetzner = {
                "token": "file:hetzner-token",
                "endpoint": service.url,
                "retry_seconds": 0.01,
                "action_poll_seconds": 0.05,
            }
            fleet.change_settings(hetzner=hetzner, **settings)
            (host,) = lab.up([HostSpec.light(SLUG, "ssh-ed25519 AAAA nobody")])
            lab.wait_ready([SLUG])
            service.add(SLUG, SLUG, host.address, "2001:db8:1:2::/64")
            cloud = CloudFleet(fleet, service)
            cloud.register()
            yield cloud
    finally:
        lab.destroy()
