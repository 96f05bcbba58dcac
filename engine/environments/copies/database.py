"""What is asked of a database beside its dump: a snapshot, row counts, and the mark of what it was restored from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

from psycopg import sql

from engine.environments.drivers.postgres import Connection
from engine.environments.drivers.postgres_parent import PostgresParent
from engine.environments.drivers.trouble import ProviderTrouble, Trouble

SCHEMA = "tenantry"
"""The administrator's schema in a database that was restored; its comment is the mark. No environment may make one."""

COUNT_SECONDS = 3600.0
LOCK_SECONDS = 60
END_SECONDS = 10.0

# With the column of each table that is written fastest; a table may have none.
_TABLES = """
SELECT n.nspname, c.relname, (
    SELECT a.attname FROM pg_catalog.pg_attribute a
    WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
    ORDER BY a.attlen < 0, a.attlen, a.attnum LIMIT 1)
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind = 'r' AND c.relpersistence <> 't' AND n.nspname !~ '^pg_'
  AND n.nspname NOT IN ('information_schema', %(own)s)
ORDER BY 1, 2
"""

# Whatever a role makes in a database is noted here, large objects and functions as well; its default privileges,
# which it is born with, are too.
_OWNED = """
SELECT EXISTS (
    SELECT FROM pg_catalog.pg_shdepend s JOIN pg_catalog.pg_roles r ON r.oid = s.refobjid
    WHERE s.dbid = (SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database())
      AND s.refclassid = 'pg_catalog.pg_authid'::regclass AND s.deptype = 'o'
      AND s.classid <> 'pg_catalog.pg_default_acl'::regclass AND r.rolname = %(role)s)
"""

_MARKED = """
FROM pg_catalog.pg_namespace
WHERE nspname = %s AND nspowner = (SELECT oid FROM pg_catalog.pg_roles WHERE rolname = CURRENT_USER)
"""


@dataclass(frozen=True)
class Snapshot:
    """A database at one moment, which others can look at under its id for as long as this one is open."""

    id: str
    connection: Connection

    def rows(self) -> Mapping[str, int]:
        """How many rows each table has. From here on no table can be emptied or dropped until the end."""
        return _rows(self.connection)


@contextmanager
def snapshot(parent: PostgresParent, database: str) -> Iterator[Snapshot]:
    """Hold a snapshot of `database`; raises `ProviderTrouble`."""
    with _counting(parent, database) as connection, connection.transaction():
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        row = connection.execute("SELECT pg_catalog.pg_export_snapshot()").fetchone()
        if row is None:
            raise ProviderTrouble(Trouble.UNREADABLE)
        yield Snapshot(str(row[0]), connection)


def rows(parent: PostgresParent, database: str) -> Mapping[str, int]:
    """How many rows each table has now; raises `ProviderTrouble`."""
    with _counting(parent, database) as connection:
        return _rows(connection)


def mark(parent: PostgresParent, database: str) -> str | None:
    """What the mark in `database` says; None if there is none, or no such database. Raises `ProviderTrouble`."""
    with parent.connection() as connection:
        if connection.execute("SELECT FROM pg_catalog.pg_database WHERE datname = %s", (database,)).fetchone() is None:
            return None
    return mark_in(parent, database)


def mark_in(parent: PostgresParent, database: str) -> str | None:
    """The same of a database that is known to be there."""
    query = f"SELECT pg_catalog.obj_description(oid, 'pg_namespace') {_MARKED}"
    with parent.connection(database) as connection:
        row = connection.execute(query, (SCHEMA,)).fetchone()
    return None if row is None else str(row[0])


def set_mark(parent: PostgresParent, database: str, text: str) -> None:
    """Put the mark there, at once with its text; raises `ProviderTrouble`."""
    schema = sql.Identifier(SCHEMA)
    with parent.connection(database) as connection, connection.transaction():
        connection.execute(sql.SQL("CREATE SCHEMA {}").format(schema))
        connection.execute(sql.SQL("REVOKE ALL ON SCHEMA {} FROM PUBLIC").format(schema))
        connection.execute(sql.SQL("COMMENT ON SCHEMA {} IS {}").format(schema, sql.Literal(text)))


def holds_anything(parent: PostgresParent, database: str, role: str) -> bool:
    """Whether `role` has made anything in `database`, after every session of its was ended.

    So nothing that began earlier can still be committed. In one statement with a look at the mark: with that, the
    sessions are those of an environment that is in use, and stay. Raises `ProviderTrouble`.
    """
    query = (
        "SELECT pg_catalog.bool_and(pg_catalog.pg_terminate_backend(pid, %s)) FROM pg_catalog.pg_stat_activity "
        f"WHERE usename = %s AND NOT EXISTS (SELECT {_MARKED})"
    )
    with parent.connection(database) as connection:
        ended = connection.execute(query, (int(END_SECONDS * 1000), role, SCHEMA)).fetchone()
        if ended is None or ended[0] is False:
            raise ProviderTrouble(Trouble.TIMED_OUT)
        row = connection.execute(_OWNED, {"role": role}).fetchone()
    if row is None:
        raise ProviderTrouble(Trouble.UNREADABLE)
    return bool(row[0])


@contextmanager
def _counting(parent: PostgresParent, database: str) -> Iterator[Connection]:
    with replace(parent, answer_seconds=COUNT_SECONDS).connection(database) as connection:
        connection.execute(f"SET lock_timeout = '{LOCK_SECONDS}s'")
        yield connection


def _rows(connection: Connection) -> Mapping[str, int]:
    found = connection.execute(_TABLES, {"own": SCHEMA}).fetchall()
    return {f"{schema}.{table}": _count(connection, schema, table, column) for schema, table, column in found}


def _count(connection: Connection, schema: str, table: str, column: str | None) -> int:
    """How many rows the server writes to nowhere.

    A query would be planned, and a planner works out beforehand what an index, statistics or a view's rule say: with
    functions of the environment, and our rights. This is not planned, and it takes nothing but tables.
    """
    columns = sql.SQL("({})").format(sql.Identifier(column)) if column is not None else sql.SQL("")
    copy = sql.SQL("COPY {} {} TO '/dev/null'").format(sql.Identifier(schema, table), columns)
    return connection.execute(copy).rowcount
