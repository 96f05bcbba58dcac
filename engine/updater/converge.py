"""One converge of one tenant, phase by phase (design section 6)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from engine.conversations import Renewal
from engine.errors import ExitCode, Refused, StepFailed, TenantryError, UnknownState
from engine.hosts.ledger import Ledger
from engine.hosts.session import Session
from engine.hosts.status import Answer, Status
from engine.records import RunResult
from engine.registry.settings import Settings
from engine.releases.model import StepEntry
from engine.render.compare import compare
from engine.steps.context import StepContext
from engine.steps.operation import apply_step
from engine.updater.assessment import Assessment, assess
from engine.updater.events import Phase
from engine.updater.job import Job
from engine.updater.liveness import Restart, wait_for_life
from engine.updater.mending import Mending
from engine.updater.notify import Sender
from engine.updater.outcome import Options, Outcome
from engine.updater.owner_note import OwnerNote, notice_of
from engine.updater.rendered import put_in_force, reload_units
from engine.updater.restart import OwedRestart
from engine.updater.safety_net import Fall, SafetyNet
from engine.updater.survivors import probe_after_survivors

LIVENESS_WORDS = "proving that the owner can reach the gateway"


@dataclass
class Converge:
    """A converge within a job that holds the tenant's lock; `run` is the whole of it.

    `given_net` is the way back of a larger job that this converge is a part of; `mending` puts right what is broken
    before the pending steps.
    """

    job: Job
    session: Session
    options: Options
    sender: Sender
    claimed: bool = False
    given_net: SafetyNet | None = None
    mending: Mending | None = None
    _completed: list[str] = field(default_factory=list)
    _ran: list[str] = field(default_factory=list)
    _files: list[str] = field(default_factory=list)
    _messages: list[str] = field(default_factory=list)
    _has_ended: bool = False

    def __post_init__(self) -> None:
        job = self.job
        self.net = self.given_net or SafetyNet(job, self.session)
        self.note = OwnerNote(job.workspace, job.tenant, self.session, self.options.note, self.sender, self._say)

    def run(self) -> Outcome:
        """Bring the tenant to the head and prove it; raises what stopped it, with the marker unchanged.

        Where the owner cannot reach the gateway afterwards, the tenant is put back, and the outcome says so.
        """
        status = self._probe()
        if status.armed and not self.net.is_armed:
            fall = self._finish_rollback(status)
            if fall and not (fall.is_alive and self.options.goes_on_after(status.armed.run)):
                return self._fallen(fall, status)
            status = self._probe()
        assessment = self._assess(status)
        self._decide_mending()
        if not assessment.has_changes and not self.mending:
            return self._unchanged(assessment)
        if not self.options.overrides(assessment.status.held):
            self.net.refuse_held(assessment)
        assessment = self._claim(assessment)
        self._announce(assessment)
        self.net.take(assessment)
        try:
            restart = self._change(assessment)
        except TenantryError as error:
            if not self.net.catches(error):
                self.net.remark()
                raise
            return self._fallen(self.net.roll_back(error), assessment.status)
        self.net.confirm()
        if self.mending:
            self.mending.prove(self, assessment.plan.head)
        self._commit(assessment)
        self.note.send_owed()
        return self._outcome(assessment, RunResult.UPDATED, restarted=restart is not None)

    def _change(self, assessment: Assessment) -> Restart | None:
        """Everything between the recovery set and the commit."""
        if self.mending:
            self.mending.carry_out(self)
        self._apply(assessment)
        self._render(assessment)
        owed = OwedRestart(self.job, self.session, self.net)
        restart = owed.carry_out()
        self._tell_of(owed.renewal)
        if self._settings.gateway:
            self._enter(Phase.LIVENESS, LIVENESS_WORDS)
        self._prove_life(restart)
        return restart

    # Rollback

    def _finish_rollback(self, status: Status) -> Fall | None:
        """Finish the rollback that an earlier run's dead-man is armed for; None where it has done that by itself."""
        self._claim_host()
        if self.session.probe().armed is None:
            return None
        return self.net.finish(status)

    def _fallen(self, fall: Fall, before: Status) -> Outcome:
        """The outcome of a run that put the tenant back: to what an earlier run's order names, or to where it began."""
        version = str(before.marker.version) if before.marker.version else None
        led_back = {item.run: item.from_version for item in before.recovery}
        return Outcome(
            slug=self._slug,
            result=RunResult.ROLLED_BACK if fall.is_alive else RunResult.FAILED,
            exit_code=ExitCode.FAILED,
            from_version=version,
            to_version=led_back.get(before.armed.set, version) if before.armed else version,
            steps=tuple(self._ran),
            files=tuple(self._files),
            restarted=True,
            messages=(*self._messages, *fall.messages),
            error=str(fall.error),
        )

    # Probe and plan

    def _probe(self) -> Status:
        self.job.tell(Phase.PROBE, "asking the tenant")
        return probe_after_survivors(self.job, self.session)

    def _assess(self, status: Status) -> Assessment:
        assessment = assess(self.job.workspace, self.job.tenant, status)
        accepted, digest = self.options.plan_digests, assessment.digest()
        if accepted is not None and digest not in accepted:
            raise Refused(
                f"the plan is now {digest}, not {' or '.join(sorted(accepted))}",
                where=self._slug,
                hint="look at `tenantry plan` again",
            )
        self.note.remark(assessment)
        return assessment

    def _announce(self, assessment: Assessment) -> None:
        """Put what is going to be done on the record; a run that changes nothing only says so at its end."""
        self.job.update(
            phase=Phase.PLAN.value,
            from_version=str(assessment.marker) if assessment.marker else None,
            to_version=str(assessment.plan.head),
            planned_steps=(
                *(self.mending.words if self.mending else ()),
                *(str(planned.entry) for planned in assessment.plan.steps),
            ),
            releases=tuple(str(release.version) for release in assessment.plan.pending),
        )

    def _unchanged(self, assessment: Assessment) -> Outcome:
        if self._settings.gateway:
            self.job.tell(Phase.LIVENESS, LIVENESS_WORDS)
        # The status is fresh, so a healthy tenant costs no second look.
        self._prove_life(None, assessment.status)
        if assessment.status.owed.note:
            self.note.send_owed(self._claim_host)
        return self._outcome(assessment, RunResult.UNCHANGED, restarted=False)

    # Mending

    def _decide_mending(self) -> None:
        """Have a `mending` only where it has something to do; what it leaves alone is said in any case."""
        if self.mending is None:
            return
        self.job.tell(Phase.PLAN, "looking for what has to be put right")
        is_needed = self.mending.decide(self.job.tenant, self.session)
        self._messages.extend(self.mending.remarks)
        if not is_needed:
            self.mending = None

    def run_again(self, entry: StepEntry) -> None:
        """Run one step whatever its precondition says, and see that it holds afterwards."""
        self._enter(Phase.APPLY, f"again: {entry}")
        self._run_step(entry, self.context(entry.arguments, self.session.probe()), again=True)
        self._note_completed(str(entry))

    def note_phase(self, name: str) -> None:
        """Count a phase of provisioning that was run again among what this run did."""
        self._ran.append(name)
        self._note_completed(name)

    def note_file(self, path: str) -> None:
        """Count a rendered file that was written among what this run did."""
        self._files.append(path)

    # Apply

    def _claim(self, assessment: Assessment) -> Assessment:
        """The assessment with a status that nobody can change any more; raises :class:`Refused` if it moved."""
        if self.claimed:
            return assessment
        self._claim_host()
        status, before = self.session.probe(), assessment.status
        # The local lock is no word to an operator's other machine: only from the claim on is the host ours.
        if (status.marker, status.applied) != (before.marker, before.applied):
            raise Refused(
                "another run changed the tenant's version between this run's probe and its claim",
                where=self._slug,
                hint="converge again",
            )
        return replace(assessment, status=status)

    def _claim_host(self) -> None:
        if not self.claimed:
            self.session.claim(self.job.run_id)
            self.claimed = True

    def _apply(self, assessment: Assessment) -> None:
        status = self.session.probe() if self.mending else assessment.status
        for position, planned in enumerate(assessment.plan.steps, start=1):
            self._enter(Phase.APPLY, f"step {position} of {len(assessment.plan.steps)}: {planned.entry}")
            status = self._apply_one(planned.entry, status)
            self._note_completed(str(planned.entry))

    def _note_completed(self, name: str) -> None:
        self._completed.append(name)
        self.job.update(completed_steps=tuple(self._completed))

    def _apply_one(self, entry: StepEntry, status: Status) -> Status:
        """Apply one step unless its precondition holds; returns a status that is fresh after it."""
        context = self.context(entry.arguments, status)
        answer = self.job.workspace.catalog[entry.name].check(context)
        if answer is Answer.UNKNOWN:
            raise UnknownState(
                f"the precondition of step {entry} is unknown",
                where=self._slug,
                hint="look at the host; nothing of this step ran",
            )
        if answer is Answer.HOLDS:
            self.job.tell(Phase.APPLY, f"{entry}: its effect is there already")
            return status
        return self._run_step(entry, context)

    def _run_step(self, entry: StepEntry, context: StepContext, *, again: bool = False) -> Status:
        """Run one step and see that it holds; returns a status that is fresh after it."""
        step = self.job.workspace.catalog[entry.name]
        if step.irreversible:
            self.net.record_irreversible(str(entry))
        apply_step(step, context, again=again)
        self._ran.append(str(entry))
        fresh = replace(context, status=self.session.probe())
        after = step.check(fresh)
        if after is not Answer.HOLDS:
            found = after.value if after is Answer.DOES_NOT_HOLD else "is unknown"
            raise StepFailed(
                f"step {entry} ran, but its precondition afterwards {found}",
                where=self._slug,
                hint="the step or its precondition is wrong, or something on the host undid it",
            )
        return fresh.status

    def context(self, arguments: Mapping[str, Any], status: Status) -> StepContext:
        """What a step or phase of this run may know and use."""
        return StepContext(
            tenant=self.job.tenant,
            settings=self._settings,
            session=self.session,
            status=status,
            fleet_root=self.job.workspace.fleet.root,
            state_directory=self.job.workspace.state_directory,
            arguments=arguments,
            tell=lambda message: self.job.tell(Phase.APPLY, message),
        )

    # Render

    def _render(self, assessment: Assessment) -> None:
        """Make the rendered set what the head says; what that owes is recorded before the first write."""
        is_older = bool(assessment.plan.steps or self.mending)
        status = self.session.probe() if is_older else assessment.status
        differences = tuple(compare(assessment.rendered, status.rendered))
        if differences:
            names = ", ".join(item.rendered.file.name for item in differences)
            self._enter(Phase.RENDER, f"other than rendered: {names}")
            put_in_force(self.session, self.job.workspace.fleet.root, differences, self.note_file)
            status = self.session.probe()
        reload_units(self.session, status.owed.reloads)

    # Liveness, commit, notify

    def _tell_of(self, renewal: Renewal | None) -> None:
        """Say what became of the conversations, and remember whether the owner must be told of it."""
        if renewal is None:
            return
        self._has_ended = renewal.ended > 0
        for message in renewal.messages():
            self._messages.append(message)
            self.job.tell(Phase.RESTART, message)

    def _prove_life(self, restart: Restart | None, status: Status | None = None) -> None:
        gateway = self._settings.gateway
        if gateway is None:
            return
        first = [status] if status else []
        wait_for_life(
            lambda: first.pop() if first else self.session.probe(),
            gateway,
            self._settings.liveness,
            self.job.clock,
            restart=restart,
            where=self._slug,
        )

    def _commit(self, assessment: Assessment) -> None:
        pending, ledger = assessment.plan.pending, Ledger(self.session)
        self._enter(Phase.COMMIT, f"version {assessment.plan.head}" if pending else "the marker stays where it is")
        notice = notice_of(self._settings, assessment.status.owed, has_ended=self._has_ended)
        if pending or notice:
            self.note.owe(assessment, notice)
        if not pending:
            ledger.restarted()
            return
        digests = self.job.workspace.digests
        ledger.commit(
            assessment.plan.head, {str(release.version): digests[str(release.version)] for release in pending}
        )

    def _say(self, message: str) -> None:
        self._messages.append(message)
        self._enter(Phase.NOTIFY, message)

    # Small words

    @property
    def _slug(self) -> str:
        return self.job.tenant.slug

    @property
    def _settings(self) -> Settings:
        return self.job.workspace.fleet.settings

    def _enter(self, phase: Phase, message: str) -> None:
        self.job.enter(phase, message)

    def _outcome(self, assessment: Assessment, result: RunResult, *, restarted: bool) -> Outcome:
        return Outcome(
            slug=self._slug,
            result=result,
            from_version=str(assessment.marker) if assessment.marker else None,
            to_version=str(assessment.plan.head),
            steps=tuple(self._ran),
            files=tuple(self._files),
            restarted=restarted,
            messages=tuple(self._messages),
            recovery_set=self.net.set_run,
        )
