"""The two operations on an environment's resources: be there, and be gone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyinfra
from pyinfra.api import FunctionCommand, operation

from engine.environments.conditions import delete_refusal
from engine.environments.effects import (
    Resource,
    Step,
    ensure_absent,
    ensure_present,
    to_be_absent,
    to_be_present,
    unobserved,
)
from engine.environments.journal import Action
from engine.environments.observation import Observation, Unknown
from engine.environments.operations.facts import Observed
from engine.environments.operations.target import Target, kind_of, target_of
from engine.errors import EnvironmentRefused
from engine.hosts.plain import plain_errors


@operation()  # type: ignore[untyped-decorator]
def present(kind: str = "") -> Iterator[FunctionCommand]:
    """Make the environment's resource of `kind`, once."""
    host = pyinfra.host
    target = target_of(host)
    (resource,) = _resources(target, kind)
    found = _shown(host, resource)
    if to_be_present(resource, target.effects(), found).step is Step.NOTHING:
        host.noop(f"{kind} {resource.name} is there already")
        return
    yield _command(_make, resource, found)


@operation()  # type: ignore[untyped-decorator]
def absent(kind: str = "", *more: str) -> Iterator[FunctionCommand]:
    """Delete the environment's resources of these kinds in their order, unless one of them cannot be observed."""
    host = pyinfra.host
    target = target_of(host)
    seen = [(resource, _shown(host, resource)) for resource in _resources(target, kind, *more)]
    for resource, found in seen:
        if isinstance(found, Unknown):
            yield _command(_remove, resource, found)
            return
    effects = target.effects()
    for resource, found in seen:
        if to_be_absent(resource, effects, found).step is Step.NOTHING:
            host.noop(f"{resource.driver.kind} {resource.name} is gone already")
        else:
            yield _command(_remove, resource, found)


def _resources(target: Target, *kinds: str) -> list[Resource]:
    with plain_errors():
        return [target.resource(kind_of(kind)) for kind in kinds]


def _observed(host: Any, resource: Resource) -> Observation:
    found: Observation = host.get_fact(Observed, kind=resource.driver.kind.value)
    return found


def _shown(host: Any, resource: Resource) -> Observation:
    """Observe, and in pyinfra's command line say what was seen: it is all that a dry run can say."""
    found = _observed(host, resource)
    if pyinfra.is_cli:
        word = f" ({found.word})" if isinstance(found, Unknown) else ""
        host.log(f"{resource.driver.kind} {resource.name} is {found.to_json()['observation']}{word}")
    return found


def _command(effect: Callable[[Target, Resource, Observation], None], resource: Resource, found: Observation) -> Any:
    return FunctionCommand(_perform, (effect, resource, found), {})


def _perform(
    state: Any,
    host: Any,
    effect: Callable[[Target, Resource, Observation], None],
    resource: Resource,
    found: Observation,
) -> bool:
    """Run one effect under the lock. pyinfra would print an error's traceback and forget the error itself."""
    target = target_of(host)
    try:
        if target.take():
            # What was seen before the lock was ours may have changed since.
            found = _observed(host, resource)
        effect(target, resource, found)
    except Exception as error:
        target.failed(error)
        return False
    return True


def _make(target: Target, resource: Resource, found: Observation) -> None:
    kind = resource.driver.kind
    held = target.held(Action.CREATE, kind)
    effects = held.journal.effects(held.writer.uuid)
    if ensure_present(held.writer, resource, effects, found, lambda intent: target.request(kind, intent)):
        target.made(kind)


def _remove(target: Target, resource: Resource, found: Observation) -> None:
    kind = resource.driver.kind
    held = target.held(Action.DELETE, kind)
    uuid = held.writer.uuid
    if isinstance(found, Unknown):
        raise unobserved(held.writer, resource, found)
    subject = held.journal.required(uuid)
    word = delete_refusal(subject, kind, held.journal.clock.now())
    if word is not None:
        raise EnvironmentRefused(word, f"its {kind} stays: it is {subject.state}", where=uuid)
    ensure_absent(held.writer, resource, held.journal.effects(uuid), found, by_verb=held.by_verb)
