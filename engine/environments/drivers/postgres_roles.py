"""Roles of environments: logins, each of which opens one database and nothing else.

A tier's role owns what its members make, but nobody logs in as it: a member works as that role and so could give it a
password, which would open the tier's database for as long as the tier lasts.
"""

from __future__ import annotations

from dataclasses import dataclass

from psycopg import sql

from engine.environments.drivers.base import CreateRequest, Kind, Owned
from engine.environments.drivers.postgres import SETTLE_SECONDS, Connection, database_label, owned
from engine.environments.drivers.postgres_parent import PostgresParent
from engine.environments.drivers.trouble import INCOMPLETE, Effects, ProviderTrouble, Trouble, effects_on
from engine.environments.names import Owner, names_of, uuid_of
from engine.environments.observation import Absent, Label, Mark, Observation, Present, read_label
from engine.errors import DriverRefused

CONNECTIONS = 10
"""How many connections a role may have, so that one environment cannot keep all others out."""

TURN = 0x726F6C65
"""The number of the lock that whoever changes roles holds."""

# Whole is a role that can log in, or that of a tier that cannot; it has no attribute beyond that, and was let into one
# database. What is open to everybody is the fault of that database or of the parent, and is seen there.
_LOOK = """
SELECT r.oid, shobj_description(r.oid, 'pg_authid'),
       r.rolcanlogin = %(login)s
       AND NOT (r.rolsuper OR r.rolcreatedb OR r.rolcreaterole OR r.rolreplication OR r.rolbypassrls)
       AND r.rolconnlimit > 0
       AND 1 = (SELECT count(DISTINCT d.oid) FROM pg_database d, aclexplode(d.datacl) a
                WHERE a.privilege_type = 'CONNECT' AND a.grantee <> 0 AND pg_has_role(r.oid, a.grantee, 'MEMBER'))
       AND NOT EXISTS (SELECT FROM pg_auth_members m WHERE m.roleid = r.oid AND m.admin_option)
       AND NOT EXISTS (SELECT FROM pg_auth_members m JOIN pg_roles g ON g.oid = m.roleid WHERE m.member = r.oid
                       AND (g.rolsuper OR g.rolcreatedb OR g.rolcreaterole OR g.rolreplication OR g.oid < 16384))
FROM pg_roles r WHERE r.rolname = %(name)s
"""

_DEPENDENT = """
SELECT DISTINCT d.datname, coalesce(
    (SELECT g.rolname FROM pg_auth_members m JOIN pg_roles g ON g.oid = m.roleid WHERE m.member = %(role)s LIMIT 1),
    pg_get_userbyid(d.datdba))
FROM pg_shdepend s JOIN pg_database d ON d.oid = s.dbid OR (s.classid = 'pg_database'::regclass AND d.oid = s.objid)
WHERE s.refclassid = 'pg_authid'::regclass AND s.refobjid = %(role)s
"""


@dataclass(frozen=True)
class _Found:
    """What there is under a role's name."""

    role: int | None
    label: Label | None
    whole: bool

    @property
    def observation(self) -> Observation:
        if self.role is None:
            return Absent()
        if self.label is None:
            return Present(f"role:{self.role}", INCOMPLETE, None)
        return Present(f"role:{self.role}", self.label.digest if self.whole else INCOMPLETE, self.label.mark)


class PostgresRoles:
    """The kind role. A member of a tier works as the tier's role, which so owns whatever the member makes."""

    kind = Kind.ROLE

    def __init__(
        self, parent: PostgresParent, owner: Owner = Owner.ENVIRONMENT, settle_seconds: float = SETTLE_SECONDS
    ) -> None:
        self.settle_seconds = settle_seconds
        self._parent = parent
        self._owner = owner

    def name(self, uuid: str) -> str:
        return names_of(uuid, self._owner).role

    def observe(self, name: str) -> Observation:
        try:
            with self._parent.connection() as connection:
                return _look(connection, name).observation
        except ProviderTrouble as trouble:
            return trouble.unknown

    def create(self, request: CreateRequest) -> Observation:
        """Make the role for the database `request.target`, in one transaction."""
        label = Label(self.kind, request.mark, request.digest)
        with effects_on(self.kind, request.name) as effects, self._parent.connection() as connection:
            found = _look(connection, request.name)
            if found.role is not None and found.label != label:
                raise effects.refuse(Trouble.FOREIGN)
            if found.role is not None:
                return found.observation
            self._require_targets(connection, request, effects)
            _take_turn(connection)
            self._make(request, label, effects)
        return self.observe(request.name)

    def delete(self, name: str, mark: Mark) -> None:
        """Remove the role; what it owned stays where it is, with the tier's role or the database's owner."""
        with effects_on(self.kind, name) as effects, self._parent.connection() as connection:
            found = _look(connection, name)
            if found.role is None:
                return
            if found.label is None or found.label.mark != mark:
                raise effects.refuse(Trouble.FOREIGN)
            _take_turn(connection)
            effects.begin()
            _shut_out(connection, name)
            for database, heir in connection.execute(_DEPENDENT, {"role": found.role}).fetchall():
                effects.begin()
                self._hand_over(database, name, heir)
            effects.begin()
            connection.execute(sql.SQL("DROP ROLE IF EXISTS {}").format(sql.Identifier(name)))

    def refuse_logins(self, name: str) -> None:
        """See that nobody logs in as this tier's role, which was a login where an earlier version made it.

        Raises `DriverRefused` or `DispatchLost`.
        """
        with effects_on(self.kind, name) as effects, self._parent.connection() as connection:
            found = _look(connection, name)
            if found.label is not None and not found.whole and not _is_login(name):
                effects.begin()
                _shut_out(connection, name)

    def list_owned(self) -> tuple[Owned, ...]:
        return owned(self._parent, self.kind)

    def _require_targets(self, connection: Connection, request: CreateRequest, effects: Effects) -> None:
        """The database, and for a member the tier's role, are there, whole and ours."""
        if database_label(connection, request.target) is None:
            raise effects.refuse(Trouble.TARGET_MISSING)
        if request.member_of:
            tier = _look(connection, request.member_of)
            if tier.label is None or not tier.whole:
                raise effects.refuse(Trouble.TARGET_MISSING)

    def _make(self, request: CreateRequest, label: Label, effects: Effects) -> None:
        role, database = sql.Identifier(request.name), sql.Identifier(request.target)
        with self._parent.connection(request.target) as connection:
            login = _login(connection, request)
            effects.begin()
            with connection.transaction():
                create = (
                    "CREATE ROLE {} {} NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS INHERIT "
                    "CONNECTION LIMIT {}"
                )
                connection.execute(sql.SQL(create).format(role, login, sql.Literal(CONNECTIONS)))
                connection.execute(sql.SQL("COMMENT ON ROLE {} IS {}").format(role, sql.Literal(label.text())))
                connection.execute(sql.SQL("GRANT CONNECT, TEMPORARY ON DATABASE {} TO {}").format(database, role))
                if request.member_of:
                    _join(connection, role, sql.Identifier(request.member_of))
                else:
                    connection.execute(sql.SQL("GRANT USAGE, CREATE ON SCHEMA public TO {}").format(role))
                for things in ("FUNCTIONS", "TYPES"):
                    revoke = sql.SQL("ALTER DEFAULT PRIVILEGES FOR ROLE {} REVOKE ALL ON {} FROM PUBLIC")
                    connection.execute(revoke.format(role, sql.SQL(things)))

    def _hand_over(self, database: str, name: str, heir: str) -> None:
        values = (sql.Identifier(name), sql.Identifier(heir))
        with self._parent.connection(database) as connection, connection.transaction():
            connection.execute(sql.SQL("REASSIGN OWNED BY {} TO {}").format(*values))
            connection.execute(sql.SQL("DROP OWNED BY {}").format(values[0]))


def _is_login(name: str) -> bool:
    """Whether the role of that name is an environment's, and not a tier's."""
    uuid = uuid_of(name)
    return uuid is None or names_of(uuid, Owner.TIER).role != name


def _login(connection: Connection, request: CreateRequest) -> sql.Composable:
    """Whether the role is a login, and with which password: the attributes of the statement that makes it."""
    if not _is_login(request.name):
        return sql.SQL("NOLOGIN")
    if request.secret is None:
        raise DriverRefused("a role needs a password", where=f"{Kind.ROLE} {request.name}")
    # The server only ever sees what it has to keep: its own logs may show statements.
    verifier = connection.pgconn.encrypt_password(request.secret, request.name.encode(), b"scram-sha-256")
    return sql.SQL("LOGIN PASSWORD {}").format(sql.Literal(verifier.decode()))


def _take_turn(connection: Connection) -> None:
    """Until `connection` is closed, be the only one who changes roles here.

    Of two changes of who may use one database, a tier's say, the server fails the second. Environments cannot hold
    this lock: it belongs to the parent's own database, which they do not reach.
    """
    connection.execute("SELECT pg_advisory_lock(%s)", (TURN,))


def _join(connection: Connection, member: sql.Identifier, tier: sql.Identifier) -> None:
    connection.execute(sql.SQL("GRANT {} TO {}").format(tier, member))
    connection.execute(sql.SQL("ALTER ROLE {} SET role = {}").format(member, tier))


def _shut_out(connection: Connection, name: str) -> None:
    """No new session of the role, and none that is open."""
    connection.execute(sql.SQL("ALTER ROLE {} NOLOGIN").format(sql.Identifier(name)))
    connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = %s", (name,))


def _look(connection: Connection, name: str) -> _Found:
    row = connection.execute(_LOOK, {"name": name, "login": _is_login(name)}).fetchone()
    if row is None:
        return _Found(None, None, whole=False)
    role, text, whole = row
    label = read_label(text)
    return _Found(role, label if label is not None and label.kind == Kind.ROLE else None, bool(whole))
