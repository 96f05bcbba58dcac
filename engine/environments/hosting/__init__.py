"""Hosted environments as a whole: what a command opens, what its jobs do, and how their requests are made."""

from engine.environments.hosting.copying import (
    back_up_job,
    carries_backup,
    expire_copies,
    expire_job,
    list_copies,
    require_copy,
    with_backup,
    with_due_copies,
)
from engine.environments.hosting.jobs import (
    Ended,
    Job,
    abandon,
    converge,
    converge_all,
    give_verb,
    retire,
    run_job,
    run_jobs,
)
from engine.environments.hosting.plan import SubjectPlan, check_recorded, plan_of
from engine.environments.hosting.workspace import Hosting, open_hosting

__all__ = [
    "Ended",
    "Hosting",
    "Job",
    "SubjectPlan",
    "abandon",
    "back_up_job",
    "carries_backup",
    "check_recorded",
    "converge",
    "converge_all",
    "expire_copies",
    "expire_job",
    "give_verb",
    "list_copies",
    "open_hosting",
    "plan_of",
    "require_copy",
    "retire",
    "run_job",
    "run_jobs",
    "with_backup",
    "with_due_copies",
]
