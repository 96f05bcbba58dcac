"""The closed set of keys that a child is told at boot, and the three places that must agree on it.

The engine, the gateway's bundle and the application's manifest are shipped apart, each with its own set of keys. A
key that one of them does not know would be lost silently, so any difference is refused while a plan is made.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from engine.errors import InvalidInput
from engine.registry.environments_model import Environment, Environments

BASE_KEYS = frozenset({"access_policy", "hostname", "restore", "tier"})
"""What every release is told."""

OPTIONAL_KEYS = frozenset({"bootstrap_admin"})
"""What only a release is told that declares it in `childSpecExtensions`."""

Value = str | None | Mapping[str, str]
Binding = Mapping[str, Value]


@dataclass(frozen=True)
class HostedRelease:
    """A release that environments run.

    `digest` is that of its bundle in `directory`, `extensions` its `childSpecExtensions`, `packages` what of Debian its
    programs need.
    """

    name: str
    digest: str
    gateway_keys: frozenset[str]
    manifest_keys: frozenset[str]
    extensions: frozenset[str] = frozenset()
    directory: Path = Path()
    packages: frozenset[str] = frozenset()


def check_keys(release: HostedRelease) -> None:
    """Raise :class:`InvalidInput` naming every key on which engine, gateway and manifest differ."""
    problems = tuple(_differences(release))
    if problems:
        raise InvalidInput(
            "; ".join(problems),
            where=f"release {release.name}",
            hint=f"the engine's keys are {', '.join(sorted(BASE_KEYS))}; with childSpecExtensions also "
            f"{', '.join(sorted(OPTIONAL_KEYS))}",
        )


def bind(environment: Environment, inventory: Environments, release: HostedRelease) -> Binding:
    """The binding of `environment` for `release`; a tier stands in it by its uuid.

    Raises :class:`InvalidInput` for a release whose key sets differ, and for one that was given a key that it does
    not declare: to leave it out in silence would, for example, make an environment without its administrator.
    """
    check_keys(release)
    restore = environment.restore
    values: dict[str, Value] = {
        "access_policy": environment.access_policy.value,
        "hostname": environment.hostname,
        "restore": None if restore is None else {"environment": restore.environment, "backup": restore.backup},
        "tier": None if environment.tier is None else inventory.tiers[environment.tier].uuid,
    }
    optional: dict[str, Value] = {"bootstrap_admin": environment.bootstrap_admin}
    for key, value in optional.items():
        if key in release.extensions:
            values[key] = value
        elif value is not None:
            raise InvalidInput(
                f"{key}: release {release.name} does not declare it in childSpecExtensions",
                where=f"environment {environment.uuid}",
                hint="leave the key out, or choose a release that knows it",
            )
    return MappingProxyType(values)


def _differences(release: HostedRelease) -> Iterator[str]:
    for key in sorted(release.extensions - OPTIONAL_KEYS):
        yield f"childSpecExtensions declares {key}, which the engine does not know"
    wanted = BASE_KEYS | (release.extensions & OPTIONAL_KEYS)
    for place, keys in (("the gateway", release.gateway_keys), ("the application manifest", release.manifest_keys)):
        for key in sorted(wanted - keys):
            yield f"{place} does not know {key}"
        for key in sorted(keys - wanted - release.extensions):
            yield f"{place} knows {key}, which it will not be told"
