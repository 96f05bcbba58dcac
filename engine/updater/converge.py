"""One converge of one tenant, phase by phase (design section 6)."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field, replace
from pathlib import Path

from engine.errors import Busy, LivenessFailed, Refused, StepFailed, UnknownState
from engine.hosts.ledger import Ledger
from engine.hosts.session import Session
from engine.hosts.status import Answer, Status
from engine.records import RunResult
from engine.registry.model import Gateway, Settings
from engine.releases.model import StepEntry
from engine.render.compare import Difference, compare
from engine.steps.context import StepContext
from engine.steps.operation import apply_step
from engine.updater.assessment import Assessment, assess
from engine.updater.events import Phase
from engine.updater.job import Job
from engine.updater.liveness import Restart, wait_for_life
from engine.updater.notify import Sender
from engine.updater.outcome import Options, Outcome
from engine.updater.owner_note import OwnerNote
from engine.updater.quiesce import not_quiet, wait_for_silence

WINDOW = Path(__file__).with_name("window_script.py").read_text()
SNAPSHOTS = "/var/lib/tenantry/snapshots"
SNAPSHOTS_KEPT = 3
DAEMON = "daemon"
LIVENESS_WORDS = "proving that the owner can reach the gateway"


@dataclass
class Converge:
    """A converge within a job that holds the tenant's lock; `run` is the whole of it."""

    job: Job
    session: Session
    options: Options
    sender: Sender
    claimed: bool = False
    _completed: list[str] = field(default_factory=list)
    _ran: list[str] = field(default_factory=list)
    _files: list[str] = field(default_factory=list)
    _messages: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        job = self.job
        self.note = OwnerNote(job.workspace, job.tenant, self.session, self.options.note, self.sender, self._say)

    def run(self) -> Outcome:
        """Bring the tenant to the head and prove it; raises what stopped it, with the marker unchanged."""
        assessment = self._assess()
        if not assessment.has_changes:
            return self._unchanged(assessment)
        assessment = self._claim(assessment)
        self._apply(assessment)
        self._render(assessment)
        restart = self._restart_if_owed()
        if self._settings.gateway:
            self._enter(Phase.LIVENESS, LIVENESS_WORDS)
        self._prove_life(restart)
        self._commit(assessment)
        self.note.send_owed()
        return self._outcome(assessment, RunResult.UPDATED, restarted=restart is not None)

    # Probe and plan

    def _assess(self) -> Assessment:
        self.job.tell(Phase.PROBE, "asking the tenant")
        status = self._await_survivor(self.session.probe())
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
            planned_steps=tuple(str(planned.entry) for planned in assessment.plan.steps),
            releases=tuple(str(release.version) for release in assessment.plan.pending),
        )

    def _await_survivor(self, status: Status) -> Status:
        """Wait for a command that outlived an earlier run's connection, up to the transport's bound."""
        transport, clock = self._settings.transport, self.job.clock
        deadline = clock.monotonic() + transport.survivor_seconds
        while status.host_lock.held:
            if clock.monotonic() >= deadline:
                raise Busy(
                    f"a command of run {status.host_lock.run} still runs on the host",
                    where=self._slug,
                    hint="it is never killed; converge again when it has ended",
                )
            self.job.tell(
                Phase.PROBE,
                f"waiting for a command of run {status.host_lock.run} that still runs on the host",
            )
            clock.sleep(transport.survivor_poll_seconds)
            status = self.session.probe()
        return status

    def _unchanged(self, assessment: Assessment) -> Outcome:
        if self._settings.gateway:
            self.job.tell(Phase.LIVENESS, LIVENESS_WORDS)
        # The status is fresh, so a healthy tenant costs no second look.
        self._prove_life(None, assessment.status)
        if assessment.status.owed.note:
            owed = self._claim(assessment).status.owed
            if owed.note:
                self.note.deliver(owed.note)
        return self._outcome(assessment, RunResult.UNCHANGED, restarted=False)

    # Apply

    def _claim(self, assessment: Assessment) -> Assessment:
        """The assessment with a status that nobody can change any more; raises :class:`Refused` if it moved."""
        if self.claimed:
            return assessment
        self.session.claim(self.job.run_id)
        self.claimed = True
        status, before = self.session.probe(), assessment.status
        # The local lock is no word to an operator's other machine: only from the claim on is the host ours.
        if (status.marker, status.applied) != (before.marker, before.applied):
            raise Refused(
                "another run changed the tenant's version between this run's probe and its claim",
                where=self._slug,
                hint="converge again",
            )
        return replace(assessment, status=status)

    def _apply(self, assessment: Assessment) -> None:
        status = assessment.status
        for position, planned in enumerate(assessment.plan.steps, start=1):
            self._enter(Phase.APPLY, f"step {position} of {len(assessment.plan.steps)}: {planned.entry}")
            status = self._apply_one(planned.entry, status)
            self._completed.append(str(planned.entry))
            self.job.update(completed_steps=tuple(self._completed))

    def _apply_one(self, entry: StepEntry, status: Status) -> Status:
        """Apply one step unless its precondition holds; returns a status that is fresh after it."""
        step = self.job.workspace.catalog[entry.name]
        context = self._context(entry, status)
        answer = step.check(context)
        if answer is Answer.UNKNOWN:
            raise UnknownState(
                f"the precondition of step {entry} is unknown",
                where=self._slug,
                hint="look at the host; nothing of this step ran",
            )
        if answer is Answer.HOLDS:
            self.job.tell(Phase.APPLY, f"{entry}: its effect is there already")
            return status
        apply_step(step, context)
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

    def _context(self, entry: StepEntry, status: Status) -> StepContext:
        return StepContext(
            tenant=self.job.tenant,
            settings=self._settings,
            session=self.session,
            status=status,
            fleet_root=self.job.workspace.fleet.root,
            state_directory=self.job.workspace.state_directory,
            arguments=entry.arguments,
            tell=lambda message: self.job.tell(Phase.APPLY, message),
        )

    # Render

    def _render(self, assessment: Assessment) -> None:
        """Make the rendered set what the head says; what that owes is recorded before the first write."""
        status = self.session.probe() if assessment.plan.steps else assessment.status
        differences = tuple(compare(assessment.rendered, status.rendered))
        if differences:
            names = ", ".join(item.rendered.file.name for item in differences)
            self._enter(Phase.RENDER, f"other than rendered: {names}")
            restart, reloads = owed_by(differences)
            Ledger(self.session).owe(restart=restart, reloads=reloads)
            for difference in differences:
                write_rendered(self.session, difference)
                self._files.append(difference.rendered.file.path)
            status = self.session.probe()
        reload_units(self.session, status.owed.reloads)

    # Quiesce and restart

    def _restart_if_owed(self) -> Restart | None:
        status = self.session.probe()
        owed, gateway = status.owed, self._settings.gateway
        if gateway is None or not (owed.restart or owed.switches):
            return None
        self._enter(Phase.QUIESCE, f"a restart is owed for: {', '.join(owed.restart)}")
        quiesce = self._settings.quiesce
        polls_left = quiesce.polls
        while polls_left > 0:
            polls_left -= wait_for_silence(
                self.session.probe,
                gateway,
                replace(quiesce, polls=polls_left),
                self.job.clock,
                where=self._slug,
                tell=lambda message: self.job.tell(Phase.QUIESCE, message),
            )
            self._enter(Phase.RESTART, f"silent for {quiesce.silence_seconds:g} s; restarting {gateway.unit}")
            restart = self._window(gateway, status)
            if restart:
                return restart
            self._enter(Phase.QUIESCE, "a message came between the gate and the restart")
        raise not_quiet(quiesce, self._slug)

    def _window(self, gateway: Gateway, status: Status) -> Restart | None:
        """The restart window; None where the last look before the stop found a conversation."""
        switches = dict(status.owed.switches)
        snapshot = None
        if switches:
            source, directory = gateway.state_directory, f"{SNAPSHOTS}/{self.job.run_id}"
            snapshot = {"source": source, "directory": directory, "keep": SNAPSHOTS_KEPT}
        result = self.session.run_script(
            WINDOW,
            {
                "unit": gateway.unit,
                "database": gateway.database,
                "silence_seconds": self._settings.quiesce.silence_seconds,
                "empty_is_quiet": gateway.empty_history_is_quiet,
                "switches": switches,
                "snapshot": snapshot,
            },
        )
        if result["outcome"] == "busy":
            return None
        if result["outcome"] == "unknown":
            raise UnknownState(
                f"whether the gateway is in conversation became unknown right before the restart: {result['problem']}",
                where=self._slug,
                hint=f"look at {gateway.database} on the host; nothing was stopped",
            )
        if result["outcome"] != "restarted":
            raise LivenessFailed(
                f"the restart failed: {result['problem']}",
                where=self._slug,
                hint=f"systemctl status {gateway.unit} on the host",
            )
        return Restart(old_pid=result["old_pid"], started_at=result["started_at"])

    # Liveness, commit, notify

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
        if not pending:
            ledger.restarted()
            return
        self.note.owe(assessment)
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
        )


def owed_by(differences: tuple[Difference, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The restart reasons and reloads that writing these files will owe."""
    files = [difference.rendered.file for difference in differences]
    restart = tuple(f"file {file.name}" for file in files if file.restart)
    reloads = [DAEMON] if any(file.daemon_reload for file in files) else []
    reloads += [unit for file in files for unit in file.reload]
    return restart, tuple(dict.fromkeys(reloads))


def write_rendered(session: Session, difference: Difference) -> None:
    """Replace one file of the rendered set on the host, atomically."""
    file = difference.rendered.file
    session.write_file(file.path, difference.rendered.content, owner=file.owner, group=file.group, mode=file.mode)


def reload_units(session: Session, owed: tuple[str, ...]) -> None:
    """Carry out owed reloads, systemd itself first, and clear them. A unit that is gone needs none."""
    if not owed:
        return
    session.check("systemctl daemon-reload")
    for unit in owed:
        if unit != DAEMON and not _is_gone(session, unit):
            session.check(f"systemctl reload-or-restart {shlex.quote(unit)}")
    Ledger(session).reloaded()


def _is_gone(session: Session, unit: str) -> bool:
    return (
        session.check(f"systemctl show --property=LoadState --value -- {shlex.quote(unit)}").text.strip() == "not-found"
    )
