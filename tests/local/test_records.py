"""Records are whole at every moment and survive what a disk does."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from engine.clock import SystemClock
from engine.errors import RecordFailed
from engine.records import RunResult, RunStore, replace_file
from engine.subject import Subject
from tests.local.umasks import own_umask

MAPLE = Subject("tenant", "maple")


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    return RunStore(tmp_path / "records", SystemClock())


READ_UNTIL_STOPPED = """
import json, pathlib, sys
path, stop = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
seen = set()
print("reading", flush=True)
while not stop.exists():
    seen.add(len(json.loads(path.read_text())["completed_steps"]))
print(len(seen))
"""


def test_a_reader_in_a_loop_never_sees_a_part(store, tmp_path):
    record = store.start(MAPLE, job="converge", run="r1", process=1)
    path, stop = record.log_file.parent / "state.json", tmp_path / "stop"
    reader = subprocess.Popen(
        [sys.executable, "-c", READ_UNTIL_STOPPED, str(path), str(stop)], stdout=subprocess.PIPE, text=True
    )
    assert reader.stdout and reader.stdout.readline() == "reading\n"
    for count in range(1000):
        record.update(completed_steps=tuple("step" * 50 for _ in range(count % 40)))
    stop.touch()
    output, _ = reader.communicate()
    assert reader.returncode == 0 and int(output) > 1


def test_a_finished_run_has_one_history_line_with_its_log(store, tmp_path):
    record = store.start(MAPLE, job="converge", run="r1", process=7)
    record.update(from_version="2026.10.1", to_version="2026.10.2", releases=("2026.10.2",))
    record.log("apply: \x1b[2Jhello\nthere")
    record.finish(RunResult.UPDATED)
    (line,) = store.history(MAPLE)
    assert (line["result"], line["from_version"], line["releases"]) == ("updated", "2026.10.1", ["2026.10.2"])
    log = tmp_path / "records/tenant/maple" / line["log"]
    assert "\x1b" not in log.read_text() and len(log.read_text().splitlines()) == 1


def test_the_latest_run_is_the_newest_one(store):
    for run in ("20261001T000000Z-aa", "20261002T000000Z-aa"):
        store.start(MAPLE, job="converge", run=run, process=7).finish(RunResult.UNCHANGED)
    latest = store.latest(MAPLE)
    assert latest is not None and latest["run"] == "20261002T000000Z-aa"
    assert store.latest(Subject("tenant", "harbor")) is None


@pytest.mark.parametrize("character", ["\u2028", "\x85", "\x0b", "\udcff"])
def test_a_hosts_odd_characters_in_an_error_do_no_harm(store, character):
    record = store.start(MAPLE, job="converge", run="r1", process=7)
    record.log(f"said {character}")
    record.finish(RunResult.FAILED, f"the host said {character}")
    (line,) = store.history(MAPLE)
    latest = store.latest(MAPLE)
    assert latest is not None and latest["error"] == line["error"] == f"the host said {character}"


def test_records_that_a_power_cut_left_torn_do_not_hide_the_others(store, tmp_path):
    store.start(MAPLE, job="converge", run="20261001T000000Z-aa", process=7).finish(RunResult.UPDATED)
    store.start(MAPLE, job="converge", run="20261002T000000Z-aa", process=7)
    directory = tmp_path / "records/tenant/maple"
    (directory / "runs/20261002T000000Z-aa/state.json").write_bytes(b"")
    with (directory / "history.jsonl").open("ab") as history:
        history.write(b'{"run": "2026\xff')
    assert [entry["result"] for entry in store.history(MAPLE)] == ["updated"]
    latest = store.latest(MAPLE)
    assert latest is not None and latest["run"] == "20261001T000000Z-aa"
    store.start(MAPLE, job="converge", run="20261003T000000Z-aa", process=7).finish(RunResult.FAILED)
    assert [entry["result"] for entry in store.history(MAPLE)] == ["updated", "failed"]


def test_records_that_cannot_be_read_are_named(store, tmp_path):
    (tmp_path / "records/tenant/maple/history.jsonl").mkdir(parents=True)
    with pytest.raises(RecordFailed, match=r"history.jsonl: cannot be read"):
        list(store.history(MAPLE))


def test_mode_owner_and_link_are_kept(tmp_path):
    real = tmp_path / "elsewhere" / "state.json"
    real.parent.mkdir()
    real.write_text("old")
    real.chmod(0o640)
    os.chown(real, 65534, 65534)
    link = tmp_path / "state.json"
    link.symlink_to(real)
    replace_file(link, b"new")
    assert link.is_symlink() and real.read_text() == "new"
    assert (real.stat().st_mode & 0o777, real.stat().st_uid) == (0o640, 65534)


@pytest.fixture
def small_disk(tmp_path: Path):
    """A file system of one MiB."""
    directory = tmp_path / "small"
    directory.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(directory)], check=True)
    yield directory
    subprocess.run(["umount", str(directory)], check=True)


def test_a_new_file_has_the_mode_that_was_asked_for_whatever_the_umask(tmp_path):
    with own_umask():
        os.umask(0o077)
        replace_file(tmp_path / "metrics", b"x", mode=0o644)
    assert (tmp_path / "metrics").stat().st_mode & 0o7777 == 0o644


def test_a_full_disk_leaves_the_old_file_and_no_partial_one(small_disk):
    path = small_disk / "state.json"
    replace_file(path, b"old")
    with pytest.raises(RecordFailed) as caught:
        replace_file(path, b"x" * 2_000_000)
    assert "No space left" in caught.value.message
    assert path.read_bytes() == b"old"
    assert os.listdir(small_disk) == ["state.json"]


def test_a_full_disk_adds_no_half_line_to_the_history(small_disk):
    store = RunStore(small_disk / "records", SystemClock())
    record = store.start(MAPLE, job="converge", run="r1", process=1)
    record.log("first")
    free = os.statvfs(small_disk)
    (small_disk / "ballast").write_bytes(b"x" * (free.f_bavail * free.f_frsize))
    with pytest.raises(RecordFailed):
        record.log("y" * 100_000)
    assert record.log_file.read_text().endswith("first\n")


def test_only_the_newest_runs_keep_state_and_log_and_the_history_keeps_all(tmp_path):
    store = RunStore(tmp_path, SystemClock(), kept=3)
    for number in range(5):
        store.start(MAPLE, job="converge", run=f"2026100{number}T000000Z-aa", process=1).finish(RunResult.UNCHANGED)
    assert sorted(os.listdir(tmp_path / "tenant/maple/runs")) == [f"2026100{number}T000000Z-aa" for number in (2, 3, 4)]
    assert len(list(store.history(MAPLE))) == 5
