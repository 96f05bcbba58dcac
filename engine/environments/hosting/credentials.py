"""What an environment's own parts sign in with, made once and on the disk before anything is sent.

They lie beside the journal, because whoever goes on with an environment needs both. Those of a durable environment
stay until its tombstone: its data is deleted long after it was retired.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from engine.environments.drivers.base import KeyPair
from engine.environments.names import canonical
from engine.errors import RecordFailed
from engine.records.atomic import sync_directory


@dataclass(frozen=True)
class Credentials:
    """The secrets of one environment or tier. `token` is what its gateway asks of whoever writes."""

    password: str = field(repr=False)
    access_key: str
    secret_key: str = field(repr=False)
    token: str = field(repr=False)

    @property
    def key_pair(self) -> KeyPair:
        return KeyPair(self.access_key, self.secret_key.encode())


@dataclass(frozen=True)
class CredentialStore:
    """One file of mode 0600 for each uuid below `directory`."""

    directory: Path

    def ensure(self, uuid: str) -> Credentials:
        """The credentials of `uuid`, made if there are none; two that ask at once get the same.

        Raises :class:`RecordFailed`.
        """
        path = self._path(uuid)
        with _errors(path):
            if not path.exists():
                self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
                _publish_first(path, json.dumps(asdict(_new())).encode())
            return Credentials(**json.loads(path.read_bytes()))

    def forget(self, uuid: str) -> None:
        """Remove the credentials of a uuid that is gone."""
        path = self._path(uuid)
        with _errors(path):
            path.unlink(missing_ok=True)

    def _path(self, uuid: str) -> Path:
        return self.directory / f"{canonical(uuid)}.json"


def _new() -> Credentials:
    access_key = f"TN{secrets.token_hex(9).upper()}"
    return Credentials(secrets.token_urlsafe(24), access_key, secrets.token_urlsafe(32), secrets.token_urlsafe(32))


def _publish_first(path: Path, content: bytes) -> None:
    """Write `path` whole, unless somebody was faster: a link, unlike a rename, replaces nothing."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(temporary, path)
        except FileExistsError:
            return
        sync_directory(path.parent)
    finally:
        temporary.unlink()


@contextmanager
def _errors(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, TypeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it does not hold credentials"
        raise RecordFailed(f"credentials cannot be used: {reason}", where=str(path)) from error
