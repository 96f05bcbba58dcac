"""One drift check of one tenant: one probe, no lock, nothing changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from engine.clock import iso
from engine.drift.compare import Difference, compare
from engine.drift.expected import Expected, Phases, declarations, expected_state
from engine.drift.found import read_found
from engine.drift.question import PART, question
from engine.drift.record import dated, first_seen, record_file, remember
from engine.drift.report import Drift
from engine.drift.surroundings import Moments, releases, surroundings
from engine.errors import AheadOfHead, ProbeFailed, RecordFailed, TenantryError
from engine.hosts.probe import Extra
from engine.hosts.session import Session
from engine.hosts.status import Status
from engine.registry.model import Tenant
from engine.releases.version import Version
from engine.updater.assessment import version_of_record
from engine.updater.fleet import ask_many
from engine.updater.workspace import Workspace


@dataclass(frozen=True)
class Look:
    """One probe's answer with the time around it."""

    status: Status
    moments: Moments


@dataclass(frozen=True)
class Checker:
    """Drift checks of one fleet; what its phases expect is read once, and what a tenant is asked computed once."""

    workspace: Workspace
    phases: Phases
    _questions: dict[str, Extra] = field(default_factory=dict)

    @classmethod
    def of(cls, workspace: Workspace) -> Checker:
        """The checker of `workspace`; raises :class:`InvalidInput` for a phase's file that cannot be loaded."""
        return cls(workspace, Phases.load(workspace.fleet.root))

    def check(self, tenant: Tenant, session: Session) -> Drift:
        """Ask `tenant` once and compare.

        Raises what leaves its state unknown or without a meaning: :class:`ProbeFailed`, :class:`UnknownState`,
        :class:`NotProvisioned`, :class:`AheadOfHead`.
        """
        return self.compare(tenant, self.look(tenant, session))

    def look(self, tenant: Tenant, session: Session) -> Look:
        """The one round trip. Only its answer tells the version, so it asks for what any version expects."""
        asked, clock = self.question(tenant), self.workspace.clock
        before = clock.now().timestamp()
        status = session.probe(asked)
        return Look(status, Moments(before, clock.now().timestamp()))

    def question(self, tenant: Tenant) -> Extra:
        """What `tenant` is asked; raises :class:`InvalidInput` where the fleet cannot say what it expects."""
        if tenant.slug not in self._questions:
            workspace = self.workspace
            wanted = [item for _, item in declarations(workspace, self.phases, tenant, workspace.manifest.head)]
            self._questions[tenant.slug] = question(workspace.fleet.settings, wanted)
        return self._questions[tenant.slug]

    def compare(self, tenant: Tenant, look: Look) -> Drift:
        """What `look` says against what the tenant's version expects. Pure but for the earlier record's times."""
        workspace, status = self.workspace, look.status
        version, head = version_of_record(tenant, status), workspace.manifest.head
        if version is not None and version > head:
            raise AheadOfHead(
                f"the tenant is at {version}, above this manifest's head {head}",
                where=tenant.slug,
                hint="update this checkout; what that version expects is not known here",
            )
        expected = self.expected(tenant, version)
        found = (*self.differences(tenant, expected, look), *releases(workspace, version, status))
        now = iso(workspace.clock.now())
        earlier = first_seen(record_file(workspace.state_directory, tenant.subject))
        return Drift(tenant.slug, version, len(expected), dated(found, earlier, now), now)

    def expected(self, tenant: Tenant, version: Version | None) -> Mapping[str, Expected]:
        """What `version` of `tenant` should look like."""
        return expected_state(self.workspace, self.phases, tenant, version)

    def differences(self, tenant: Tenant, expected: Mapping[str, Expected], look: Look) -> Iterator[Difference]:
        """What `look` says otherwise than `expected`, and what it says besides."""
        settings, status = self.workspace.fleet.settings, look.status
        found = read_found(status.facts[PART], tenant.slug)
        try:
            yield from compare(expected, found, status, settings)
        except KeyError as error:
            raise ProbeFailed(
                f"the probe says nothing of {error}", where=tenant.slug, hint="its state is unknown; check again"
            ) from error
        yield from surroundings(settings, expected, found, status, look.moments)


def check_many(
    workspace: Workspace, tenants: Sequence[Tenant], *, parallel: int | None = None
) -> tuple[Drift | TenantryError, ...]:
    """Check each tenant without lock or change; an error stands in its place.

    Raises :class:`InvalidInput` before any connection where the fleet cannot say what it expects.
    """
    checker = Checker.of(workspace)
    for tenant in tenants:
        checker.question(tenant)
    return ask_many(workspace, tenants, checker.check, parallel=parallel)


def remember_all(workspace: Workspace, answers: Sequence[tuple[Tenant, Drift | TenantryError]]) -> list[RecordFailed]:
    """Record what was found; an unreachable tenant keeps its earlier record. Returns what could not be written."""
    problems = []
    for tenant, answer in answers:
        if isinstance(answer, Drift):
            try:
                remember(answer, record_file(workspace.state_directory, tenant.subject))
            except RecordFailed as error:
                problems.append(error)
    return problems
