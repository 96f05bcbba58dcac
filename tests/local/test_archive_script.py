"""The host's half of a backup: consistent copies, nothing changed, nothing left, and an honest word about its end."""

from __future__ import annotations

import os
import socket
import sqlite3
import subprocess
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from engine.backups.reading import Kind
from engine.backups.request import Request, check_answer
from engine.errors import ArchiveRejected, Refused
from engine.registry.settings import Transport
from tests.local.archiving import FakeTenant, archived, problem, wait_for_end


@pytest.fixture
def tenant(tmp_path: Path) -> FakeTenant:
    return FakeTenant(tmp_path / "tenant")


# Files


def test_every_kind_of_file_is_in_with_owner_mode_and_time(tenant: FakeTenant, tmp_path: Path):
    (tenant.state / "deep/er").mkdir(parents=True)
    (tenant.state / "deep/er/file").write_bytes(b"x" * 5000)
    os.chown(tenant.state / "deep/er/file", 65534, 12345)
    os.chmod(tenant.state / "deep/er/file", 0o4710)
    os.utime(tenant.state / "deep/er/file", ns=(1, 1_700_000_000_123_456_789))
    (tenant.state / "link").symlink_to("/etc/shadow")
    os.link(tenant.state / "deep/er/file", tenant.state / "zz-hard")
    os.mkfifo(tenant.state / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tenant.state / "socket"))
        reader, members = archived(tenant, tmp_path / "out")
    state = str(tenant.state)
    file = members[f"{state}/deep/er/file"]
    assert (file.kind, file.mode, file.size, file.owner, file.group) == (Kind.FILE, 0o4710, 5000, "nobody", "")
    assert (file.uid, file.gid, file.mtime_ns) == (65534, 12345, 1_700_000_000_123_456_789)
    assert (members[f"{state}/link"].kind, members[f"{state}/link"].target) == (Kind.LINK, "/etc/shadow")
    hard = members[f"{state}/zz-hard"]
    assert (hard.kind, hard.target) == (Kind.HARD_LINK, f"{state}/deep/er/file")
    assert members[f"{state}/pipe"].kind is Kind.FIFO
    assert f"{state}/socket" not in members
    assert reader.description["marker"] == "2026.10.22\n"


@pytest.mark.parametrize("name", [b"\xff\xfe", b"new\nline", b"-rf", b"[x]*?", b"back\\slash", b" ", b"\x1b[2J"])
def test_hostile_names_are_in_byte_for_byte_as_files_and_as_databases(tenant: FakeTenant, tmp_path: Path, name: bytes):
    (tenant.state / os.fsdecode(name)).write_bytes(b"content")
    tenant.database(os.fsdecode(name) + ".db").close()
    reader, members = archived(tenant, tmp_path / "out")
    path = f"{tenant.state}/{os.fsdecode(name)}"
    assert members[path].size == 7 and members[path + ".db"].kind is Kind.FILE
    assert reader.description["databases"][path + ".db"]["tables"] == {"messages": 1000}


def test_a_sparse_file_takes_no_room_and_comes_out_whole(tenant: FakeTenant, tmp_path: Path):
    with (tenant.state / "sparse").open("wb") as file:
        file.seek(300_000_000)
        file.write(b"end")
    output, _ = tenant.run()
    assert len(output.stdout) < 100_000
    _, members = archived(tenant, tmp_path / "out")
    assert members[f"{tenant.state}/sparse"].size == 300_000_003


def test_what_is_excluded_is_out_and_its_namesakes_elsewhere_are_in(tmp_path: Path):
    tenant = FakeTenant(tmp_path / "tenant", exclude=("cache", "logs/*.log", "*_cache", "a?c"))
    inside = ["logs/keep.txt", "deep/cache/x", "logs/deep/x.log", "deep/a.log", "abbc", "cached"]
    outside = ["cache/x/y", "logs/a.log", "image_cache/x", "abc/d"]
    for name in (*inside, *outside):
        (tenant.state / name).parent.mkdir(parents=True, exist_ok=True)
        (tenant.state / name).write_text("x")
    tenant.database("cache/x/inside.db").close()
    _, members = archived(tenant, tmp_path / "out")
    files = {path for path, member in members.items() if member.kind is Kind.FILE}
    assert files == {f"{tenant.state}/{name}" for name in inside} | {f"{tenant.home}/version"}


def test_files_that_vanish_and_change_meanwhile_do_no_harm(tenant: FakeTenant, tmp_path: Path):
    for number in range(300):
        (tenant.state / f"{number}").write_bytes(os.urandom(50_000))
    ended = threading.Event()

    def churn() -> None:
        number = 0
        while not ended.is_set():
            (tenant.state / f"{number % 300}").unlink(missing_ok=True)
            (tenant.state / f"{(number + 7) % 300}").write_bytes(os.urandom(60_000))
            number += 1
            # Where gevent has made the thread a greenlet, the others get their turn.
            time.sleep(0)

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        for _ in range(5):
            archived(tenant, tmp_path / "out")
    finally:
        ended.set()
        thread.join()


def test_a_content_that_is_a_link_to_a_directory_is_refused_because_it_would_hold_the_link_alone(tenant: FakeTenant):
    tenant.state.rename(tenant.root / "volume")
    tenant.state.symlink_to(tenant.root / "volume")
    assert "is a link" in problem(tenant)


def test_an_absent_content_is_told_and_no_failure(tenant: FakeTenant, tmp_path: Path):
    tenant.state.rmdir()
    reader, members = archived(tenant, tmp_path / "out")
    assert reader.description["contents"][0]["found"] == [] and list(members) == [f"{tenant.home}/version"]


# Ends


def changed(wanted: Request, old: bytes, new: bytes) -> Request:
    """A request of which the script or its parameters are other ones."""
    stdin = wanted.stdin.replace(old, new)
    assert stdin != wanted.stdin
    return Request(wanted.nonce, wanted.command.replace(str(len(wanted.stdin)), str(len(stdin))), stdin)


def test_no_room_for_the_copies_is_refused_with_both_figures(tenant: FakeTenant):
    tenant.database("state.db").close()
    wanted = changed(tenant.request(), b'"reserve_bytes": 0', b'"reserve_bytes": 99999999999999')
    output, _ = tenant.run(wanted)
    with pytest.raises(Refused, match=r"no room .*: \d+ bytes needed, \d+ bytes free") as raised:
        check_answer(output, wanted.nonce, "maple")
    assert not isinstance(raised.value, ArchiveRejected) and output.stdout == b"" and tenant.left() == []


def test_a_disk_that_fills_up_during_the_copy_leaves_nothing(tmp_path: Path):
    small, state = tmp_path / "small", tmp_path / "state"
    small.mkdir()
    state.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", small], check=True)
    try:
        tenant = FakeTenant(small / "tenant")
        content = replace(tenant.settings.contents[0], path=str(state))
        tenant.settings = replace(tenant.settings, contents=(content,))
        connection = sqlite3.connect(state / "state.db")
        connection.execute("CREATE TABLE t (x)")
        connection.executemany("INSERT INTO t VALUES (?)", [("x" * 1000,)] * 5000)
        connection.commit()
        connection.close()
        # As if somebody else had taken the room after it was asked for.
        wanted = changed(tenant.request(), b"free = shutil.disk_usage(staging).free", b"free = 1 << 50")
        output, _ = tenant.run(wanted)
        with pytest.raises(Refused, match=r"the disk filled up while .*state\.db was copied"):
            check_answer(output, wanted.nonce, "maple")
        assert tenant.left() == []
    finally:
        subprocess.run(["umount", small], check=True)


@pytest.mark.parametrize(
    ("program", "script", "told"),
    [
        ("tar", "cat /dev/zero | head -c 20000; exit 2", "tar ended with status 2"),
        ("tar", "kill -9 $$", "tar ended with status -9"),
        ("zstd", "cat > /dev/null; exit 1", "zstd ended with status 1"),
        ("zstd", "head -c 5000; kill -SEGV $$", "zstd ended with status -11"),
    ],
)
def test_a_bad_status_of_tar_and_of_zstd_is_told(
    tenant: FakeTenant, tmp_path: Path, program: str, script: str, told: str
):
    binary = tmp_path / "bin" / program
    binary.parent.mkdir()
    binary.write_text(f"#!/bin/sh\necho '{program} has a problem' >&2\n{script}\n")
    binary.chmod(0o755)
    (tenant.state / "file").write_bytes(os.urandom(3_000_000))
    found = problem(tenant, env={"PATH": f"{binary.parent}:{os.environ['PATH']}"})
    assert told in found and f"{program} has a problem" in found


def test_the_script_ends_and_cleans_up_when_nobody_reads_any_more(tenant: FakeTenant):
    (tenant.state / "file").write_bytes(os.urandom(20_000_000))
    process = tenant.start(tenant.request())
    assert process.stdout and process.stderr
    process.stdout.read(100_000)
    process.stdout.close()
    process.stderr.close()
    assert wait_for_end(process) != 0
    assert tenant.left() == []


def test_the_script_ends_and_cleans_up_when_nothing_is_taken(tenant: FakeTenant):
    (tenant.state / "file").write_bytes(os.urandom(20_000_000))
    tenant.settings = replace(tenant.settings, transport=Transport(survivor_seconds=4, dead_link_seconds=1))
    process = tenant.start(tenant.request())
    assert process.stdout and process.stderr
    process.stdout.read(1000)
    assert wait_for_end(process) == 1
    assert b"nothing of the archive was taken for 2 s" in process.stderr.read()
    assert tenant.left() == []
    process.stdout.close()
    process.stderr.close()


def test_the_script_ends_while_it_copies_a_database_that_is_locked(tenant: FakeTenant):
    connection = tenant.database("state.db", "delete")
    connection.execute("BEGIN EXCLUSIVE")
    process = tenant.start(tenant.request())
    assert process.stdout and process.stderr
    time.sleep(0.5)
    process.stdout.close()
    process.stderr.close()
    assert wait_for_end(process) != 0
    assert tenant.left() == []
    connection.close()


def test_nothing_of_the_copies_can_be_read_by_another_account(tenant: FakeTenant):
    connection = tenant.database("state.db", rows=200_000)
    process = tenant.start(tenant.request())
    assert process.stdout and process.stderr
    process.stdout.read(1)
    (staging,) = (tenant.home / "staging").iterdir()
    assert (tenant.home / "staging").stat().st_mode & 0o777 == staging.stat().st_mode & 0o777 == 0o700
    process.communicate()
    connection.close()
