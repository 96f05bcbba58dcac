"""What a run falls back on: the recovery set, the dead-man, and putting the tenant back."""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.errors import CommandLost, LivenessFailed, Refused, StaleRun, TenantryError, Unreachable
from engine.hosts.session import Session
from engine.hosts.status import Held, Status
from engine.recovery import dead_man, sets
from engine.recovery.undo import Undone, undo
from engine.registry.settings import Settings
from engine.releases.version import Version
from engine.steps.step import UpgradeStep
from engine.updater.assessment import Assessment
from engine.updater.events import Phase
from engine.updater.evidence import collect
from engine.updater.job import Job
from engine.updater.liveness import Restart, wait_for_life
from engine.updater.standing import moment

# The host did not answer, or is another run's: nothing can or may be done from here.
_OUT_OF_REACH = (CommandLost, Unreachable, StaleRun)


@dataclass(frozen=True)
class Fall:
    """How putting the tenant back ended. `error` says why it was done, and what the owner has now."""

    is_alive: bool
    error: TenantryError
    messages: tuple[str, ...] = ()


@dataclass
class SafetyNet:
    """The way back of one run.

    A run that is given `set_run` uses that set instead of taking one, and `on_any_failure` puts the tenant back
    whatever stops the run, as long as its host can be reached: that is for a set which whole trees were moved into.
    They come back as from an archive, so that no step is irreversible for it. `head` is what the run leads to.
    `back_words` tell a person of a tenant that was put back, where that is not what it was before.
    """

    job: Job
    session: Session
    set_run: str | None = None
    on_any_failure: bool = False
    is_armed: bool = False
    head: str = ""
    back_words: str = ""
    _irreversible: tuple[str, ...] = ()
    _before: Status | None = field(default=None, repr=False)

    # Before

    def refuse_held(self, assessment: Assessment) -> None:
        """Raise :class:`Refused` for a tenant that is held, unless the head is newer than what it is held for."""
        held = assessment.status.held
        if held is None or assessment.plan.head > Version.parse(held.head):
            return
        raise Refused(
            f"the tenant is held back from {held.head} since {moment(held.at)} (run {held.run}): {held.reason}",
            where=self._slug,
            hint=f"correct it in a newer release, or try it again: tenantry converge {self._slug} --retry",
        )

    def take(self, assessment: Assessment) -> None:
        """Take the recovery set before the first mutation; raises :class:`Refused` without enough room."""
        self._before, self.head = assessment.status, str(assessment.plan.head)
        if self.set_run is not None:
            return
        self.job.enter(Phase.RECOVERY, "taking the recovery set")
        links = [step.link for step in self.job.workspace.catalog.values() if isinstance(step, UpgradeStep)]
        taken = sets.take(
            self.session, sets.Change(self.job.run_id, assessment.marker, assessment.plan.head, tuple(links))
        )
        self.set_run, self._irreversible = taken.run, taken.irreversible
        if taken.run != self.job.run_id:
            self.job.tell(Phase.RECOVERY, f"going on from run {taken.run}, with its recovery set")

    def record_irreversible(self, step: str) -> None:
        """Record that `step`, which is about to run, leaves no way back."""
        if self.set_run and not self.on_any_failure and step not in self._irreversible:
            sets.record_irreversible(self.session, self.set_run, step)
            self._irreversible = (*self._irreversible, step)

    def arm(self) -> None:
        """Arm the dead-man, unless there is no way back that it could take."""
        if self.set_run and not self.is_armed and not self._irreversible and self._settings.gateway:
            dead_man.arm(self.session, set_run=self.set_run, run=self.job.run_id, head=self.head)
            self.is_armed = True

    # After

    def disarm(self) -> None:
        """Disarm the dead-man where nothing was restarted."""
        if self.is_armed:
            dead_man.disarm(self.session)
            self.is_armed = False

    def confirm(self) -> None:
        """Disarm it over a new connection: what the change did to the way in counts too."""
        if self.is_armed:
            self.session.renew()
            self.disarm()

    def catches(self, error: TenantryError) -> bool:
        """Whether the tenant is put back for `error`."""
        if self.set_run is None or self._settings.gateway is None or isinstance(error, _OUT_OF_REACH):
            return False
        return isinstance(error, LivenessFailed) or self.on_any_failure

    def remark(self) -> None:
        """Say what becomes of a tenant that is not put back by this run."""
        if self.is_armed:
            seconds = self._settings.recovery.dead_man_seconds
            self.job.tell(Phase.ROLLBACK, f"the tenant puts itself back {seconds:g} s after the last command")

    # Back

    def roll_back(self, error: TenantryError) -> Fall:
        """Put the tenant back to the set because of `error`, prove it alive, and hold it.

        Raises `error` itself, with another hint, where an irreversible step lies in between.
        """
        if self._irreversible:
            error.hint = (
                f"there is no way back across {', '.join(self._irreversible)}: tenantry restore {self._slug}, "
                "or correct it in a newer release"
            )
            raise error
        assert self.set_run is not None
        evidence = collect(self.job, self.session, self._before)
        self.arm()
        fall = self.fall_back(self.set_run, Held(self.head, self.job.run_id, self._now(), error.message, "run"))
        messages = (*fall.messages, f"evidence: {evidence}") if evidence else fall.messages
        return Fall(fall.is_alive, self._explained(error, fall), messages)

    def finish(self, status: Status, held: Held | None = None) -> Fall:
        """Finish what an earlier run's armed dead-man has not done yet; the tenant is `held` so, or as by that."""
        order = status.armed
        assert order is not None
        self._before, self.head, self.is_armed = status, order.head, True
        self.job.enter(Phase.ROLLBACK, f"run {order.run} was never confirmed")
        reason = f"run {order.run} was never confirmed, so the next run put the tenant back"
        evidence = collect(self.job, self.session, status)
        fall = self.fall_back(order.set, held or Held(order.head, order.run, self._now(), reason, "dead-man"))
        error = TenantryError(reason, where=self._slug)
        messages = (*fall.messages, f"evidence: {evidence}") if evidence else fall.messages
        return Fall(fall.is_alive, self._explained(error, fall), messages)

    def fall_back(self, set_run: str, held: Held) -> Fall:
        """Undo to the set, prove the gateway alive, disarm; the error is what liveness found, if anything."""
        self.job.enter(Phase.ROLLBACK, f"putting the tenant back to recovery set {set_run}")
        undone = undo(self.session, set_run, self.job.run_id, held)
        for message in undone.messages:
            self.job.tell(Phase.ROLLBACK, message)
        problem = self._prove_life(undone)
        # Dead or alive: it is what it was before, and the dead-man could do no more.
        self.confirm()
        return Fall(problem is None, problem or TenantryError(""), undone.messages)

    def _prove_life(self, undone: Undone) -> TenantryError | None:
        gateway = self._settings.gateway
        if gateway is None or undone.started_at is None:
            return None
        self.job.enter(Phase.ROLLBACK, "proving that the owner can reach the gateway again")
        try:
            wait_for_life(
                self.session.probe,
                gateway,
                self._settings.liveness,
                self.job.clock,
                restart=Restart(undone.old_pid, undone.started_at),
                where=self._slug,
            )
        except LivenessFailed as error:
            return error
        return None

    def _explained(self, cause: TenantryError, fall: Fall) -> TenantryError:
        """The error of a run that ended with a rollback."""
        retry = f"tenantry converge {self._slug} --retry"
        if fall.is_alive:
            return TenantryError(
                f"rolled back, because {cause.message}",
                where=self._slug,
                hint=self.back_words
                or f"the tenant is as it was before and held until there is a newer head, or: {retry}",
            )
        return TenantryError(
            f"rolled back, because {cause.message}; but afterwards too {fall.error.message}",
            where=self._slug,
            hint=self.back_words
            or f"the tenant's files are as they were before; it is held until there is a newer head, or: {retry}",
        )

    def _now(self) -> float:
        return self.job.clock.now().timestamp()

    @property
    def _slug(self) -> str:
        return self.job.tenant.slug

    @property
    def _settings(self) -> Settings:
        return self.job.workspace.fleet.settings
