"""Backups of real hosts: consistent while the tenant works, whole or not at all, in flat memory, and nothing left."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import zstandard

from engine.backups.reading import open_archive, verify_archive
from engine.backups.run import BackupOutcome, backup_many
from engine.backups.store import ArchiveStore, StoredArchive, backup_root
from engine.cli import backup as backup_command
from engine.errors import ExitCode, most_serious
from engine.records import RunResult
from engine.updater.outcome import Outcome
from tests.cli.conftest import valid
from tests.lab.light_fleet import LightFleet
from tests.lab.waiting import until

NEWEST = "the newest before the backup"

TREE = """
find /srv/light /etc/light /etc/systemd/system/light-gateway.service -printf '%p %y %m %u %g %T@ %s ' \
  \\( -type f -exec sha256sum {} \\; -o -printf '%l\\n' \\) | sort
"""

WRITER = """
import sqlite3, sys, time
connection = sqlite3.connect("/srv/light/state.db", timeout=30)
connection.execute("PRAGMA synchronous=OFF")  # no test of the disk
number = 0
while True:
    number += 1
    connection.execute("INSERT INTO messages VALUES ('w', 'user', ?, ?)", (f"row {number}", time.time() - 1000))
    connection.commit()
    time.sleep(0.01)
"""

SLOW_ZSTD = """#!/usr/bin/python3
import subprocess, sys, time
process = subprocess.Popen(["/usr/bin/zstd", *sys.argv[1:]], stdout=subprocess.PIPE)
while block := process.stdout.read(65536):
    sys.stdout.buffer.write(block)
    sys.stdout.buffer.flush()
    time.sleep(0.05)
sys.exit(process.wait())
"""

LOCKER = """
import sqlite3, time
connection = sqlite3.connect("/srv/light/other.db", isolation_level=None)
connection.execute("CREATE TABLE t (x)")
connection.execute("BEGIN EXCLUSIVE")
print("locked", flush=True)
time.sleep(600)
"""


def store_of(fleet: LightFleet, slug: str = "maple") -> ArchiveStore:
    workspace = fleet.workspace()
    return ArchiveStore(
        backup_root(workspace.fleet.settings, workspace.state_directory), workspace.fleet.tenants[slug].subject
    )


def back_up(fleet: LightFleet, *slugs: str) -> tuple[Outcome, ...]:
    workspace = fleet.workspace()
    return backup_many(workspace, [workspace.fleet.tenants[slug] for slug in slugs or ("maple",)])


def archived(fleet: LightFleet) -> StoredArchive:
    (outcome,) = back_up(fleet)
    assert isinstance(outcome, BackupOutcome) and outcome.stored, outcome.error
    return outcome.stored


def staging(fleet: LightFleet) -> str:
    return fleet.run("maple", "ls -A /var/lib/tenantry/staging 2>/dev/null || true").strip()


def listing(fleet: LightFleet) -> list[str]:
    directory = store_of(fleet).directory
    return sorted(os.listdir(directory)) if directory.exists() else []


@contextmanager
def at_work(fleet: LightFleet, program: str) -> Iterator[subprocess.Popen[str]]:
    """A program that goes on inside the host for the body."""
    shell = fleet.lab.shell("maple", ("/usr/bin/python3", "-c", program))
    process = subprocess.Popen(shell, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
    try:
        yield process
    finally:
        fleet.run("maple", "pkill -f '[c]onnect.*srv/light' || true")
        process.terminate()
        process.wait()


@contextmanager
def slow_stream(fleet: LightFleet, size: int = 30_000_000) -> Iterator[None]:
    """Archives come slowly for the body, so that something can happen meanwhile."""
    fleet.run("maple", "cat > /usr/local/bin/zstd; chmod 755 /usr/local/bin/zstd", stdin=SLOW_ZSTD.encode())
    fleet.run("maple", f"head -c {size} /dev/urandom > /srv/light/noise")
    try:
        yield
    finally:
        fleet.run("maple", "rm -f /usr/local/bin/zstd /srv/light/noise")


@contextmanager
def begun(fleet: LightFleet, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """The command in a process of its own, once it streams."""
    process = fleet.cli("backup", "maple", *arguments)
    try:
        partials = store_of(fleet).directory
        until(lambda: any(path.stat().st_size > 200_000 for path in partials.glob(".*.partial")), "it streams")
        yield process
    finally:
        process.kill()
        process.communicate()


def test_an_archive_holds_the_tenant_and_its_manifest_tells_what(maple: LightFleet):
    assert maple.converge("maple").error is None
    maple.run("maple", "mkdir -p /srv/light/cache && echo x > /srv/light/cache/x")
    process = maple.cli("backup", "maple", "--json")
    out, err = process.communicate()
    assert process.returncode == 0, err
    (entry,) = valid("backup", json.loads(out))["tenants"]
    assert entry["result"] == "backed-up" and entry["archive"]["version"] == "2026.10.3"
    (stored,) = store_of(maple).archives()
    assert stored.manifest and stored.is_verified
    assert stored.manifest.databases["/srv/light/state.db"].tables == {"messages": 0}
    assert set(stored.manifest.applied) == {"2026.10.1", "2026.10.2", "2026.10.3"}
    with open_archive(stored.path) as reader:
        paths = {entry.member.path: entry.member for entry in reader}
    assert {"/var/lib/tenantry/version", "/opt/light/current", "/srv/light/SOUL.md"} <= set(paths)
    assert paths["/opt/light/current"].target == "/opt/light/1.1"
    assert not any(path.startswith(("/srv/light/cache", "/opt/light/1")) for path in paths)
    verify_archive(stored.path, stored.manifest.digest)
    # Anybody's tools read it too.
    with stored.path.open("rb") as file:
        content = zstandard.ZstdDecompressor().stream_reader(file).read()
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        assert "srv/light/SOUL.md" in archive.getnames()
    run = maple.workspace().runs.latest(maple.workspace().fleet.tenants["maple"].subject)
    assert run and (run["job"], run["result"], run["run"]) == ("backup", "backed-up", stored.manifest.run)
    process = maple.cli("backups", "maple", "--json")
    out, _ = process.communicate()
    (archive,) = valid("backups", json.loads(out))["tenants"][0]["archives"]
    assert archive["verified"] and 0 <= archive["age_seconds"] < 600


def test_no_byte_of_an_idle_tenant_changes(maple: LightFleet):
    maple.say("maple", age_seconds=1000)
    before = maple.run("maple", TREE)
    assert "state.db-wal" in before and "sha" not in before
    archived(maple)
    assert maple.run("maple", TREE) == before
    # Its process ends without a word to SQLite, so log and index stay; nobody has them open any more.
    maple.run("maple", "systemctl stop light-gateway")
    try:
        before = maple.run("maple", TREE)
        archived(maple)
        assert maple.run("maple", TREE) == before
    finally:
        maple.run("maple", "systemctl start light-gateway")
    assert staging(maple) == ""


def test_a_writer_of_a_hundred_rows_a_second_goes_on_and_the_copy_is_sound(maple: LightFleet, tmp_path: Path):
    with at_work(maple, WRITER):
        until(lambda: newest_row(maple) > 300, "the writer writes")
        before = newest_row(maple)
        maple.say("maple", NEWEST, age_seconds=1000)
        stored = archived(maple)
        after = newest_row(maple)
    database = tmp_path / "state.db"
    with open_archive(stored.path) as reader:
        for entry in reader:
            if entry.member.path == "/srv/light/state.db":
                database.write_bytes(b"".join(iter(lambda: entry.read(1 << 16), b"")))  # noqa: B023
    copy = sqlite3.connect(database)
    assert copy.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert copy.execute("SELECT COUNT(*) FROM messages WHERE content = ?", (NEWEST,)).fetchone() == (1,)
    newest = copy.execute("SELECT MAX(CAST(SUBSTR(content, 5) AS INTEGER)) FROM messages").fetchone()[0]
    rows = copy.execute("SELECT COUNT(*) FROM messages").fetchone()[0]
    copy.close()
    assert before <= newest <= after and after > before
    assert stored.manifest and stored.manifest.databases["/srv/light/state.db"].tables["messages"] == rows


NEWEST_ROW = """python3 -c 'import sqlite3; c = sqlite3.connect("/srv/light/state.db"); print(c.execute(
"SELECT COALESCE(MAX(CAST(SUBSTR(content, 5) AS INTEGER)), 0) FROM messages").fetchone()[0])'"""


def newest_row(fleet: LightFleet) -> int:
    """The number of the writer's newest row."""
    return int(fleet.run("maple", NEWEST_ROW))


def test_names_of_any_bytes_survive_the_way(maple: LightFleet):
    maple.run(
        "maple", r"mkdir /srv/light/odd; cd /srv/light/odd; : > $(printf 'a\377b'); : > \"$(printf 'x\ny')\"; : > -rf"
    )
    try:
        with open_archive(archived(maple).path) as reader:
            names = {os.fsencode(entry.member.path) for entry in reader}
        assert b"/srv/light/odd/a\xffb" in names and b"/srv/light/odd/-rf" in names
    finally:
        maple.run("maple", "rm -rf /srv/light/odd")


def test_a_second_job_is_busy_while_a_backup_streams(maple: LightFleet):
    with slow_stream(maple), begun(maple):
        for outcome in (*back_up(maple), maple.converge("maple")):
            assert (outcome.result, outcome.exit_code) == (RunResult.BUSY, ExitCode.BUSY)


def test_a_killed_operator_leaves_nothing_that_the_next_backup_does_not_clear_away(maple: LightFleet):
    archived(maple)
    with slow_stream(maple):
        with begun(maple) as process:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
        assert [name for name in listing(maple) if name.endswith(".partial")]
        until(lambda: staging(maple) == "", "the tenant's side gave up")
        until(lambda: maple.run("maple", "pgrep -c zstd || true").strip() == "0", "its programs ended")
    assert archived(maple) == store_of(maple).archives()[-1]
    assert not [name for name in listing(maple) if name.startswith(".")]
    assert all(item.is_verified for item in store_of(maple).archives())


def test_an_operator_killed_while_a_database_is_copied_leaves_nothing(maple: LightFleet):
    with at_work(maple, LOCKER) as locker:
        assert locker.stdout and locker.stdout.readline() == "locked\n"
        process = maple.cli("backup", "maple")
        until(lambda: staging(maple) != "", "the copies are being made")
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        until(lambda: staging(maple) == "", "the tenant's side gave up")
    maple.run("maple", "rm -f /srv/light/other.db*")
    archived(maple)


def test_an_interrupted_backup_leaves_nothing_on_either_side(maple: LightFleet):
    archived(maple)
    before = listing(maple)
    with slow_stream(maple):
        with begun(maple) as process:
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=30)
        assert process.returncode == 130 and "interrupted" in err
        assert listing(maple) == before
        until(lambda: staging(maple) == "", "the tenant's side gave up")


def test_a_cut_link_is_refused_in_bounded_time_and_the_next_backup_waits_for_what_is_left(maple: LightFleet):
    archived(maple)
    before = listing(maple)
    with slow_stream(maple):
        with begun(maple, "--json") as process:
            maple.lab.cut("maple")
            try:
                out, err = process.communicate(timeout=60)
            finally:
                maple.lab.restore_link("maple")
        assert process.returncode == 4 and "connection was lost" in err
        assert valid("backup", json.loads(out))["tenants"][0]["archive"] is None
        assert listing(maple) == before
    archived(maple)
    assert staging(maple) == ""


def test_a_tenant_without_room_for_the_copies_is_refused(maple: LightFleet):
    maple.change_settings(recovery={"reserve_mebibytes": 100_000_000})
    (outcome,) = back_up(maple)
    assert outcome.error and re.search(r"\d+ bytes needed, \d+ bytes free on the tenant", outcome.error)
    assert listing(maple) == [] or not [name for name in listing(maple) if name.startswith(".")]
    assert staging(maple) == ""


def test_a_corrupt_database_fails_that_backup_alone(two: LightFleet):
    two.run("maple", "(printf 'SQLite format 3\\0'; head -c 9000 /dev/urandom) > /srv/light/broken.db")
    maple, cedar = back_up(two, "maple", "cedar")
    assert maple.error and "/srv/light/broken.db cannot be copied" in maple.error
    assert cedar.result is RunResult.BACKED_UP and cedar.error is None
    assert most_serious_of(maple, cedar) is ExitCode.FAILED


def most_serious_of(*outcomes: Outcome) -> ExitCode:
    valid("backup", backup_command.document(outcomes))
    return most_serious(outcome.exit_code for outcome in outcomes)


def test_a_slow_tenant_does_not_hold_up_another(two: LightFleet):
    ended: list[str] = []
    workspace = two.workspace(lambda event: ended.append(event.subject) if event.phase == "done" else None)
    with slow_stream(two, size=6_000_000):
        outcomes = backup_many(workspace, [workspace.fleet.tenants[slug] for slug in ("maple", "cedar")])
    assert [outcome.error for outcome in outcomes] == [None, None]
    assert ended == ["cedar", "maple"]


FILL = """
import os
noise = os.urandom(1 << 20)
os.makedirs("/srv/light/bulk", exist_ok=True)
for number in range({mebibytes} // 16):
    with open(f"/srv/light/bulk/{{number}}", "wb") as file:
        for part in range(16):
            file.write(noise[:200_000] + bytes([part]) * (len(noise) - 200_000))
"""


MEASURED = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, check=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def peak_memory(fleet: LightFleet, mebibytes: int) -> int:
    """The operator's peak memory, in kilobytes, for a backup of a tenant with so much state."""
    fleet.run("maple", "rm -rf /srv/light/bulk; python3 -", stdin=FILL.format(mebibytes=mebibytes).encode())
    program = str(Path(sys.executable).with_name("tenantry"))
    command = [sys.executable, "-c", MEASURED, program, "-C", str(fleet.root), "backup", "maple"]
    peak = int(subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=True).stdout)
    newest = store_of(fleet).newest()
    assert newest and newest.manifest and newest.manifest.uncompressed_bytes > mebibytes << 20
    return peak


def test_memory_is_flat(maple: LightFleet):
    try:
        small, large = peak_memory(maple, 256), peak_memory(maple, 1024)
    finally:
        maple.run("maple", "rm -rf /srv/light/bulk")
    assert large < small * 1.1, f"{small} kB at 256 MB of state, {large} kB at 1 GB"
