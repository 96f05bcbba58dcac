"""A backup over stub transports: whatever comes that is not a whole archive publishes and removes nothing."""

from __future__ import annotations

import datetime
import itertools
import json
import os
import random
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import gevent
import pytest

from engine.backups.manifest import Manifest
from engine.backups.run import Backup, BackupOutcome, store_of
from engine.backups.store import ArchiveStore, manifest_path
from engine.cli.backup import document
from engine.errors import CommandLost, CommandTimedOut, ExitCode
from engine.hosts.channel import Output
from engine.hosts.status import Armed, Marker, MarkerState, Status
from engine.records import RunResult
from engine.registry.safeguards import Backup as BackupSettings
from engine.registry.safeguards import Restic
from engine.updater.job import Job, run_job
from engine.updater.outcome import Outcome
from engine.updater.workspace import Workspace, open_workspace
from tests.cli.conftest import valid
from tests.fleets import write_whole_fleet
from tests.local.crashes import dies_at
from tests.local.test_archive_store import MANIFEST
from tests.unit.backups.archives import compress, tar
from tests.unit.updater.clocks import FakeClock
from tests.unit.updater.statuses import status

FILES = {"srv/noise": random.Random(4).randbytes(40_000), "srv/more": random.Random(5).randbytes(200_000)}


class Stub:
    """A session whose `backup` command prints what `reply` makes of the nonce, and ends as it says."""

    def __init__(self, reply: Callable[[str, Any], Output], found: Status) -> None:
        self._reply = reply
        self._found = found
        self.claimed: str | None = None

    def probe(self) -> Status:
        return self._found

    def claim(self, run: str) -> None:
        self.claimed = run

    def execute(self, command: str, *, stdin: bytes, stdout: Any, **_: Any) -> Output:
        parameters = json.loads(stdin.rpartition(b"\0")[2])
        return self._reply(parameters["nonce"], stdout)


def trailer(nonce: str, **answer: Any) -> bytes:
    return f"noise\n\ntenantry-archive {nonce} {json.dumps(answer)}\n".encode()


def good(asked: str, sink: Any, *, answer: dict[str, Any] | None = None, code: int = 0, **changes: Any) -> Output:
    """What a tenant does: an archive in blocks, and the line about its end."""
    content = compress(tar(FILES, end=changes.pop("end", asked), **{"nonce": asked, **changes}))
    send(sink, content)
    return Output(code, b"", trailer(asked, **(answer if answer is not None else {"tar": 0, "zstd": 0})))


def send(sink: Any, content: bytes) -> None:
    for start in range(0, len(content), 10_000):
        sink.write(content[start : start + 10_000])


NOW = datetime.datetime(2026, 11, 29, 1, 30, tzinfo=datetime.UTC)


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return replace(open_workspace(write_whole_fleet(tmp_path / "fleet")), clock=FakeClock(NOW.timestamp()))


@pytest.fixture
def store(workspace: Workspace) -> ArchiveStore:
    """The store with 14 good archives already, and foreign files."""
    store = store_of(workspace, workspace.fleet.tenants["maple"])
    store.prepare()
    for day in range(14):
        put(store, MANIFEST, day)
    (store.directory / "notes.txt").write_text("mine")
    return store


def put(store: ArchiveStore, manifest: Manifest, day: int) -> None:
    archive = store.free_id(datetime.datetime(2026, 11, 1, 1, 30, tzinfo=datetime.UTC) + datetime.timedelta(days=day))
    store.partial_of(archive).write_bytes(b"data")
    store.publish(replace(manifest, archive=archive))


def back_up(
    workspace: Workspace, reply: Callable[[str, Any], Output], found: Status | None = None, **settings: Any
) -> Outcome:
    if settings:
        fleet_settings = replace(workspace.fleet.settings, backup=BackupSettings(**settings))
        workspace = replace(workspace, fleet=replace(workspace.fleet, settings=fleet_settings))
    session: Any = Stub(reply, found or status(marker=Marker(MarkerState.PRESENT)))

    def work(job: Job) -> Outcome:
        backup = Backup(job, session)
        return backup.keep(backup.archive())

    return run_job(workspace, workspace.fleet.tenants["maple"], "backup", work)


def listing(store: ArchiveStore) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in store.directory.iterdir()}


def test_a_whole_archive_is_published_noted_and_the_oldest_goes(workspace: Workspace, store: ArchiveStore):
    before = listing(store)
    outcome = back_up(workspace, good)
    assert isinstance(outcome, BackupOutcome) and outcome.result is RunResult.BACKED_UP, outcome.error
    assert outcome.removed == ("20261101T013000Z",) and outcome.stored
    assert outcome.stored.archive == "20261129T013000Z"
    manifest = outcome.stored.manifest
    assert manifest and manifest.version == "2026.10.22" and manifest.applied == {"2026.10.22": "sha256:aa"}
    assert manifest.run == outcome.run and manifest.members == 4
    assert len(store.archives()) == 14 and all(item.is_verified for item in store.archives())
    assert outcome.stored.path.stat().st_mode & 0o777 == 0o600
    (line,) = [json.loads(line) for line in (store.directory / "history.jsonl").read_text().splitlines()]
    assert line == {
        "time": "2026-11-29T01:30:00Z",
        "file": outcome.stored.path.name,
        "size_bytes": outcome.stored.size_bytes,
        "digest": manifest.digest,
    }
    assert set(listing(store)) - set(before) == {
        outcome.stored.path.name, manifest_path(outcome.stored.path).name, "history.jsonl"
    }  # fmt: skip


def test_everything_is_on_the_disk_before_it_has_its_name_and_before_an_old_one_goes(
    workspace: Workspace, store: ArchiveStore, monkeypatch: pytest.MonkeyPatch
):
    calls = recorded(monkeypatch, store.directory)
    outcome = back_up(workspace, good)
    assert isinstance(outcome, BackupOutcome) and outcome.stored
    new, old = "maple-20261129T013000Z.tar.zst", "maple-20261101T013000Z.tar.zst"
    assert calls == [
        ("write", f".{new}.partial"),
        ("fsync", f".{new}.partial"),
        ("write", f".{new}.json.partial"),
        ("fsync", f".{new}.json.partial"),
        ("rename", f"{new}.json"),
        ("fsync", "."),
        ("rename", new),
        ("fsync", "."),
        ("write", "history.jsonl"),
        ("fsync", "history.jsonl"),
        ("unlink", old),
        ("unlink", f"{old}.json"),
        ("fsync", "."),
    ]


def recorded(monkeypatch: pytest.MonkeyPatch, directory: Path) -> list[tuple[str, str]]:
    """What is done in `directory` from now on, in order; writes to one file in a row are one, chance is left out."""
    calls: list[tuple[str, str]] = []

    def note(call: str, place: str | os.PathLike[str]) -> None:
        path = Path(place)
        if path == directory or path.parent == directory:
            done = (call, re.sub(r"\.[0-9a-f]{8}(?=\.partial)", "", os.path.relpath(path, directory)))
            if calls[-1:] != [done] or call != "write":
                calls.append(done)

    def watched(name: str, place: Callable[..., Any]) -> None:
        call = getattr(os, name)

        def instead(*arguments: Any, **more: Any) -> Any:
            where = place(*arguments)
            result = call(*arguments, **more)
            note(name, where)
            return result

        monkeypatch.setattr(os, name, instead)

    def opened(descriptor: int, *_: Any) -> str:
        return os.readlink(f"/proc/self/fd/{descriptor}")

    watched("write", opened)
    watched("fsync", opened)
    watched("rename", lambda source, target: target)
    watched("unlink", lambda path: path)
    return calls


def test_status_1_of_tar_is_good(workspace: Workspace, store: ArchiveStore):
    outcome = back_up(workspace, lambda nonce, sink: good(nonce, sink, answer={"tar": 1, "zstd": 0}))
    assert outcome.result is RunResult.BACKED_UP
    assert "a file changed while it was read" in outcome.messages[0]


def lost(nonce: str, sink: Any) -> Output:
    sink.write(compress(tar(FILES, nonce=nonce, end=nonce))[:50_000])
    raise CommandLost("the connection was lost", where="maple")


def lost_after_the_last_byte(nonce: str, sink: Any) -> Output:
    good(nonce, sink)
    raise CommandLost("the connection was lost", where="maple")


def too_late(nonce: str, sink: Any) -> Output:
    sink.write(b"\x28\xb5\x2f\xfd")
    raise CommandTimedOut("it did not end in time", where="maple")


def cut(where: Callable[[bytes], int]) -> Callable[[str, Any], Output]:
    def reply(nonce: str, sink: Any) -> Output:
        content = compress(tar(FILES, nonce=nonce, end=nonce))
        send(sink, content[: where(content)])
        return Output(0, b"", trailer(nonce, tar=0, zstd=0))

    return reply


def cut_before_compression(where: Callable[[bytes], int]) -> Callable[[str, Any], Output]:
    def reply(nonce: str, sink: Any) -> Output:
        content = tar(FILES, nonce=nonce, end=nonce)
        send(sink, compress(content[: where(content)]))
        return Output(0, b"", trailer(nonce, tar=0, zstd=0))

    return reply


def with_answer(**answer: Any) -> Callable[[str, Any], Output]:
    return lambda nonce, sink: good(nonce, sink, answer=answer)


def with_errors(stderr: Callable[[str], bytes], code: int = 0) -> Callable[[str, Any], Output]:
    def reply(nonce: str, sink: Any) -> Output:
        good(nonce, sink)
        return Output(code, b"", stderr(nonce))

    return reply


def at_a_member(content: bytes) -> int:
    """Where the last member before the end begins: all that comes before is whole members."""
    return (
        content.index(b"tenantry/end.json") - 1024 if b"PaxHeader" in content else content.index(b"tenantry/end.json")
    )


REFUSED: dict[str, tuple[Callable[[str, Any], Output], str]] = {
    "tar 2": (with_answer(tar=2, zstd=0), "tar ended with status 2"),
    "tar killed": (with_answer(tar=-9, zstd=0), "tar ended with status -9"),
    "tar without status": (with_answer(zstd=0), "tar ended with status None"),
    "zstd 1": (with_answer(tar=0, zstd=1), "zstd ended with status 1"),
    "zstd killed": (with_answer(tar=-13, zstd=-11), "zstd ended with status -11"),
    "problem": (with_answer(problem="x is a link"), "x is a link"),
    "no room": (with_answer(problem="no room for copies", needed=9, free=3), "9 bytes needed, 3 bytes free"),
    "no trailer": (with_errors(lambda nonce: b"noise\n"), "did not say how its archive ended"),
    "half a trailer": (with_errors(lambda nonce: trailer(nonce, tar=0, zstd=0)[:-9]), "did not say how"),
    "two trailers": (with_errors(lambda nonce: trailer(nonce, tar=0, zstd=0) * 2), "did not say how"),
    "a stranger's trailer": (with_errors(lambda nonce: trailer("0" * 32, tar=0, zstd=0)), "did not say how"),
    "a trailer that is no object": (with_errors(lambda nonce: f"tenantry-archive {nonce} [0]\n".encode()), "did not"),
    "status 1": (with_errors(lambda nonce: trailer(nonce, tar=0, zstd=0), code=1), "ended with status 1"),
    "lost": (lost, "connection was lost"),
    "lost after the last byte": (lost_after_the_last_byte, "connection was lost"),
    "time": (too_late, "did not end in time"),
    "nothing": (cut(lambda content: 0), "is not whole"),
    "one byte missing": (cut(lambda content: len(content) - 1), "is not whole"),
    "half": (cut(lambda content: len(content) // 2), "is not whole"),
    "at a member": (cut_before_compression(at_a_member), "its end is missing"),
    "after the first member": (cut_before_compression(lambda content: 1024), "is not whole"),
    "another end": (lambda nonce, sink: good(nonce, sink, end="f" * 32), "another archive"),
    "no end": (lambda nonce, sink: good(nonce, sink, end=None), "its end is missing"),
    "an old archive": (lambda nonce, sink: good(nonce, sink, nonce="a" * 32, end="a" * 32), "not the one that was"),
    "another strange description": (
        lambda nonce, sink: good(
            nonce, sink, databases={"/a": {"tables": {"t": "x"}, "user_version": 0, "size_bytes": 1}}
        ),
        "description is not one of ours",
    ),
    "a strange description": (lambda nonce, sink: good(nonce, sink, databases=[]), "description is not one of ours"),
}


@pytest.mark.parametrize("reply, told", REFUSED.values(), ids=REFUSED.keys())
def test_anything_else_is_refused_and_the_directory_is_as_it_was(
    workspace: Workspace, store: ArchiveStore, reply: Callable[[str, Any], Output], told: str
):
    before = listing(store)
    outcome = back_up(workspace, reply)
    assert outcome.exit_code is not ExitCode.DONE and outcome.error and told in outcome.error
    assert listing(store) == before


def test_an_archive_that_does_not_get_offsite_is_told_with_the_error(workspace: Workspace, store: ArchiveStore):
    outcome = back_up(workspace, good, restic=Restic("copies", "file:absent"))
    assert isinstance(outcome, BackupOutcome) and outcome.stored and outcome.stored.is_verified
    assert (outcome.result, outcome.exit_code, outcome.removed) == (RunResult.FAILED, ExitCode.FAILED, ())
    assert outcome.error and "is published, but not offsite: secret file:absent" in outcome.error
    (entry,) = valid("backup", document([outcome]))["tenants"]
    assert (entry["archive"]["archive"], entry["error"]) == (outcome.stored.archive, outcome.error)
    assert len(store.archives()) == 15


def test_a_clock_behind_the_newest_archive_is_refused_before_anything_is_touched(
    workspace: Workspace, store: ArchiveStore
):
    before = listing(store)
    early = FakeClock(datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC).timestamp())
    asked: list[str] = []

    def reply(nonce: str, sink: Any) -> Output:
        asked.append(nonce)
        return good(nonce, sink)

    outcome = back_up(replace(workspace, clock=early), reply)
    assert outcome.exit_code is ExitCode.FAILED
    assert outcome.error and "clock says 2026-01-01T00:00:00Z, but archive 20261114T013000Z" in outcome.error
    assert (listing(store), asked) == (before, [])


def test_what_was_just_stored_is_never_what_expires(workspace: Workspace, store: ArchiveStore):
    corrected = FakeClock(datetime.datetime(2026, 11, 14, 1, 29, 30, tzinfo=datetime.UTC).timestamp())
    outcome = back_up(replace(workspace, clock=corrected), good)
    assert isinstance(outcome, BackupOutcome) and outcome.stored and outcome.stored.path.exists()
    assert (outcome.stored, outcome.removed) == (store.newest(), ("20261101T013000Z",))


def test_fifteen_failing_nights_after_fourteen_good_ones_remove_none(workspace: Workspace, store: ArchiveStore):
    before = listing(store)
    for _ in range(15):
        assert back_up(workspace, lost).exit_code is not ExitCode.DONE
    assert listing(store) == before


def test_an_archive_under_its_smallest_size_is_refused(workspace: Workspace, store: ArchiveStore):
    before = listing(store)
    outcome = back_up(workspace, good, minimum_bytes=10_000_000)
    assert outcome.error and "fewer than 10000000" in outcome.error
    assert listing(store) == before


def test_a_marker_that_cannot_be_read_is_no_reason_for_no_backup(workspace: Workspace, store: ArchiveStore):
    found = status(marker=Marker(MarkerState.UNREADABLE, problem="it is empty"))
    outcome = back_up(workspace, lambda nonce, sink: good(nonce, sink, marker=""), found)
    assert isinstance(outcome, BackupOutcome) and outcome.stored and outcome.stored.manifest
    assert (outcome.stored.manifest.version, outcome.stored.manifest.marker_problem) == (None, "it is empty")
    assert outcome.messages == ("the marker is unreadable: it is empty; the archive has no version",)


def test_a_backup_that_is_killed_at_any_change_leaves_whole_archives_alone(
    workspace: Workspace, store: ArchiveStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    before = tmp_path / "before"
    shutil.copytree(store.directory, before)
    old = {item.archive for item in store.archives()}
    monkeypatch.setenv("PATH", f"{stub_restic(tmp_path, 'exit 0')}:{os.environ['PATH']}")
    seen = set()
    for change in itertools.count(1):
        if not dies_at(change, lambda: forked(workspace, good)):
            break
        there = {item.archive for item in store.archives() if item.is_verified}
        # Nothing goes before the new one is there, and what a reader finds is whole.
        assert len(old - there) <= len(there - old) and all(item.is_verified for item in store.archives())
        seen.add((len(there - old), len(old - there)))
        store.prepare()
        assert sum(name.endswith(".json") for name in listing(store)) == len(there)
        assert not [name for name in listing(store) if "partial" in name]
        shutil.rmtree(store.directory)
        shutil.copytree(before, store.directory)
    # Killed before it was published, before retention, and within it.
    assert seen == {(0, 0), (1, 0), (1, 1)}


def test_a_backup_that_is_killed_while_it_goes_offsite_has_published_and_removed_nothing(
    workspace: Workspace, store: ArchiveStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PATH", f"{stub_restic(tmp_path, 'kill -9 $PPID')}:{os.environ['PATH']}")
    child = os.fork()
    if child == 0:
        try:
            forked(workspace, good)
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert len(store.archives()) == 15 and all(item.is_verified for item in store.archives())
    corrected = replace(workspace, clock=FakeClock(NOW.timestamp() + 86_400))
    outcome = back_up(corrected, good)
    assert isinstance(outcome, BackupOutcome) and len(outcome.removed) == 2


def forked(workspace: Workspace, reply: Callable[[str, Any], Output]) -> None:
    """A backup with an offsite copy in a child of this process."""
    gevent.reinit()
    (workspace.fleet.root / "password").write_text("correct horse\n")
    (workspace.fleet.root / "password").chmod(0o600)
    back_up(workspace, reply, restic=Restic("copies", "file:password"))


def stub_restic(root: Path, script: str) -> Path:
    """A directory with a restic that says that it took both files, and then ends as `script` does."""
    path = root / "bin/restic"
    path.parent.mkdir()
    summary = '{"message_type":"summary","snapshot_id":"8348f308","total_files_processed":2,"total_bytes_processed":%s}'
    size = 'while [ "$1" != -- ]; do shift; done; shift; size=$(cat "$@" | wc -c)'
    path.write_text(f"#!/bin/sh\n{size}\nprintf '{summary}\\n' $size\n{script}\n")
    path.chmod(0o755)
    return path.parent


def test_a_server_that_was_never_provisioned_is_refused(workspace: Workspace, store: ArchiveStore):
    outcome = back_up(workspace, good, status(receipts={}))
    assert outcome.error and "never provisioned" in outcome.error


def test_a_tenant_whose_dead_man_is_armed_is_left_alone(workspace: Workspace, store: ArchiveStore):
    claimed: list[str] = []

    def reply(nonce: str, sink: Any) -> Output:
        claimed.append(nonce)
        return good(nonce, sink)

    outcome = back_up(workspace, reply, status(armed=Armed(run="r1", set="r1", head="2026.10.23")))
    assert outcome.error and "run r1 ended within its change" in outcome.error and "converge maple" in outcome.error
    assert claimed == []


def test_what_a_killed_backup_left_is_cleared_away_by_the_next(workspace: Workspace, store: ArchiveStore):
    store.partial_of("20261120T013000Z").write_bytes(b"half")
    assert back_up(workspace, good).result is RunResult.BACKED_UP
    assert not store.partial_of("20261120T013000Z").exists()


@pytest.fixture
def small_disk(workspace: Workspace) -> Iterator[Path]:
    """The archives' directory on a file system of one megabyte."""
    directory = workspace.state_directory / "backups"
    directory.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", directory], check=True)
    yield directory
    subprocess.run(["umount", directory], check=True)


def test_a_full_disk_here_is_told_with_directory_and_bytes_and_leaves_nothing(workspace: Workspace, small_disk: Path):
    def endless(nonce: str, sink: Any) -> Output:
        content = compress(tar({"srv/noise": random.Random(1).randbytes(3_000_000)}, nonce=nonce, end=nonce))
        send(sink, content)
        return Output(0, b"", trailer(nonce, tar=0, zstd=0))

    outcome = back_up(workspace, endless)
    directory = small_disk / "tenant/maple"
    assert outcome.error and str(directory) in outcome.error
    assert "No space left on device after" in outcome.error and "bytes" in outcome.error
    assert os.listdir(directory) == []


def test_a_directory_that_cannot_be_made_is_told(workspace: Workspace):
    (workspace.state_directory / "backups").parent.mkdir(parents=True, exist_ok=True)
    (workspace.state_directory / "backups").write_text("a file")
    outcome = back_up(workspace, good)
    assert outcome.error and "cannot be made ready" in outcome.error
