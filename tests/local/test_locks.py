"""One job a subject: kernel locks on files that are never deleted."""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from engine.clock import SystemClock
from engine.errors import Busy, ExitCode, RecordFailed
from engine.locks import LockDirectory
from engine.subject import Subject

MAPLE = Subject("tenant", "maple")

HOLD = textwrap.dedent("""
    import sys, subprocess
    from pathlib import Path
    from engine.clock import SystemClock
    from engine.locks import LockDirectory
    from engine.subject import Subject
    with LockDirectory(Path(sys.argv[1]), SystemClock()).hold(Subject("tenant", "maple"), job="converge", run="r1"):
        child = subprocess.Popen(["sleep", "60"])
        print(child.pid, flush=True)
        sys.stdin.read()
""")


@pytest.fixture
def locks(tmp_path: Path) -> LockDirectory:
    return LockDirectory(tmp_path, SystemClock())


@pytest.fixture
def holder(tmp_path: Path):
    """Another process that holds the lock, with a child of its own."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout
    child = int(process.stdout.readline())
    yield process
    process.kill()
    process.wait()
    os.kill(child, signal.SIGKILL)


def test_a_second_job_is_busy_and_names_the_holder(locks, holder):
    with pytest.raises(Busy) as caught, locks.hold(MAPLE, job="backup", run="r2"):
        pass
    assert caught.value.exit_code is ExitCode.BUSY
    assert f"converge run r1 (process {holder.pid})" in caught.value.message


def test_two_jobs_of_one_process_exclude_each_other(locks):
    with (
        locks.hold(MAPLE, job="converge", run="r1"),
        pytest.raises(Busy),
        locks.hold(MAPLE, job="backup", run="r2"),
    ):
        pass


def test_a_killed_holder_frees_the_lock_although_its_child_lives(locks, holder):
    holder.kill()
    holder.wait()
    with locks.hold(MAPLE, job="converge", run="r2") as held:
        assert held.holder.run == "r2"


def test_the_file_stays_and_its_presence_alone_locks_nothing(locks, tmp_path):
    with locks.hold(MAPLE, job="converge", run="r1"):
        inode = (tmp_path / "tenant/maple.lock").stat().st_ino
    assert (tmp_path / "tenant/maple.lock").stat().st_ino == inode
    assert locks.holder(MAPLE) is None
    with locks.hold(MAPLE, job="converge", run="r2"):
        pass


def test_reading_the_holder_takes_no_lock(locks, holder):
    seen = locks.holder(MAPLE)
    assert seen is not None and (seen.job, seen.run, seen.pid) == ("converge", "r1", holder.pid)
    holder.kill()
    holder.wait()
    assert locks.holder(MAPLE) is None


def test_other_subjects_are_free(locks, holder):
    with locks.hold(Subject("tenant", "harbor"), job="converge", run="r2"):
        pass


def test_nobody_holds_a_subject_that_was_never_locked(locks):
    assert locks.holder(Subject("tenant", "new")) is None


def test_a_lock_that_cannot_be_looked_at_is_named(locks, tmp_path):
    (tmp_path / "tenant").write_text("no directory")
    with pytest.raises(RecordFailed, match=r"maple.lock: cannot read the lock file"):
        locks.holder(MAPLE)
