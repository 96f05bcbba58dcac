"""The command line as a user who is neither root nor the one who runs the fleet."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

NOBODY = 65534
PROGRAM = "import sys; from engine.cli.app import run; sys.exit(run(sys.argv[1:]))"

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


def tenantry_as_nobody(*arguments: str) -> subprocess.CompletedProcess[str]:
    """`tenantry ARGUMENTS` as nobody; the test is skipped where nobody may run no interpreter that has the engine."""
    return _as_nobody(_python(), "-c", PROGRAM, *arguments)


def _python() -> str:
    """An interpreter that nobody may run: the one of these tests may lie in root's home."""
    for interpreter in (sys.executable, f"/usr/bin/python3.{sys.version_info.minor}"):
        if _runs(interpreter):
            return interpreter
    pytest.skip("no interpreter of this version that another user may run, or this checkout is not theirs to read")


def _runs(interpreter: str) -> bool:
    try:
        return _as_nobody(interpreter, "-c", "import engine.cli.app").returncode == 0
    except OSError:
        return False


def _as_nobody(*command: str) -> subprocess.CompletedProcess[str]:
    search = os.pathsep.join(filter(None, sys.path))
    return subprocess.run(
        command,
        env={
            "PATH": "/usr/bin:/bin",
            "HOME": "/nonexistent",
            "PYTHONPATH": search,
            "PYTHONDONTWRITEBYTECODE": "1",
        },
        capture_output=True,
        text=True,
        check=False,
        user=NOBODY,
        group=NOBODY,
        extra_groups=(),
        stdin=subprocess.DEVNULL,
        cwd="/",
    )
