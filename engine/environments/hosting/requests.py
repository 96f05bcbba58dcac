"""What is asked of each provider for one specification: names and settings from it, secrets from their store."""

from __future__ import annotations

import json
from dataclasses import dataclass

from engine.environments.drivers.base import CreateRequest, Kind, MachineContent, RouteContent
from engine.environments.hosting.credentials import Credentials
from engine.environments.hosting.workspace import Hosting
from engine.environments.names import Names, Owner, names_of
from engine.environments.spec import Specification
from engine.errors import InvalidInput
from engine.registry.formats import plain_hostname
from engine.registry.freeze import thaw

PORT = 8080
"""Where the programs of both machines listen."""


@dataclass(frozen=True)
class Requests:
    """Gives the request for a kind under an intent's id. The secrets in it are on the disk before it is made."""

    hosting: Hosting
    spec: Specification

    def __call__(self, kind: Kind, intent: str) -> CreateRequest:
        spec, credentials = self.spec, self.hosting.credentials.ensure(self.spec.uuid)
        machine = kind in (Kind.GATEWAY, Kind.WEB)
        return CreateRequest(
            uuid=spec.uuid,
            intent_id=intent,
            name=spec.name(kind),
            digest=spec.resource_digest(kind),
            target={Kind.ROLE: self.storage.database, Kind.KEY: self.storage.bucket}.get(kind, ""),
            member_of=self.storage.role if kind is Kind.ROLE and spec.tier is not None else "",
            secret=credentials.password.encode() if kind is Kind.ROLE and spec.owner is not Owner.TIER else None,
            key_pair=credentials.key_pair if kind is Kind.KEY else None,
            machine=self._machine(kind, credentials) if machine else None,
            route=self._route() if kind is Kind.ROUTE else None,
        )

    @property
    def storage(self) -> Names:
        """The names of what its data lies in: its own, or for a member those of its tier."""
        tier = self.spec.tier
        return self.spec.names if tier is None else names_of(tier, Owner.TIER)

    def _machine(self, kind: Kind, credentials: Credentials) -> MachineContent:
        release = self.spec.settings["release"]
        found = self.hosting.releases.get(release["name"])
        if found is None or found.digest != release["digest"]:
            raise InvalidInput(
                f"release {release['name']} is not what it was when the environment began",
                where=f"environment {self.spec.uuid}",
                hint="put the release back; a changed one is another release",
            )
        return MachineContent(found.directory / kind.value, _document(self.binding(credentials)))

    def binding(self, credentials: Credentials) -> dict[str, object]:
        """What both machines read once, at boot; see docs/environments.md."""
        spec, storage, stores = self.spec, self.storage, self.hosting.stores_for_machines()
        return {
            "environment": spec.uuid,
            "specification": spec.digest,
            "release": thaw(spec.settings["release"]),
            "binding": thaw(spec.settings["binding"]),
            "database": {
                "host": stores.host,
                "port": stores.postgres_port,
                "name": storage.database,
                "user": spec.names.role,
                "password": credentials.password,
            },
            "bucket": {
                "endpoint": f"http://{stores.host}:{stores.objects_port}",
                "name": storage.bucket,
                "access_key": credentials.access_key,
                "secret_key": credentials.secret_key,
            },
            "token": credentials.token,
        }

    def _route(self) -> RouteContent:
        gateway, web = (self.hosting.machines(kind).address(self.spec.name(kind)) for kind in (Kind.GATEWAY, Kind.WEB))
        return RouteContent((host_of(self.hosting, self.spec),), f"{gateway}:{PORT}", f"{web}:{PORT}")


def host_of(hosting: Hosting, spec: Specification) -> str:
    """The plain name under which an environment is reached: its public one, or one that follows from its uuid."""
    public = spec.settings["binding"]["hostname"]
    return plain_hostname(
        public or f"{spec.names.gateway.removeprefix('env-').removesuffix('-g')}.{hosting.settings.domain}"
    )


def _document(content: dict[str, object]) -> bytes:
    return json.dumps(content, indent=2, sort_keys=True).encode() + b"\n"
