"""Documents of the commands that meet hosts, built from values, against their schemas."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from engine.cli import converge, lab, plan, verify
from engine.cli.live import live_document
from engine.cli.status import Recorded
from engine.cli.status import document as status_document
from engine.errors import ExitCode, NotProvisioned, Unreachable
from engine.hosts.status import Answer, FileFacts, Marker, MarkerState, Owed, OwedNote, Status
from engine.provision.providers.lab import LabHost
from engine.records import RunResult
from engine.releases.version import Version
from engine.updater.assessment import assess
from engine.updater.outcome import Outcome, failed
from engine.updater.plan import StepForecast, TenantPlan
from engine.updater.verify import verify as verify_tenant
from engine.updater.workspace import Workspace, open_workspace
from tests.cli.conftest import valid
from tests.fleets import HEAD, write_whole_fleet
from tests.unit.updater.statuses import gateway_state, status

ABSENT = FileFacts(None, None, None, None)


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return open_workspace(write_whole_fleet(tmp_path))


def standing_at(version: str, **changes: object) -> Status:
    marker = Marker(MarkerState.PRESENT, Version.parse(version))
    return replace(status(marker=marker, rendered={"personality": ABSENT}), **changes)


def plan_of(workspace: Workspace, slug: str, found: Status) -> TenantPlan:
    assessment = assess(workspace, workspace.fleet.tenants[slug], found)
    steps = (StepForecast("polite", (HEAD,), Answer.DOES_NOT_HOLD, is_certain=False),)
    return TenantPlan(assessment, steps, (("--- a", "+++ b", "+x"),), "Queva updated to 2026.10.23: more")


def test_the_plan_document(workspace: Workspace):
    owed = Owed(restart=("step x",), reloads=("daemon",), switches={"/a": "/b"})
    maple = plan_of(workspace, "maple", standing_at("2026.10.22", owed=owed))
    tenants = workspace.fleet.tenants
    document = valid("plan", plan.document([(tenants["maple"], maple)]))
    assert document["digest"] == document["tenants"][0]["digest"]
    unreachable = Unreachable("no answer", where="harbor", hint="is it up?")
    document = valid("plan", plan.document([(tenants["maple"], maple), (tenants["harbor"], unreachable)]))
    assert document["digest"] is None
    assert document["errors"] == [{"slug": "harbor", "message": "no answer", "hint": "is it up?", "exit_code": 4}]


def test_the_digest_of_several_plans_depends_on_each(workspace: Workspace):
    digests = {
        slug: plan_of(workspace, slug, standing_at("2026.10.22")).assessment.digest() for slug in ("maple", "harbor")
    }
    whole = plan.digest_of_all(digests)
    assert whole == plan.digest_of_all(dict(reversed(digests.items())))
    assert whole != plan.digest_of_all({**digests, "harbor": digests["maple"]})


def test_the_converge_document_and_its_exit_code(capsys: pytest.CaptureFixture[str]):
    outcomes = (
        Outcome("maple", RunResult.UPDATED, run="r", to_version=HEAD, steps=("a",), restarted=True),
        failed("harbor", NotProvisioned("never", where="harbor", hint="tenantry provision harbor")),
        failed("cedar", Unreachable("no answer", where="cedar")),
    )
    for name in ("converge", "provision", "resume"):
        valid(name, converge.document(outcomes))
    assert converge.show_outcomes(outcomes, as_json=False) is ExitCode.FAILED
    printed = capsys.readouterr()
    assert "error: harbor: never\n  hint: tenantry provision harbor\n" in printed.err
    assert "zero -> 2026.10.23" in printed.out


def test_the_verify_document(workspace: Workspace):
    maple = workspace.fleet.tenants["maple"]
    result = verify_tenant(workspace, maple, standing_at(HEAD, owed=Owed(note=OwedNote(HEAD, "text"))))
    document = valid("verify", verify.document([(maple, result), (maple, Unreachable("no answer"))]))
    assert document["tenants"][0]["expected_warnings"] == 1


def test_what_is_owed_is_named_by_the_acceptance_check(workspace: Workspace):
    owed = Owed(switches={"/opt/current": "/opt/2"})
    result = verify_tenant(workspace, workspace.fleet.tenants["maple"], standing_at(HEAD, owed=owed))
    (check,) = [check for check in result.checks if check.name == "nothing owed"]
    assert check.detail == "owed: /opt/current"


def test_the_live_part_of_the_status_document():
    live = live_document(standing_at(HEAD, gateway=gateway_state(), owed=Owed(note=OwedNote(HEAD, "t"))))
    records = [Recorded(slug, None, None, None) for slug in ("maple", "harbor", "cedar")]
    answers = {"maple": live, "harbor": Unreachable("no answer")}
    document = valid("status", status_document(records, HEAD, answers))
    assert [entry["live"] is None for entry in document["tenants"]] == [False, True, True]


def test_times_that_are_no_dates_leave_the_live_part_whole():
    gateway = gateway_state(newest_message=1_790_000_000_000.0)
    live = live_document(standing_at(HEAD, gateway=gateway, clock=1e300))
    document = valid("status", status_document([Recorded("maple", None, None, None)], HEAD, {"maple": live}))
    (entry,) = document["tenants"]
    assert (entry["live"]["clock"], entry["live"]["gateway"]["newest_message"]) == (None, None)


def test_the_lab_documents():
    host = LabHost("maple", "10.0.0.2", 22, "ops", "ssh-ed25519 AAAA", True, 7, Path("/log"))
    hosts = lab.hosts_document([host, replace(host, running=False, pid=None)])
    valid("lab-list", hosts)
    valid("lab-up", hosts | {"provisioned": converge.document([Outcome("maple", RunResult.UPDATED)])["tenants"]})
