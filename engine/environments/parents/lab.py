"""Both parents on this machine, for one state directory: PostgreSQL and SeaweedFS on loopback. The front goes along."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

from engine.environments.drivers.objects_store import ObjectStore
from engine.environments.drivers.postgres_parent import PostgresParent
from engine.environments.observation import Unknown
from engine.environments.parents.front import FrontService
from engine.environments.parents.objects import ObjectsService
from engine.environments.parents.postgres import MAX_CONNECTIONS, PostgresService
from engine.environments.parents.programs import objects_version, running_digest
from engine.environments.parents.recognition import ParentKind, ParentSeen, observe_objects, observe_postgres
from engine.environments.parents.service import NOT_RUNNING, ParentRecord
from engine.errors import MissingPart
from engine.provision.providers.lab.commands import Commands
from engine.provision.providers.lab.filelock import held
from engine.provision.providers.lab.network import LabNames, lab_id
from engine.provision.providers.lab.processes import Process


class LabParents:
    """Starts, stops and looks at both parents. Their data stays whatever is called; there is no way to remove it."""

    def __init__(
        self, state_dir: Path, progress: Callable[[str], None], *, max_connections: int = MAX_CONNECTIONS
    ) -> None:
        directory = state_dir.resolve() / "lab" / "parents"
        group = LabNames(lab_id(state_dir)).group
        self._directory = directory
        self._progress = progress
        self._postgres = PostgresService(directory, group, max_connections)
        self._objects = ObjectsService(directory, group)
        self._digests: dict[Process, str] = {}
        self.front = FrontService(directory, group)
        """No parent, but started and stopped with them."""

    # Kept: a store's clients take longer to make than most of their calls.
    @cached_property
    def postgres(self) -> PostgresParent:
        """How to reach PostgreSQL; raises `Refused` before the first `up`."""
        return self._postgres.parent()

    @cached_property
    def objects(self) -> ObjectStore:
        """How to reach the object store; raises `Refused` before the first `up`."""
        return self._objects.store()

    def up(self) -> None:
        """Have both and the front running and answering; one that does is left alone."""
        with self._exclusive() as commands:
            for service in (self._postgres, self._objects):
                if service.ensure(commands):
                    self._progress(f"parent {service.name} answers")
            if self.front.ensure(commands):
                self._progress("the front answers")

    def down(self) -> None:
        """Stop the front and both."""
        with self._exclusive():
            for service in (self.front, self._objects, self._postgres):
                service.shut_down()

    def record(self, kind: ParentKind) -> ParentRecord | None:
        """What is written down about a parent; takes no lock."""
        return self._service(kind).service.read()

    def observe(self, kind: ParentKind) -> ParentSeen | Unknown:
        """Look at a parent and at the program that runs there."""
        record = self.record(kind)
        process = record.process if record else None
        digest = self._digest(process) if process else NOT_RUNNING
        if process is None or isinstance(digest, Unknown):
            return NOT_RUNNING
        seen: ParentSeen | Unknown
        if kind is ParentKind.POSTGRES:
            seen = observe_postgres(self.postgres, digest)
        else:
            seen = observe_objects(self.objects, digest, objects_version())
        # Were it replaced in between, the answer would be another program's.
        return seen if process.alive else NOT_RUNNING

    def _digest(self, process: Process) -> str | Unknown:
        """The digest of a program that runs: a hundred megabytes, read once for each process."""
        if process not in self._digests:
            found = running_digest(process.pid)
            if isinstance(found, Unknown):
                return found
            self._digests[process] = found
        return self._digests[process]

    def _service(self, kind: ParentKind) -> PostgresService | ObjectsService:
        return self._postgres if kind is ParentKind.POSTGRES else self._objects

    @contextmanager
    def _exclusive(self) -> Iterator[Commands]:
        if os.geteuid() != 0:
            raise MissingPart(
                "parents run as accounts of their own, and only root may give them that",
                where="this machine",
                hint="run the same command with sudo",
            )
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with held(self._directory / "lock", lambda: self._progress("waiting for another command")) as lock:
            yield Commands((lock,))
