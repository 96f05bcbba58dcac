"""The exchange of a restore: wherever it dies, an undo brings back what was there, to the last mode."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from engine.backups.exchange import EXCHANGE
from engine.backups.listing import Listed
from engine.backups.manifest import Database
from engine.backups.restore_plan import trees_at
from engine.backups.unpack import CARRIED
from engine.recovery.assembly import assembled
from tests.local.crashes import dies_at
from tests.local.recovering import MESSAGES, Tenant, modules
from tests.unit.backups.test_restore_plan import manifest

NEW = "restore/r2/tree"


@pytest.fixture
def tenant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tenant:
    """A tenant with something in its state, and an archive of other things beside it."""
    return made(tmp_path / "tenant", monkeypatch)


def made(base: Path, monkeypatch: pytest.MonkeyPatch) -> Tenant:
    tenant = Tenant.create(base, monkeypatch)
    for name, text in {"cache/blob": "stays", "logs/day.log": "stays", "logs/kept": "old", "stray": "old"}.items():
        (tenant.state / name).parent.mkdir(exist_ok=True)
        (tenant.state / name).write_text(text)
    tenant.state.chmod(0o751)
    new = tenant.home / NEW
    (new / str(tenant.state).lstrip("/") / "logs").mkdir(parents=True)
    (new / str(base / "etc/app").lstrip("/")).mkdir(parents=True)
    (new / str(tenant.state).lstrip("/") / "memory").write_text("of the archive")
    (new / str(tenant.state).lstrip("/") / "logs/kept").write_text("of the archive")
    (new / str(tenant.state).lstrip("/")).chmod(0o700)
    (new / str(base / "etc/app/main.conf").lstrip("/")).write_text("of the archive\n")
    return tenant


def moved(tenant: Tenant) -> list[dict[str, Any]]:
    def tree(path: Path, kind: str, whole: bool, exclude: list[str], carry: list[str]) -> dict[str, Any]:
        return {"path": str(path), "kind": kind, "whole": whole, "exclude": exclude, "carry": carry}

    return [
        tree(tenant.state, "state", False, ["cache"], ["logs/*.log"]),
        tree(tenant.base / "etc/app/main.conf", "configuration", True, [], []),
        # Not in the archive.
        tree(tenant.base / "etc/app/sub", "configuration", True, [], []),
    ]


def take(tenant: Tenant, trees: list[dict[str, Any]] | None = None) -> None:
    tenant.take("r2", moved=trees or moved(tenant), states=[], units=["helper.service", "extra.service"])


def exchange(tenant: Tenant, trees: list[dict[str, Any]] | None = None) -> Any:
    gateway = {"unit": "gateway.service", "database": str(tenant.database)}
    return tenant.run(
        EXCHANGE,
        {
            "set": "r2",
            "tree": str(tenant.home / NEW),
            "moved": trees or moved(tenant),
            "parents": {},
            "gateway": {**gateway, "silence_seconds": 90},
            "own_gateway": "gateway.service",
            "holders_only": trees is not None,
            "own": {"applied.json": None, "version": "2026.9.1\n"},
            "owe": "restore",
        },
    )


def seen(tenant: Tenant) -> dict[str, Any]:
    """Everything that is live: kind, mode, and content or target, by path."""
    trees = modules()["trees"]
    found = {}
    for path in (tenant.state, tenant.base / "etc", tenant.home / "version", tenant.home / "applied.json"):
        for entry in trees.describe(str(path)):
            is_moved = entry["kind"] == "file" and tenant.home not in path.parents
            found[f"{path}/{entry['path']}"] = {**entry, "mtime_ns": is_moved and entry["mtime_ns"]}
    return found


def test_the_archive_s_files_take_the_place_of_the_live_ones(tenant: Tenant):
    take(tenant)
    done = {"outcome": "exchanged", "stopped": ["helper.service"], "running": [], "unknown": ""}
    assert exchange(tenant) == done
    assert tenant.told()[:2] == ["stop gateway.service", "stop helper.service"]
    assert (tenant.state / "memory").read_text() == "of the archive"
    assert not (tenant.state / "stray").exists() and not tenant.database.exists()
    assert (tenant.state / "cache/blob").read_text() == "stays", "what is excluded stays"
    assert (tenant.state / "logs/day.log").read_text() == "stays", "deeper down too"
    assert (tenant.state / "logs/kept").read_text() == "of the archive"
    assert tenant.state.stat().st_mode & 0o777 == 0o700
    assert (tenant.base / "etc/app/main.conf").read_text() == "of the archive\n"
    assert not (tenant.base / "etc/app/sub").exists()
    assert (tenant.home / "version").read_text() == "2026.9.1\n" and not (tenant.home / "applied.json").exists()


def test_what_stays_goes_through_no_link_of_the_archive(tenant: Tenant, tmp_path: Path):
    elsewhere = tmp_path / "profile.d"
    elsewhere.mkdir()
    logs = tenant.home / NEW / str(tenant.state / "logs").lstrip("/")
    shutil.rmtree(logs)
    logs.symlink_to(elsewhere)
    take(tenant)
    assert exchange(tenant)["outcome"] == "exchanged"
    assert list(elsewhere.iterdir()) == [] and (tenant.state / "logs").is_symlink()
    assert tenant.undo("r2")["outcome"] == "undone"
    assert (tenant.state / "logs/day.log").read_text() == "stays"


def test_a_directory_that_was_absent_comes_and_goes_again(tenant: Tenant):
    path = tenant.state / "diary"
    new = tenant.home / NEW / str(path).lstrip("/")
    new.mkdir(mode=0o750)
    (new / "entry").write_text("of the archive")
    content = {"path": str(tenant.state), "kind": "state", "exclude": [], "found": [str(tenant.state)]}
    listing = {str(path): Listed("directory", "0750", "root", "root", 0, 0)}
    trees = [tree.document() for tree in trees_at(str(path), manifest(contents=(content,)), listing, {})]
    before = seen(tenant)
    take(tenant, trees)
    assert exchange(tenant, trees)["outcome"] == "exchanged"
    assert (path / "entry").read_text() == "of the archive" and path.stat().st_mode & 0o777 == 0o750
    assert tenant.undo("r2")["outcome"] == "undone"
    assert seen(tenant) == before


def test_what_stays_counts_as_needed(tenant: Tenant):
    (tenant.state / "logs/day.log").write_bytes(os.urandom(50_000))
    assert 50_000 <= tenant.run(assembled(CARRIED), {str(tenant.state): ["logs/*.log"]}) < 70_000
    assert tenant.run(assembled(CARRIED), {str(tenant.state): ["logs/*.gz"]}) == 0


def messages(path: Path) -> list[str]:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return [row[0] for row in connection.execute("SELECT content FROM messages ORDER BY rowid")]


def leave_hot(path: Path, *texts: str) -> None:
    """A database whose last messages are in its log only, as a process that is killed leaves it."""
    source = path.with_name("made.db")
    with contextlib.closing(sqlite3.connect(source)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute(MESSAGES)
        connection.commit()
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.executemany("INSERT INTO messages VALUES (?, 1000)", [(text,) for text in texts])
        connection.commit()
        for end in ("", "-wal", "-shm"):
            shutil.copy(f"{source}{end}", f"{path}{end}")
    for end in ("", "-wal", "-shm"):
        Path(f"{source}{end}").unlink(missing_ok=True)


def test_one_database_comes_and_goes_back_with_all_that_was_committed(tenant: Tenant):
    leave_hot(tenant.database, "kept", "in the log")
    new = tenant.home / NEW / str(tenant.database).lstrip("/")
    with contextlib.closing(sqlite3.connect(new)) as connection:
        connection.execute(MESSAGES)
        connection.executemany("INSERT INTO messages VALUES (?, 1)", [(f"then {n}",) for n in range(2000)])
        connection.execute("PRAGMA journal_mode=WAL")
        connection.commit()
    path, listed = str(tenant.database), Listed("file", "0644", "root", "root", 0, 0)
    content = {"path": str(tenant.state), "kind": "state", "exclude": [], "found": [str(tenant.state)]}
    described = manifest(contents=(content,), databases={path: Database({}, 0, 1)})
    trees = [tree.document() for tree in trees_at(path, described, {path: listed}, {path: "file"})]
    take(tenant, trees)
    found = exchange(tenant, trees)
    assert found["outcome"] == "exchanged" and found["running"] == ["helper.service"], "it has nothing open there"
    assert len(messages(tenant.database)) == 2000
    leave_hot(tenant.database, "since then")
    assert tenant.undo("r2")["outcome"] == "undone"
    assert messages(tenant.database) == ["kept", "in the log"]


def test_a_conversation_is_left_alone(tenant: Tenant):
    take(tenant)
    tenant.say("now")
    before = seen(tenant)
    assert exchange(tenant) == {"outcome": "busy"}
    assert seen(tenant) == before and tenant.told() == []


@pytest.mark.parametrize("spoil", ["missing", "corrupt", "empty"])
def test_a_history_that_says_nothing_stops_no_restore(tenant: Tenant, spoil: str):
    if spoil == "empty":
        tenant.execute("DELETE FROM messages")
    else:
        tenant.database.unlink()
    if spoil == "corrupt":
        tenant.database.write_bytes(b"SQLite format 3\0" + bytes(8000))
    take(tenant)
    found = exchange(tenant)
    assert found["outcome"] == "exchanged" and bool(found["unknown"]) is (spoil != "empty")
    assert "stop gateway.service" in tenant.told()


def test_wherever_it_dies_an_undo_brings_back_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    change, died = 0, True
    while died:
        change += 1
        tenant = made(tmp_path / str(change), monkeypatch)
        before = seen(tenant)
        take(tenant)
        died = dies_at(change, lambda: exchange(tenant))  # noqa: B023
        assert tenant.undo("r2")["outcome"] == "undone"
        assert seen(tenant) == before, f"died at change {change}"
        owed = tenant.home / "owed.json"
        assert not owed.exists(), f"died at change {change}"
        shutil.rmtree(tenant.base)
    assert change > 20


def test_an_undo_that_dies_too_is_ended_by_the_next_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    change, died = 0, True
    while died:
        change += 1
        tenant = made(tmp_path / str(change), monkeypatch)
        before = seen(tenant)
        take(tenant)
        assert exchange(tenant)["outcome"] == "exchanged"
        died = dies_at(change, lambda: tenant.undo("r2"))  # noqa: B023
        assert tenant.undo("r2")["outcome"] == "undone"
        assert seen(tenant) == before, f"died at change {change}"
        assert "reload-or-restart helper.service" in tenant.told()
        shutil.rmtree(tenant.base)
    assert change > 10


def test_files_that_cannot_be_exchanged_are_told(tenant: Tenant, monkeypatch: pytest.MonkeyPatch):
    take(tenant)
    shutil.rmtree(tenant.home / NEW)
    (tenant.home / "recovery/r2/moved").write_text("in the way")
    found = exchange(tenant)
    assert found["outcome"] == "failed" and os.strerror(17) in found["problem"]
