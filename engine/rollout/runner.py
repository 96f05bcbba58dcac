"""Runs a rollout: wave after wave, each step on the disk before the next one begins."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from engine.clock import Clock, iso
from engine.registry.settings import Gate
from engine.registry.windows import is_open, next_opening
from engine.rollout.state import Attempt, Baseline, Member, Rollout, Stage, Wave, WaveStage
from engine.rollout.store import RolloutStore
from engine.rollout.verdict import Decision, MemberResult, Verdict, judge

POLL_SECONDS = 2.0
"""How often a rollout that waits looks whether a person wants it to halt."""


@dataclass(frozen=True)
class Ended:
    """How a converge or a rollback of one tenant ended; `recovery_set` leads back from a converge, where known."""

    slug: str
    result: MemberResult
    run: str | None = None
    error: str | None = None
    messages: tuple[str, ...] = ()
    recovery_set: str | None = None

    @property
    def told(self) -> dict[str, Any]:
        """What the rollout's story says of it."""
        return {"run": self.run, "error": self.error, "messages": self.messages}


@dataclass(frozen=True)
class Look:
    """An updated tenant as it is now; `problems` is None where it gave no answer that can be judged."""

    baseline: Baseline | None
    problems: tuple[str, ...] | None


class FleetPort(Protocol):
    """What a rollout does to tenants."""

    def converge(
        self,
        attempts: Mapping[str, Attempt],
        *,
        seconds: float,
        begun: Callable[[str], bool],
        ended: Callable[[Ended], None],
    ) -> None:
        """Converge these tenants to the target at most for `seconds`.

        `begun` is called before a tenant is touched; False leaves it alone. `ended` is called as each one ends;
        it is not called for one that had no result in time. A tenant that is held is left alone, except where a
        person wants it tried again, or where the tenant put itself back because this rollout's process had died.
        """

    def look(self, slugs: Sequence[str]) -> Mapping[str, Look]:
        """How these tenants are, changing nothing."""

    def compare(self, before: Mapping[str, Baseline]) -> Mapping[str, Look]:
        """How these tenants are against how they were."""

    def roll_back(self, sets: Mapping[str, str | None], ended: Callable[[Ended], None]) -> None:
        """Put these tenants back to where they were before this rollout, by the set that is known, if any.

        `ended` is called as each one ends: ROLLED_BACK, also for one that is back already, or another result.
        """


class Runner:
    """One process's work on one rollout; the caller holds the rollout's lock.

    Killed at any point, it can be run again: a tenant with a result is not converged again, and one that had
    begun is begun again, which is safe for a converge. What happens is told before it is kept, so the story may
    say a thing twice after a crash, and lacks none.
    """

    def __init__(
        self,
        rollout: Rollout,
        store: RolloutStore,
        fleet: FleetPort,
        clock: Clock,
        report: Callable[[Mapping[str, Any]], None],
    ) -> None:
        self.rollout = rollout
        self._store = store
        self._fleet = fleet
        self._clock = clock
        self._report = report

    def run(self) -> Rollout:
        """Go on until the rollout is done, halts, pauses or awaits approval; returns it as it is then."""
        self._set(stage=Stage.RUNNING, reason="", finished_at=None)
        for index in range(len(self.rollout.waves)):
            if self._wave(index).stage is WaveStage.PROMOTED:
                continue
            if self._halt_reason is not None:
                return self._halted(index)
            if self._needs_approval(index):
                return self._stop(Stage.AWAITING_APPROVAL, f"{self._wave(index).name} waits for `rollout approve`")
            stopped = self._go_through(index)
            if stopped:
                return stopped
        late = "" if self._halt_reason is None else "; the halt came too late"
        self._store.forget_halt(self.rollout.id)
        return self._stop(Stage.DONE, f"every wave is promoted{late}")

    def undo(self, index: int) -> Rollout:
        """Put the tenants of one wave back that this rollout changed; may be repeated for those that are not back."""
        wave = self._wave(index)
        self._wave_set(index, stage=WaveStage.UNDOING)
        sets = {member.slug: member.recovery_set for member in wave.members if member.may_be_put_back}
        self._tell("undo", wave=wave.name, tenants=list(sets))
        self._fleet.roll_back(sets, lambda ended: self._put_back(index, ended, MemberResult.ROLLED_BACK))
        left = [member.slug for member in self._wave(index).members if member.may_be_put_back]
        if left:
            return self._stop(Stage.HALTED, f"{wave.name} is being undone; not put back yet: {', '.join(left)}")
        self._wave_set(index, stage=WaveStage.UNDONE)
        return self._stop(Stage.HALTED, f"{wave.name} was undone")

    # One wave

    def _go_through(self, index: int) -> Rollout | None:
        """Converge, soak and judge a wave; returns the rollout where it stops there, None to go on."""
        if self._wave(index).stage is not WaveStage.SOAKING:
            if not self._await_window():
                return self._halted(index)
            self._converge(index)
            if self._halt_reason is not None:
                return self._halted(index)
            verdict = self._verdict(index)
            if verdict.decision is not Decision.PROMOTE:
                return self._judged(index, verdict)
            self._wave_set(index, stage=WaveStage.SOAKING, soak_until=None)
        if self._wave(index).soak_until is None:
            self._begin_soak(index)
            verdict = self._verdict(index)
            if verdict.decision is Decision.HALT:
                return self._judged(index, verdict)
        if not self._sleep_until(self._wave(index).soak_until):
            return self._halted(index)
        self._end_soak(index)
        return self._judged(index, self._verdict(index))

    def _converge(self, index: int) -> None:
        wave = self._wave(index)
        attempts = {member.slug: member.attempt for member in wave.members if member.result.is_open}
        self._tell("wave", wave=wave.name, tenants=list(attempts))
        self._wave_set(index, stage=WaveStage.CONVERGING)
        seconds = self.rollout.strategy.wave_seconds
        self._fleet.converge(
            attempts,
            seconds=seconds,
            begun=lambda slug: self._begun(index, slug),
            ended=lambda ended: self._ended(index, ended),
        )
        for member in self._wave(index).members:
            # Where a person halted it, those that were not begun may be, later.
            if member.result is MemberResult.STARTED or (member.result.is_open and self._halt_reason is None):
                words = "no result" if member.result is MemberResult.STARTED else "it was not begun"
                self._ended(index, Ended(member.slug, MemberResult.SILENT, None, f"{words} after {seconds:g} s"))

    def _begun(self, index: int, slug: str) -> bool:
        if self._halt_reason is not None:
            return False
        member = self._of(index, slug)
        self._tell("begun", tenant=slug, attempt=member.attempt.value)
        # One that had begun before has died there, and what it did is known to the tenant alone.
        is_changed = member.is_changed or member.result is MemberResult.STARTED
        self._member(index, slug, result=MemberResult.STARTED, is_changed=is_changed)
        return True

    def _ended(self, index: int, ended: Ended) -> None:
        member = self._of(index, ended.slug)
        self._tell("tenant", tenant=ended.slug, result=ended.result.value, **ended.told)
        self._member(
            index,
            ended.slug,
            result=ended.result,
            baseline=None,
            problems=(),
            is_changed=member.is_changed or ended.recovery_set is not None,
            recovery_set=ended.recovery_set or member.recovery_set,
            is_back=False,
            **ended.told,
        )

    def _begin_soak(self, index: int) -> None:
        unseen = [m.slug for m in self._wave(index).members if m.result is MemberResult.UPDATED and not m.baseline]
        for slug, look in self._fleet.look(unseen).items():
            self._judge_member(index, slug, look)
        self._put_unhealthy_back(index)
        until = self._clock.now() + datetime.timedelta(seconds=self.rollout.strategy.soak_seconds)
        self._tell("soak", wave=self._wave(index).name, until=iso(until))
        self._wave_set(index, soak_until=iso(until))

    def _end_soak(self, index: int) -> None:
        members = self._wave(index).members
        before = {m.slug: m.baseline for m in members if m.result is MemberResult.UPDATED and m.baseline}
        for slug, look in self._fleet.compare(before).items():
            self._judge_member(index, slug, look)
        self._put_unhealthy_back(index)

    def _judge_member(self, index: int, slug: str, look: Look) -> None:
        if look.problems == ():
            self._member(index, slug, baseline=look.baseline)
            return
        result = MemberResult.UNHEALTHY if look.problems else MemberResult.UNCLEAR
        problems = look.problems or ("no answer that can be judged",)
        self._tell("health", tenant=slug, problems=problems)
        self._member(index, slug, result=result, problems=problems)

    def _put_unhealthy_back(self, index: int) -> None:
        unhealthy = [member for member in self._wave(index).members if member.is_to_be_put_back]
        for member in unhealthy:
            if not member.is_changed:
                self._member(index, member.slug, error="not put back: it was at the target before this rollout")
        sets = {member.slug: member.recovery_set for member in unhealthy if member.is_changed}
        if sets:
            self._fleet.roll_back(sets, lambda ended: self._put_back(index, ended, MemberResult.UNHEALTHY))

    def _put_back(self, index: int, ended: Ended, result: MemberResult) -> None:
        """Keep how a rollback ended; a member that is back is `result`, the others stay what they are."""
        is_back = ended.result is MemberResult.ROLLED_BACK
        self._tell("rollback", tenant=ended.slug, result=ended.result.value, **ended.told)
        error = "put back to where it was" if is_back else f"not put back: {ended.error}"
        changes: dict[str, Any] = {"result": result} if is_back else {}
        messages = (*self._of(index, ended.slug).messages, *ended.messages)
        self._member(index, ended.slug, error=error, is_back=is_back, messages=messages, **changes)

    def _verdict(self, index: int) -> Verdict:
        return judge(self._wave(index).results, self.rollout.strategy)

    def _judged(self, index: int, verdict: Verdict) -> Rollout | None:
        name, decision = self._wave(index).name, verdict.decision
        self._tell("verdict", wave=name, decision=decision.value, reason=verdict.reason)
        if decision is Decision.PROMOTE:
            self._wave_set(index, stage=WaveStage.PROMOTED)
            return None
        self._wave_set(index, stage=WaveStage.STOPPED)
        stage = Stage.HALTED if decision is Decision.HALT else Stage.PAUSED
        return self._stop(stage, f"{name}: {verdict.reason}")

    def _halted(self, index: int) -> Rollout:
        reason = self._halt_reason or ""
        if self._wave(index).stage is WaveStage.CONVERGING:
            self._wave_set(index, stage=WaveStage.STOPPED)
        rollout = self._stop(Stage.HALTED, f"a person halted it: {reason}")
        self._store.forget_halt(self.rollout.id)
        return rollout

    # Waiting

    def _await_window(self) -> bool:
        """Wait for a maintenance window; False where a person wants a halt meanwhile."""
        windows = self.rollout.strategy.windows
        # A machine that slept may wake after the window is over.
        while not is_open(windows, now := self._clock.now()):
            opening = iso(next_opening(windows, now))
            self._tell("window", until=opening)
            if not self._sleep_until(opening):
                return False
        return True

    def _sleep_until(self, moment: str | None) -> bool:
        until = datetime.datetime.fromisoformat(moment) if moment else self._clock.now()
        while True:
            if self._halt_reason is not None:
                return False
            left = (until - self._clock.now()).total_seconds()
            if left <= 0:
                return True
            self._clock.sleep(min(left, POLL_SECONDS))

    # Small words

    @property
    def _halt_reason(self) -> str | None:
        return self._store.halt_asked(self.rollout.id)

    def _needs_approval(self, index: int) -> bool:
        return self.rollout.strategy.gate is Gate.APPROVE and index > 0 and not self._wave(index).approved

    def _wave(self, index: int) -> Wave:
        return self.rollout.waves[index]

    def _of(self, index: int, slug: str) -> Member:
        return next(member for member in self._wave(index).members if member.slug == slug)

    def _wave_set(self, index: int, **changes: Any) -> None:
        self._keep(self.rollout.with_wave(index, **changes))

    def _member(self, index: int, slug: str, **changes: Any) -> None:
        self._keep(self.rollout.with_member(index, slug, **changes))

    def _set(self, **changes: Any) -> None:
        self._keep(replace(self.rollout, **changes))

    def _stop(self, stage: Stage, reason: str) -> Rollout:
        self._tell(stage.value, reason=reason)
        self._set(stage=stage, reason=reason, finished_at=iso(self._clock.now()))
        return self.rollout

    def _keep(self, rollout: Rollout) -> None:
        self._store.save(rollout)
        self.rollout = rollout

    def _tell(self, event: str, **details: Any) -> None:
        self._report(self._store.tell(self.rollout.id, event, **details))


def begin_again(rollout: Rollout) -> Rollout:
    """The rollout with every member that went wrong, was busy or in conversation waiting once more.

    A wave that has such members is converged and soaked again. Those of it that did well are not converged, and soak
    again from how they are now.
    """
    for index, wave in enumerate(rollout.waves):
        if wave.stage.is_taken_back or not any(member.result.may_be_retried for member in wave.members):
            continue
        members = tuple(
            _tried_again(member) if member.result.may_be_retried else replace(member, baseline=None)
            for member in wave.members
        )
        rollout = rollout.with_wave(index, members=members, stage=WaveStage.PENDING, soak_until=None)
    return rollout


def _tried_again(member: Member) -> Member:
    # One that was put back is as it was before; one that was silent was cut off in the middle of something.
    is_changed = (member.is_changed and not member.is_back) or member.result is MemberResult.SILENT
    known = None if member.is_back else member.recovery_set
    return Member(member.slug, retry=True, is_changed=is_changed, recovery_set=known)


def look_again(rollout: Rollout) -> Rollout:
    """The rollout with the members that could not be judged looked at once more.

    One that was looked at as its soak began is only compared with that; one that was not soaks now.
    """
    for index, wave in enumerate(rollout.waves):
        if MemberResult.UNCLEAR not in wave.results or wave.stage is WaveStage.PROMOTED or wave.stage.is_taken_back:
            continue
        unclear = [member for member in wave.members if member.result is MemberResult.UNCLEAR]
        for member in unclear:
            rollout = rollout.with_member(index, member.slug, result=MemberResult.UPDATED, problems=())
        until = wave.soak_until if all(member.baseline for member in unclear) else None
        rollout = rollout.with_wave(index, stage=WaveStage.SOAKING, soak_until=until)
    return rollout


def accept(rollout: Rollout) -> Rollout | None:
    """The rollout after a person's word on it; None where nothing waits for one.

    A wave that paused is promoted as it is; one that waits for approval may begin.
    """
    for index, wave in enumerate(rollout.waves):
        if rollout.stage is Stage.PAUSED and wave.stage is WaveStage.STOPPED:
            return rollout.with_wave(index, stage=WaveStage.PROMOTED)
        if rollout.stage is Stage.AWAITING_APPROVAL and wave.stage is WaveStage.PENDING:
            return rollout.with_wave(index, approved=True)
    return None
