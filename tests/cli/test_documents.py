"""Documents of the commands that meet hosts, built from values, against their schemas."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from engine.backups.difference import Difference, Finding
from engine.backups.proofs import Proof
from engine.backups.rehearsal import RehearsalOutcome
from engine.backups.restore import RestoreOutcome
from engine.cli import converge, drift, lab, plan, rehearse, restore, sessions, verify
from engine.cli.live import live_document
from engine.cli.status import Recorded
from engine.cli.status import document as status_document
from engine.conversations import Conversation, fingerprint
from engine.drift.compare import Difference as DriftDifference
from engine.drift.compare import State
from engine.drift.expected import NOBODY, Owner, OwnerKind
from engine.drift.report import Drift, Sighting
from engine.errors import ExitCode, NotProvisioned, Unreachable
from engine.hosts.status import Answer, Armed, FileFacts, Held, Marker, MarkerState, Owed, OwedNote, RecoverySet, Status
from engine.provision.providers.lab import LabHost
from engine.records import RunResult
from engine.releases.version import Version
from engine.updater.assessment import assess
from engine.updater.outcome import Outcome, failed
from engine.updater.owner_note import Preview
from engine.updater.personalities import Prompt, Speaking, Spoken
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
    return TenantPlan(
        assessment, steps, (("--- a", "+++ b", "+x"),), Preview(None, "Queva updated to 2026.10.23: more")
    )


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


def test_a_held_and_armed_tenant_in_plan_and_status(workspace: Workspace, capsys: pytest.CaptureFixture[str]):
    held = Held("2026.10.23", "r1", 1_790_000_000.0, "a channel never connected", "run")
    armed = Armed("r1", "r2", "2026.10.23")
    sets = (RecoverySet("r1", None, "2026.10.23", 1_790_000_000.0, ("migrate",), undone=1e300),)
    found = standing_at("2026.10.22", held=held, armed=armed, recovery=sets)
    planned = plan_of(workspace, "maple", found)
    planned = replace(planned, steps=(replace(planned.steps[0], is_irreversible=True),))
    (document,) = valid("plan", plan.document([(workspace.fleet.tenants["maple"], planned)]))["tenants"]
    assert document["held"]["at"].startswith("2026-") and document["armed"]["run"] == "r2"
    plan._show([(workspace.fleet.tenants["maple"], planned)])
    printed = capsys.readouterr().out
    for words in ("held back from 2026.10.23", "tenantry converge maple --retry", "armed for run r2", "irreversible"):
        assert words in printed
    records = [Recorded("maple", None, None, None)]
    (entry,) = valid("status", status_document(records, HEAD, {"maple": live_document(found)}))["tenants"]
    (known,) = entry["live"]["recovery_sets"]
    assert (known["from_version"], known["undone"], entry["live"]["held"]["by"]) == (None, None, "run")


def test_the_plan_names_releases_that_never_reach_a_tenant_and_those_that_left_the_manifest(workspace: Workspace):
    digests = workspace.digests
    applied = {"2026.10.22": digests["2026.10.22"], "2026.10.22.1": "sha256:" + "0" * 64, HEAD: digests[HEAD]}
    maple = plan_of(workspace, "maple", standing_at(HEAD, applied=applied))
    (found,) = valid("plan", plan.document([(workspace.fleet.tenants["maple"], maple)]))["tenants"]
    assert (found["never_applied"], found["removed"]) == (["2026.10.22.2"], ["2026.10.22.1"])


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
        Outcome("elm", RunResult.ROLLED_BACK, ExitCode.FAILED, run="s", from_version=HEAD, to_version=HEAD, error="x"),
        failed("harbor", NotProvisioned("never", where="harbor", hint="tenantry provision harbor")),
        failed("cedar", Unreachable("no answer", where="cedar")),
    )
    for name in ("converge", "provision", "resume", "rollback"):
        valid(name, converge.document(outcomes))
    assert converge.show_outcomes(outcomes, as_json=False) is ExitCode.FAILED
    printed = capsys.readouterr()
    assert "error: harbor: never\n  hint: tenantry provision harbor\n" in printed.err
    assert "zero -> 2026.10.23" in printed.out


def test_the_restore_documents():
    done = RestoreOutcome("maple", RunResult.RESTORED, run="r", to_version=HEAD, archive="20261101T000000Z")
    valid("restore", restore.document(done))
    valid("restore", restore.document(failed("maple", Unreachable("no answer"))))
    lists = ((Finding("/a", None, "sha256:0"),), (), (Finding("/b", "link to x", None),))
    counts = {"added": 1, "changed": 0, "removed": 1}
    valid("restore-dry-run", Difference("maple", "20261101T000000Z", None, *lists, counts).document())


def test_the_rehearse_document():
    proof = Proof(
        "r", "20261101T000000Z", "2026-11-01T00:10:00Z", 61.5, RunResult.REHEARSED, ("mail",), {"a": 1.5}, HEAD
    )
    done = RehearsalOutcome("maple", RunResult.REHEARSED, run="r", to_version=HEAD, proof=proof)
    document = valid("rehearse", rehearse.document([done, failed("harbor", Unreachable("no answer"))]))
    assert document["tenants"][0]["proof"]["unproven"] == ["mail"] and document["tenants"][1]["proof"] is None


def test_the_verify_document(workspace: Workspace):
    maple = workspace.fleet.tenants["maple"]
    result = verify_tenant(workspace, maple, standing_at(HEAD, owed=Owed(note=OwedNote(HEAD, "text"))))
    document = valid("verify", verify.document([(maple, result), (maple, Unreachable("no answer"))]))
    assert document["tenants"][0]["expected_warnings"] == 1


def test_the_drift_document_and_its_exit_codes(workspace: Workspace):
    tenants = workspace.fleet.tenants
    step = Owner(OwnerKind.STEP, "greeting", HEAD)
    differs = DriftDifference("file:/etc/greeting", State.DIFFERS, "mode 0644", "mode 0666", step)
    unknown = DriftDifference("packages", State.UNKNOWN, "none held", "dpkg could not be asked", NOBODY)

    def report(*differences: DriftDifference, version: str | None = HEAD) -> Drift:
        at = "2026-11-29T21:00:00Z"
        found = version and Version.parse(version)
        return Drift("maple", found or None, 9, tuple(Sighting(item, at) for item in differences), at)

    clean, drifted, dark = report(version=None), report(differs), report(differs, unknown)
    unreachable = Unreachable("no answer", where="harbor")
    answers = [(tenants["maple"], clean), (tenants["maple"], dark), (tenants["harbor"], unreachable)]
    document = valid("drift", drift.document(answers))
    assert [tenant["clean"] for tenant in document["tenants"]] == [True, False]
    first, second = document["tenants"][1]["differences"]
    assert (first["owner"], first["repairable"]) == ({"kind": "step", "name": "greeting", "release": HEAD}, True)
    assert (second["owner"]["name"], second["repairable"]) == (None, False)
    codes = {
        code: [drift.code_of(answer, code) for answer in (clean, drifted, dark, unreachable)] for code in (False, True)
    }
    assert codes == {
        False: [ExitCode.DONE, ExitCode.DONE, ExitCode.UNREACHABLE, ExitCode.UNREACHABLE],
        True: [ExitCode.DONE, ExitCode.CHANGES, ExitCode.UNREACHABLE, ExitCode.UNREACHABLE],
    }


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


def test_the_sessions_document(workspace: Workspace):
    mark = fingerprint("You are kind.")
    spoken = Spoken(
        "maple",
        mark,
        HEAD,
        (
            Speaking(Conversation("a", "telegram", "open", mark), Prompt.CURRENT, mark, HEAD),
            Speaking(Conversation("b", "telegram", "archived", "unknown"), Prompt.UNKNOWN, None, None),
        ),
    )
    tenants = workspace.fleet.tenants
    refused = Unreachable("no answer", where="harbor")
    document = valid("sessions", sessions.document([(tenants["maple"], spoken), (tenants["harbor"], refused)]))
    assert [one["prompt"] for one in document["tenants"][0]["sessions"]] == ["current", "unknown"]
    assert [error["exit_code"] for error in document["errors"]] == [4]
