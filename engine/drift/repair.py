"""Puts a drifted tenant right within a converge: under its lock and claim, before its pending steps."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field

from engine.drift.check import Checker
from engine.drift.expected import OwnerKind
from engine.drift.record import forget, record_file
from engine.drift.repairs import Repairs, decide
from engine.errors import StepFailed
from engine.hosts.ledger import Ledger
from engine.hosts.session import Session
from engine.provision.installer import PHASE_A_DOES, PHASE_B_DOES, Deploys
from engine.provision.secrets import secrets_of
from engine.registry.model import Tenant
from engine.releases.model import StepEntry
from engine.releases.version import ZERO, Version
from engine.render.compare import compare
from engine.steps.operation import operation_errors
from engine.updater.assessment import render_at
from engine.updater.converge import Converge
from engine.updater.events import Phase
from engine.updater.mending import Mender
from engine.updater.rendered import put_in_force
from engine.updater.workspace import Workspace


def repairer(workspace: Workspace) -> Mender:
    """What makes the repair of each run; raises :class:`InvalidInput` for a phase's file that cannot be loaded."""
    checker = Checker.of(workspace)
    return lambda: Repair(checker)


@dataclass
class Repair:
    """One run's repair of one tenant: decided once, carried out once, proved at the end."""

    checker: Checker
    _repairs: Repairs = field(default_factory=Repairs)
    _version: Version | None = None
    _seen: frozenset[str] = frozenset()
    _secrets: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def words(self) -> tuple[str, ...]:
        return self._repairs.words

    @property
    def remarks(self) -> tuple[str, ...]:
        left = ", ".join(self._repairs.left)
        return (f"left to a person, since no run owns it: {left}",) if left else ()

    def decide(self, tenant: Tenant, session: Session) -> bool:
        """Whether there is anything to put right. Everything that can be refused is refused here."""
        checker = self.checker
        found = checker.check(tenant, session)
        self._version = found.version
        self._seen = frozenset(item.key for item in found.differences if item.owner.kind is not OwnerKind.RELEASE)
        self._repairs = decide(checker.workspace, tenant, found, checker.expected(tenant, found.version))
        if Phase.PHASE_B in self._repairs.phases:
            self._secrets = secrets_of(tenant, checker.workspace.secrets)
            Deploys.load(checker.workspace.fleet.root).check_secrets(tenant, self._secrets)
        return bool(self._repairs)

    def carry_out(self, converge: Converge) -> None:
        """Phase A, files, steps, phase B, each only where it owns something that is broken.

        With much broken at once, a step may need what comes after it, such as a service that phase B starts: one that
        fails is run once more at the end, and ends the run only then.
        """
        repairs = self._repairs
        if repairs.restart:
            Ledger(converge.session).owe(("a process older than its files",))
        if Phase.PHASE_A in repairs.phases:
            self._phase(converge, Phase.PHASE_A)
        if repairs.files:
            self._write_files(converge)
        early = [entry for entry in repairs.steps if not self._succeeds(converge, entry)]
        if Phase.PHASE_B in repairs.phases:
            self._switch_links(converge)
            self._phase(converge, Phase.PHASE_B)
        for entry in early:
            converge.run_again(entry)

    def prove(self, converge: Converge, version: Version) -> None:
        """Raise :class:`StepFailed` naming what was to be put right and still differs at `version`.

        What does not differ any more leaves the record of drift; raises :class:`RecordFailed` where that cannot be
        written.
        """
        tenant = converge.job.tenant
        look = self.checker.look(tenant, converge.session)
        found = [item.key for item in self.checker.differences(tenant, self.checker.expected(tenant, version), look)]
        still = [key for key in found if key in self._repairs.keys]
        if still:
            raise StepFailed(
                f"still other than expected after the repair: {', '.join(still)}",
                where=tenant.slug,
                hint="the step or phase that owns it does not put it back, or something on the host undid it",
            )
        forget(record_file(self.checker.workspace.state_directory, tenant.subject), self._seen.difference(found))

    def _succeeds(self, converge: Converge, entry: StepEntry) -> bool:
        try:
            converge.run_again(entry)
        except StepFailed as error:
            converge.job.tell(Phase.APPLY, f"{entry} is run once more at the end: {error.message}")
            return False
        return True

    def _write_files(self, converge: Converge) -> None:
        """The rendered set as the tenant's own version has it: steps and services rely on it.

        Reloads are owed, and carried out with the rest when everything else is in its place.
        """
        session, workspace = converge.session, self.checker.workspace
        rendered = render_at(workspace, converge.job.tenant, self._version or ZERO)
        differences = tuple(compare(rendered, session.probe().rendered))
        put_in_force(session, workspace.fleet.root, differences, converge.note_file)
        session.check("systemctl daemon-reload")

    def _switch_links(self, converge: Converge) -> None:
        """Switch owed links of a gateway that does not run: phase B starts it, and never in the wrong version.

        They stay owed, and the restart window switches them once more.
        """
        status = converge.session.probe()
        if status.gateway is None or status.gateway.service.is_active:
            return
        for link, target in status.owed.switches.items():
            new = shlex.quote(f"{link}.tenantry")
            converge.session.check(f"ln -sfn {shlex.quote(target)} {new} && mv -T {new} {shlex.quote(link)}")

    def _phase(self, converge: Converge, phase: Phase) -> None:
        deploys = Deploys.load(self.checker.workspace.fleet.root)
        does = PHASE_A_DOES if phase is Phase.PHASE_A else PHASE_B_DOES
        context = converge.context({}, converge.session.probe())
        converge.job.enter(Phase.APPLY, f"{phase.value} again: {does}")
        with operation_errors(context, f"{phase.value} ({does})"):
            if phase is Phase.PHASE_A:
                deploys.bootstrap(context)
            else:
                # It may write other secrets than the gateway's process has.
                Ledger(converge.session).owe((phase.value,))
                deploys.tenancy(context, self._secrets)
        converge.note_phase(phase.value)
