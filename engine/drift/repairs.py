"""Which phases, steps and files put a drifted tenant right. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from engine.drift.compare import State
from engine.drift.expected import Expected, OwnerKind
from engine.drift.report import Drift, is_repairable
from engine.errors import UnknownState
from engine.registry.model import Tenant
from engine.releases.model import StepEntry
from engine.releases.plan import all_steps
from engine.releases.version import ZERO
from engine.steps.step import UpgradeStep
from engine.updater.events import Phase
from engine.updater.workspace import Workspace


@dataclass(frozen=True)
class Repairs:
    """What has to be done again, in plan order, and the keys that must be right afterwards.

    `files` says that the rendered set is to be written, `restart` that the gateway's process is too old.
    `left` are the keys that nobody owns: they are for a person.
    """

    keys: tuple[str, ...] = ()
    phases: frozenset[Phase] = frozenset()
    steps: tuple[StepEntry, ...] = ()
    files: bool = False
    restart: bool = False
    left: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.keys)

    @property
    def words(self) -> tuple[str, ...]:
        """The phases and steps by name, as a run's record lists them."""
        first, last = ([phase.value] if phase in self.phases else [] for phase in (Phase.PHASE_A, Phase.PHASE_B))
        return (*first, *map(str, self.steps), *last)


def decide(workspace: Workspace, tenant: Tenant, drift: Drift, expected: Mapping[str, Expected]) -> Repairs:
    """What puts `drift` right; raises :class:`UnknownState` while something could not be read."""
    unknown = [item.key for item in drift.differences if item.state is State.UNKNOWN]
    if unknown:
        raise UnknownState(
            f"not known: {', '.join(unknown)}",
            where=tenant.slug,
            hint="look at `tenantry drift`; what cannot be read is not repaired, and nothing was changed",
        )
    broken = [item for item in drift.differences if is_repairable(item)]
    kinds = {item.key: item.owner.kind for item in broken}
    keys = [key for key, kind in kinds.items() if kind in (OwnerKind.STEP, OwnerKind.PHASE)]
    return Repairs(
        keys=tuple(kinds),
        phases=frozenset(Phase(item.owner.name) for item in broken if item.owner.kind is OwnerKind.PHASE),
        steps=tuple(_steps(workspace, tenant, drift, expected, set(keys))),
        files=OwnerKind.TEMPLATE in kinds.values(),
        restart=any(key.startswith("process:") for key in kinds),
        # A route answers again when its parts are right; only where none of them is wrong it is for a person.
        left=tuple(
            item.key
            for item in drift.differences
            if item.key not in kinds and not (kinds and item.owner.kind is OwnerKind.SETTINGS)
        ),
    )


def _steps(
    workspace: Workspace, tenant: Tenant, drift: Drift, expected: Mapping[str, Expected], broken: set[str]
) -> Iterator[StepEntry]:
    """Every step that writes a broken key, and every later one whose work such a step would overwrite."""
    settings = workspace.fleet.settings
    at = drift.version or ZERO
    planned = all_steps(workspace.manifest, workspace.step_infos, at, tenant.trade, tenant.role)
    entries = [item.entry for item in planned]
    for position, entry in enumerate(entries):
        step = workspace.catalog[entry.name]
        if _is_superseded(workspace, entry, entries[position + 1 :]):
            continue
        if not any(step.writes_key(key, entry.arguments, settings) for key in broken):
            continue
        yield entry
        own = {item.key: item for item in step.expectations(tenant, settings, entry.arguments)}
        broken |= {
            key
            for key, item in expected.items()
            if item.owner.kind is OwnerKind.STEP
            and own.get(key) != item.expectation
            and step.writes_key(key, entry.arguments, settings)
        }


def _is_superseded(workspace: Workspace, entry: StepEntry, later: list[StepEntry]) -> bool:
    """Whether a later upgrade moves the same link on: versions lie side by side, so only the last one counts."""
    step = workspace.catalog[entry.name]
    if not isinstance(step, UpgradeStep):
        return False
    others = (workspace.catalog[item.name] for item in later)
    return any(isinstance(other, UpgradeStep) and other.link == step.link for other in others)
