"""The journal on a real SQLite file: migrations, fences, what the database itself refuses, moments."""

from __future__ import annotations

import datetime
import sqlite3
import stat
import sys
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from engine.environments.drivers.base import Kind
from engine.environments.journal import Action, Database, Intent, Journal, NewSubject, Outcome, State
from engine.environments.journal.tables import METADATA, REVISION
from engine.environments.words import Attention
from engine.errors import EnvironmentRefused, MissingPart, RecordFailed
from tests.local.environments.processes import REFUSED, at_once
from tests.unit.hosted import OWN
from tests.unit.updater.clocks import FakeClock

NEW = NewSubject(OWN, "env", "{}", "sha256:" + "1" * 64, durable=True)
CREATE = Intent(Action.CREATE, Kind.DATABASE, "ns_e_x_db", "sha256:2", "lease-1")
DELETE = Intent(Action.DELETE, Kind.DATABASE, "ns_e_x_db", "sha256:2", "lease-1")
WEEK = datetime.timedelta(hours=168)


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(Database(tmp_path / "state/journal.db"), FakeClock())


def refused(word: str) -> pytest.RaisesExc[EnvironmentRefused]:
    return pytest.RaisesExc(EnvironmentRefused, check=lambda error: error.word == word)


def test_the_migrated_schema_is_that_of_the_tables(journal: Journal, tmp_path: Path) -> None:
    with journal.database.read() as connection:
        assert compare_metadata(MigrationContext.configure(connection), METADATA) == []
        mode = connection.exec_driver_sql("PRAGMA journal_mode").scalar()
        synchronous = connection.exec_driver_sql("PRAGMA synchronous").scalar()
    assert (mode, synchronous) == ("wal", 2)
    with journal.database.read() as connection:
        assert MigrationContext.configure(connection).get_current_revision() == REVISION
    migrated = _schema(tmp_path / "state/journal.db")
    fresh = Database(tmp_path / "fresh.db")
    with fresh.write() as connection:
        METADATA.drop_all(connection)
        METADATA.create_all(connection)
    assert _schema(tmp_path / "fresh.db") == migrated


def _schema(path: Path) -> set[str]:
    with sqlite3.connect(path) as connection:
        rows = connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")
        return {" ".join(sql.replace('"', "").split()).replace("( ", "(").replace(" )", ")") for (sql,) in rows}


def test_only_its_owner_reads_it(journal: Journal, tmp_path: Path) -> None:
    assert stat.S_IMODE((tmp_path / "state/journal.db").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "state").stat().st_mode) == 0o700


def test_many_open_it_for_the_first_time_at_once(tmp_path: Path) -> None:
    assert set(at_once(_open, *[(tmp_path / "journal.db",)] * 6)) == {0}
    assert Journal(Database(tmp_path / "journal.db"), FakeClock()).subjects() == ()


def _open(path: Path) -> None:
    Database(path)


def test_of_many_who_intend_the_same_at_once_one_may(journal: Journal, tmp_path: Path) -> None:
    journal.begin(NEW)
    codes = at_once(_intend, *[(tmp_path / "state/journal.db",)] * 6)
    assert sorted(codes) == [0, *[REFUSED] * 5]
    assert len(journal.effects(OWN)) == 1


def _intend(path: Path) -> None:
    try:
        Journal(Database(path), FakeClock()).writer(OWN).intend(CREATE)
    except EnvironmentRefused:
        sys.exit(REFUSED)


def test_a_newer_engines_journal_is_left_alone(journal: Journal, tmp_path: Path) -> None:
    path = tmp_path / "state/journal.db"
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(MissingPart, match="newer engine"):
        Database(path)


def test_what_is_no_journal_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "journal.db").write_bytes(b"no database at all" * 100)
    with pytest.raises(RecordFailed, match="journal cannot be used"):
        Database(tmp_path / "journal.db")


def test_a_specification_is_recorded_once(journal: Journal) -> None:
    journal.begin(NEW)
    assert journal.begin(NEW).epoch == 1
    with refused("specificationChanged"):
        journal.begin(NewSubject(OWN, "env", "{}", "sha256:" + "3" * 64, durable=True))
    assert journal.required(OWN).spec_digest == NEW.spec_digest


def test_a_uuid_that_is_gone_is_never_used_again(journal: Journal) -> None:
    journal.begin(NEW).move(State.TOMBSTONED)
    with refused("alreadyTombstoned"):
        journal.begin(NEW)
    with refused("environmentNotKnown"):
        journal.writer("9b1deb4d-3b7d-4bad-9bdd-2b0d7b3dcb6d")


def test_no_second_create_unless_the_first_provably_did_nothing(journal: Journal) -> None:
    writer = journal.begin(NEW)
    first = writer.intend(CREATE)
    for outcome in (None, Outcome.LOST, Outcome.DONE):
        if outcome is not None:
            writer.conclude(first, outcome)
        with refused("intentStands"):
            writer.intend(CREATE)
    assert len(journal.effects(OWN)) == 1


def test_a_refused_create_may_be_intended_again(journal: Journal) -> None:
    writer = journal.begin(NEW)
    writer.conclude(writer.intend(CREATE), Outcome.REFUSED)
    assert writer.intend(CREATE)


def test_no_second_delete_while_one_is_open(journal: Journal) -> None:
    writer = journal.begin(NEW)
    first = writer.intend(DELETE)
    with refused("intentStands"):
        writer.intend(DELETE)
    writer.conclude(first, Outcome.LOST)
    assert writer.intend(DELETE)


def test_an_outcome_that_is_certain_never_changes(journal: Journal) -> None:
    writer = journal.begin(NEW)
    intent = writer.intend(CREATE)
    writer.conclude(intent, Outcome.DONE, reference="r")
    with pytest.raises(RecordFailed):
        writer.conclude(intent, Outcome.LOST)
    assert journal.effects(OWN)[0].reference == "r"


def test_an_old_pen_is_dry(journal: Journal) -> None:
    old = journal.begin(NEW)
    intent = old.intend(CREATE)
    new = old.fence(State.RECLAIMING)
    before = (journal.required(OWN), journal.effects(OWN))
    for write in (
        lambda: old.intend(DELETE),
        lambda: old.conclude(intent, Outcome.DONE),
        lambda: old.move(State.READY),
        lambda: old.fence(State.RECLAIMING),
        lambda: old.retire(WEEK),
        lambda: old.need_attention(Attention.STILL_PRESENT, Kind.ROLE),
        lambda: old.receipt("create", "done"),
    ):
        with refused("fenced"):
            write()
    assert (journal.required(OWN), journal.effects(OWN), journal.receipts(OWN)) == (*before, ())
    new.conclude(intent, Outcome.LOST)


def test_every_change_of_state_dries_the_pens_of_who_read_the_one_before(journal: Journal) -> None:
    old, new = journal.begin(NEW), journal.begin(NEW).move(State.READY)
    for write in (lambda: old.fence(State.ABANDONED), lambda: old.move(State.READY), lambda: old.retire(None)):
        with refused("fenced"):
            write()
    new.receipt("create", "done")
    assert (journal.required(OWN).state, journal.required(OWN).epoch) == (State.READY, 2)


def test_what_lets_go_does_so_of_the_effects_alone_that_it_has_seen(journal: Journal) -> None:
    writer = journal.begin(NEW)
    for write in (lambda: writer.intend(CREATE), lambda: writer.conclude(journal.effects(OWN)[0].id, Outcome.DONE)):
        seen = journal.effects(OWN)
        write()
        with refused("fenced"):
            writer.fence(State.RECLAIMING, seen)
    assert writer.fence(State.RECLAIMING, journal.effects(OWN)).epoch == 2


def test_the_moment_of_retirement_is_recorded_once(journal: Journal) -> None:
    writer = journal.begin(NEW)
    now = journal.clock.now()
    writer = writer.retire(WEEK)
    journal.clock.sleep(100.5)
    writer.retire(datetime.timedelta(hours=1))
    row = journal.required(OWN)
    assert (row.epoch, row.retired_at, row.retained_until) == (3, now, now + WEEK)
    assert row.is_retained(now + WEEK - datetime.timedelta(microseconds=1))
    assert not row.is_retained(now + WEEK)


def test_a_retirement_without_retention_never_gets_one(journal: Journal) -> None:
    journal.begin(NEW).retire(None).retire(WEEK)
    assert journal.required(OWN).retained_until is None


def test_receipts(journal: Journal) -> None:
    writer = journal.begin(NEW)
    writer.receipt("create", "done")
    writer.receipt("reclaim", "failed", "stillPresent")
    journal.receipt("sweep", "done", "1")
    assert [(item.job, item.result, item.word) for item in journal.receipts(OWN)] == [
        ("create", "done", ""),
        ("reclaim", "failed", "stillPresent"),
    ]
    assert [(item.job, item.word) for item in journal.receipts(None)] == [("sweep", "1")]
