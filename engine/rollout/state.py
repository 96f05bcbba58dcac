"""What a rollout remembers: every member's result, each wave's place, and why it stands where it stands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import Enum, StrEnum
from typing import Any

from engine.registry.settings import Gate, Strategy, Window
from engine.rollout.verdict import MemberResult


class Stage(StrEnum):
    """Where a rollout stands. RUNNING without a process that holds its lock means interrupted."""

    RUNNING = "running"
    AWAITING_APPROVAL = "awaiting approval"
    PAUSED = "paused"
    HALTED = "halted"
    DONE = "done"


class WaveStage(StrEnum):
    """Where a wave stands. SOAKING without `soak_until` still has to be looked at as its soak begins.

    UNDOING has members that were not put back yet.
    """

    PENDING = "pending"
    CONVERGING = "converging"
    SOAKING = "soaking"
    PROMOTED = "promoted"
    STOPPED = "stopped"
    UNDOING = "undoing"
    UNDONE = "undone"

    @property
    def is_taken_back(self) -> bool:
        """Whether a person wants the wave's tenants back where they were."""
        return self in (WaveStage.UNDOING, WaveStage.UNDONE)


class Attempt(Enum):
    """A converge of a member: the first one, one after the process died in another, or one by a person's word."""

    FIRST = "first"
    AFTER_CRASH = "after a crash"
    RETRY = "retry"


@dataclass(frozen=True)
class Baseline:
    """An updated tenant as its soak began: what must still be so at the end. `at` is the tenant's clock."""

    main_pid: int
    restarts: int
    error_lines: int
    at: float


@dataclass(frozen=True)
class Member:
    """One tenant of a wave; `run` names its last converge and `messages` what that said, where its evidence lies
    above all; `problems` is what a look at it found. `retry` is a person's word to converge it although it is held.
    `is_changed` says that this rollout may have changed it, `recovery_set` the way back where that is known, and
    `is_back` that it was put back since.
    """

    slug: str
    result: MemberResult = MemberResult.WAITING
    run: str | None = None
    error: str | None = None
    messages: tuple[str, ...] = ()
    baseline: Baseline | None = None
    problems: tuple[str, ...] = ()
    retry: bool = False
    is_changed: bool = False
    recovery_set: str | None = None
    is_back: bool = False

    @property
    def attempt(self) -> Attempt:
        """What a converge of the tenant is to this rollout."""
        if self.retry:
            return Attempt.RETRY
        return Attempt.AFTER_CRASH if self.result is MemberResult.STARTED else Attempt.FIRST

    @property
    def may_be_put_back(self) -> bool:
        """Whether this rollout has brought the tenant to its release, and it is there yet."""
        return self.is_changed and not self.is_back and self.result in _ON_TARGET

    @property
    def is_to_be_put_back(self) -> bool:
        """Whether the soak found it unhealthy and nothing has come of that yet."""
        return self.result is MemberResult.UNHEALTHY and self.error is None


_ON_TARGET = (MemberResult.UPDATED, MemberResult.UNHEALTHY, MemberResult.UNCLEAR)


@dataclass(frozen=True)
class Wave:
    """One wave; `soak_until` is a UTC time in ISO 8601."""

    name: str
    members: tuple[Member, ...]
    stage: WaveStage = WaveStage.PENDING
    soak_until: str | None = None
    approved: bool = False

    @property
    def results(self) -> tuple[MemberResult, ...]:
        return tuple(member.result for member in self.members)


@dataclass(frozen=True)
class Rollout:
    """A rollout of the releases up to `target`, as its state file holds it."""

    id: str
    target: str
    strategy_name: str
    strategy: Strategy
    waves: tuple[Wave, ...]
    started_at: str
    left_out: Mapping[str, str] = field(default_factory=dict)
    stage: Stage = Stage.RUNNING
    reason: str = ""
    finished_at: str | None = None

    def with_wave(self, index: int, **changes: Any) -> Rollout:
        """The same rollout with these fields of one wave changed."""
        waves = list(self.waves)
        waves[index] = replace(waves[index], **changes)
        return replace(self, waves=tuple(waves))

    def with_member(self, index: int, slug: str, **changes: Any) -> Rollout:
        """The same rollout with these fields of one member of a wave changed."""
        members = tuple(
            replace(member, **changes) if member.slug == slug else member for member in self.waves[index].members
        )
        return self.with_wave(index, members=members)

    @property
    def members(self) -> Iterator[Member]:
        return (member for wave in self.waves for member in wave.members)

    def document(self) -> dict[str, Any]:
        """The rollout as JSON's plain values."""
        return asdict(self)

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Rollout:
        """What :meth:`document` gave; raises TypeError, ValueError or KeyError for anything else."""
        known = dict(document)
        known["strategy"] = _strategy(known["strategy"])
        known["waves"] = tuple(_wave(wave) for wave in known["waves"])
        known["stage"] = Stage(known["stage"])
        return cls(**known)


def _strategy(document: Mapping[str, Any]) -> Strategy:
    windows = (Window(**{**window, "days": tuple(window["days"])}) for window in document["windows"])
    lists = {name: tuple(document[name]) for name in ("canaries", "waves")}
    return Strategy(**{**document, **lists, "windows": tuple(windows), "gate": Gate(document["gate"])})


def _wave(document: Mapping[str, Any]) -> Wave:
    members = tuple(_member(member) for member in document["members"])
    return Wave(**{**document, "members": members, "stage": WaveStage(document["stage"])})


def _member(document: Mapping[str, Any]) -> Member:
    baseline = document["baseline"]
    return Member(
        **{
            # An earlier version did not keep it: what had begun may have changed the tenant.
            "is_changed": document["result"] != MemberResult.WAITING,
            **document,
            "result": MemberResult(document["result"]),
            "baseline": Baseline(**baseline) if baseline else None,
            "messages": tuple(document["messages"]),
            "problems": tuple(document["problems"]),
        }
    )
