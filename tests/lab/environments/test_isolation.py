"""Every login against everything that is not its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import gevent.pool
import psycopg
import pytest
from psycopg import sql

from engine.environments.drivers.object_keys import ObjectKeys
from engine.environments.drivers.objects import Buckets
from engine.environments.drivers.postgres import PostgresDatabases
from engine.environments.drivers.postgres_roles import PostgresRoles
from engine.environments.names import Owner
from engine.environments.observation import Absent
from engine.environments.parents import LabParents
from engine.errors import DriverRefused
from tests.lab.environments.conftest import DIGEST, Child, Drivers, Site


def test_each_login_opens_its_own_database_and_no_other(parents: LabParents, site: Site):
    databases = {child.storage.database for child in site.everybody} | {"postgres", "template0", "template1"}
    for child in site.logins:
        with _login(parents, child, child.storage.database) as connection:
            connection.execute(f"CREATE TABLE t_{child.uuid.replace('-', '')} (word text)")
            connection.execute(f"INSERT INTO t_{child.uuid.replace('-', '')} VALUES ('kept')")
        for database in databases - {child.storage.database}:
            with pytest.raises(psycopg.OperationalError), _login(parents, child, database):
                pass


def test_a_login_takes_its_own_password_and_no_replication(parents: LabParents, site: Site):
    for child in site.logins:
        other = next(each for each in site.logins if each.storage != child.storage)
        with pytest.raises(psycopg.OperationalError, match="password"):
            _login(parents, replace(child, password=other.password), child.storage.database).__enter__()
        for replication in ("true", "database"):
            with pytest.raises(psycopg.OperationalError):
                _login(parents, child, child.storage.database, replication=replication).__enter__()


ESCAPES = (
    "CREATE DATABASE stolen",
    "CREATE ROLE stolen",
    "CREATE SCHEMA stolen",
    "CREATE EXTENSION dblink",
    "CREATE EXTENSION pgcrypto",
    "CREATE EXTENSION postgres_fdw",
    "CREATE EXTENSION file_fdw",
    "CREATE FOREIGN DATA WRAPPER stolen",
    "LOAD 'dblink'",
    "ALTER ROLE CURRENT_USER SUPERUSER",
    "ALTER ROLE CURRENT_USER CREATEDB",
    "ALTER ROLE CURRENT_USER CREATEROLE",
    "ALTER ROLE CURRENT_USER REPLICATION",
    "ALTER ROLE CURRENT_USER BYPASSRLS",
    "ALTER ROLE CURRENT_USER CONNECTION LIMIT -1",
    "ALTER ROLE CURRENT_USER LOGIN",
    "ALTER ROLE CURRENT_USER VALID UNTIL 'infinity'",
    "GRANT pg_read_server_files TO CURRENT_USER",
    "GRANT pg_signal_backend TO CURRENT_USER",
    "ALTER ROLE tenantry PASSWORD 'stolen'",
    "SET SESSION AUTHORIZATION tenantry",
    "SET ROLE tenantry",
    "SET ROLE pg_read_all_data",
    "SET session_replication_role = replica",
    "COPY (SELECT 1) TO PROGRAM 'true'",
    "COPY (SELECT 1) TO '/tmp/stolen'",
    "CREATE TEMPORARY TABLE lines (line text); COPY lines FROM '/etc/passwd'",
    "CREATE TEMPORARY TABLE more_lines (line text); COPY more_lines FROM PROGRAM 'id'",
    "SELECT lo_export(lo_create(0), '/tmp/stolen')",
    "SELECT pg_read_binary_file('/etc/passwd')",
    "SELECT pg_stat_file('pg_hba.conf')",
    "SELECT pg_ls_logdir()",
    "SELECT pg_create_physical_replication_slot('stolen')",
    "SELECT pg_reload_conf()",
    "SELECT pg_read_file('pg_hba.conf')",
    "SELECT pg_ls_dir('.')",
    "SELECT rolpassword FROM pg_authid",
    "SELECT datname FROM pg_database",
    "SELECT rolname FROM pg_roles",
    "SELECT description FROM pg_shdescription",
    "SELECT datname FROM pg_stat_activity",
    "SELECT datname FROM pg_stat_database",
    "SELECT pg_stat_get_activity(NULL)",
    "SELECT pg_lock_status()",
    "SELECT pg_prepared_xact()",
    "SELECT pg_blocking_pids(1)",
    "SELECT pg_stat_get_backend_idset()",
    *(
        f"SELECT pg_stat_get_backend_{what}(1)"
        for what in ("dbid", "userid", "pid", "activity", "start", "xact_start", "client_addr", "wait_event")
    ),
    "SELECT pg_stat_get_db_numbackends(1)",
    "SELECT pg_stat_get_db_xact_commit(1)",
    "SELECT pg_stat_get_progress_info('VACUUM')",
    "SELECT datname FROM pg_stat_progress_vacuum",
    "SELECT datname FROM pg_stat_progress_copy",
    "SELECT pg_tablespace_databases(1663)",
    "SELECT pg_get_replication_slots()",
    "SELECT pg_stat_get_wal_senders()",
    "ALTER SYSTEM SET log_statement = 'all'",
    "SET log_statement = 'all'",
    "CREATE TABLE pg_catalog.stolen (a int)",
    "CREATE FUNCTION stolen() RETURNS int LANGUAGE c AS 'x', 'y'",
    "CREATE SUBSCRIPTION stolen CONNECTION '' PUBLICATION x",
    "CREATE EVENT TRIGGER stolen ON ddl_command_end EXECUTE FUNCTION now()",
    "SELECT lo_import('/etc/passwd')",
    "CHECKPOINT",
)


def test_no_login_gets_beyond_its_rights(parents: LabParents, site: Site, admin: psycopg.Connection):
    for child in site.logins:
        own = child.storage.database
        others = [each for each in site.everybody if each.storage != child.storage]
        statements = [
            *ESCAPES,
            f"SELECT pg_terminate_backend({admin.info.backend_pid})",
            f"SELECT pg_cancel_backend({admin.info.backend_pid})",
            f"DROP DATABASE {own}",
            f"COMMENT ON DATABASE {own} IS 'stolen'",
            f"ALTER DATABASE {own} RENAME TO stolen",
            f"COMMENT ON ROLE {child.names.role} IS 'stolen'",
            f"GRANT {child.names.role} TO {others[0].names.role}",
            f"SET ROLE {own}",
            *(f"SET ROLE {other.names.role}" for other in others),
            *(f"GRANT {other.names.role} TO {child.names.role}" for other in others),
            *(f"ALTER ROLE {other.names.role} PASSWORD 'stolen'" for other in others),
            *(f"DROP DATABASE {other.storage.database}" for other in others),
            *(
                f"ALTER DEFAULT PRIVILEGES FOR ROLE {other.names.role} GRANT ALL ON TABLES TO PUBLIC"
                for other in others
            ),
            *(f"REASSIGN OWNED BY {other.names.role} TO {child.names.role}" for other in others),
            *(f"ALTER DATABASE {other.storage.database} OWNER TO {child.names.role}" for other in others),
            *(f"GRANT CONNECT ON DATABASE {other.storage.database} TO {child.names.role}" for other in others),
            *(f"SELECT pg_database_size('{other.storage.database}')" for other in others),
        ]
        with _login(parents, child, own) as connection:
            for statement in statements:
                try:
                    connection.execute(sql.SQL(statement))
                except psycopg.errors.InsufficientPrivilege:
                    continue
                pytest.fail(f"{child.names.role}: {statement}")


def test_public_has_nothing_in_a_database_and_gets_nothing_of_what_is_made_there(
    parents: LabParents, site: Site, admin: psycopg.Connection
):
    admin.execute("CREATE ROLE passer_by LOGIN")
    for child in site.logins:
        with _login(parents, child, child.storage.database) as connection:
            digits = child.uuid.replace("-", "")
            connection.execute(f"CREATE TABLE made_{digits} (word text)")
            connection.execute(f"CREATE FUNCTION run_{digits}() RETURNS int LANGUAGE sql AS 'SELECT 1'")
        with parents.postgres.connection(child.storage.database) as inside:
            asked = inside.execute(
                "SELECT has_schema_privilege('passer_by', 'public', 'USAGE'),"
                " has_schema_privilege('passer_by', 'public', 'CREATE'),"
                " has_table_privilege('passer_by', %s, 'SELECT'), has_function_privilege('passer_by', %s, 'EXECUTE'),"
                " has_database_privilege('passer_by', current_database(), 'CONNECT'),"
                " has_database_privilege('passer_by', current_database(), 'TEMPORARY')",
                (f"public.made_{digits}", f"public.run_{digits}()"),
            ).fetchone()
        assert asked == (False,) * 6


def test_what_is_made_later_is_nobody_elses_and_a_grant_to_somebody_holds_up_nothing(parents: LabParents, site: Site):
    drivers = Drivers.over(parents.postgres, parents.objects)
    giver, taker = site.own[0], drivers.make(Child())
    table = f"given_{taker.uuid.replace('-', '')}"
    with _login(parents, giver, giver.storage.database) as connection:
        connection.execute(sql.SQL("CREATE TABLE {} (word text)").format(sql.Identifier(table)))
        give = "GRANT ALL ON {} TO {}; ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO {}"
        role = sql.Identifier(taker.names.role)
        connection.execute(sql.SQL(give).format(sql.Identifier(table), role, role))
    with pytest.raises(psycopg.OperationalError), _login(parents, taker, giver.storage.database):
        pass
    drivers.role.delete(taker.names.role, taker.mark)
    assert drivers.role.observe(taker.names.role) == Absent()
    with _login(parents, giver, giver.storage.database) as connection:
        connection.execute(sql.SQL("SELECT * FROM {}").format(sql.Identifier(table)))


def test_members_of_one_tier_share_their_tables(parents: LabParents, site: Site):
    first, second, other = site.members
    with _login(parents, first, first.storage.database) as connection:
        connection.execute("CREATE TABLE shared (word text)")
        connection.execute("INSERT INTO shared VALUES ('from the first')")
    with _login(parents, second, second.storage.database) as connection:
        connection.execute("ALTER TABLE shared ADD COLUMN more text")
        assert connection.execute("SELECT word FROM shared").fetchone() == ("from the first",)
    with _login(parents, other, other.storage.database) as connection, pytest.raises(psycopg.errors.UndefinedTable):
        connection.execute("SELECT word FROM shared")


def test_nobody_logs_in_as_a_tier(parents: LabParents, site: Site, admin: psycopg.Connection):
    drivers, tier = Drivers.over(parents.postgres, parents.objects), site.tiers[0]
    member = drivers.make(Child(tier=tier))
    taken = replace(tier, password=b"taken")
    with _login(parents, member, tier.names.database) as connection:
        # Anybody may give a password to who he works as.
        connection.execute("ALTER ROLE CURRENT_USER PASSWORD 'taken'")
    for _ in range(2):
        with pytest.raises(psycopg.OperationalError, match="not permitted to log in"):
            _login(parents, taken, tier.names.database).__enter__()
        drivers.role.delete(member.names.role, member.mark)
    # One that an earlier version made is no tier's role as it should be, until it was closed.
    admin.execute(sql.SQL("ALTER ROLE {} LOGIN").format(sql.Identifier(tier.names.role)))
    with _login(parents, taken, tier.names.database) as connection:
        seen = drivers.role.observe(tier.names.role)
        assert (seen.mark, seen.digest) == (tier.mark, "incomplete")
        with pytest.raises(DriverRefused, match="targetMissing"):
            drivers.role.create(Child(tier=tier).request("role"))
        drivers.role.refuse_logins(tier.names.role)
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")
    assert drivers.role.observe(tier.names.role).digest == DIGEST


def test_a_member_that_goes_leaves_the_tiers_data(parents: LabParents, site: Site):
    drivers = Drivers.over(parents.postgres, parents.objects)
    leaver = drivers.make(Child(tier=site.tiers[1]))
    with _login(parents, leaver, leaver.storage.database) as connection:
        connection.execute("CREATE TABLE of_the_leaver (word text)")
        connection.execute("RESET ROLE")
        connection.execute("SET ROLE NONE")
        connection.execute("CREATE TABLE of_itself (word text)")
        drivers.role.delete(leaver.names.role, leaver.mark)
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")
    drivers.key.delete(leaver.names.key, leaver.mark)
    with _login(parents, site.members[2], leaver.storage.database) as connection:
        connection.execute("SELECT * FROM of_the_leaver, of_itself")


def test_a_tiers_driver_names_tiers(parents: LabParents, site: Site):
    tier = site.tiers[0]
    for driver, kind in (
        (PostgresDatabases(parents.postgres, Owner.TIER), "database"),
        (PostgresRoles(parents.postgres, Owner.TIER), "role"),
        (Buckets(parents.objects, Owner.TIER), "bucket"),
        (ObjectKeys(parents.objects, Owner.TIER), "key"),
    ):
        assert driver.observe(driver.name(tier.uuid)).mark == tier.mark
        assert driver.name(tier.uuid) == getattr(tier.names, kind)


@contextmanager
def _login(parents: LabParents, child: Child, database: str, **more: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(
        host=parents.postgres.host,
        port=parents.postgres.port,
        user=child.names.role,
        password=child.password.decode(),
        dbname=database,
        autocommit=True,
        **more,
    ) as connection:
        yield connection


def test_members_come_and_go_at_the_same_moment(drivers: Drivers) -> None:
    tier = drivers.make(Child(Owner.TIER))
    members = [Child(tier=tier) for _ in range(12)]
    pool = gevent.pool.Pool(len(members))
    pool.map(drivers.make, members)
    for driver, kind in ((drivers.role, "role"), (drivers.key, "key")):
        names = [getattr(member.names, kind) for member in members]
        assert {member.names.uuid for member in members} <= {owned.mark.uuid for owned in driver.list_owned()}
        calls = [pool.spawn(driver.delete, name, member.mark) for name, member in zip(names, members, strict=True)]
        gevent.joinall(calls, raise_error=True)
        assert {type(driver.observe(name)) for name in names} == {Absent}
