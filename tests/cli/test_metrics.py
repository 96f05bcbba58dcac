"""metrics: the records in Prometheus's text format."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from engine.backups.proofs import Proof, ProofStore
from engine.clock import SystemClock
from engine.drift.record import record_file
from engine.locks import LockDirectory
from engine.records import RunResult, RunStore
from engine.subject import Subject
from tests.cli.conftest import Tenantry
from tests.fleets import HEAD


def samples(text: str) -> dict[tuple[str, str], tuple[dict[str, str], float]]:
    return {
        (sample.name, sample.labels["slug"]): (sample.labels, sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_metrics_say_what_the_records_say(tenantry: Tenantry):
    maple, clock = Subject("tenant", "maple"), SystemClock()
    record = RunStore(tenantry.state_directory / "records", clock).start(maple, job="converge", run="r1", process=1)
    record.finish(RunResult.UPDATED, to_version=HEAD)
    proof = Proof("r2", "20261122T030000Z", "2026-11-22T03:10:00Z", 60.0, RunResult.REHEARSED)
    ProofStore(tenantry.state_directory / "records").record(maple, proof)
    drift = record_file(tenantry.state_directory, maple)
    drift.write_text('{"at": "2026-11-22T04:00:00Z", "differences": [{"key": "a"}, {"key": "b"}]}')
    with LockDirectory(tenantry.state_directory / "locks", clock).hold(maple, job="backup", run="r3"):
        found = samples(tenantry("metrics").out)
    assert found["tenantry_tenant_version_info", "maple"][0]["version"] == HEAD
    assert found["tenantry_tenant_at_head", "maple"][1] == 1
    assert found["tenantry_tenant_at_head", "harbor"][1] == 0
    assert found["tenantry_tenant_locked", "maple"][1] == 1
    assert found["tenantry_tenant_last_run_info", "maple"][0]["result"] == "updated"
    assert found["tenantry_tenant_last_proven_restore_timestamp_seconds", "maple"][1] == 1795317000
    assert found["tenantry_tenant_last_proven_archive_timestamp_seconds", "maple"][1] == 1795317000 - 600
    assert found["tenantry_tenant_drift_keys", "maple"][1] == 2
    assert ("tenantry_tenant_drift_keys", "harbor") not in found
    assert ("tenantry_tenant_last_proven_restore_timestamp_seconds", "harbor") not in found


def test_metrics_replace_a_file_that_the_exporter_can_read(tenantry: Tenantry):
    file = tenantry.root / "tenantry.prom"
    result = tenantry("metrics", "--output", str(file))
    assert (result.code, result.out) == (0, "")
    assert file.stat().st_mode & 0o777 == 0o644
    assert ("tenantry_tenant_locked", "harbor") in samples(file.read_text())
