"""Environments of their data alone, many of them: what the last of them takes beside the first.

Made, looked at again with nothing to do, and retired, over real parents. The time of one should not grow with how
many there are already: the goal is that the last group takes at most 1.3 times as long as the first. The time from
intent to outcome of each kind says whose growth it is: SeaweedFS 4.48 writes every user again for each key.
"""

from gevent import monkey

monkey.patch_all()

import statistics  # noqa: E402
import sys  # noqa: E402
import tempfile  # noqa: E402
import time  # noqa: E402
from collections.abc import Callable, Sequence  # noqa: E402
from pathlib import Path  # noqa: E402

from engine.environments.drivers.base import Kind  # noqa: E402
from engine.environments.hosting import Ended, Hosting, converge_all, run_jobs  # noqa: E402
from engine.environments.hosting.jobs import retire  # noqa: E402
from engine.environments.journal import Action  # noqa: E402
from engine.environments.spec import TIER  # noqa: E402
from engine.subject import Subject  # noqa: E402
from tests.lab.environments.hosted_fleet import HostedFleet  # noqa: E402

COUNT = 200
GROUP = 50
GOAL = 1.3


def main() -> None:
    """Make a fleet of tiers, which have the four data resources and nothing else, and measure them in groups."""
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
    jobs: dict[str, Callable[[Sequence[Subject]], tuple[Ended, ...]]] = {
        "made": lambda group: converge_all(hosting, group),
        "nothing to do": lambda group: converge_all(hosting, group),
        "retired": lambda group: run_jobs(hosting, group, "retire", retire),
    }
    print(f"{COUNT} environments of their data resources, seconds for one, in groups of {GROUP}")
    growths = []
    for name, job in jobs.items():
        each = [seconds(job, group) / GROUP for group in groups]
        growths.append(each[-1] / each[0])
        print(f"  {name:<14} {'  '.join(f'{value:.3f}' for value in each)}   last/first {growths[-1]:.2f}")
    for kind in TIER:
        means = (statistics.mean(sent(hosting, kind, group)) for group in groups)
        print(f"    making a {kind:<9} {'  '.join(f'{value:.3f}' for value in means)}")
    print(f"  worst growth   {max(growths):.2f}   (goal: at most {GOAL})")
    return max(growths)


def sent(hosting: Hosting, kind: Kind, group: Sequence[Subject]) -> list[float]:
    """The seconds from intent to outcome of each create of `kind` in `group`."""
    effects = (effect for subject in group for effect in hosting.journal.effects(subject.id))
    made = (effect for effect in effects if effect.kind is kind and effect.action is Action.CREATE)
    return [(effect.ended_at - effect.intended_at).total_seconds() for effect in made if effect.ended_at]


def seconds(job: Callable[[Sequence[Subject]], tuple[Ended, ...]], group: Sequence[Subject]) -> float:
    start = time.perf_counter()
    ended = job(group)
    assert all(item.error is None for item in ended), [item.error for item in ended if item.error]
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
