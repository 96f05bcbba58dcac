"""What the operator's machine does by itself, and how its operator hears of failures."""

from engine.timers.jobs import JOBS, Job, job_named

__all__ = ["JOBS", "Job", "job_named"]
