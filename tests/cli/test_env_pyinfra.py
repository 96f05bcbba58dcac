"""pyinfra's own command line on environments whose parents were up once and are down."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from engine.clock import SystemClock
from engine.environments.hosting import open_hosting, plan_of
from engine.environments.operations.inventory import environment_groups
from engine.locks import LockDirectory
from engine.subject import Subject
from tests.fleets import write_whole_fleet
from tests.unit.hosted import ENVIRONMENTS, MEMBER, OWN, TIER, write_environments

INVENTORY = Path(__file__).parents[2] / "inventory" / "environments.py"
FACT = "engine.environments.operations.facts.Observed"
PRESENT = "engine.environments.operations.operations.present"
ABSENT = "engine.environments.operations.operations.absent"
NOBODY = 1
"""A port of this machine at which nothing listens."""


def pyinfra(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(Path(sys.executable).with_name("pyinfra")), *arguments],
        cwd=root,
        env={**os.environ, "NO_COLOR": "1", "PYINFRA_PROGRESS": "off"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A fleet with one tier."""
    root = write_environments(write_whole_fleet(tmp_path / "fleet"), ENVIRONMENTS.split("environments:")[0])
    shutil.copy(INVENTORY, root / "inventory")
    parents = root / "var/lab/parents"
    (parents / "secrets").mkdir(parents=True)
    (parents / "postgres.json").write_text(json.dumps({"ports": {"postgres": NOBODY}}))
    (parents / "secrets/postgres").write_text("password")
    (parents / "objects.json").write_text(json.dumps({"ports": {"s3": NOBODY}}))
    (parents / "secrets/objects.json").write_text(json.dumps({"access_key": "A" * 20, "secret_key": "s" * 20}))
    return root


def untouched(root: Path) -> bool:
    """Whether no lock is held and no journal was made."""
    locks = LockDirectory(root / "var/locks", SystemClock())
    return locks.holder(Subject("tier", TIER)) is None and not (root / "var/environments").exists()


def test_what_cannot_be_asked_is_unknown(root: Path) -> None:
    for kind in ("database", "bucket"):
        done = pyinfra(root, "--json", "inventory/environments.py", "fact", FACT, f"kind={kind}")
        found = json.loads(done.stdout[done.stdout.index("{") : done.stdout.rindex("}") + 1])
        assert done.returncode == 0
        assert f"@env/{TIER}" in json.dumps(found) and '"observation": "unknown"' in json.dumps(found)
    assert untouched(root)


def test_a_question_that_is_none_is_unknown_too(root: Path) -> None:
    for arguments in ((), ("kind=wb",), ("kind=web",)):
        done = pyinfra(root, f"@env/{TIER}", "fact", FACT, *arguments)
        assert "unanswered" in done.stdout and "Traceback" not in done.stdout, done.stdout


def test_there_is_no_shell(root: Path) -> None:
    done = pyinfra(root, "-y", f"@env/{TIER}", "exec", "--", "touch touched")
    assert done.returncode == 1 and "Traceback" not in done.stdout
    assert "an environment has no shell" in done.stdout and "tenantry env show" in done.stdout
    assert not (root / "touched").exists() and untouched(root)


def test_what_nobody_knows_is_one_plain_line(root: Path) -> None:
    done = pyinfra(root, "-y", f"@env/{OWN}", PRESENT, "kind=database")
    assert done.returncode == 1 and f"unknown environment: {OWN}" in done.stdout and "Traceback" not in done.stdout


def test_a_dry_run_says_what_it_sees_and_touches_nothing(root: Path) -> None:
    with LockDirectory(root / "var/locks", SystemClock()).hold(Subject("tier", TIER), job="converge", run="run-7"):
        done = pyinfra(root, f"@env/{TIER}", PRESENT, "kind=database", "--dry")
    assert done.returncode == 0 and "_db is unknown (unreachable)" in done.stdout, done.stdout
    assert "operations.present (kind=database)" in done.stdout
    assert untouched(root)


def test_a_busy_one_is_one_plain_line(root: Path) -> None:
    locks = LockDirectory(root / "var/locks", SystemClock())
    for operation in (PRESENT, ABSENT):
        with locks.hold(Subject("tier", TIER), job="converge", run="run-7"):
            done = pyinfra(root, "-y", f"@env/{TIER}", operation, "kind=database")
        assert done.returncode == 1 and "Traceback" not in done.stdout
        assert f"tier/{TIER} is busy: converge run run-7" in done.stdout
    assert not (root / "var/environments").exists()
    assert locks.holder(Subject("tier", TIER)) is None


def test_nothing_is_sent_to_parents_that_are_not_recognized(root: Path) -> None:
    done = pyinfra(root, "-y", f"@env/{TIER}", PRESENT, "kind=database")
    assert done.returncode == 1 and "parent postgres: notRunning" in done.stdout and "Traceback" not in done.stdout
    assert not (root / "var/environments").exists()


def test_what_never_began_cannot_be_deleted(root: Path) -> None:
    done = pyinfra(root, "-y", f"@env/{TIER}", ABSENT, "key", "bucket")
    assert done.returncode == 1 and "environmentNotKnown" in done.stdout and "Traceback" not in done.stdout


def test_a_plan_too_only_looks(root: Path) -> None:
    plan = plan_of(open_hosting(root, root / "var"), TIER)
    assert plan.stops and {item.seen for item in plan.resources} == {"unknown: unreachable"}
    assert untouched(root)


def test_groups_are_environments_tiers_and_projects(tmp_path: Path) -> None:
    groups = environment_groups(write_environments(tmp_path), tmp_path / "state")
    assert {name: [host for host, _ in group] for name, group in groups.items()} == {
        "environments": [f"@env/{OWN}", f"@env/{MEMBER}"],
        "tiers": [f"@env/{TIER}"],
        "project_shop": [f"@env/{TIER}", f"@env/{OWN}", f"@env/{MEMBER}"],
    }
    ((_, data),) = groups["tiers"]
    assert data == {
        "tenantry_uuid": TIER,
        "tenantry_fleet": str(tmp_path),
        "tenantry_state": str(tmp_path / "state"),
    }
