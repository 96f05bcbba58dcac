"""The frame of every job on an environment: what fails is that job's end, whatever failed."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.environments.hosting import Hosting, open_hosting, run_job
from engine.environments.hosting.jobs import Ended, Job
from engine.errors import Refused
from engine.records import RunResult
from engine.subject import Subject
from tests.fleets import write_whole_fleet
from tests.unit.hosted import OWN, write_hosted_fleet

SUBJECT = Subject("env", OWN)


@pytest.fixture
def hosting(tmp_path: Path) -> Hosting:
    return open_hosting(write_hosted_fleet(write_whole_fleet(tmp_path / "fleet")), tmp_path / "state")


def test_a_journal_that_cannot_be_read_is_the_jobs_error_and_its_record_is_closed(hosting: Hosting) -> None:
    hosting.journal_file.parent.mkdir(parents=True)
    hosting.journal_file.write_bytes(b"not a journal, but long enough to be read as a file of its sort\n" * 20)

    def look(job: Job) -> Ended:
        hosting.journal.subject(job.uuid)
        return job.ended()

    ended = run_job(hosting, SUBJECT, "create", look)
    assert (ended.result, ended.state) == (RunResult.FAILED, None)
    assert "the journal cannot be used" in str(ended.error)
    assert [entry["result"] for entry in hosting.runs.history(SUBJECT)] == ["failed"]


def test_a_refusal_before_anything_began_makes_no_journal(hosting: Hosting) -> None:
    def refuse(job: Job) -> Ended:
        raise Refused("not today")

    ended = run_job(hosting, SUBJECT, "create", refuse)
    assert (ended.result, ended.state, hosting.journal_file.exists()) == (RunResult.FAILED, None, False)
