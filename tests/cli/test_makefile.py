"""The Makefile's help, its refusals, and the lock file that it installs."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.fleets import commit, write_whole_fleet
from tests.waiting import until

ROOT = Path(__file__).parents[2]
MAKEFILE = (ROOT / "Makefile").read_text()
LOCK = (ROOT / "requirements.lock").read_text()


# In place of the interpreter that runs pytest; its directory is the file's own.
SESSION = """\
#!/bin/bash
trap 'kill $!; touch "$0.$$.interrupted"; echo "!!! KeyboardInterrupt !!!"; echo "=== 1 passed in 1s ==="; exit 2' INT
[ ! -e "$0.lasts" ] || { sleep 60 & touch "$0.$$.began"; wait; }
case "$*" in
    *'--part second '*) echo 'the reason'; echo 'FAILED tests/lab/x.py::test'; echo '=== 1 failed in 1s ==='; exit 1;;
    *) echo "ran $*"; echo '=== 3 passed in 1s ===';;
esac
"""


@pytest.fixture
def sessions(tmp_path: Path) -> Path:
    """A directory with a python that only pretends to run tests."""
    (tmp_path / "python").write_text(SESSION)
    (tmp_path / "python").chmod(0o755)
    return tmp_path


def make(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["make", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False)


def test_help_is_the_default_and_lists_every_target_with_what_it_does():
    targets = re.findall(r"^\.PHONY: (.+)$", MAKEFILE, re.MULTILINE)
    shown = make()
    assert shown.returncode == 0
    assert shown.stdout == make("help").stdout
    lines = [line for line in shown.stdout.splitlines() if line.startswith("  make ")]
    assert [line.split()[1] for line in lines] == targets
    assert all(len(line.split()) > 2 for line in lines)


def test_setup_with_a_python_that_is_too_old_says_what_to_do(tmp_path: Path):
    old = tmp_path / "python3"
    old.write_text('#!/bin/sh\ncase "$1" in --version) echo Python 3.9.2;; *) exit 1;; esac\n')
    old.chmod(0o755)
    refused = make("setup", f"PYTHON={old}")
    assert refused.returncode == 2
    assert "Python 3.11 or newer is needed" in refused.stderr
    assert "Python 3.9.2" in refused.stderr
    assert "make setup PYTHON=" in refused.stderr


def test_every_pin_of_the_lock_has_hashes_and_no_place():
    pins = re.split(r"\n(?=[a-z])", LOCK)
    assert all(re.match(r"[a-z0-9-]+==\S+ \\\n", pin) and "--hash=sha256:" in pin for pin in pins)
    assert "://" not in LOCK
    assert "#" not in LOCK
    assert "--index-url" not in LOCK


def test_the_lock_holds_the_versions_of_the_project_file():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    locked = set(re.findall(r"^([a-z0-9-]+==\S+) ", LOCK, re.MULTILINE))
    assert {pin.lower() for pin in wanted} <= locked


def releases(root: Path, *variables: str) -> subprocess.CompletedProcess[str]:
    """`make releases` on the fleet at `root`, with the tools of these tests."""
    tools = f"BIN={Path(sys.executable).parent}"
    command = ["make", "-C", str(root), "-f", str(ROOT / "Makefile"), "--old-file=setup", "releases", tools, *variables]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def git(root: Path, *arguments: str) -> None:
    subprocess.run(["git", "-C", str(root), *arguments], check=True, capture_output=True)


def change(root: Path, old: str, new: str) -> None:
    manifest = root / "releases.yaml"
    manifest.write_text(manifest.read_text().replace(old, new))
    commit(root)


def test_a_branch_is_compared_with_where_it_left_main_and_main_with_the_commit_before(tmp_path: Path):
    root = write_whole_fleet(tmp_path)
    assert "no revision to compare with" in releases(root).stderr
    commit(root)
    git(root, "branch", "--move", "main")
    first = releases(root)
    assert (first.returncode, "no revision to compare with" in first.stderr) == (0, True)
    git(root, "switch", "--quiet", "--create", "work")
    change(root, "{word: hi}", "{word: hey}")
    change(root, "Plain words", "Plainer words")
    refused = releases(root)
    assert refused.returncode == 2 and "edited" in refused.stdout
    assert releases(root, "RELEASED=HEAD^").returncode == 0
    git(root, "branch", "--force", "main")
    assert releases(root).returncode == 0
    change(root, "{word: hey}", "{word: ho}")
    git(root, "branch", "--force", "main")
    assert releases(root).returncode == 2


def test_this_repository_has_the_releases_that_tenants_have():
    found = releases(ROOT)
    if "is not usable" in found.stderr:
        pytest.skip("this engine cannot read the fleet of the revision to compare with")
    assert found.returncode == 0, found.stdout + found.stderr


def test_a_failure_in_any_part_of_the_tests_is_told_where_everything_ends(sessions: Path):
    ran = make("--no-print-directory", "--old-file=setup", "test", f"BIN={sessions}")
    lines = ran.stdout.splitlines()
    assert ran.returncode == 2
    assert sorted(re.findall(r"ran .*--part (\w+)", ran.stdout)) == ["faults", "first", "hosted", "rest"]
    assert "the reason" in lines
    assert lines[-7:].count("=== 3 passed in 1s ===") == 5
    assert lines[-2:] == ["FAILED tests/lab/x.py::test", "=== 1 failed in 1s ==="]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_interrupts_every_part_once_and_what_they_said_is_shown(sessions: Path, number: signal.Signals):
    (sessions / "python.lasts").touch()
    # As `timeout` and a terminal do it: the whole process group is told.
    command = ["timeout", "--signal", number.name, "60", "make", "--no-print-directory", "-C", str(ROOT)]
    process = subprocess.Popen(
        [*command, "--old-file=setup", "test", f"BIN={sessions}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    until(lambda: len(list(sessions.glob("*.began"))) == 3, "three parts run")
    process.send_signal(number)
    told, _ = process.communicate(timeout=60)
    assert len(list(sessions.glob("*.interrupted"))) == 3
    assert told.splitlines()[-6:] == ["!!! KeyboardInterrupt !!!", "=== 1 passed in 1s ==="] * 3
