"""Another user than the one who runs the fleet is told so, by every command that would look at its files."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fleets import TENANTS, write_whole_fleet

NOBODY = 65534
PROGRAM = "import sys; from engine.cli.app import run; sys.exit(run(sys.argv[1:]))"

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


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
    done = _as_nobody(_python(), "-c", PROGRAM, "-C", str(fleet), *command.split())
    said = done.stdout + done.stderr
    assert done.returncode == 1
    assert "Permission denied" in said and " as the user who" in said
    assert "internal error" not in said


def test_pinned_keys_that_may_not_be_read_are_named(fleet: Path):
    server = "provider: {name: hetzner}\n    address: 192.0.2.1"
    (fleet / "inventory/tenants.yaml").write_text(TENANTS.replace("provider: {name: lab}", server, 1))
    test_what_may_not_be_read_is_named_with_what_to_do(fleet, "plan maple")


def _python() -> str:
    """An interpreter that nobody may run: the one of these tests may lie in root's home."""
    for interpreter in (sys.executable, f"/usr/bin/python3.{sys.version_info.minor}"):
        if _runs(interpreter):
            return interpreter
    pytest.skip("no interpreter of this version that another user may run")


def _runs(interpreter: str) -> bool:
    try:
        return _as_nobody(interpreter, "-c", "import engine.cli.app").returncode == 0
    except OSError:
        return False


def _as_nobody(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        env={"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=False,
        user=NOBODY,
        group=NOBODY,
        extra_groups=(),
        stdin=subprocess.DEVNULL,
        cwd="/",
    )
