"""Retention and listing: names and manifests decide, file times and foreign files do not."""

from __future__ import annotations

import datetime
import errno
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from engine.backups.manifest import Database, Manifest, load_manifest, save_manifest
from engine.backups.retention import expired
from engine.backups.store import ArchiveStore, StoredArchive, manifest_path
from engine.errors import ArchiveRejected, InvalidInput, RecordFailed, Refused
from engine.subject import Subject
from tests.local.crashes import dies_at

NIGHT = datetime.datetime(2026, 11, 1, 1, 30, tzinfo=datetime.UTC)

MANIFEST = Manifest(
    slug="maple",
    archive="20261101T013000Z",
    run="20261101T013000Z-5f3a9c1e",
    engine_version="0.1.0",
    started_at="2026-11-01T01:30:00Z",
    finished_at="2026-11-01T01:31:00Z",
    size_bytes=4,
    digest="sha256:" + "a" * 64,
    version="2026.10.22",
    marker_problem=None,
    applied={"2026.10.22": "sha256:aa"},
    contents=({"name": "home", "path": "/srv", "kind": "state", "exclude": ["cache"], "found": ["/srv\udcff"]},),
    members=7,
    uncompressed_bytes=100,
    databases={"/srv/\udcff\n.db": Database({"messages": 3, "\udcfe": 0}, 7, 4096)},
)


@pytest.fixture
def store(tmp_path: Path) -> ArchiveStore:
    store = ArchiveStore(tmp_path / "backups", Subject("tenant", "maple"))
    store.prepare()
    return store


def put(store: ArchiveStore, day: int, **changes: object) -> StoredArchive:
    """Publish one verified archive of a night."""
    archive = store.free_id(NIGHT + datetime.timedelta(days=day))
    store.partial_of(archive).write_bytes(b"data")
    return store.publish(replace(MANIFEST, archive=archive, **changes))


def listing(store: ArchiveStore) -> list[str]:
    return sorted(path.name for path in store.directory.iterdir())


def test_a_manifest_comes_back_as_it_was(tmp_path: Path):
    save_manifest(tmp_path / "m", MANIFEST)
    assert load_manifest(tmp_path / "m") == MANIFEST
    assert (tmp_path / "m").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", json.dumps({**MANIFEST.document(), "digest": "md5:1"})])
def test_what_is_no_manifest_is_refused(tmp_path: Path, text: str):
    (tmp_path / "m").write_text(text)
    with pytest.raises(ArchiveRejected, match="manifest"):
        load_manifest(tmp_path / "m")
    with pytest.raises(ArchiveRejected, match="cannot be read"):
        load_manifest(tmp_path / "absent")


def test_the_newest_stay_by_the_times_in_their_names(store: ArchiveStore):
    for day in range(20):
        item = put(store, day)
        # As a copy to another disk leaves them: the oldest looks newest.
        os.utime(item.path, (2_000_000_000 - day * 86400,) * 2)
    going = expired(store.archives(), 14)
    assert [item.taken_at for item in going] == [NIGHT + datetime.timedelta(days=day) for day in range(6)]
    assert expired(store.archives()[:14], 14) == ()
    assert len(expired(store.archives(), 0)) == 20


def test_only_this_tenants_verified_archives_count(store: ArchiveStore):
    for day in range(3):
        put(store, day)
    foreign = [
        ".maple-20261130T013000Z.tar.zst.partial",
        "maple-20261130T013000Z.tar.zst.partial",
        "maple2-20261130T013000Z.tar.zst",
        "maple-20261130T013000Z.tar",
        "maple-20269930T013000Z.tar.zst",
        "xmaple-20261130T013000Z.tar.zst",
        "notes.txt",
    ]
    for name in foreign:
        (store.directory / name).write_bytes(b"data")
    (store.directory / "maple-20261201T013000Z.tar.zst").mkdir()
    (store.directory / "maple-20261202T013000Z.tar.zst").symlink_to(store.archives()[0].path)
    assert [item.is_verified for item in store.archives()] == [True] * 3
    assert expired(store.archives(), 3) == ()


def test_an_archive_without_its_manifest_or_of_another_size_is_neither_counted_nor_removed(store: ArchiveStore):
    items = [put(store, day) for day in range(5)]
    manifest_path(items[0].path).unlink()
    items[1].path.write_bytes(b"more data")
    manifest_path(items[2].path).write_bytes(manifest_path(items[3].path).read_bytes())
    problems = [item.problem for item in store.archives()]
    assert problems[0] and "cannot be read" in problems[0]
    assert problems[1] == "it has 9 bytes, its manifest says 4"
    assert problems[2] and "that of maple" in problems[2]
    assert problems[3:] == [None, None]
    assert expired(store.archives(), 2) == ()
    newest = store.newest()
    assert newest and newest.archive == items[4].archive


def test_what_a_killed_run_left_is_removed_and_nothing_else(store: ArchiveStore):
    put(store, 0)
    kept = ["notes.txt", ".hidden", "maple2-20261130T013000Z.tar.zst.json", ".maple2-20261130T013000Z.tar.zst.partial"]
    left = [
        ".maple-20261130T013000Z.tar.zst.partial",
        ".maple-20261130T013000Z.tar.zst.json.1a2b3c4d.partial",
        "maple-20261130T013000Z.tar.zst.json",
    ]
    before = listing(store)
    for name in (*kept, *left):
        (store.directory / name).write_bytes(b"x")
    store.prepare()
    assert listing(store) == sorted([*before, *kept])


def test_a_name_is_never_used_twice(store: ArchiveStore):
    first, second = put(store, 0), put(store, 0)
    assert (first.archive, second.archive) == ("20261101T013000Z", "20261101T013001Z")


def test_a_clock_that_is_behind_the_newest_archive_gets_no_name(store: ArchiveStore):
    items = [put(store, day) for day in range(3)]
    unverified = store.path_of("20270101T000000Z")
    unverified.write_bytes(b"data")
    with pytest.raises(Refused, match="20261103T013000Z is of 2026-11-03T01:30:00Z") as caught:
        store.free_id(NIGHT)
    assert str(store.directory) in caught.value.hint
    # A clock that was corrected by less than a minute since: the next one is the newest all the same.
    assert store.free_id(items[2].taken_at - datetime.timedelta(seconds=50)) == "20261103T013001Z"


def test_removal_takes_the_manifest_along(store: ArchiveStore):
    items = [put(store, day) for day in range(3)]
    store.remove(items[:2])
    assert listing(store) == [items[2].path.name, manifest_path(items[2].path).name]


def test_the_directories_are_private(store: ArchiveStore, tmp_path: Path):
    put(store, 0)
    for directory in (store.directory, store.directory.parent, tmp_path / "backups"):
        assert directory.stat().st_mode & 0o777 == 0o700
    for path in store.directory.iterdir():
        assert path.name.endswith(".zst") or path.stat().st_mode & 0o777 == 0o600


def test_an_unknown_archive_is_answered_with_the_known_ones(store: ArchiveStore):
    put(store, 0)
    with pytest.raises(InvalidInput, match="20261101T013000Z"):
        store.get("20261102T013000Z")


def test_a_publication_that_fails_anywhere_leaves_neither_archive_nor_manifest(
    store: ArchiveStore, monkeypatch: pytest.MonkeyPatch
):
    before, sync = listing(store), os.fsync
    archive = store.free_id(NIGHT)
    store.partial_of(archive).write_bytes(b"data")
    failing = 0
    while True:
        failing += 1
        left = [failing]

        def fails(descriptor: int, left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] == 0:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            sync(descriptor)

        store.partial_of(archive).write_bytes(b"data")
        monkeypatch.setattr(os, "fsync", fails)
        try:
            store.publish(replace(MANIFEST, archive=archive))
        except RecordFailed:
            store.partial_of(archive).unlink(missing_ok=True)
            assert listing(store) == before
            continue
        break
    assert failing == 4, "the manifest's fsync, its directory's, and the archive's directory's"


def test_a_publication_that_dies_anywhere_leaves_nothing_half(store: ArchiveStore):
    change = 0
    while True:
        change += 1
        archive = store.free_id(NIGHT + datetime.timedelta(days=change))
        store.partial_of(archive).write_bytes(b"data")
        if not dies_at(change, lambda archive=archive: store.publish(replace(MANIFEST, archive=archive))):
            break
        assert all(item.is_verified for item in store.archives())
        store.prepare()
        assert all(item.is_verified for item in store.archives())
        assert not [name for name in listing(store) if "partial" in name]
        assert sum(name.endswith(".json") for name in listing(store)) == len(store.archives())
    assert change > 3
