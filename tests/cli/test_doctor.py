"""doctor: what is missing on this machine, as root and as nobody."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest

from engine.cli.checks import check_machine
from engine.cli.doctor import document
from engine.cli.invocation import Invocation
from tests.cli.another_user import needs_root, tenantry_as_nobody
from tests.cli.conftest import Tenantry, valid
from tests.fleets import write_whole_fleet


def test_every_part_is_ok_or_says_what_to_do(tenantry: Tenantry):
    checks = check_machine(Invocation.of(tenantry.root, None))
    assert all(check.ok != bool(check.remedy) for check in checks)
    valid("doctor", document(checks))
    result = tenantry("doctor")
    assert result.code == (0 if all(check.ok for check in checks) else 1)
    assert not tenantry.state_directory.exists()


def test_missing_debian_packages_are_named_with_the_exact_line(tenantry: Tenantry, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("engine.cli.checks._which", lambda command: None if command == "mmdebstrap" else command)
    result = tenantry("doctor")
    assert result.code == 1
    assert "apt-get update && apt-get install --yes --no-install-recommends mmdebstrap\n" in result.out


def test_outside_a_fleet_it_still_answers(tmp_path: Path, tenantry: Tenantry):
    result = tenantry("-C", str(tmp_path), "doctor")
    assert result.code == 1
    assert "fleet: name a fleet directory with -C" in result.out


def test_a_key_that_others_may_read_is_refused(tenantry: Tenantry):
    key = tenantry.state_directory / "ssh" / "id_ed25519"
    key.parent.mkdir(parents=True)
    key.write_text("key")
    key.chmod(0o644)
    assert f"identity key: chmod 600 {key}" in tenantry("doctor").out


@needs_root
def test_as_another_user_it_says_what_needs_root_and_so_does_the_lab():
    with tempfile.TemporaryDirectory() as name:
        root = write_whole_fleet(Path(name))
        root.chmod(0o777)
        found = tenantry_as_nobody("-C", name, "doctor", "--json")
        assert found.returncode == 1, found.stderr
        checks = {check["name"]: check for check in valid("doctor", json.loads(found.stdout))["checks"]}
        assert not checks["root"]["ok"]
        assert "as root" in checks["root"]["remedy"]
        prepared = tenantry_as_nobody("-C", name, "lab", "prepare")
        assert prepared.returncode == 1
        assert "only root" in prepared.stderr
        assert "hint: " in prepared.stderr
        assert "Traceback" not in prepared.stderr
