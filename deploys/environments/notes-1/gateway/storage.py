"""The environment's database and bucket, as both programs use them."""

from __future__ import annotations

import hashlib
import os
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg2

CONNECTIONS = 4
"""Of each program; the environment's login has ten."""

SECONDS = 10

# Every program of every member of a tier does this at its boot, maybe at the same time.
_TABLES = """
SELECT pg_advisory_xact_lock(7290);
CREATE TABLE IF NOT EXISTS identities (member text PRIMARY KEY, administrator boolean NOT NULL);
CREATE TABLE IF NOT EXISTS approvals (member text PRIMARY KEY REFERENCES identities);
CREATE TABLE IF NOT EXISTS tokens (digest text PRIMARY KEY, member text NOT NULL REFERENCES identities);
CREATE TABLE IF NOT EXISTS notes (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    object text NOT NULL,
    text text NOT NULL,
    written timestamptz NOT NULL DEFAULT now()
);
"""


class Unavailable(Exception):
    """A store did not do what it was asked; the argument is the closed word to say so."""


class Database:
    """A connection for each piece of work, so that a quiet environment holds none."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = settings
        self._places = threading.BoundedSemaphore(CONNECTIONS)

    def prepare(self) -> None:
        """Have the tables."""
        with self.work() as cursor:
            cursor.execute(_TABLES)

    @contextmanager
    def work(self) -> Iterator[Any]:
        """A cursor whose work is committed as a whole in the end; raises `Unavailable`."""
        try:
            with self._places:
                connection = self._connect()
                try:
                    with connection, connection.cursor() as cursor:
                        yield cursor
                finally:
                    connection.close()
        except psycopg2.Error as error:
            raise Unavailable("databaseUnavailable") from error

    def _connect(self) -> Any:
        settings = self._settings
        return psycopg2.connect(
            host=settings["host"],
            port=settings["port"],
            dbname=settings["name"],
            user=settings["user"],
            password=settings["password"],
            connect_timeout=SECONDS,
            options=f"-c statement_timeout={SECONDS}s",
        )


@dataclass(frozen=True)
class Bucket:
    """Objects over S3, signed by curl. Its settings go through a pipe: arguments can be read by anybody."""

    settings: Mapping[str, Any]

    def check(self) -> None:
        """Raise `Unavailable` unless the bucket can be used."""
        self._curl("", "head")

    def put(self, key: str, content: bytes) -> None:
        digest = hashlib.sha256(content).hexdigest()
        options = ('request = "PUT"', 'data-binary = "@-"', f'header = "x-amz-content-sha256: {digest}"')
        self._curl(key, *options, content=content)

    def get(self, key: str) -> bytes:
        return self._curl(key)

    def _curl(self, key: str, *options: str, content: bytes = b"") -> bytes:
        lines = (
            f'url = "{self.settings["endpoint"]}/{self.settings["name"]}{"/" if key else ""}{key}"',
            f'user = "{self.settings["access_key"]}:{self.settings["secret_key"]}"',
            'aws-sigv4 = "aws:amz:us-east-1:s3"',
            *("silent", "fail", f"max-time = {SECONDS}"),
            *options,
        )
        read, write = os.pipe()
        try:
            os.write(write, "\n".join(lines).encode())
            os.close(write)
            argv = ("curl", "--disable", "--config", f"/dev/fd/{read}")
            done = subprocess.run(argv, input=content, pass_fds=(read,), stdout=subprocess.PIPE, check=False)
        finally:
            os.close(read)
        if done.returncode:
            raise Unavailable("bucketUnavailable")
        return done.stdout
