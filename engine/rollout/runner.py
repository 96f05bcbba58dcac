"""Runs a rollout: wave after wave, each step on the disk before the next one begins."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from engine.clock import Clock, iso
from engine.registry.settings import Gate
from engine.registry.windows import next_opening
from engine.rollout.state import Baseline, Member, Rollout, Stage, Wave, WaveStage
from engine.rollout.store import RolloutStore
from engine.rollout.verdict import Decision, MemberResult, judge

POLL_SECONDS = 2.0
"""How often a rollout that waits looks whether a person wants it to halt."""


@dataclass(frozen=True)
class Ended:
    """How one tenant's converge ended."""

    slug: str
    result: MemberResult
    run: str | None = None
    error: str | None = None
    messages: tuple[str, ...] = ()


@dataclass(frozen=True)
class Look:
    """An updated tenant as it is now; `problems` is None where it gave no answer that can be judged."""

    baseline: Baseline | None
    problems: tuple[str, ...] | None


class FleetPort(Protocol):
    """What a rollout does to tenants."""

    def converge(
        self,
        slugs: Sequence[str],
        *,
        again: frozenset[str],
        seconds: float,
        begun: Callable[[str], bool],
        ended: Callable[[Ended], None],
    ) -> None:
        """Converge these tenants to the target at most for `seconds`.

        `begun` is called before a tenant is touched; False leaves it alone. `ended` is called as each one ends;
        it is not called for one that had no result in time. Those `again` go on from what an earlier run of
        this rollout left.
        """

    def look(self, slugs: Sequence[str]) -> Mapping[str, Look]:
        """How these tenants are, changing nothing."""

    def compare(self, before: Mapping[str, Baseline]) -> Mapping[str, Look]:
        """How these tenants are against how they were."""

    def roll_back(self, slugs: Sequence[str]) -> Mapping[str, str | None]:
        """Put these tenants back to where they were before this rollout; an error's text, or None, for each."""


class Runner:
    """One process's work on one rollout; the caller holds the rollout's lock.

    Killed at any point, it can be run again: a tenant with a result is not converged again, and one that had
    begun is begun again, which is safe for a converge.
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
            if self._wave(index).stage is WaveStage.UNDONE:
                return self._stop(Stage.HALTED, f"{self._wave(index).name} was undone")
            if self._needs_approval(index):
                return self._stop(Stage.AWAITING_APPROVAL, f"{self._wave(index).name} waits for `rollout approve`")
            stopped = self._go_through(index)
            if stopped:
                return stopped
        return self._stop(Stage.DONE, "every wave is promoted")

    def undo(self, index: int) -> Rollout:
        """Put the updated tenants of one wave back; the rollout stays halted."""
        wave = self._wave(index)
        slugs = [member.slug for member in wave.members if member.result in _CHANGED]
        self._tell("undo", wave=wave.name, tenants=slugs)
        for slug, error in self._fleet.roll_back(slugs).items():
            result = MemberResult.ROLLED_BACK if error is None else MemberResult.FAILED
            self._member(index, slug, result=result, error=error)
        self._wave_set(index, stage=WaveStage.UNDONE)
        return self._stop(Stage.HALTED, f"{wave.name} was undone")

    # One wave

    def _go_through(self, index: int) -> Rollout | None:
        """Converge, soak and judge a wave; returns the rollout where it stops there, None to go on."""
        wave = self._wave(index)
        if wave.stage in (WaveStage.PENDING, WaveStage.CONVERGING, WaveStage.STOPPED):
            if not self._await_window():
                return self._halted(index)
            self._converge(index)
            verdict = judge(self._wave(index).results, self.rollout.strategy)
            if self._store.halt_asked(self.rollout.id) is not None:
                return self._halted(index)
            if verdict.decision is not Decision.PROMOTE:
                return self._judged(index, verdict.decision, verdict.reason)
            self._begin_soak(index)
        if not self._sleep_until(self._wave(index).soak_until):
            return self._halted(index)
        self._end_soak(index)
        verdict = judge(self._wave(index).results, self.rollout.strategy)
        return self._judged(index, verdict.decision, verdict.reason)

    def _converge(self, index: int) -> None:
        wave = self._wave(index)
        open_members = [member for member in wave.members if member.result.is_open]
        self._wave_set(index, stage=WaveStage.CONVERGING)
        self._tell("wave", wave=wave.name, tenants=[member.slug for member in open_members])
        self._fleet.converge(
            [member.slug for member in open_members],
            again=frozenset(member.slug for member in open_members if member.result is MemberResult.STARTED),
            seconds=self.rollout.strategy.wave_seconds,
            begun=lambda slug: self._begun(index, slug),
            ended=lambda ended: self._ended(index, ended),
        )
        for member in self._wave(index).members:
            if member.result is MemberResult.STARTED:
                seconds = self.rollout.strategy.wave_seconds
                self._ended(index, Ended(member.slug, MemberResult.SILENT, None, f"no result after {seconds:g} s"))

    def _begun(self, index: int, slug: str) -> bool:
        if self._store.halt_asked(self.rollout.id) is not None:
            return False
        self._member(index, slug, result=MemberResult.STARTED)
        return True

    def _ended(self, index: int, ended: Ended) -> None:
        told = {"run": ended.run, "error": ended.error, "messages": ended.messages}
        self._member(index, ended.slug, result=ended.result, baseline=None, **told)
        self._tell("tenant", tenant=ended.slug, result=ended.result.value, **told)

    def _begin_soak(self, index: int) -> None:
        for slug, look in self._fleet.look(self._updated(index)).items():
            self._judge_member(index, slug, look)
        until = self._clock.now() + datetime.timedelta(seconds=self.rollout.strategy.soak_seconds)
        self._wave_set(index, stage=WaveStage.SOAKING, soak_until=iso(until))
        self._tell("soak", wave=self._wave(index).name, until=iso(until))

    def _end_soak(self, index: int) -> None:
        updated = set(self._updated(index))
        before = {
            member.slug: member.baseline
            for member in self._wave(index).members
            if member.slug in updated and member.baseline
        }
        for slug, look in self._fleet.compare(before).items():
            self._judge_member(index, slug, look)
        unhealthy = [
            m.slug for m in self._wave(index).members if m.result is MemberResult.UNHEALTHY and m.error is None
        ]
        for slug, error in self._fleet.roll_back(unhealthy).items() if unhealthy else ():
            done = "put back to where it was" if error is None else f"not put back: {error}"
            self._member(index, slug, error=done)
            self._tell("rollback", tenant=slug, error=error)

    def _judge_member(self, index: int, slug: str, look: Look) -> None:
        if look.problems is None:
            self._member(index, slug, result=MemberResult.UNCLEAR, problems=("no answer that can be judged",))
        elif look.problems:
            self._member(index, slug, result=MemberResult.UNHEALTHY, problems=look.problems)
        else:
            self._member(index, slug, baseline=look.baseline)
            return
        self._tell("health", tenant=slug, problems=list(look.problems or ("no answer",)))

    def _judged(self, index: int, decision: Decision, reason: str) -> Rollout | None:
        name = self._wave(index).name
        self._tell("verdict", wave=name, decision=decision.value, reason=reason)
        if decision is Decision.PROMOTE:
            self._wave_set(index, stage=WaveStage.PROMOTED)
            return None
        self._wave_set(index, stage=WaveStage.STOPPED)
        stage = Stage.HALTED if decision is Decision.HALT else Stage.PAUSED
        return self._stop(stage, f"{name}: {reason}")

    def _halted(self, index: int) -> Rollout:
        reason = self._store.halt_asked(self.rollout.id) or ""
        self._store.forget_halt(self.rollout.id)
        if self._wave(index).stage is WaveStage.CONVERGING:
            self._wave_set(index, stage=WaveStage.STOPPED)
        return self._stop(Stage.HALTED, f"a person halted it: {reason}")

    # Waiting

    def _await_window(self) -> bool:
        """Wait for a maintenance window; False where a person wants a halt meanwhile."""
        now = self._clock.now()
        opening = next_opening(self.rollout.strategy.windows, now)
        if opening > now:
            self._tell("window", until=iso(opening))
        return self._sleep_until(iso(opening))

    def _sleep_until(self, moment: str | None) -> bool:
        until = datetime.datetime.fromisoformat(moment) if moment else self._clock.now()
        while True:
            if self._store.halt_asked(self.rollout.id) is not None:
                return False
            left = (until - self._clock.now()).total_seconds()
            if left <= 0:
                return True
            self._clock.sleep(min(left, POLL_SECONDS))

    # Small words

    def _needs_approval(self, index: int) -> bool:
        return self.rollout.strategy.gate is Gate.APPROVE and index > 0 and not self._wave(index).approved

    def _updated(self, index: int) -> list[str]:
        return [member.slug for member in self._wave(index).members if member.result is MemberResult.UPDATED]

    def _wave(self, index: int) -> Wave:
        return self.rollout.waves[index]

    def _wave_set(self, index: int, **changes: Any) -> None:
        self._keep(self.rollout.with_wave(index, **changes))

    def _member(self, index: int, slug: str, **changes: Any) -> None:
        self._keep(self.rollout.with_member(index, slug, **changes))

    def _set(self, **changes: Any) -> None:
        self._keep(replace(self.rollout, **changes))

    def _stop(self, stage: Stage, reason: str) -> Rollout:
        self._set(stage=stage, reason=reason, finished_at=iso(self._clock.now()))
        self._tell(stage.value, reason=reason)
        return self.rollout

    def _keep(self, rollout: Rollout) -> None:
        self._store.save(rollout)
        self.rollout = rollout

    def _tell(self, event: str, **details: Any) -> None:
        self._report(self._store.tell(self.rollout.id, event, **details))


_CHANGED = frozenset({MemberResult.UPDATED, MemberResult.UNHEALTHY, MemberResult.UNCLEAR})


def begin_again(rollout: Rollout) -> Rollout:
    """The rollout with every member that went wrong, was busy or in conversation waiting once more.

    A wave that has such members is converged and soaked again; those of it that did well are left alone.
    """
    for index, wave in enumerate(rollout.waves):
        if wave.stage is WaveStage.UNDONE or not any(member.result.may_be_retried for member in wave.members):
            continue
        members = tuple(
            Member(member.slug, MemberResult.STARTED) if member.result.may_be_retried else member
            for member in wave.members
        )
        rollout = rollout.with_wave(index, members=members, stage=WaveStage.PENDING, soak_until=None)
    return rollout


def look_again(rollout: Rollout) -> Rollout:
    """The rollout with the members that could not be judged looked at once more, without a soak."""
    for index, wave in enumerate(rollout.waves):
        if MemberResult.UNCLEAR not in wave.results:
            continue
        members = tuple(
            replace(member, result=MemberResult.UPDATED, problems=())
            if member.result is MemberResult.UNCLEAR
            else member
            for member in wave.members
        )
        rollout = rollout.with_wave(index, members=members, stage=WaveStage.SOAKING)
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
