"""Databases of environments. A database and its owner, a role nobody can become, are one resource.

The owner is made first, because a role and its comment are one transaction and a database and its comment are not:
so whatever a crash leaves behind carries a mark, and a database without a comment is still known by its owner.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

from engine.environments.drivers.base import CreateRequest, Kind, Owned
from engine.environments.drivers.postgres_parent import PostgresParent
from engine.environments.drivers.trouble import INCOMPLETE, Effects, ProviderTrouble, Trouble, effects_on
from engine.environments.names import Owner, names_of
from engine.environments.observation import Absent, Label, Mark, Observation, Present, read_label
from engine.errors import UnknownState

Connection = psycopg.Connection[tuple[Any, ...]]

SETTLE_SECONDS = 2.0

_LOOK = """
SELECT d.oid, r.oid, shobj_description(d.oid, 'pg_database'), shobj_description(r.oid, 'pg_authid'),
       d.datdba = r.oid AND NOT r.rolcanlogin AND d.datallowconn AND d.datconnlimit = -1 AND d.datacl IS NOT NULL
       AND NOT EXISTS (SELECT FROM aclexplode(d.datacl) WHERE grantee = 0)
       AND NOT EXISTS (SELECT FROM pg_auth_members WHERE roleid = r.oid OR member = r.oid)
FROM (SELECT * FROM pg_database WHERE datname = %(name)s) d
FULL JOIN (SELECT * FROM pg_roles WHERE rolname = %(name)s) r ON d.datname = r.rolname
"""

_OWNED = """
SELECT datname, shobj_description(oid, 'pg_database') FROM pg_database
UNION SELECT rolname, shobj_description(oid, 'pg_authid') FROM pg_roles
"""

# A catalog that all databases share has its permissions in each of them. Without these an environment's login could
# read the names and comments of everybody else's, and what they are doing. Left readable is what clients need of
# their own database. That includes names by their number: `regrole` tells those of roles to anybody, and nobody can
# forbid it. So pg_get_userbyid, which every listing of tables calls, is not closed either. A name says a uuid, no more.
_HIDDEN = (
    *("pg_database", "pg_roles", "pg_user", "pg_group", "pg_auth_members", "pg_db_role_setting", "pg_shdepend"),
    *("pg_shdescription", "pg_shseclabel", "pg_stat_activity", "pg_stat_database", "pg_stat_database_conflicts"),
    *("pg_stat_replication", "pg_stat_ssl", "pg_stat_gssapi", "pg_locks", "pg_prepared_xacts"),
    *("pg_replication_slots", "pg_stat_replication_slots", "pg_stat_subscription", "pg_stat_wal_receiver"),
    *("pg_stat_progress_analyze", "pg_stat_progress_basebackup", "pg_stat_progress_cluster", "pg_stat_progress_copy"),
    *("pg_stat_progress_create_index", "pg_stat_progress_vacuum"),
)

# The functions behind those views tell as much, and so does what stands here by its beginning.
_TELLING = """
SELECT format('REVOKE EXECUTE ON FUNCTION %s FROM PUBLIC', oid::regprocedure) FROM pg_proc
WHERE pronamespace = 'pg_catalog'::regnamespace AND (
    proname IN ('pg_stat_get_activity', 'pg_stat_get_progress_info', 'pg_lock_status', 'pg_prepared_xact',
                'pg_blocking_pids', 'pg_safe_snapshot_blocking_pids', 'pg_tablespace_databases',
                'pg_get_replication_slots', 'pg_stat_get_replication_slot', 'pg_stat_get_subscription',
                'pg_stat_get_wal_senders', 'pg_stat_get_wal_receiver', 'pg_show_replication_origin_status')
    OR proname ~ '^pg_stat_get_(backend|db)_')
"""
_CLOSE = (
    "REVOKE ALL ON SCHEMA public FROM PUBLIC",
    *(f"REVOKE ALL ON pg_catalog.{name} FROM PUBLIC" for name in _HIDDEN),
)


@dataclass(frozen=True)
class _Found:
    """What there is under a database's name."""

    database: int | None
    owner: int | None
    label: Label | None
    whole: bool

    @property
    def observation(self) -> Observation:
        if self.database is None and self.owner is None:
            return Absent()
        reference = f"database:{self.database}" if self.database else f"owner:{self.owner}"
        if self.label is None:
            return Present(reference, INCOMPLETE, None)
        return Present(reference, self.label.digest if self.whole else INCOMPLETE, self.label.mark)


class PostgresDatabases:
    """The kind database: only the role that is made for it can connect, and nobody who can connect owns it."""

    kind = Kind.DATABASE

    def __init__(
        self, parent: PostgresParent, owner: Owner = Owner.ENVIRONMENT, settle_seconds: float = SETTLE_SECONDS
    ) -> None:
        self.settle_seconds = settle_seconds
        self._parent = parent
        self._owner = owner

    def name(self, uuid: str) -> str:
        return names_of(uuid, self._owner).database

    def observe(self, name: str) -> Observation:
        try:
            with self._parent.connection() as connection:
                return _look(connection, name).observation
        except ProviderTrouble as trouble:
            return trouble.unknown

    def create(self, request: CreateRequest) -> Observation:
        label = Label(self.kind, request.mark, request.digest)
        with effects_on(self.kind, request.name) as effects, self._parent.connection() as connection:
            found = _look(connection, request.name)
            if (found.database or found.owner) and found.label != label:
                raise effects.refuse(Trouble.FOREIGN)
            self._make(connection, request.name, label, found, effects)
        return self.observe(request.name)

    def delete(self, name: str, mark: Mark) -> None:
        identifier = sql.Identifier(name)
        with effects_on(self.kind, name) as effects, self._parent.connection() as connection:
            found = _look(connection, name)
            if found.database is None and found.owner is None:
                return
            if found.label is None or found.label.mark != mark:
                raise effects.refuse(Trouble.FOREIGN)
            if found.database is not None:
                effects.begin()
                connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(identifier))
            if found.owner is not None:
                effects.begin()
                connection.execute(sql.SQL("DROP ROLE IF EXISTS {}").format(identifier))

    def list_owned(self) -> tuple[Owned, ...]:
        return owned(self._parent, self.kind)

    def _make(self, connection: Connection, name: str, label: Label, found: _Found, effects: Effects) -> None:
        identifier, text = sql.Identifier(name), sql.Literal(label.text())
        if found.owner is None:
            effects.begin()
            with connection.transaction():
                connection.execute(sql.SQL("CREATE ROLE {} NOLOGIN").format(identifier))
                connection.execute(sql.SQL("COMMENT ON ROLE {} IS {}").format(identifier, text))
        if found.database is None:
            effects.begin()
            # Until it is closed to others, nobody but us gets in: the limit does not bind a superuser.
            create = "CREATE DATABASE {0} OWNER {0} TEMPLATE template0 ENCODING 'UTF8' CONNECTION LIMIT 0"
            connection.execute(sql.SQL(create).format(identifier))
        effects.begin()
        with self._parent.connection(name) as inside, inside.transaction():
            for statement in (*_CLOSE, *(text for (text,) in inside.execute(_TELLING).fetchall())):
                inside.execute(statement)
        effects.begin()
        with connection.transaction():
            connection.execute(sql.SQL("REVOKE ALL ON DATABASE {} FROM PUBLIC").format(identifier))
            connection.execute(sql.SQL("COMMENT ON DATABASE {} IS {}").format(identifier, text))
            connection.execute(sql.SQL("ALTER DATABASE {} CONNECTION LIMIT -1").format(identifier))


def owned(parent: PostgresParent, kind: Kind) -> tuple[Owned, ...]:
    """Everything in `parent` that carries a label of `kind`; raises `UnknownState`."""
    try:
        with parent.connection() as connection:
            rows = connection.execute(_OWNED).fetchall()
    except ProviderTrouble as trouble:
        raise UnknownState(str(trouble.word), where=f"list of kind {kind}") from None
    labels = ((name, read_label(text)) for name, text in rows)
    found = {Owned(name, label.mark) for name, label in labels if label is not None and label.kind == kind}
    return tuple(sorted(found, key=lambda each: (each.name, each.mark.intent_id)))


def database_label(connection: Connection, name: str) -> Label | None:
    """The label of a database that is there and whole; None if it is not, or foreign."""
    found = _look(connection, name)
    return found.label if found.database is not None and found.whole else None


def _look(connection: Connection, name: str) -> _Found:
    row = connection.execute(_LOOK, {"name": name}).fetchone()
    if row is None:
        return _Found(None, None, None, whole=False)
    database, owner, on_database, on_owner, whole = row
    of_database, of_owner = (_own(read_label(text)) for text in (on_database, on_owner))
    if database is not None and on_database is not None:
        # Two labels that differ are two owners: whichever of them asks, it is not its own.
        agree = owner is None or of_owner == of_database
        return _Found(database, owner, of_database if agree else None, bool(whole) and agree)
    return _Found(database, owner, of_owner, whole=False)


def _own(label: Label | None) -> Label | None:
    return label if label is not None and label.kind == Kind.DATABASE else None
