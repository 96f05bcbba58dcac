"""One environment in pyinfra's own command line, where no job of the engine holds it."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from pyinfra import logger

from engine.clock import new_run_id
from engine.environments.drivers.base import CreateRequest, Kind
from engine.environments.effects import Held, Resource
from engine.environments.hosting.requests import Requests
from engine.environments.hosting.workspace import Hosting, open_hosting
from engine.environments.journal import Action, EffectRow, State
from engine.environments.life import DATA, resources
from engine.environments.spec import read
from engine.environments.words import Refusal
from engine.errors import EnvironmentRefused, InvalidInput, TenantryError
from engine.hosts.plain import one_line
from engine.subject import Subject


class StandaloneTarget:
    """An environment or tier of a fleet. Its lock is taken by the first effect and held until `close`."""

    def __init__(self, hosting: Hosting, uuid: str, host: Any) -> None:
        self._hosting, self._uuid, self._host = hosting, uuid, host
        self._locks = ExitStack()
        self._is_held = False
        row = hosting.journal.subject(uuid) if hosting.journal_file.exists() else None
        if row is None:
            hosting.entry(uuid)
        self._spec = read(row.spec) if row else hosting.specifications[uuid]

    def resource(self, kind: Kind) -> Resource:
        spec = self._spec
        if kind not in (*spec.kinds, Kind.ROUTE) or (kind is Kind.ROUTE and Kind.GATEWAY not in spec.kinds):
            raise InvalidInput(
                f"it has no {kind} of its own", where=self._uuid, hint=f"it has: {', '.join(spec.kinds)}"
            )
        # Not from the hosting's parts, which make a journal: who only looks leaves nothing behind.
        (found,) = resources(self._hosting, spec, (kind,))
        return found

    def effects(self) -> Sequence[EffectRow]:
        return self._hosting.journal.effects(self._uuid) if self._hosting.journal_file.exists() else ()

    def take(self) -> bool:
        if self._is_held:
            return False
        hosting, subject = self._hosting, Subject(self._spec.subject().kind, self._uuid)
        self._locks.enter_context(hosting.locks.hold(subject, job="pyinfra", run=new_run_id(hosting.clock)))
        self._is_held = True
        return True

    def held(self, action: Action, kind: Kind) -> Held:
        if action is Action.DELETE:
            journal = self._hosting.journal
            writer = journal.writer(self._uuid)
            self._hosting.require_parents()
            return Held(journal, writer)
        entry, spec = self._hosting.entry(self._uuid), self._hosting.specifications[self._uuid]
        if entry.retired:
            raise EnvironmentRefused(Refusal.NOT_CREATING, "its entry says that it is retired", where=self._uuid)
        self._hosting.require_parents()
        journal = self._hosting.journal
        writer = journal.begin(spec.subject())
        state = journal.required(self._uuid).state
        if state not in (State.CREATING, State.READY):
            raise EnvironmentRefused(Refusal.NOT_CREATING, f"it is {state}", where=self._uuid)
        if state is State.CREATING and kind not in DATA and spec.settings.get("binding", {}).get("restore"):
            raise EnvironmentRefused(
                Refusal.NOT_READY,
                f"its {kind} is made after its data were restored",
                where=self._uuid,
                hint="`tenantry env create` does both",
            )
        return Held(journal, writer)

    def request(self, kind: Kind, intent: str) -> CreateRequest:
        return Requests(self._hosting, self._spec)(kind, intent)

    def made(self, kind: Kind) -> None:
        """pyinfra counts it itself."""

    def failed(self, error: Exception) -> None:
        if not isinstance(error, TenantryError):
            raise error
        self._host.log_styled(one_line(error), fg="red", log_func=logger.error)

    def close(self) -> None:
        """Free the lock."""
        self._locks.close()
        self._is_held = False


def open_target(data: Any, host: Any) -> StandaloneTarget:
    """The target that a host's data describes; raises :class:`InvalidInput`, and contacts nothing."""
    root = Path(data["tenantry_fleet"] or ".").resolve()
    return StandaloneTarget(_hosting(root, Path(data["tenantry_state"] or root / "var")), data["tenantry_uuid"], host)


@functools.lru_cache(maxsize=4)
def _hosting(root: Path, state_directory: Path) -> Hosting:
    """Every host of an inventory has the same fleet: it is read once."""
    return open_hosting(root, state_directory)
