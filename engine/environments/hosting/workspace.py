"""Everything a command on hosted environments needs, read and checked before anything is contacted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from engine.clock import Clock, SystemClock
from engine.environments.binding import HostedRelease
from engine.environments.copies import Place
from engine.environments.drivers.base import Driver, Kind
from engine.environments.drivers.machines import LabMachines
from engine.environments.drivers.object_keys import ObjectKeys
from engine.environments.drivers.objects import Buckets
from engine.environments.drivers.postgres import PostgresDatabases
from engine.environments.drivers.postgres_roles import PostgresRoles
from engine.environments.drivers.routes import CaddyRoutes
from engine.environments.effects import Performer
from engine.environments.hosting.credentials import CredentialStore
from engine.environments.inventory_file import mark_retired
from engine.environments.journal import Database, Journal
from engine.environments.life import Parts
from engine.environments.operations.run import PyinfraPerformer
from engine.environments.parents import LabParents, ParentKind
from engine.environments.parents.recognition import ParentSeen, require
from engine.environments.parents.relay import Stores, relay_parents
from engine.environments.releases import CLOSURE, load_releases
from engine.environments.spec import Specification, of_environment, of_tier
from engine.errors import InvalidInput
from engine.locks import LockDirectory
from engine.provision.providers.lab import Lab, ensure_identity
from engine.records import RunStore
from engine.registry.environments import ENVIRONMENTS_FILE, load_environments
from engine.registry.environments_model import Environment, Environments, Tier
from engine.registry.load import load_fleet
from engine.registry.model import Fleet
from engine.registry.settings import HostingSettings
from engine.updater.events import Event, Phase, Reporter, silent

Entry = Environment | Tier
"""What the inventory holds under a uuid."""


@dataclass(frozen=True)
class Hosting:
    """A checked fleet's environments with their state directory, clock and reporter."""

    fleet: Fleet
    inventory: Environments
    state_directory: Path
    clock: Clock
    report: Reporter

    @property
    def settings(self) -> HostingSettings:
        return self.fleet.settings.environments

    @cached_property
    def locks(self) -> LockDirectory:
        return LockDirectory(self.state_directory / "locks", self.clock)

    @cached_property
    def runs(self) -> RunStore:
        return RunStore(self.state_directory / "records", self.clock, self.fleet.settings.runs_kept)

    @property
    def journal_file(self) -> Path:
        return self.settings.journal_file(self.state_directory)

    @cached_property
    def journal(self) -> Journal:
        """The journal, made if there is none."""
        return Journal(Database(self.journal_file), self.clock)

    @cached_property
    def credentials(self) -> CredentialStore:
        return CredentialStore(self.journal_file.parent / "credentials")

    @cached_property
    def parents(self) -> LabParents:
        return LabParents(self.state_directory, lambda message: None)

    @cached_property
    def lab(self) -> Lab:
        """The lab that machines run in."""
        settings, root = self.fleet.settings.lab, self.fleet.root
        return Lab(self.state_directory, settings, self._tell_of_lab, fleet_root=root)

    @cached_property
    def releases(self) -> Mapping[str, HostedRelease]:
        """What environments can run, by name; raises :class:`InvalidInput` for one that is wrong."""
        found = load_releases(self.fleet.root)
        for release in found.values():
            missing = sorted(release.packages.difference(self.fleet.settings.lab.packages))
            if missing:
                raise InvalidInput(
                    f"machines do not have {', '.join(missing)}, which the release needs",
                    where=str(release.directory / CLOSURE),
                    hint="add it to lab.packages in inventory/fleet.yaml",
                )
        return found

    def stores_for_machines(self) -> Stores:
        """Where machines reach both parents; the way there is made if need be."""
        return relay_parents(self.lab, self.parents)

    @property
    def front_url(self) -> str:
        """Where visitors' requests arrive; raises `Refused` before the parents were ever started."""
        return self.parents.front.url

    @cached_property
    def drivers(self) -> Mapping[Kind, Driver]:
        """A driver for each kind; raises `Refused` before the parents were ever started."""
        postgres, objects = self.parents.postgres, self.parents.objects
        return {
            Kind.GATEWAY: self.machines(Kind.GATEWAY),
            Kind.WEB: self.machines(Kind.WEB),
            Kind.DATABASE: PostgresDatabases(postgres),
            Kind.ROLE: PostgresRoles(postgres),
            Kind.BUCKET: Buckets(objects),
            Kind.KEY: ObjectKeys(objects),
            Kind.ROUTE: CaddyRoutes(self.parents.front.admin),
        }

    def machines(self, kind: Kind) -> LabMachines:
        """The driver of the machines of one kind."""
        return LabMachines(kind, self.lab, lambda: ensure_identity(self.state_directory))

    @cached_property
    def parts(self) -> Parts:
        return Parts(
            self.journal,
            self.drivers,
            self.clock,
            self.credential,
            self.performer,
            before_letting_go=self.mark_retired,
            before_tombstone=self._forget,
        )

    @property
    def credential(self) -> str:
        """What every intent names: the lab's providers ask for the administrator's own credential."""
        return "administrator"

    @cached_property
    def performer(self) -> Performer:
        """How observations and effects are carried out."""
        return PyinfraPerformer()

    @cached_property
    def copies(self) -> Place:
        """The copies of environments; raises `Refused` before the parents were ever started."""
        return Place(self.parents.objects)

    @cached_property
    def entries(self) -> Mapping[str, Entry]:
        """Every entry of the inventory by its uuid, tiers first: their members need them."""
        tiers = {tier.uuid: tier for tier in self.inventory.tiers.values()}
        return {**tiers, **self.inventory.environments}

    @cached_property
    def specifications(self) -> Mapping[str, Specification]:
        """What each entry is by its uuid; raises :class:`InvalidInput` for the first that can be none."""
        return {uuid: self._specification(entry) for uuid, entry in self.entries.items()}

    def entry(self, uuid: str) -> Entry:
        """The entry under `uuid`; raises :class:`InvalidInput`."""
        if uuid not in self.entries:
            raise InvalidInput(
                f"unknown environment: {uuid}",
                where=str(self.fleet.root / ENVIRONMENTS_FILE),
                hint="`tenantry env list` shows all",
            )
        return self.entries[uuid]

    def require_parents(self) -> tuple[ParentSeen, ...]:
        """Both parents, each on its pin or a successor that was named.

        Raises `Refused` with ``parentUnrecognized``, or `UnknownState` for one that gives no answer.
        """
        if self.inventory.parents is None:
            raise InvalidInput("no parents are named", where=str(self.fleet.root / ENVIRONMENTS_FILE))
        pins = {
            ParentKind.POSTGRES: self.inventory.parents.postgres,
            ParentKind.OBJECTS: self.inventory.parents.objects,
        }
        return tuple(require(kind, self.parents.observe(kind), pins[kind]) for kind in ParentKind)

    def mark_retired(self, uuid: str) -> None:
        """Have the entry of `uuid` say that it is retired, if there is one.

        Its uuid never comes back, so an entry that still wanted it would be refused from here on. Raises
        :class:`InvalidInput` for a tier with members, and `Busy` while the inventory is changed by somebody else.
        """
        mark_retired(self.fleet.root, self.state_directory, self.clock, uuid)

    def _forget(self, uuid: str) -> None:
        """Remove what is kept beside the resources of a uuid that is gone: its copies, then its credentials."""
        self.copies.remove(uuid)
        self.credentials.forget(uuid)

    def _tell_of_lab(self, message: str) -> None:
        self.report(Event("lab", Phase.APPLY, message))

    def _specification(self, entry: Entry) -> Specification:
        if isinstance(entry, Tier):
            return of_tier(entry, self.settings.authority)
        if entry.release not in self.releases:
            raise InvalidInput(
                f"there is no release {entry.release}",
                where=f"environment {entry.uuid}",
                hint=f"known: {', '.join(self.releases) or 'none'}",
            )
        return of_environment(entry, self.inventory, self.releases[entry.release], self.settings.authority)


def open_hosting(root: Path, state_directory: Path, report: Reporter = silent) -> Hosting:
    """Read the environments of the fleet directory `root`; raises :class:`InvalidInput`, and contacts nothing."""
    hosting = Hosting(load_fleet(root), load_environments(root), state_directory, SystemClock(), report)
    # Now, so that an entry that can never be is refused before any other one is touched.
    _ = hosting.specifications
    return hosting
