"""Which steps a tenant still needs, decided purely: a plan can be printed, compared and hashed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from engine.errors import InvalidInput
from engine.releases.digests import digest_of
from engine.releases.model import Manifest, Release, StepEntry, StepInfo, canonical_json
from engine.releases.version import Version

Catalog = Mapping[str, StepInfo]


class SkipReason(StrEnum):
    """Why a step entry of a pending release does not run."""

    DUPLICATE = "duplicate"
    TRADE = "trade"
    ROLE = "role"


class ReleaseState(StrEnum):
    """Where a release stands against the tenant's marker."""

    PENDING = "pending"
    APPLIED = "applied"


@dataclass(frozen=True)
class PlannedStep:
    """A step that runs. `releases` are those that name it, `position` its turn, counted from 0."""

    entry: StepEntry
    releases: tuple[Version, ...]
    position: int
    shipped_digest: str = ""


@dataclass(frozen=True)
class SkippedStep:
    """A step entry of `release` that does not run, and why in a person's words."""

    entry: StepEntry
    release: Version
    reason: SkipReason
    detail: str


@dataclass(frozen=True)
class PlannedRelease:
    """One release of the manifest and why it would be applied or not."""

    release: Release
    state: ReleaseState
    reason: str


@dataclass(frozen=True)
class Plan:
    """What separates a tenant at `marker` (None: version zero) from `head`."""

    marker: Version | None
    head: Version
    releases: tuple[PlannedRelease, ...]
    steps: tuple[PlannedStep, ...]
    skipped: tuple[SkippedStep, ...]

    @property
    def ahead(self) -> bool:
        """Whether the tenant is above the head: then nothing is pending and nothing may be changed."""
        return self.marker is not None and self.marker > self.head

    @property
    def pending(self) -> tuple[Release, ...]:
        """The releases above the marker, in order."""
        return tuple(planned.release for planned in self.releases if planned.state is ReleaseState.PENDING)

    def digest(self) -> str:
        """Return ``sha256:…`` over what would run: equal plans, and only they, have equal digests."""
        record = {
            "marker": self.marker.key if self.marker else None,
            "head": self.head.key,
            "pending": [release.version.key for release in self.pending],
            "steps": [[step.entry.canonical, step.shipped_digest] for step in self.steps],
            "skipped": [[step.entry.canonical, step.release.key, step.reason] for step in self.skipped],
        }
        return digest_of(canonical_json(record).encode())


def make_plan(manifest: Manifest, catalog: Catalog, *, marker: Version | None, trade: str, role: str) -> Plan:
    """Return the plan of a tenant at `marker`; raises :class:`InvalidInput` for a step not in `catalog`."""
    pending = [release for release in manifest if marker is None or release.version > marker]
    steps, skipped = _flatten(pending, catalog, trade, role)
    return Plan(
        marker=marker,
        head=manifest.head,
        releases=tuple(_planned_release(release, marker) for release in manifest),
        steps=steps,
        skipped=skipped,
    )


def all_steps(manifest: Manifest, catalog: Catalog, up_to: Version, trade: str, role: str) -> tuple[PlannedStep, ...]:
    """Return what a fresh tenant of `trade` and `role` would run to reach `up_to`, in order."""
    reached = [release for release in manifest if release.version <= up_to]
    return _flatten(reached, catalog, trade, role)[0]


def why_not(info: StepInfo, trade: str, role: str) -> tuple[SkipReason, str] | None:
    """Return why the step is not for a tenant of `trade` and `role`, or None if it is."""
    if info.trades and trade not in info.trades:
        return SkipReason.TRADE, f"only for trade {_listed(info.trades)}, this tenant's is {trade}"
    if info.roles and role not in info.roles:
        return SkipReason.ROLE, f"only for role {_listed(info.roles)}, this tenant's is {role}"
    return None


def _flatten(
    releases: Iterable[Release], catalog: Catalog, trade: str, role: str
) -> tuple[tuple[PlannedStep, ...], tuple[SkippedStep, ...]]:
    namings: dict[StepEntry, list[Version]] = {}
    skipped: list[SkippedStep] = []
    for release, entry in _entries(releases):
        excluded = why_not(_info(catalog, entry, release), trade, role)
        if excluded is not None:
            skipped.append(SkippedStep(entry, release.version, *excluded))
            continue
        if entry in namings:
            detail = f"runs once, in its first place in {namings[entry][0]}"
            skipped.append(SkippedStep(entry, release.version, SkipReason.DUPLICATE, detail))
        namings.setdefault(entry, []).append(release.version)
    planned = (
        PlannedStep(
            entry,
            tuple(dict.fromkeys(versions)),
            position,
            catalog[entry.name].shipped_digest(entry.arguments),
        )
        for position, (entry, versions) in enumerate(namings.items())
    )
    return tuple(planned), tuple(skipped)


def _entries(releases: Iterable[Release]) -> Iterator[tuple[Release, StepEntry]]:
    for release in releases:
        for entry in release.steps:
            yield release, entry


def _info(catalog: Catalog, entry: StepEntry, release: Release) -> StepInfo:
    if entry.name not in catalog:
        raise InvalidInput(
            f"release {release.version} names the unknown step {entry.name!r}",
            where=entry.where or release.where,
        )
    return catalog[entry.name]


def _planned_release(release: Release, marker: Version | None) -> PlannedRelease:
    if marker is None:
        return PlannedRelease(release, ReleaseState.PENDING, "the tenant is at version zero")
    if release.version > marker:
        return PlannedRelease(release, ReleaseState.PENDING, f"above the marker {marker}")
    if release.version == marker:
        return PlannedRelease(release, ReleaseState.APPLIED, "the marker stands at it")
    return PlannedRelease(release, ReleaseState.APPLIED, f"below the marker {marker}")


def _listed(names: Iterable[str]) -> str:
    return " or ".join(sorted(names))
