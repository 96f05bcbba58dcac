"""What a tenant should look like at a version: folded from settings, phases, steps and templates. Pure.

Nothing of it was recorded anywhere: digests are those of the fleet's own bundles and rendered files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from engine.errors import InvalidInput
from engine.registry.model import Tenant
from engine.registry.settings import Settings
from engine.releases.plan import all_steps
from engine.releases.version import ZERO, Version
from engine.steps.catalog import load_module
from engine.steps.expectations import Absent, Expectation, Expects, File, Place, RouteAnswer, Unit
from engine.steps.step import fleet_code
from engine.updater.assessment import render_at
from engine.updater.events import Phase
from engine.updater.workspace import Workspace


class OwnerKind(StrEnum):
    """What puts a thing onto a tenant, and so what would put it back."""

    STEP = "step"
    TEMPLATE = "template"
    PHASE = "phase"
    SETTINGS = "settings"
    RELEASE = "release"
    NOBODY = "nobody"


@dataclass(frozen=True)
class Owner:
    """Who owns an expectation: a step entry with its first release, a template, a phase, the fleet's settings."""

    kind: OwnerKind
    name: str = ""
    release: str | None = None

    def __str__(self) -> str:
        if self.kind is OwnerKind.NOBODY:
            return "nobody"
        if self.kind in (OwnerKind.SETTINGS, OwnerKind.PHASE):
            return self.name
        return f"{self.kind} {self.name}" + (f" of {self.release}" if self.release else "")


NOBODY = Owner(OwnerKind.NOBODY)
SETTINGS = Owner(OwnerKind.SETTINGS, "inventory/fleet.yaml")


@dataclass(frozen=True)
class Expected:
    """One expectation and the last one that declared its key."""

    expectation: Expectation
    owner: Owner


@dataclass(frozen=True)
class Phases:
    """What the fleet's provisioning phases leave, where their files say so in ``expects``."""

    declared: Mapping[Phase, Expects]

    @classmethod
    def load(cls, root: Path) -> Phases:
        """Read ``expects`` of ``deploys/bootstrap.py`` (phase A) and ``deploys/tenancy.py`` (phase B)."""
        files = {Phase.PHASE_A: root / "deploys/bootstrap.py", Phase.PHASE_B: root / "deploys/tenancy.py"}
        return cls(
            {phase: getattr(load_module(path), "expects", ()) for phase, path in files.items() if path.is_file()}
        )


def expected_state(
    workspace: Workspace, phases: Phases, tenant: Tenant, version: Version | None
) -> Mapping[str, Expected]:
    """By key, what `tenant` should look like at `version` (None: version zero); the last writer wins.

    Raises :class:`InvalidInput` for a step that expects what it does not write.
    """
    folded: dict[str, Expected] = {}
    for owner, expectation in declarations(workspace, phases, tenant, version or ZERO):
        if isinstance(expectation, Absent):
            folded = {key: item for key, item in folded.items() if not _is_within(key, expectation.path)}
        # Taken out first, so that the order is that of the last writers.
        folded.pop(expectation.key, None)
        folded[expectation.key] = Expected(expectation, owner)
    return folded


def declarations(
    workspace: Workspace, phases: Phases, tenant: Tenant, at: Version
) -> Iterator[tuple[Owner, Expectation]]:
    """Everything that is declared for `tenant` up to the version `at`, in the order in which it is written."""
    settings = workspace.fleet.settings
    yield from ((SETTINGS, item) for item in _of_settings(settings, at))
    for phase, declared in phases.declared.items():
        owner = Owner(OwnerKind.PHASE, phase.value)
        yield from ((owner, item) for item in _of_phase(workspace, tenant, phase, declared))
    for planned in all_steps(workspace.manifest, workspace.step_infos, at, tenant.trade, tenant.role):
        step = workspace.catalog[planned.entry.name]
        owner = Owner(OwnerKind.STEP, str(planned.entry), str(planned.releases[0]))
        yield from ((owner, item) for item in step.expectations(tenant, settings, planned.entry.arguments))
    for rendered in render_at(workspace, tenant, at):
        file = rendered.file
        owner = Owner(OwnerKind.TEMPLATE, file.template, file.since)
        yield owner, File(file.path, mode=file.mode, owner=file.owner, group=file.group, digest=rendered.digest)


def _of_settings(settings: Settings, at: Version) -> Iterator[Expectation]:
    """Services and routes. Whether a unit is enabled is for the step that installs it to say."""
    for service in settings.services:
        if _exists_at(service.since, at):
            yield Unit(service.unit, active=True, enabled=None)
    if settings.gateway:
        yield Unit(settings.gateway.unit, active=True, enabled=None)
    for route in settings.routes:
        if _exists_at(route.since, at):
            yield RouteAnswer(route.name, route.status)


def _of_phase(workspace: Workspace, tenant: Tenant, phase: Phase, declared: Expects) -> Iterable[Expectation]:
    place = Place(tenant, workspace.fleet.settings, {}, None, workspace.fleet.root / "deploys")
    with fleet_code(f"`expects` of {phase.value}", InvalidInput):
        return [item.at(place) for item in (declared(place) if callable(declared) else declared)]


def _exists_at(since: str | None, at: Version) -> bool:
    return since is None or Version.parse(since) <= at


def _is_within(key: str, path: str) -> bool:
    what = key.partition(":")[2].partition("#")[0]
    return what == path or what.startswith(f"{path}/")
