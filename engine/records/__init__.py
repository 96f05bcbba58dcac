"""Run records: a state file, a log and a history line for every run of a subject."""

from engine.records.atomic import replace_file
from engine.records.runs import RunRecord, RunResult, RunState, RunStore

__all__ = ["RunRecord", "RunResult", "RunState", "RunStore", "replace_file"]
