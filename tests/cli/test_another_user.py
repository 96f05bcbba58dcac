"""Another user than the one who runs the fleet is told so, by every command that would look at its files."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.another_user import needs_root, tenantry_as_nobody
from tests.fleets import TENANTS, write_whole_fleet

pytestmark = needs_root


@pytest.fixture
def fleet() -> Iterator[Path]:
    """A fleet that everybody may read, with state that is only root's."""
    with tempfile.TemporaryDirectory() as name:
        root = write_whole_fleet(Path(name))
        root.chmod(0o755)
        for private in ("var/lab/hosts", "var/locks", "var/records/tenant/maple", "var/ssh"):
            (root / private).mkdir(parents=True)
            (root / private).chmod(0o700)
        yield root


@pytest.mark.parametrize(
    "command",
    ["plan", "verify", "status", "status --live", "history maple", "logs maple", "logs maple r1", "doctor", "lab list"],
)
def test_what_may_not_be_read_is_named_with_what_to_do(fleet: Path, command: str):
    done = tenantry_as_nobody("-C", str(fleet), *command.split())
    said = done.stdout + done.stderr
    assert done.returncode == 1
    assert "Permission denied" in said and " as the user who" in said
    assert "internal error" not in said


def test_pinned_keys_that_may_not_be_read_are_named(fleet: Path):
    server = "provider: {name: hetzner}\n    address: 192.0.2.1"
    (fleet / "inventory/tenants.yaml").write_text(TENANTS.replace("provider: {name: lab}", server, 1))
    test_what_may_not_be_read_is_named_with_what_to_do(fleet, "plan maple")
