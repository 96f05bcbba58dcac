"""The lab's front: Caddy, which sends a visitor's request to the machines of the environment that it names.

It is no parent. What it holds are the routes, which environments make and take away; it keeps them when it stops.
"""

from __future__ import annotations

import json
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.environments.drivers.front_admin import NAME, ROUTES, SERVER, FrontAdmin
from engine.environments.drivers.routes import UNMATCHED
from engine.environments.drivers.trouble import ProviderTrouble
from engine.environments.observation import Unknown
from engine.environments.parents.programs import front_program, running_digest
from engine.environments.parents.service import ADDRESS, DATA, NOT_RUNNING, Account, ParentRecord, Service
from engine.errors import Refused
from engine.provision.providers.lab.commands import Commands
from engine.records.atomic import replace_file

ACCOUNT = "caddy"
START_SECONDS = 60.0

_SOCKET = "admin.sock"
_FILE = "front.json"
_SAVED = Path(".config/caddy/autosave.json")
"""Where Caddy writes its configuration after each change."""


@dataclass(frozen=True)
class FrontSeen:
    """A front that answered. `digest` is that of the program that runs; `closed` if it answers 404 for other hosts."""

    digest: str
    closed: bool


class FrontService:
    """Configures, starts and stops the front in its directory."""

    name = "front"

    def __init__(self, directory: Path, group: str) -> None:
        self.service = Service(self.name, directory, group, lambda: Account.named(ACCOUNT))

    @property
    def admin(self) -> FrontAdmin:
        """How its routes are changed; whether it runs is seen by trying."""
        return FrontAdmin(self.service.directory / _SOCKET)

    @property
    def url(self) -> str:
        """Where visitors' requests arrive; raises `Refused` before it was ever started."""
        record = self.service.read()
        if record is None:
            raise Refused("the front was never up", where="front", hint="tenantry lab parents up")
        return f"http://{ADDRESS}:{record.ports['http']}"

    def record(self) -> ParentRecord | None:
        """What is written down about it; takes no lock."""
        return self.service.read()

    def observe(self) -> FrontSeen | Unknown:
        """Look at it and at the program that runs there."""
        record = self.service.read()
        process = record.process if record else None
        digest = running_digest(process.pid) if process else NOT_RUNNING
        if process is None or isinstance(digest, Unknown):
            return NOT_RUNNING
        try:
            routes = self.admin.read(ROUTES).value
        except ProviderTrouble as trouble:
            return trouble.unknown
        return FrontSeen(digest, isinstance(routes, list) and routes[-1:] == [UNMATCHED])

    def ensure(self, commands: Commands) -> bool:
        """Have it running with the routes that it had; tells whether it had to be started."""
        record = self.service.read()
        if record is not None and record.process is not None and self._answers():
            return False
        program = front_program()
        port = self.service.ports(("http",))["http"]
        self.service.make_directory()
        # Before what it saved is read: one that is not recorded may still be writing.
        self.service.end_remains()
        file = self.service.directory / _FILE
        replace_file(file, json.dumps(configuration(port, self._saved_routes())).encode())
        self.service.give(file)
        argv = (str(program), "run", "--config", f"{DATA}/{_FILE}")
        self.service.start(self.service.confined(argv), commands, self._answers, START_SECONDS)
        return True

    def shut_down(self) -> None:
        self.service.stop(signal.SIGTERM)

    def _answers(self) -> bool:
        try:
            self.admin.read(SERVER)
        except ProviderTrouble:
            return False
        return True

    def _saved_routes(self) -> list[Any]:
        """The routes as they were last; raises `Refused` for what a crash of this machine made of them."""
        file = self.service.directory / _SAVED
        try:
            routes: list[Any] = json.loads(file.read_bytes())["apps"]["http"]["servers"]["front"]["routes"]
        except FileNotFoundError:
            return [UNMATCHED]
        except (ValueError, KeyError, TypeError) as error:
            raise Refused(
                "what the front saved of its routes cannot be read",
                where=str(file),
                hint="remove the file to start without routes; `tenantry env plan` then shows which are missing",
            ) from error
        return routes


def configuration(port: int, routes: list[Any]) -> dict[str, Any]:
    """Caddy's whole configuration: requests over plain HTTP on loopback at `port`, no certificates, nothing fetched."""
    server = {
        "listen": [f"{ADDRESS}:{port}"],
        "protocols": ["h1"],
        "automatic_https": {"disable": True},
        "routes": routes,
    }
    return {
        "admin": {
            "listen": f"unix/{DATA}/{_SOCKET}",
            "origins": [NAME],
            "enforce_origin": True,
            "config": {"persist": True},
        },
        # Each call of the admin API is a line otherwise.
        "logging": {"logs": {"default": {"level": "WARN"}}},
        # A request under way when the routes change, or the front stops, has this long.
        "apps": {"http": {"grace_period": "20s", "servers": {"front": server}}},
    }
