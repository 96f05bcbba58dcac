"""Everything a run of this fleet needs, read and checked before any connection is made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from engine import conversations
from engine.clock import Clock, SystemClock
from engine.errors import InvalidInput
from engine.locks import LockDirectory
from engine.records import RunStore
from engine.registry.load import load_fleet
from engine.registry.model import Fleet
from engine.releases.digests import release_digests
from engine.releases.lint import lint
from engine.releases.manifest import load_manifest
from engine.releases.model import Manifest, StepClass, StepInfo
from engine.render.rendered_set import Rendered, Renderer
from engine.secrets import SecretSources
from engine.steps.catalog import Catalog, load_catalog
from engine.updater.events import Reporter, silent


@dataclass(frozen=True)
class Workspace:
    """A checked fleet with its state directory, clock and reporter.

    `own_secrets` follows references instead of the fleet's sources, for servers that must not get real ones.
    """

    fleet: Fleet
    manifest: Manifest
    catalog: Catalog
    state_directory: Path
    clock: Clock
    report: Reporter
    own_secrets: SecretSources | None = None

    @cached_property
    def locks(self) -> LockDirectory:
        return LockDirectory(self.state_directory / "locks", self.clock)

    @cached_property
    def runs(self) -> RunStore:
        return RunStore(self.state_directory / "records", self.clock, self.fleet.settings.runs_kept)

    @cached_property
    def secrets(self) -> SecretSources:
        if self.own_secrets:
            return self.own_secrets
        return secret_sources(self.fleet, self.state_directory)

    @cached_property
    def renderer(self) -> Renderer:
        return Renderer(self.fleet)

    @cached_property
    def head_sets(self) -> dict[str, tuple[Rendered, ...]]:
        """Rendered sets at the head that were made early, by slug; each is taken out when it is used."""
        return {}

    @cached_property
    def step_infos(self) -> Mapping[str, StepInfo]:
        return self.catalog.infos

    @cached_property
    def digests(self) -> Mapping[str, str]:
        """The digest of every release of the manifest by its version text."""
        return release_digests(self.manifest, self.step_infos)


def secret_sources(fleet: Fleet, state_directory: Path) -> SecretSources:
    """What follows the fleet's secret references on this machine."""
    settings = fleet.settings.secrets
    identity = state_directory / Path(settings.age_identity_file).expanduser()
    return SecretSources(fleet.root, identity, settings.command_seconds)


def open_workspace(
    root: Path, state_directory: Path | None = None, *, clock: Clock | None = None, report: Reporter = silent
) -> Workspace:
    """Read and check the fleet at `root`; raises :class:`InvalidInput` and touches nothing if it is wrong."""
    fleet = load_fleet(root)
    manifest = load_manifest(root / "releases.yaml")
    catalog = load_catalog(root)
    findings = lint(manifest, catalog.infos, limit=fleet.settings.notify.limit_characters)
    if findings:
        raise InvalidInput(
            "the manifest has errors:\n" + "\n".join(f"  {finding.where}: {finding.message}" for finding in findings),
            where=str(root / "releases.yaml"),
            hint="correct them; `tenantry release lint` shows them again",
        )
    _refuse_upgrades_without_gateway(fleet, manifest, catalog)
    conversations.check(fleet)
    workspace = Workspace(fleet, manifest, catalog, state_directory or root / "var", clock or SystemClock(), report)
    # Reads every bundle: one that is missing or cannot be shipped is found here, not on the first tenant.
    _ = workspace.digests
    return workspace


def _refuse_upgrades_without_gateway(fleet: Fleet, manifest: Manifest, catalog: Catalog) -> None:
    """An upgrade's link is switched while the gateway is stopped; without one nothing would switch it."""
    if fleet.settings.gateway is not None:
        return
    for release in manifest:
        for entry in release.steps:
            if catalog[entry.name].step_class is StepClass.UPGRADE:
                raise InvalidInput(
                    f"step {entry.name} of {release.version} is an upgrade, and the fleet has no gateway to restart",
                    where=entry.where,
                    hint="give inventory/fleet.yaml its gateway, or make the step an install step",
                )
