"""A provider that keeps what it was told in a file, so that it outlives a client that is killed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from engine.environments.drivers.base import CreateRequest, Kind, Owned
from engine.environments.names import names_of
from engine.environments.observation import Absent, Mark, Observation, Present, Unknown
from engine.errors import DispatchLost, DriverRefused

Answer = str
"""How a call goes wrong: ``unknown`` (observe), ``refused``, ``lost`` (nothing was done), ``done`` (done, the answer is
lost), ``late`` (answer lost, done when the store is told to `land`), ``other`` (something else is there afterwards)."""


@dataclass
class Store:
    """All resources of one provider, by kind and name; `sent` counts what was dispatched."""

    path: Path
    faults: dict[tuple[str, Kind], list[Answer]] = field(default_factory=dict)
    before: Callable[[str], None] = lambda call: None

    def content(self) -> dict[str, Any]:
        return dict(json.loads(self.path.read_text())) if self.path.exists() else {"things": {}, "late": [], "sent": []}

    def save(self, content: Mapping[str, Any]) -> None:
        other = self.path.with_suffix(".new")
        other.write_text(json.dumps(content))
        other.rename(self.path)

    def fault(self, call: str, kind: Kind) -> Answer | None:
        waiting = self.faults.get((call, kind), [])
        return waiting.pop(0) if waiting else None

    def put(self, key: str, thing: Mapping[str, Any] | None, **more: Any) -> None:
        content = self.content()
        if thing is None:
            content["things"].pop(key, None)
        else:
            content["things"][key] = thing
        self.save({**content, **more})

    def land(self) -> None:
        """Let the requests that were under way take effect."""
        content = self.content()
        for key, thing in content["late"]:
            if thing is None:
                content["things"].pop(key, None)
            else:
                content["things"].setdefault(key, thing)
        self.save({**content, "late": []})

    def sent(self, call: str) -> list[str]:
        return [key for sent, key in self.content()["sent"] if sent == call]

    def things(self) -> dict[str, Any]:
        return dict(self.content()["things"])


@dataclass
class SimulatedDriver:
    """The driver of one kind in a `Store`."""

    store: Store
    kind: Kind
    settle_seconds: float = 5.0

    def name(self, uuid: str) -> str:
        return str(getattr(names_of(uuid), self.kind.value))

    def observe(self, name: str) -> Observation:
        self.store.before(f"observe {self.kind}")
        if self.store.fault("observe", self.kind) is not None:
            return Unknown("timeout")
        thing = self.store.things().get(self._key(name))
        if thing is None:
            return Absent()
        return Present(thing["reference"], thing["digest"], Mark(**thing["mark"]) if thing["mark"] else None)

    def create(self, request: CreateRequest) -> Observation:
        self.store.before(f"create {self.kind}")
        key = self._key(request.name)
        thing = {"reference": f"r-{request.intent_id}", "digest": request.digest, "mark": asdict(request.mark)}
        self._dispatch("create", key, thing)
        self.store.before(f"created {self.kind}")
        return self.observe(request.name)

    def delete(self, name: str, mark: Mark) -> None:
        self.store.before(f"delete {self.kind}")
        key = self._key(name)
        thing = self.store.things().get(key)
        if thing is not None and thing["mark"] != asdict(mark):
            raise DriverRefused("it carries another mark")
        self._dispatch("delete", key, None)
        self.store.before(f"deleted {self.kind}")

    def list_owned(self) -> tuple[Owned, ...]:
        marked = ((key, thing["mark"]) for key, thing in self.store.things().items() if thing["mark"])
        return tuple(
            Owned(key.partition("/")[2], Mark(**mark)) for key, mark in marked if key.startswith(f"{self.kind}/")
        )

    def _dispatch(self, call: str, key: str, thing: Mapping[str, Any] | None) -> None:
        fault = self.store.fault(call, self.kind)
        if fault == "refused":
            raise DriverRefused("connection refused")
        content = self.store.content()
        sent = [*content["sent"], (call, key)]
        if fault == "late":
            self.store.save({**content, "late": [*content["late"], (key, thing)], "sent": sent})
        elif fault == "lost":
            self.store.save({**content, "sent": sent})
        elif fault == "other" and thing is not None:
            self.store.put(key, {**thing, "digest": "sha256:other"}, sent=sent)
        else:
            self.store.put(key, thing, sent=sent)
        if fault in ("late", "lost", "done"):
            raise DispatchLost("the connection was cut")

    def _key(self, name: str) -> str:
        return f"{self.kind}/{name}"


def simulated_drivers(store: Store) -> dict[Kind, SimulatedDriver]:
    return {kind: SimulatedDriver(store, kind) for kind in Kind}
