"""The commands that a timer gives. Another one needs a line here and its calendar event in the settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter

from engine.errors import InvalidInput
from engine.registry.safeguards import Timers


@dataclass(frozen=True)
class Job:
    """One command of ``tenantry`` and when it is given; `calendar` takes its event from the settings."""

    name: str
    arguments: tuple[str, ...]
    calendar: Callable[[Timers], str]
    summary: str


JOBS = (
    Job("backup", ("backup", "--all"), attrgetter("backup"), "backups"),
    Job("rehearse", ("rehearse", "--all"), attrgetter("rehearse"), "rehearsals of restores"),
    Job("env-backup", ("env", "backup", "--all"), attrgetter("env_backup"), "copies of hosted environments"),
    Job("tier-backup", ("tier", "backup", "--all"), attrgetter("tier_backup"), "copies of shared tiers"),
    Job("drift", ("drift", "--all", "--exit-code"), attrgetter("drift"), "checks for drift"),
)


def job_named(name: str) -> Job:
    """The job `name`; raises :class:`InvalidInput` naming the known ones."""
    for job in JOBS:
        if job.name == name:
            return job
    raise InvalidInput(f"unknown job: {name}", hint=f"known: {', '.join(job.name for job in JOBS)}")
