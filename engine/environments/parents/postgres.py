"""The lab's PostgreSQL."""

from __future__ import annotations

import secrets
import shutil
import signal
from pathlib import Path

from engine.environments.drivers.postgres_parent import PostgresParent
from engine.environments.drivers.trouble import ProviderTrouble
from engine.environments.parents.programs import postgres_directory
from engine.environments.parents.service import ADDRESS, DATA, Account, Service
from engine.errors import CommandFailed, Refused
from engine.provision.providers.lab.commands import Commands
from engine.provision.providers.lab.processes import identify
from engine.records.atomic import replace_file

ACCOUNT = "postgres"
ADMINISTRATOR = "tenantry"
MAX_CONNECTIONS = 400
START_SECONDS = 60.0

_RULES = f"# Written by tenantry.\nhost all all {ADDRESS}/32 scram-sha-256\n"

# Whatever the server says to its log must not hold a statement: some of them make credentials.
_SETTINGS = (
    f"listen_addresses={ADDRESS}",
    "unix_socket_directories=",
    "password_encryption=scram-sha-256",
    "shared_buffers=32MB",
    "log_min_error_statement=panic",
    "log_statement=none",
    "log_min_duration_statement=-1",
)

_CLOSE = (
    *(f"REVOKE ALL ON DATABASE {name} FROM PUBLIC" for name in ("postgres", "template1")),
    "REVOKE ALL ON SCHEMA public FROM PUBLIC",
)


class PostgresService:
    """Initializes, starts and stops the cluster in its directory."""

    name = "postgres"

    def __init__(self, directory: Path, group: str, max_connections: int) -> None:
        self.service = Service(self.name, directory, group, lambda: Account.named(ACCOUNT))
        self._password = directory / "secrets" / "postgres"
        self._max_connections = max_connections

    def parent(self) -> PostgresParent:
        """How it is reached; raises `Refused` before it was ever started."""
        record = self.service.read()
        if record is None or not self._password.is_file():
            raise Refused("the parent was never up", where="parent postgres", hint="tenantry lab parents up")
        return PostgresParent(ADDRESS, record.ports["postgres"], ADMINISTRATOR, self._password.read_bytes())

    def ensure(self, commands: Commands) -> bool:
        """Have it running; tells whether it had to be started."""
        record = self.service.read()
        if record is not None and record.process is not None and self._answers():
            return False
        programs = postgres_directory()
        port = self.service.ports(("postgres",))["postgres"]
        self.service.make_directory()
        self._initialize(programs, commands)
        self.service.end_remains()
        self._forget_dead_process()
        settings = (*_SETTINGS, f"port={port}", f"max_connections={self._max_connections}")
        argv = [str(programs / "postgres"), "-D", f"{DATA}/cluster"]
        argv += [part for setting in settings for part in ("-c", setting)]
        self.service.start(self.service.confined(argv), commands, self._answers, START_SECONDS)
        self._close()
        return True

    def shut_down(self) -> None:
        """A fast shutdown: sessions end, what is committed stays."""
        self.service.stop(signal.SIGINT)

    def _answers(self) -> bool:
        try:
            with self.parent().connection() as connection:
                return connection.execute("SELECT 1").fetchone() == (1,)
        except ProviderTrouble:
            return False

    def _initialize(self, programs: Path, commands: Commands) -> None:
        """Make the cluster under another name first: one that a crash left half done is never started."""
        cluster = self.service.directory / "cluster"
        if cluster.is_dir():
            return
        partial = self.service.directory / "cluster.partial"
        shutil.rmtree(partial, ignore_errors=True)
        if not self._password.is_file():
            self._password.parent.mkdir(mode=0o700, exist_ok=True)
            replace_file(self._password, secrets.token_urlsafe(32).encode())
        handed = self.service.directory / "password"
        replace_file(handed, self._password.read_bytes() + b"\n")
        self.service.give(handed)
        try:
            argv = (
                *(str(programs / "initdb"), "--pgdata", f"{DATA}/cluster.partial", "--username", ADMINISTRATOR),
                *("--pwfile", f"{DATA}/password", "--auth", "scram-sha-256"),
                *("--encoding", "UTF8", "--locale", "C.UTF-8"),
            )
            commands.run(*self.service.confined(argv))
        finally:
            handed.unlink(missing_ok=True)
        replace_file(partial / "pg_hba.conf", _RULES.encode())
        partial.rename(cluster)

    def _forget_dead_process(self) -> None:
        """Remove the lock file of a process that ended but was not reaped, which PostgreSQL would take for alive."""
        lock = self.service.directory / "cluster" / "postmaster.pid"
        try:
            pid = int(lock.read_text().split()[0])
        except (FileNotFoundError, IndexError, ValueError):
            return
        if identify(pid) is None:
            lock.unlink()

    def _close(self) -> None:
        """Nobody but the administrator gets into the cluster's own databases."""
        try:
            for database in ("postgres", "template1"):
                with self.parent().connection(database) as connection:
                    for statement in _CLOSE:
                        connection.execute(statement)
        except ProviderTrouble as trouble:
            raise CommandFailed(
                f"the cluster's own databases could not be closed: {trouble.word}", where="parent postgres"
            ) from None
