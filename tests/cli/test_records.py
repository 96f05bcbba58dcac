"""status, history and logs: from records and locks alone."""

from __future__ import annotations

import datetime
import os
import subprocess
import sys
from dataclasses import replace

from engine.backups.proofs import Proof, ProofStore
from engine.backups.store import ID_FORMAT
from engine.clock import SystemClock, iso
from engine.locks import LockDirectory
from engine.records import RunResult, RunStore
from engine.subject import Subject
from tests.cli.conftest import Tenantry
from tests.fleets import HEAD
from tests.unit.hosted import MEMBER, OWN, TIER

MAPLE = Subject("tenant", "maple")


def store(tenantry: Tenantry) -> RunStore:
    return RunStore(tenantry.state_directory / "records", SystemClock())


def run(tenantry: Tenantry, name: str, result: RunResult | None, **fields: str) -> None:
    record = store(tenantry).start(MAPLE, job="converge", run=name, process=os.getpid())
    record.update(phase="commit", **fields)
    record.log("apply: \x1b]0;title\x07 done")
    if result:
        record.finish(result, "maple: no\n  hint: look" if result is RunResult.FAILED else None)


def maple(tenantry: Tenantry) -> dict:
    document = tenantry.document("status", "status")
    return next(entry for entry in document["tenants"] if entry["slug"] == "maple")


def test_status_before_the_first_run_knows_nothing_and_writes_nothing(tenantry: Tenantry):
    document = tenantry.document("status", "status")
    assert document == {
        "tenants": [
            {
                "slug": slug,
                "version": None,
                "head": HEAD,
                "lock": None,
                "last_run": None,
                "last_proven_restore": None,
                "last_rehearsal": None,
                "live": None,
            }
            for slug in ("maple", "harbor")
        ]
    }
    assert not tenantry.state_directory.exists()


def test_the_version_is_that_of_the_last_run_that_arrived(tenantry: Tenantry):
    run(tenantry, "20261101T000000Z-1", RunResult.UPDATED, to_version="2026.10.22")
    run(tenantry, "20261102T000000Z-2", RunResult.FAILED, from_version="2026.10.22", to_version=HEAD)
    entry = maple(tenantry)
    assert entry["version"] == "2026.10.22"
    assert entry["last_run"]["result"] == "failed"
    run(tenantry, "20261103T000000Z-3", RunResult.UNCHANGED, from_version=HEAD, to_version=HEAD)
    assert maple(tenantry)["version"] == HEAD


def test_a_tenant_that_was_put_back_is_no_longer_where_it_was(tenantry: Tenantry):
    run(tenantry, "20261101T000000Z-1", RunResult.UPDATED, to_version=HEAD)
    run(tenantry, "20261102T000000Z-2", RunResult.ROLLED_BACK, from_version=HEAD, to_version="2026.10.22")
    assert maple(tenantry)["version"] == "2026.10.22"
    assert 'tenantry_tenant_at_head{slug="maple"} 0.0' in tenantry("metrics").out
    # To version zero: there is no other name for it.
    run(tenantry, "20261103T000000Z-3", RunResult.ROLLED_BACK, from_version="2026.10.22")
    assert maple(tenantry)["version"] is None


def test_a_held_lock_names_its_holder_and_its_run_is_running(tenantry: Tenantry):
    run(tenantry, "20261101T000000Z-1", None)
    locks = LockDirectory(tenantry.state_directory / "locks", SystemClock())
    with locks.hold(MAPLE, job="converge", run="20261101T000000Z-1"):
        entry = maple(tenantry)
    assert entry["lock"]["run"] == "20261101T000000Z-1"
    assert entry["lock"]["pid"] == os.getpid()
    assert entry["last_run"]["result"] == "running"


def test_a_running_record_without_its_lock_is_interrupted(tenantry: Tenantry):
    run(tenantry, "20261101T000000Z-1", None)
    assert maple(tenantry)["last_run"]["result"] == "interrupted"
    locks = LockDirectory(tenantry.state_directory / "locks", SystemClock())
    with locks.hold(MAPLE, job="converge", run="20261102T000000Z-2"):
        assert maple(tenantry)["last_run"]["result"] == "interrupted"


def test_status_in_a_pipe_is_one_plain_line_a_tenant(tenantry: Tenantry):
    run(tenantry, "20261101T000000Z-1", RunResult.UPDATED, to_version=HEAD)
    lines = tenantry("status").out.splitlines()
    assert [line.split()[0] for line in lines] == ["tenant", "maple", "harbor"]
    assert lines[1].split()[1:3] == [HEAD, HEAD]
    assert "\x1b" not in "".join(lines)


def test_history_lists_finished_runs_the_oldest_first(tenantry: Tenantry):
    run(tenantry, "20261101T000000Z-1", RunResult.UPDATED, to_version="2026.10.22")
    run(tenantry, "20261102T000000Z-2", RunResult.FAILED, to_version=HEAD)
    run(tenantry, "20261103T000000Z-3", None)
    document = tenantry.document("history", "history", "maple")
    assert [entry["result"] for entry in document["runs"]] == ["updated", "failed"]
    assert len(tenantry("history", "maple").out.splitlines()) == 3
    assert "no run" in tenantry("history", "harbor").out


def test_logs_print_the_newest_run_or_the_named_one_without_control_characters(tenantry: Tenantry):
    run(tenantry, "20261101T000000Z-1", RunResult.UPDATED)
    run(tenantry, "20261102T000000Z-2", RunResult.FAILED)
    assert tenantry.document("logs", "logs", "maple")["run"] == "20261102T000000Z-2"
    assert tenantry.document("logs", "logs", "maple", "20261101T000000Z-1")["run"] == "20261101T000000Z-1"
    text = tenantry("logs", "maple").out
    assert "apply: " in text
    assert "\x1b" not in text and "\x07" not in text


def test_history_and_logs_of_environments_and_tiers(hosted: Tenantry):
    for subject in (Subject("env", OWN), Subject("tier", TIER)):
        name, kind = "20261101T000000Z-1", subject.kind
        record = store(hosted).start(subject, job="create", run=name, process=os.getpid())
        record.log("apply: observing")
        record.finish(RunResult.UPDATED, None)
        for spelled in (str(subject), f"@env/{subject.id}"):
            document = hosted.document("history", "history", spelled)
            assert (document["uuid"], document["kind"], len(document["runs"])) == (subject.id, kind, 1)
            assert hosted.document("logs", "logs", spelled)["run"] == name
            assert "observing" in hosted("logs", spelled, name).out
    for unknown in (f"tier/{OWN}", f"env/{MEMBER[:-1]}0", "env/../tenant/maple", "@env/", f"lab/{OWN}"):
        assert hosted("history", unknown).code == hosted("logs", unknown).code == 2


def test_a_run_that_does_not_exist_or_leaves_the_records_is_refused(tenantry: Tenantry):
    run(tenantry, "20261101T000000Z-1", RunResult.UPDATED)
    for name in ("20261102T000000Z-2", "../../../tenant/maple/runs/20261101T000000Z-1", ".."):
        result = tenantry("logs", "maple", name)
        assert result.code == 2
        assert "history" in result.err


def test_a_reader_that_leaves_early_is_no_error(tenantry: Tenantry):
    record = store(tenantry).start(MAPLE, job="converge", run="20261101T000000Z-1", process=os.getpid())
    record.log_file.write_text("a line\n" * 100_000)
    program = f"{sys.executable} -c 'from engine.cli.main import main; main()'"
    command = f"{program} -C {tenantry.root} logs maple"
    done = subprocess.run(["bash", "-c", f"{command} | head -1"], capture_output=True, text=True, check=True)
    assert done.stdout == "a line\n"
    assert done.stderr == ""


def test_status_shows_how_old_the_last_proven_restore_is(tenantry: Tenantry):
    proofs = ProofStore(tenantry.state_directory / "records")
    phases = {"archive": 1.0}
    good = Proof("r1", "20261101T000000Z", "2026-11-01T00:10:00Z", 61.5, RunResult.REHEARSED, ("mail",), phases)
    proofs.record(MAPLE, good)
    assert maple(tenantry)["last_proven_restore"] == {
        "run": "r1",
        "archive": "20261101T000000Z",
        "archive_at": "2026-11-01T00:00:00Z",
        "at": "2026-11-01T00:10:00Z",
        "duration_seconds": 61.5,
        "result": "rehearsed",
        "unproven": ["mail"],
    }
    proofs.record(MAPLE, replace(good, run="r2", result=RunResult.FAILED, error="maple: no"))
    found = maple(tenantry)
    assert found["last_proven_restore"]["run"] == "r1"
    assert (found["last_rehearsal"]["run"], found["last_rehearsal"]["error"]) == ("r2", "maple: no")
    assert "failed" in tenantry("status", "maple").out


def test_the_proof_of_an_older_archive_does_not_take_the_place_of_a_newer_ones(tenantry: Tenantry):
    proofs = ProofStore(tenantry.state_directory / "records")
    now = SystemClock().now().replace(microsecond=0)
    days = [now - datetime.timedelta(days=count) for count in range(40)]
    good = Proof("r1", days[2].strftime(ID_FORMAT), iso(days[1]), 61.5, RunResult.REHEARSED)
    proofs.record(MAPLE, good)
    proofs.record(MAPLE, replace(good, run="r2", archive=days[30].strftime(ID_FORMAT), at=iso(now)))
    assert maple(tenantry)["last_proven_restore"]["run"] == "r1"
    assert "1 d ago, archive 2 d old" in tenantry("status", "maple").out
    proofs.record(MAPLE, replace(good, run="r3", at=iso(now)))
    assert maple(tenantry)["last_proven_restore"]["run"] == "r3"
