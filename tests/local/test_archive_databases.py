"""Databases in an archive: consistent copies of the moment, made without changing a byte of the live files."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engine.backups.reading import Kind
from tests.local.archiving import FakeTenant, archived, problem, tree


@pytest.fixture
def tenant(tmp_path: Path) -> FakeTenant:
    return FakeTenant(tmp_path / "tenant")


def test_a_live_database_is_in_with_the_row_of_a_moment_ago(tenant: FakeTenant, tmp_path: Path):
    connection = tenant.database("state.db")
    connection.execute("INSERT INTO messages VALUES ('newest')")
    connection.commit()
    assert (tenant.state / "state.db-wal").stat().st_size > 0
    reader, members = archived(tenant, tmp_path / "out")
    connection.close()
    path = f"{tenant.state}/state.db"
    assert reader.description["databases"][path]["tables"] == {"messages": 1001}
    copy = sqlite3.connect(f"{tmp_path}/out{path}")
    assert copy.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert copy.execute("SELECT COUNT(*) FROM messages WHERE content = 'newest'").fetchone() == (1,)
    copy.close()
    assert not any(name.endswith(("-wal", "-shm", "-journal")) for name in members)


def leave_open(tenant: FakeTenant) -> list[sqlite3.Connection]:
    return [tenant.database("live.db"), tenant.database("rollback.db", "delete")]


def leave_closed(tenant: FakeTenant) -> list[sqlite3.Connection]:
    for name, journal in (("wal.db", "wal"), ("delete.db", "delete"), ("persist.db", "persist")):
        tenant.database(name, journal).close()
    return []


def crash(tenant: FakeTenant) -> list[sqlite3.Connection]:
    """What killed programs leave: a log with or without its index, and a journal that must be rolled back."""
    for name in ("log.db", "log-and-index.db", "hot.db"):
        source = tenant.root / "source"
        source.mkdir(exist_ok=True)
        connection = sqlite3.connect(source / name, isolation_level=None)
        connection.execute(f"PRAGMA journal_mode={'delete' if name == 'hot.db' else 'wal'}")
        connection.execute("PRAGMA cache_size=2")
        connection.execute("CREATE TABLE messages (content TEXT)")
        connection.execute("BEGIN")
        connection.executemany("INSERT INTO messages VALUES (?)", [("kept" * 50,)] * 1000)
        connection.execute("COMMIT")
        if name == "hot.db":
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("UPDATE messages SET content = 'never committed' || randomblob(190)")
        suffixes = {"log.db": ("", "-wal"), "log-and-index.db": ("", "-wal", "-shm"), "hot.db": ("", "-journal")}
        for suffix in suffixes[name]:
            (tenant.state / (name + suffix)).write_bytes((source / (name + suffix)).read_bytes())
        connection.close()
    return []


@pytest.mark.parametrize("prepare", [leave_open, leave_closed, crash])
def test_no_byte_of_the_state_changes_and_no_file_appears(
    tenant: FakeTenant, tmp_path: Path, prepare: Callable[[FakeTenant], list[sqlite3.Connection]]
):
    held = prepare(tenant)
    before = tree(tenant.state)
    reader, _ = archived(tenant, tmp_path / "out")
    assert tree(tenant.state) == before
    assert tenant.left() == []
    for path, known in reader.description["databases"].items():
        copy = sqlite3.connect(f"{tmp_path}/out{path}")
        assert copy.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert copy.execute("SELECT COUNT(*) FROM messages").fetchone() == (known["tables"]["messages"],) == (1000,)
        assert copy.execute("SELECT COUNT(*) FROM messages WHERE content LIKE 'never%'").fetchone() == (0,)
        copy.close()
    for connection in held:
        connection.close()


@pytest.fixture
def reachable() -> Iterator[FakeTenant]:
    """A tenant whose files other accounts can reach; below pytest's own directory none can."""
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o755)
        yield FakeTenant(Path(directory) / "tenant")


def test_a_copy_is_made_with_its_owners_rights_and_keeps_owner_mode_and_time(reachable: FakeTenant, tmp_path: Path):
    tenant = reachable
    connection = tenant.database("state.db")
    for suffix in ("", "-wal", "-shm"):
        os.chown(tenant.state / f"state.db{suffix}", 65534, 65534)
    os.chmod(tenant.state / "state.db", 0o600)
    _, members = archived(tenant, tmp_path / "out")
    connection.close()
    member = members[f"{tenant.state}/state.db"]
    assert (member.owner, member.mode) == ("nobody", 0o600)


def test_a_database_that_its_owner_cannot_reach_is_in_all_the_same(tenant: FakeTenant, tmp_path: Path):
    connection = tenant.database("state.db")
    for suffix in ("", "-wal", "-shm"):
        os.chown(tenant.state / f"state.db{suffix}", 65534, 65534)
    os.chmod(tenant.state, 0o700)
    _, members = archived(tenant, tmp_path / "out")
    connection.close()
    assert members[f"{tenant.state}/state.db"].owner == "nobody"


def test_a_database_that_became_a_link_is_not_followed(tenant: FakeTenant, tmp_path: Path):
    secret = sqlite3.connect(tmp_path / "secret.db")
    secret.execute("CREATE TABLE secret (x)")
    secret.commit()
    secret.close()
    (tenant.state / "link.db").symlink_to(tmp_path / "secret.db")
    reader, members = archived(tenant, tmp_path / "out")
    assert reader.description["databases"] == {}
    assert members[f"{tenant.state}/link.db"].kind is Kind.LINK


@pytest.mark.parametrize("damage", ["header alone", "torn page", "truncated"])
def test_a_corrupt_database_fails_the_backup_and_is_named(tenant: FakeTenant, damage: str):
    tenant.database("state.db", "delete", rows=20_000).close()
    path = tenant.state / "state.db"
    content = bytearray(path.read_bytes())
    if damage == "header alone":
        content = content[:100]
    elif damage == "torn page":
        content[8192:40960] = os.urandom(32768)
    else:
        content = content[: len(content) // 2]
    path.write_bytes(content)
    assert f"the database {path} cannot be copied" in problem(tenant)


def test_a_small_file_that_only_begins_like_a_database_is_an_ordinary_one(tenant: FakeTenant, tmp_path: Path):
    (tenant.state / "note").write_bytes(b"SQLite format 3\0")
    _, members = archived(tenant, tmp_path / "out")
    assert members[f"{tenant.state}/note"].size == 16


def test_a_database_that_needs_its_programs_own_functions_is_in(tenant: FakeTenant, tmp_path: Path):
    connection = tenant.database("own.db", "delete")
    connection.create_collation("mine", lambda a, b: (a > b) - (a < b))
    connection.execute("CREATE TABLE words (word TEXT COLLATE mine PRIMARY KEY) WITHOUT ROWID")
    connection.execute("INSERT INTO words VALUES ('a'), ('b')")
    connection.execute("CREATE VIRTUAL TABLE search USING fts5(content)")
    connection.commit()
    connection.close()
    reader, _ = archived(tenant, tmp_path / "out")
    tables = reader.description["databases"][f"{tenant.state}/own.db"]["tables"]
    assert tables["messages"] == 1000 and "search" not in tables


def test_a_view_without_an_end_and_odd_names_in_a_schema_do_no_harm(tenant: FakeTenant, tmp_path: Path):
    connection = tenant.database("odd.db", "delete")
    connection.execute(
        "CREATE VIEW endless AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x FROM n"
    )
    connection.execute("""CREATE TABLE "a""b'c;--" (x)""")
    connection.commit()
    connection.close()
    reader, _ = archived(tenant, tmp_path / "out")
    tables = reader.description["databases"][f"{tenant.state}/odd.db"]["tables"]
    assert tables == {"messages": 1000, "a\"b'c;--": 0}


def test_a_table_with_a_name_of_any_bytes_is_counted(tenant: FakeTenant, tmp_path: Path):
    connection = tenant.database("many.db", "delete", rows=1)
    for number in range(3000):
        connection.execute(f'CREATE TABLE "{"long" * 20}{number}" (x)')
    connection.commit()
    connection.close()
    reader, _ = archived(tenant, tmp_path / "out")
    assert len(reader.description["databases"][f"{tenant.state}/many.db"]["tables"]) == 3001
