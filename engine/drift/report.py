"""What one drift check of a tenant found, and since when it is so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engine.drift.compare import Difference, State
from engine.drift.expected import OwnerKind
from engine.releases.version import Version


@dataclass(frozen=True)
class Sighting:
    """One difference, and the time of the first check in a row that saw its key."""

    difference: Difference
    since: str


@dataclass(frozen=True)
class Drift:
    """One tenant's report: its version (None: zero), how many things were looked at, what is not as expected."""

    slug: str
    version: Version | None
    checked: int
    sightings: tuple[Sighting, ...]
    at: str

    @property
    def differences(self) -> tuple[Difference, ...]:
        """Everything that is not provably as expected."""
        return tuple(sighting.difference for sighting in self.sightings)

    def count(self, state: State) -> int:
        """How many keys are in `state`."""
        return sum(difference.state is state for difference in self.differences)

    @property
    def is_clean(self) -> bool:
        """Whether everything that was looked at provably is as expected."""
        return not self.sightings

    @property
    def summary(self) -> str:
        """``104 checked, 2 differ, 0 unknown``."""
        return f"{self.checked} checked, {self.count(State.DIFFERS)} differ, {self.count(State.UNKNOWN)} unknown"

    def document(self) -> dict[str, Any]:
        """The report as a JSON document of the public contract."""
        return {
            "slug": self.slug,
            "version": str(self.version) if self.version else None,
            "at": self.at,
            "checked": self.checked,
            "clean": self.is_clean,
            "differences": [_document(sighting) for sighting in self.sightings],
        }


def _document(sighting: Sighting) -> Mapping[str, Any]:
    difference, owner = sighting.difference, sighting.difference.owner
    return {
        "key": difference.key,
        "state": difference.state.value,
        "expected": difference.expected,
        "found": difference.found,
        "owner": {"kind": owner.kind.value, "name": owner.name or None, "release": owner.release},
        "since": sighting.since,
        "repairable": is_repairable(difference),
    }


def is_repairable(difference: Difference) -> bool:
    """Whether ``converge --repair`` has something that puts it right: what nobody owns is for a person."""
    if difference.key.startswith("process:"):
        return True
    return difference.owner.kind in (OwnerKind.STEP, OwnerKind.TEMPLATE, OwnerKind.PHASE)
