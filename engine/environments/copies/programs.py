"""PostgreSQL's own programs for dumps, which end when whoever started them does.

A password is handed over in a file that is in memory alone, so that a process which is killed leaves none behind.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import IO

from engine.environments.copies.database import LOCK_SECONDS
from engine.environments.copies.streams import CHUNK_BYTES
from engine.environments.drivers.postgres_parent import PostgresParent, connection_word
from engine.environments.drivers.trouble import ProviderTrouble
from engine.environments.parents.programs import postgres_directory
from engine.environments.words import CopyFault
from engine.errors import CopyFailed

_SHOWN_BYTES = 16 * 1024


@dataclass(frozen=True)
class Login:
    """One user of one database."""

    host: str
    port: int
    database: str
    user: str
    password: bytes = field(repr=False)

    @classmethod
    def of_administrator(cls, parent: PostgresParent, database: str) -> Login:
        return cls(parent.host, parent.port, database, parent.user, parent.password)

    @property
    def pass_line(self) -> bytes:
        """The line of a password file that fits any server: it is handed to one process, which asks one server."""
        return b"*:*:*:*:" + self.password.replace(b"\\", b"\\\\").replace(b":", b"\\:") + b"\n"


def dump(login: Login, snapshot: str, without_schema: str) -> Iterator[bytes]:
    """The database as it is in `snapshot`, in pg_dump's custom format.

    Raises :class:`CopyFailed`, or `ProviderTrouble` where the server gave no answer.
    """
    options = (
        *("--format=custom", "--no-privileges", f"--lock-wait-timeout={LOCK_SECONDS}s"),
        *(f"--snapshot={snapshot}", f"--exclude-schema={without_schema}"),
    )
    with _running("pg_dump", login, options, CopyFault.DUMP_FAILED, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        while chunk := process.stdout.read(CHUNK_BYTES):
            yield chunk


def load(login: Login, chunks: Iterable[bytes]) -> None:
    """Load a dump in one transaction, as `login` and with nothing beyond its own rights.

    Whatever is in a dump was written by those who use an environment. Were it loaded by an administrator, what it
    makes the server run - a check, a default, an index's expression - would be run as one.

    Raises :class:`CopyFailed` or `ProviderTrouble`, and whatever `chunks` raises; nothing was loaded then.
    """
    options = ("--single-transaction", "--exit-on-error", "--no-owner", "--no-privileges")
    with _running("pg_restore", login, options, CopyFault.LOAD_FAILED, stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        # A program that ends early says why with its status.
        with suppress(BrokenPipeError):
            for chunk in chunks:
                process.stdin.write(chunk)
        with suppress(BrokenPipeError):
            process.stdin.close()


@contextmanager
def _running(
    program: str,
    login: Login,
    options: Iterable[str],
    fault: CopyFault,
    stdin: int = subprocess.DEVNULL,
    stdout: int = subprocess.DEVNULL,
) -> Iterator[subprocess.Popen[bytes]]:
    """A running program, which must end well after the body and is ended where the body does not."""
    with _in_memory(login.pass_line) as descriptor, tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            (
                *("setpriv", "--pdeathsig", "KILL", str(postgres_directory() / program), *options, "--no-password"),
                *("--host", login.host, "--port", str(login.port), "--username", login.user),
                *("--dbname", login.database),
            ),
            stdin=stdin,
            stdout=stdout,
            stderr=said,
            pass_fds=(descriptor,),
            env={
                "PATH": os.defpath,
                "LC_ALL": "C",
                "PGPASSFILE": f"/proc/self/fd/{descriptor}",
                "PGCONNECT_TIMEOUT": "5",
                "PGAPPNAME": "tenantry",
            },
        )
        try:
            yield process
            status = process.wait()
        finally:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with suppress(BrokenPipeError):
                        pipe.close()
        if status:
            raise _failure(program, login, said, fault)


def _failure(program: str, login: Login, said: IO[bytes], fault: CopyFault) -> CopyFailed | ProviderTrouble:
    """What its last words mean; they themselves may hold somebody's data and are passed on to nobody."""
    said.seek(0)
    word = connection_word(said.read(_SHOWN_BYTES).decode(errors="replace"))
    if word is not None:
        return ProviderTrouble(word)
    return CopyFailed(fault, f"{program} of {login.database} as {login.user} failed")


@contextmanager
def _in_memory(content: bytes) -> Iterator[int]:
    descriptor = os.memfd_create("pgpass", os.MFD_CLOEXEC)
    try:
        os.fchmod(descriptor, 0o600)
        os.write(descriptor, content)
        yield descriptor
    finally:
        os.close(descriptor)
