"""Machines of environments on a lab: what they are asked for, and what answers there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from engine.environments.drivers.base import CreateRequest, Kind, MachineContent
from engine.environments.drivers.machines import LabMachines
from engine.environments.parents.relay import Stores
from engine.environments.releases import load_releases
from engine.provision.providers.lab import Lab
from engine.provision.providers.lab.identity import public_half
from tests.lab.conftest import REPOSITORY
from tests.lab.environments.conftest import DIGEST, Child
from tests.lab.lab_tools import private_key
from tests.lab.waiting import until

TOKEN = "canary-of-the-gateway"
DIRECTLY: dict[str, Any] = {"timeout": 30, "trust_env": False}
"""How a machine is asked: with patience, and over no proxy that this machine's environment names."""
SPECIFICATION = "sha256:" + "5" * 64


@dataclass(frozen=True)
class Machines:
    """Both kinds on one lab. `stores` is where they reach the parents."""

    lab: Lab
    stores: Stores

    def __getitem__(self, kind: Kind) -> LabMachines:
        return LabMachines(kind, self.lab, lambda: public_half(private_key(self.lab)))

    def request(self, child: Child, kind: Kind, release: str = "notes-1", **binding: str) -> CreateRequest:
        bundle = load_releases(REPOSITORY)[release].directory / kind
        content = MachineContent(bundle, json.dumps(self.document(child, binding)).encode())
        return CreateRequest(child.uuid, "intent-1", getattr(child.names, kind), DIGEST, machine=content)

    def document(self, child: Child, binding: Mapping[str, str]) -> dict[str, Any]:
        """What both machines read at their boot."""
        return {
            "environment": child.uuid,
            "specification": SPECIFICATION,
            "binding": {"access_policy": "private", "bootstrap_admin": None, **binding},
            "database": {
                "host": self.stores.host,
                "port": self.stores.postgres_port,
                "name": child.storage.database,
                "user": child.names.role,
                "password": child.password.decode(),
            },
            "bucket": {
                "endpoint": f"http://{self.stores.host}:{self.stores.objects_port}",
                "name": child.storage.bucket,
                "access_key": child.pair.access_key,
                "secret_key": child.pair.secret_key.decode(),
            },
            "token": TOKEN,
        }

    def url(self, child: Child, kind: Kind) -> str:
        return f"http://{self[kind].address(getattr(child.names, kind))}:8080"

    def health(self, child: Child, kind: Kind) -> httpx.Response | None:
        """What the program says of itself, None as long as it says nothing."""
        try:
            return httpx.get(f"{self.url(child, kind)}/health", **DIRECTLY)
        except httpx.TransportError:
            return None

    def wait_health(self, child: Child, kind: Kind, status: int = 200) -> dict[str, Any]:
        answers: list[httpx.Response] = []

        def settled() -> bool:
            answer = self.health(child, kind)
            if answer is None or answer.status_code != status or answer.json() == {"error": "starting"}:
                return False
            answers.append(answer)
            return True

        until(settled, f"the {kind} machine says {status} of itself", 120)
        return dict(answers[0].json())
