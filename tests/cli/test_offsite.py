"""offsite: documents, refusals, and what doctor says of it."""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace
from pathlib import Path

import pytest

from engine.backups.store import ArchiveStore
from engine.cli.checks import check_machine
from engine.cli.invocation import Invocation
from engine.clock import SystemClock
from engine.locks.directory import LockDirectory
from engine.subject import Subject
from tests.cli.conftest import Tenantry
from tests.conftest import needs
from tests.local.test_archive_store import MANIFEST
from tests.unit.backups.archives import compress, tar

needs_restic = needs("restic")


@pytest.fixture
def with_repository(tenantry: Tenantry) -> Tenantry:
    settings = tenantry.root / "inventory/fleet.yaml"
    settings.write_text(settings.read_text() + "backup: {restic: {repository: copies, password: 'file:password'}}\n")
    password = tenantry.root / "password"
    password.write_text("correct horse\n")
    password.chmod(0o600)
    return tenantry


@needs_restic
def test_a_repository_is_made_once(with_repository: Tenantry):
    made = with_repository.document("offsite-init", "offsite", "init")
    assert made == {"repository": "copies"}
    assert (with_repository.state_directory / "copies/config").exists()
    assert with_repository.document("offsite-list", "offsite", "list", "maple")["copies"] == []
    again = with_repository("offsite", "init")
    assert again.code == 1
    assert "already" in again.err


@needs_restic
def test_archives_are_sent_and_fetched(with_repository: Tenantry):
    with_repository("offsite", "init")
    store = ArchiveStore(with_repository.state_directory / "backups", Subject("tenant", "maple"))
    store.prepare()
    content = compress(tar({"srv/noise": os.urandom(50_000)}))
    store.partial_of(MANIFEST.archive).write_bytes(content)
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    item = store.publish(replace(MANIFEST, size_bytes=len(content), digest=digest))
    for wanted in ([item.archive], []):
        document = with_repository.document("offsite-send", "offsite", "send", "--all")
        assert [entry["sent"] for entry in document["tenants"]] == [wanted, []]
    (copy,) = with_repository.document("offsite-list", "offsite", "list")["copies"]
    assert (copy["slug"], copy["archive"]) == ("maple", item.archive)
    store.remove([item])
    fetched = with_repository.document("offsite-fetch", "offsite", "fetch", "maple", item.archive)
    assert fetched["digest"] == digest
    assert with_repository("offsite", "fetch", "maple", item.archive).code == 1


@needs_restic
def test_a_busy_tenant_does_not_stop_the_others(with_repository: Tenantry):
    with_repository("offsite", "init")
    locks = LockDirectory(with_repository.state_directory / "locks", SystemClock())
    with locks.hold(Subject("tenant", "maple"), job="converge", run="r"):
        document = with_repository.document("offsite-send", "offsite", "send", "--all", code=75)
    assert [entry["exit_code"] for entry in document["tenants"]] == [75, 0]


def test_without_a_repository_the_setting_is_named(tenantry: Tenantry):
    result = tenantry("offsite", "list")
    assert result.code == 1
    assert "backup.restic" in result.err


def test_doctor_wants_restic_where_the_fleet_uses_it(with_repository: Tenantry, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("engine.cli.checks._which", lambda command: None if command == "restic" else command)
    checks = {check.name: check for check in check_machine(Invocation.of(with_repository.root, None))}
    assert checks["restic"].remedy.endswith("restic")


def test_doctor_does_not_want_it_elsewhere(tenantry: Tenantry, tmp_path: Path):
    assert "restic" not in {check.name for check in check_machine(Invocation.of(tenantry.root, None))}
