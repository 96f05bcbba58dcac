"""Compares a manifest with the digests a tenant recorded when it applied its releases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from engine.errors import InvalidInput, UnknownState
from engine.releases.model import Manifest
from engine.releases.version import Version


@dataclass(frozen=True)
class Edited:
    """A release that changed after the tenant applied it, with both digests."""

    version: Version
    recorded: str
    current: str


@dataclass(frozen=True)
class AppliedCheck:
    """What does not agree below the marker.

    `edited` releases are a reason to refuse. `missed` ones were put below the marker later and were
    never applied here; `removed` ones were applied and left the manifest. Both are worth saying.
    """

    edited: tuple[Edited, ...] = ()
    missed: tuple[Version, ...] = ()
    removed: tuple[Version, ...] = ()


def check_applied(
    manifest: Manifest, digests: Mapping[str, str], applied: Mapping[str, str], marker: Version | None
) -> AppliedCheck:
    """Compare `digests` (now) with `applied` (the tenant's record), both by version text, up to `marker`.

    What is above the marker is pending, whatever was recorded of it. Raises :class:`UnknownState` for
    a recorded version that is none: then nothing is known of what the tenant applied.
    """
    if marker is None:
        return AppliedCheck()
    recorded = _recorded(applied)
    current = {Version.parse(text): digest for text, digest in digests.items()}
    reached = [release.version for release in manifest if release.version <= marker]
    return AppliedCheck(
        edited=tuple(
            Edited(version, recorded[version], current[version])
            for version in reached
            if version in recorded and recorded[version] != current[version]
        ),
        missed=tuple(version for version in reached if version not in recorded),
        removed=tuple(sorted(version for version in recorded if version <= marker and version not in current)),
    )


def _recorded(applied: Mapping[str, str]) -> dict[Version, str]:
    try:
        return {Version.parse(text): digest for text, digest in applied.items()}
    except InvalidInput as error:
        raise UnknownState(f"the tenant's record of applied releases is garbled: {error.message}") from error
