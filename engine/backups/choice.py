"""The archive that a restore takes, read and checked before any connection."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from engine.backups.listing import Listing, list_archive
from engine.backups.manifest import Manifest
from engine.backups.restore_plan import Live, Tree, check_archive, plain_path, trees_at, trees_of
from engine.backups.run import store_of
from engine.errors import ArchiveRejected, Refused
from engine.registry.model import Tenant
from engine.registry.settings import Settings
from engine.releases.version import Version
from engine.updater.workspace import Workspace


@dataclass(frozen=True)
class Chosen:
    """One whole archive of a tenant, and what of it is wanted: everything, or what is at `path`."""

    file: Path
    manifest: Manifest
    listing: Listing
    path: str | None = None

    @property
    def archive(self) -> str:
        return self.manifest.archive

    @property
    def version(self) -> Version | None:
        return Version.parse(self.manifest.version) if self.manifest.version else None

    @property
    def places(self) -> tuple[str, ...]:
        """The paths on the tenant that must be looked at before anything is decided."""
        contents = {content["path"] for content in self.manifest.contents}
        found = {path for content in self.manifest.contents for path in content["found"]}
        return tuple(sorted({*contents, *found, *([self.path] if self.path else [])}))

    def trees(self, live: Live, settings: Settings) -> tuple[Tree, ...]:
        """What is replaced, where `live` is there."""
        if self.path:
            return trees_at(self.path, self.manifest, self.listing, live)
        return trees_of(self.manifest, self.listing, live, settings)


def choose(workspace: Workspace, tenant: Tenant, archive: str | None, path: str | None = None) -> Chosen:
    """Find, check and read the archive `archive` of `tenant`, the newest verified one by default.

    Raises :class:`Refused`, :class:`AheadOfHead` or :class:`EditedRelease` for one that does not fit this fleet, and
    :class:`ArchiveRejected` for one that is not whole.
    """
    store = store_of(workspace, tenant)
    stored = store.get(archive) if archive else store.newest()
    if stored is None:
        raise Refused("there is no verified archive of it", where=tenant.slug, hint=f"tenantry backup {tenant.slug}")
    if stored.manifest is None or stored.problem:
        raise ArchiveRejected(
            f"archive {stored.archive} is not verified: {stored.problem}",
            where=str(stored.path),
            hint=f"tenantry backups {tenant.slug}",
        )
    wanted = plain_path(path) if path else None
    if wanted is None:
        check_archive(stored.manifest, tenant.slug, workspace.manifest, workspace.digests)
    return Chosen(stored.path, stored.manifest, list_archive(stored.path, stored.manifest), wanted)
