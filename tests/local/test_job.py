"""What a job's record says at its end, and where a run that puts a tenant back leaves it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from engine.errors import ExitCode, TenantryError
from engine.hosts.status import Armed, Marker, MarkerState, RecoverySet
from engine.records import RunResult
from engine.releases.version import Version
from engine.updater.converge import Converge
from engine.updater.job import Job, run_job
from engine.updater.notify import send
from engine.updater.outcome import Options, Outcome
from engine.updater.safety_net import Fall
from engine.updater.workspace import Workspace, open_workspace
from tests.fleets import HEAD, VERSIONS, write_whole_fleet
from tests.unit.updater.statuses import status


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return open_workspace(write_whole_fleet(tmp_path))


def last(workspace: Workspace) -> dict[str, Any]:
    return list(workspace.runs.history(workspace.fleet.tenants["maple"].subject))[-1]


@pytest.mark.parametrize(
    ("result", "recorded"), [(RunResult.ROLLED_BACK, (None, None)), (RunResult.FAILED, (None, HEAD))]
)
def test_a_run_that_put_a_tenant_back_to_zero_does_not_record_where_it_was_to_go(
    workspace: Workspace, result: RunResult, recorded: tuple[str | None, str | None]
):
    def work(job: Job) -> Outcome:
        job.update(to_version=HEAD)
        return Outcome("maple", result, ExitCode.FAILED, error="no")

    run_job(workspace, workspace.fleet.tenants["maple"], "converge", work)
    assert (last(workspace)["from_version"], last(workspace)["to_version"]) == recorded


def test_a_rollback_that_another_run_finishes_ends_where_its_own_set_leads(workspace: Workspace):
    """A person's rollback to an older set was killed after the marker went down, or before."""
    sets = tuple(RecoverySet(f"r{number}", version, HEAD, 1.0) for number, version in enumerate((None, *VERSIONS[:2])))
    before = status(
        marker=Marker(MarkerState.PRESENT, Version.parse(HEAD)), armed=Armed("r1", "r5", HEAD), recovery=sets
    )
    job = Job(workspace, workspace.fleet.tenants["maple"], cast(Any, None), cast(Any, None), workspace.clock)
    converge = Converge(job, cast(Any, None), Options(), send)
    fall = Fall(True, TenantryError("x"))
    assert converge._fallen(fall, before).to_version == VERSIONS[0]
    assert converge._fallen(fall, replace(before, armed=Armed("r0", "r5", HEAD))).to_version is None
    assert converge._fallen(fall, replace(before, armed=None)).to_version == HEAD
