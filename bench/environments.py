"""Environments of their data alone, many of them: what the last of them takes beside the first.

Made, looked at again with nothing to do, retired, and deleted 168 h later, over real parents; then everything is gone.
The goal is that the group among the most takes at most twice as long as the one among the fewest, which has a seventh
of their number around it: so the time of one does not follow their number, but it does grow. The time from intent
to outcome of each kind says whose growth it is: SeaweedFS 4.48 writes every user again for each key.
"""

from gevent import monkey

monkey.patch_all()

import datetime  # noqa: E402
import statistics  # noqa: E402
import sys  # noqa: E402
import tempfile  # noqa: E402
import time  # noqa: E402
from collections.abc import Callable, Sequence  # noqa: E402
from dataclasses import replace  # noqa: E402
from pathlib import Path  # noqa: E402

from engine.clock import SystemClock  # noqa: E402
from engine.environments.conditions import Verb  # noqa: E402
from engine.environments.drivers.base import Kind  # noqa: E402
from engine.environments.hosting import Ended, Hosting, converge_all, run_jobs  # noqa: E402
from engine.environments.hosting.jobs import give_verb, retire  # noqa: E402
from engine.environments.journal import Action, State  # noqa: E402
from engine.environments.life import RETENTION  # noqa: E402
from engine.environments.orphans import orphans  # noqa: E402
from engine.environments.spec import TIER  # noqa: E402
from engine.records import RunResult  # noqa: E402
from engine.subject import Subject  # noqa: E402
from tests.lab.environments.hosted_fleet import HostedFleet  # noqa: E402

COUNT = 200
GROUP = 50
GOAL = 2.0


def main() -> None:
    """Make a fleet of tiers, which have the four data resources and nothing else, and measure them in groups.

    Only a tier has no machines. It is durable, as all that own data alone are.
    """
    with tempfile.TemporaryDirectory() as directory:
        fleet = HostedFleet.create(Path(directory) / "fleet")
        try:
            for number in range(COUNT):
                fleet.tier(f"tier-{number}")
            fleet.write()
            sys.exit(0 if measure(fleet.hosting()) <= GOAL else 1)
        finally:
            fleet.down()


def measure(hosting: Hosting) -> float:
    """Print the seconds per environment of each group and job; returns the worst growth."""
    subjects = [entry.subject for entry in hosting.entries.values()]
    groups = [subjects[start : start + GROUP] for start in range(0, COUNT, GROUP)]
    later = replace(hosting, clock=Later())
    made, same = (RunResult.UPDATED, State.READY), (RunResult.UNCHANGED, State.READY)
    growths = [
        shown("made", groups, lambda group: converge_all(hosting, group), made),
        shown("nothing to do", groups, lambda group: converge_all(hosting, group), same),
    ]
    kept, gone = (RunResult.UPDATED, State.RETAINED), (RunResult.UPDATED, State.TOMBSTONED)
    # Sends nothing: a tier has no machines.
    shown("retired", groups, lambda group: run_jobs(hosting, group, "retire", retire), kept)
    expire = give_verb(Verb.EXPIRE_RETAINED)
    # The first of them go while all others are there.
    growths.append(1 / shown("deleted", groups, lambda group: run_jobs(later, group, "expire", expire), gone))
    for action, word in ((Action.CREATE, "making"), (Action.DELETE, "deleting")):
        for kind in TIER:
            means = (statistics.mean(sent(hosting, action, kind, group)) for group in groups)
            print(f"    {word:<8} a {kind:<9} {'  '.join(f'{value:.3f}' for value in means)}")
    assert not any(driver.list_owned() for driver in hosting.drivers.values()), "something is left"
    assert orphans(hosting.parts) == ()
    print(f"  worst growth   {max(growths):.2f}   (goal: at most {GOAL})")
    return max(growths)


def shown(
    name: str,
    groups: Sequence[Sequence[Subject]],
    job: Callable[[Sequence[Subject]], tuple[Ended, ...]],
    wanted: tuple[RunResult, State],
) -> float:
    """Do `job` on each group, each of which must end as `wanted`, and print how long it took; last to first."""
    each = []
    for group in groups:
        start = time.perf_counter()
        ended = job(group)
        each.append((time.perf_counter() - start) / GROUP)
        assert {(item.result, item.state) for item in ended} == {wanted}, [item.error for item in ended if item.error]
    growth = each[-1] / each[0]
    print(f"  {name:<14} {'  '.join(f'{value:.3f}' for value in each)}   last/first {growth:.2f}")
    return growth


class Later(SystemClock):
    """The machine's own clock when the retention is over; the settle time, the same for each, would hide a growth."""

    def now(self) -> datetime.datetime:
        return super().now() + RETENTION

    def sleep(self, seconds: float) -> None:
        pass


def sent(hosting: Hosting, action: Action, kind: Kind, group: Sequence[Subject]) -> list[float]:
    """The seconds from intent to outcome of each `action` on `kind` in `group`."""
    effects = (effect for subject in group for effect in hosting.journal.effects(subject.id))
    done = (effect for effect in effects if effect.kind is kind and effect.action is action)
    return [(effect.ended_at - effect.intended_at).total_seconds() for effect in done if effect.ended_at]


if __name__ == "__main__":
    main()
