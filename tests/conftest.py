"""A guard over every test: no connection leaves this machine and its labs.

Destructive actions are never tried on a real target, not even to see a refusal. The hook sits below all
libraries and cannot be taken out again by a test.
"""

from __future__ import annotations

import ipaddress
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from engine.provision.providers.lab import is_lab_address

PARTS = {
    "first": (
        "lab/manifest",
        "lab/test_cloud_provision.py",
        "lab/test_conversations.py",
        "lab/test_provision.py",
        "lab/test_provision_cli.py",
        "lab/test_faults.py",
        "lab/test_rehearse.py",
        "lab/test_restore_killed.py",
    ),
    "second": (
        "lab/test_drift.py",
        "lab/test_recovery.py",
        "lab/test_reference_fleet.py",
        "lab/test_reference_restore.py",
        "lab/test_rollout.py",
    ),
    "faults": ("lab/environments/test_faults_in_journal.py", "lab/environments/test_observations.py"),
    "hosted": ("lab/environments",),
}
"""Parts of tests/lab beside the ``rest``, of which `make test` runs three at a time: all mostly wait for hosts."""


def needs(program: str) -> pytest.MarkDecorator:
    """Leave a test out on a machine without `program`; in CI (``CI=true``), where it must be there, the test fails."""
    missing = shutil.which(program) is None and os.environ.get("CI") != "true"
    return pytest.mark.skipif(missing, reason=f"{program} is not installed")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--part", choices=(*PARTS, "rest"), help="Run one part of tests/lab; all can run at once.")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave the other parts out; a file that is in no list is in the rest."""
    part = config.getoption("--part")
    if part is None or not collection_path.is_file():
        return None
    place = collection_path.relative_to(Path(__file__).parent).as_posix()
    return True if _part_of(place) != part else None


def _part_of(place: str) -> str:
    for part, names in PARTS.items():
        if any(place == name or place.startswith(f"{name}/") for name in names):
            return part
    return "rest"


def _is_ours(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback or is_lab_address(host)
    except ValueError:
        return host in ("", "localhost")


def _refuse_real_targets(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "socket.connect" and isinstance(arguments[1], tuple) and not _is_ours(str(arguments[1][0])):
        raise PermissionError(f"a test tried to connect to {arguments[1][0]}, which is neither loopback nor a lab")


sys.addaudithook(_refuse_real_targets)
