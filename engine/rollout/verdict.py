"""What a wave's results mean: promote, halt, or pause for a person. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from engine.errors import ExitCode
from engine.registry.settings import Strategy


class MemberResult(StrEnum):
    """Where a tenant stands in its wave.

    SILENT had no result when the wave's time was over. UNHEALTHY was updated, and a look at it found something
    wrong. UNCLEAR was updated, and gave no usable answer to such a look.
    """

    WAITING = "waiting"
    STARTED = "started"
    UPDATED = "updated"
    FAILED = "failed"
    ROLLED_BACK = "rolled-back"
    UNREACHABLE = "unreachable"
    DEFERRED = "deferred"
    BUSY = "busy"
    SILENT = "silent"
    UNHEALTHY = "unhealthy"
    UNCLEAR = "unclear"

    @property
    def is_open(self) -> bool:
        """Whether the tenant still has to be converged in this wave."""
        return self in (MemberResult.WAITING, MemberResult.STARTED)

    @property
    def is_error(self) -> bool:
        """Whether it counts against the strategy's threshold."""
        return self in _ERRORS

    @property
    def may_be_retried(self) -> bool:
        """Whether ``retry --failed`` means it."""
        return self.is_error or self in (MemberResult.DEFERRED, MemberResult.BUSY)

    @property
    def exit_code(self) -> ExitCode:
        """What a tenant that stands so makes of a rollout that is done."""
        if self is MemberResult.UPDATED:
            return ExitCode.DONE
        return _EXITS.get(self, ExitCode.FAILED)


_ERRORS = frozenset(
    {
        MemberResult.FAILED,
        MemberResult.ROLLED_BACK,
        MemberResult.UNREACHABLE,
        MemberResult.SILENT,
        MemberResult.UNHEALTHY,
    }
)


_EXITS = {
    MemberResult.UNREACHABLE: ExitCode.UNREACHABLE,
    MemberResult.UNCLEAR: ExitCode.UNREACHABLE,
    MemberResult.DEFERRED: ExitCode.DEFERRED,
    MemberResult.BUSY: ExitCode.BUSY,
}


class Decision(StrEnum):
    """What follows a wave."""

    PROMOTE = "promote"
    HALT = "halt"
    PAUSE = "pause"


@dataclass(frozen=True)
class Verdict:
    """A decision and why, in a person's words."""

    decision: Decision
    reason: str


def is_reached(errors: int, size: int, strategy: Strategy) -> bool:
    """Whether so many errors in a wave of `size` reach the threshold: equal or more, by count or by share.

    No errors never do, whatever the thresholds; with a threshold of 0 a single one does.
    """
    if errors == 0:
        return False
    return errors >= strategy.error_count or errors * 100 >= strategy.error_percent * size


def judge(results: Sequence[MemberResult], strategy: Strategy) -> Verdict:
    """The verdict on a wave whose tenants ended like this; open ones may still change it, so they pause."""
    errors = [result for result in results if result.is_error]
    if is_reached(len(errors), len(results), strategy):
        found = ", ".join(f"{errors.count(kind)} {kind}" for kind in dict.fromkeys(errors))
        return Verdict(Decision.HALT, f"{len(errors)} of {len(results)} went wrong: {found}")
    unclear = sum(result is MemberResult.UNCLEAR or result.is_open for result in results)
    if unclear:
        return Verdict(Decision.PAUSE, f"{unclear} of {len(results)} cannot be judged")
    if MemberResult.UPDATED not in results:
        return Verdict(Decision.PAUSE, f"none of {len(results)} was updated, so nothing is proved")
    return Verdict(Decision.PROMOTE, f"{results.count(MemberResult.UPDATED)} of {len(results)} updated and well")
