"""How the engine performs effects: each as a pyinfra operation on a host that stands for the environment."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyinfra.api import Config, Inventory, State
from pyinfra.api.host import Host
from pyinfra.api.operations import run_host_op
from pyinfra.api.state import StateStage
from pyinfra.context import ctx_host, ctx_state

from engine.environments.drivers.base import CreateRequest, Kind
from engine.environments.effects import Held, Resource
from engine.environments.journal import Action, EffectRow
from engine.environments.observation import Observation
from engine.environments.operations import operations
from engine.environments.operations.connector import EnvironmentConnector
from engine.environments.operations.facts import Observed
from engine.environments.operations.target import TARGET_KEY
from engine.hosts.plain import quiet, restored

_REGISTRATION = threading.Lock()
"""pyinfra's state in context is one for the whole process, so only one operation at a time is registered."""


class PyinfraPerformer:
    """Performs effects for the job that holds the environment; the engine's errors come out as they are."""

    def __init__(self) -> None:
        quiet()

    def look(self, resource: Resource) -> Observation:
        found: Observation = _host(_JobTarget((resource,))).get_fact(Observed, kind=resource.driver.kind.value)
        return found

    def make(self, held: Held, resource: Resource, request: Callable[[str], CreateRequest]) -> bool:
        target = _JobTarget((resource,), held, request)
        _run(target, operations.present, resource.driver.kind.value)
        return resource.driver.kind in target.kinds_made

    def remove(self, held: Held, resources: Sequence[Resource]) -> None:
        if resources:
            _run(_JobTarget(tuple(resources), held), operations.absent, *(item.driver.kind.value for item in resources))


@dataclass
class _JobTarget:
    """Resources of one subject of which the calling job holds the lock already."""

    resources: tuple[Resource, ...]
    job: Held | None = None
    make_request: Callable[[str], CreateRequest] | None = None
    kinds_made: list[Kind] = field(default_factory=list)
    error: Exception | None = None

    def resource(self, kind: Kind) -> Resource:
        return next(item for item in self.resources if item.driver.kind is kind)

    def effects(self) -> Sequence[EffectRow]:
        held = self._held()
        return held.journal.effects(held.writer.uuid)

    def take(self) -> bool:
        return False

    def held(self, action: Action, kind: Kind) -> Held:
        return self._held()

    def request(self, kind: Kind, intent: str) -> CreateRequest:
        assert self.make_request is not None
        return self.make_request(intent)

    def made(self, kind: Kind) -> None:
        self.kinds_made.append(kind)

    def failed(self, error: Exception) -> None:
        self.error = error

    def _held(self) -> Held:
        assert self.job is not None
        return self.job


class _Inventory(Inventory):  # type: ignore[misc]
    """Hosts of the one connector; pyinfra's own would read the metadata of every installed package each time."""

    def make_hosts_and_groups(self, names: Sequence[str], groups: Any) -> None:
        self.hosts = {name: Host(name, self, [], connector_cls=EnvironmentConnector) for name in names}


class _State(State):  # type: ignore[misc]
    """A state in which a failing host says nothing about others."""

    def fail_hosts(self, hosts_to_fail: set[Any], activated_count: int | None = None) -> None:
        self.failed_hosts.update(hosts_to_fail)


def _host(target: _JobTarget) -> Host:
    name = f"@env/{target.job.writer.uuid}" if target.job else target.resources[0].name
    state = _State(_Inventory(([name], {})), Config(), check_for_changes=False)
    state.current_stage = StateStage.Execute
    (host,) = state.inventory
    host.connector_data[TARGET_KEY] = target
    host.connected = True
    return host


def _run(target: _JobTarget, operation: Callable[..., Any], *kinds: str) -> None:
    """Register `operation` and run it; raises what an effect raised."""
    host = _host(target)
    with restored(ctx_host, host):
        # Nothing in here waits, so no other job of this process sees this state in pyinfra's context.
        with _REGISTRATION, restored(ctx_state, host.state):
            operation(*kinds)
        host.state.is_executing = True
        done = run_host_op(host.state, host, host.op_hash_order[-1])
    if target.error is not None:
        raise target.error
    assert done, "an operation that fails says why"
