"""One SQLite file in WAL mode, brought to the newest revision when it is opened."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event

from engine.environments.journal.tables import REVISION
from engine.errors import MissingPart, RecordFailed

BUSY_SECONDS = 30.0
_READS = "tenantry_reads"


class Database:
    """The connections to one journal file; a transaction that writes excludes every other one that does."""

    def __init__(self, path: Path, *, busy_seconds: float = BUSY_SECONDS) -> None:
        """Open `path`, made with mode 0600; raises :class:`RecordFailed` or, for a newer file, MissingPart."""
        self._path = path
        self._make()
        # Each transaction has a connection of its own: a process that forks shares none with its child.
        self._engine = sa.create_engine(
            f"sqlite:///{path}", poolclass=sa.NullPool, connect_args={"timeout": busy_seconds}
        )
        event.listen(self._engine, "connect", _on_connect)
        event.listen(self._engine, "begin", _on_begin)
        if not self._is_current():
            self._upgrade()

    @contextmanager
    def write(self) -> Iterator[sa.Connection]:
        """One transaction, on the disk when the body has ended; an error in the body undoes all of it."""
        with self._errors(), self._engine.begin() as connection:
            yield connection

    @contextmanager
    def read(self) -> Iterator[sa.Connection]:
        """One consistent view; it waits for no writer."""
        engine = self._engine.execution_options(**{_READS: True})
        with self._errors(), engine.begin() as connection:
            yield connection

    def _make(self) -> None:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        except OSError as error:
            raise RecordFailed(f"cannot open the journal: {error.strerror}", where=str(self._path)) from error

    def _is_current(self) -> bool:
        with self.read() as connection:
            if not sa.inspect(connection).has_table("alembic_version"):
                return False
            return connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalars().all() == [REVISION]

    def _upgrade(self) -> None:
        # Imported here because it takes longer than most commands, and is needed once in a journal's life.
        from alembic import command
        from alembic.config import Config
        from alembic.util.exc import CommandError

        config = Config()
        config.set_main_option("script_location", str(Path(__file__).with_name("migrations")))
        try:
            with self.write() as connection:
                config.attributes["connection"] = connection
                command.upgrade(config, "head")
        except CommandError as error:
            raise MissingPart(
                "the journal was written by a newer engine than this one",
                where=str(self._path),
                hint="use the engine that wrote it; nothing was changed",
            ) from error

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (sa.exc.OperationalError, sa.exc.DatabaseError) as error:
            if isinstance(error, sa.exc.IntegrityError):
                raise
            raise RecordFailed(
                f"the journal cannot be used: {error.orig}",
                where=str(self._path),
                hint="nothing is sent that could not be journalled before; correct this and give the command again",
            ) from error


def _on_connect(connection: Any, _record: Any) -> None:
    # Without this Python's driver begins transactions by itself, later than they are meant to.
    connection.isolation_level = None
    # With FULL a commit is on the disk before the effect that it announces is sent.
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}")


def _on_begin(connection: sa.Connection) -> None:
    reads = connection.get_execution_options().get(_READS)
    # A deferred writer could find out at its end only that another one was quicker.
    connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")
