"""The tenant's half of a backup on this machine: the script in a process of its own, on a directory of the test's."""

from __future__ import annotations

import hashlib
import io
import os
import signal
import sqlite3
import subprocess
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from engine.backups.reading import ArchiveReader, Member
from engine.backups.request import Request, check_answer, request
from engine.errors import ArchiveRejected
from engine.hosts.channel import Output
from engine.registry.safeguards import Backup, Content, ContentKind, Recovery
from engine.registry.settings import Settings, Transport


@dataclass
class FakeTenant:
    """A directory with the engine's home and a state directory, as the fleet's only content."""

    root: Path
    exclude: tuple[str, ...] = ("cache",)
    settings: Settings = field(default_factory=lambda: Settings(brand="Queva"))

    def __post_init__(self) -> None:
        self.home.mkdir(parents=True)
        self.state.mkdir()
        (self.home / "version").write_text("2026.10.22\n")
        content = Content("state", str(self.state), ContentKind.STATE, self.exclude)
        self.settings = replace(
            self.settings,
            contents=(content,),
            recovery=Recovery(reserve_mebibytes=0),
            transport=Transport(dead_link_seconds=1),
        )

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def state(self) -> Path:
        return self.root / "state"

    def request(self, **backup: Any) -> Request:
        settings = replace(self.settings, backup=Backup(**backup))
        description = {"slug": "maple", "run": "20261129T013000Z-00000000", "engine": "0.1.0"}
        return request(settings, description, str(self.home))

    def start(self, wanted: Request, **options: Any) -> subprocess.Popen[bytes]:
        """Start the script as the host's shell does, all of its input given."""
        environment = {**os.environ, "LC_ALL": "C.UTF-8", **options.pop("env", {})}
        process = subprocess.Popen(
            ["sh", "-c", f"exec {wanted.command}"],
            stdin=subprocess.PIPE,
            env=environment,
            **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options},
        )
        assert process.stdin
        process.stdin.write(wanted.stdin)
        process.stdin.close()
        process.stdin = None
        return process

    def run(self, wanted: Request | None = None, **options: Any) -> tuple[Output, Request]:
        """Run the script to its end."""
        wanted = wanted or self.request()
        process = self.start(wanted, **options)
        stdout, stderr = process.communicate(timeout=60)
        return Output(process.returncode, stdout, stderr), wanted

    def left(self) -> list[str]:
        """What is still in the private directory."""
        return sorted(os.listdir(self.home / "staging"))

    def database(self, name: str, journal: str = "wal", rows: int = 1000) -> sqlite3.Connection:
        connection = sqlite3.connect(self.state / name)
        connection.execute(f"PRAGMA journal_mode={journal}")
        connection.execute("CREATE TABLE messages (content TEXT)")
        connection.executemany("INSERT INTO messages VALUES (?)", [(f"row {number}",) for number in range(rows)])
        connection.commit()
        return connection


def unpack(content: bytes, directory: Path) -> tuple[ArchiveReader, dict[str, Member]]:
    """Read an archive whole, and put its files below `directory`."""
    reader = ArchiveReader(io.BytesIO(content), "maple")
    members = {}
    for entry in reader:
        members[entry.member.path] = entry.member
        if entry.member.kind == "file":
            place = directory / entry.member.path.lstrip("/")
            place.parent.mkdir(parents=True, exist_ok=True)
            with place.open("wb") as file:
                while block := entry.read(1 << 18):
                    file.write(block)
    return reader, members


def wait_for_end(process: subprocess.Popen[bytes], seconds: float = 20) -> int:
    end = time.monotonic() + seconds
    while process.poll() is None:
        if time.monotonic() > end:
            process.send_signal(signal.SIGKILL)
            raise AssertionError("the script goes on")
        time.sleep(0.05)
    return process.returncode


def archived(tenant: FakeTenant, place: Path) -> tuple[ArchiveReader, dict[str, Member]]:
    """The members of one archive of `tenant`, unpacked below `place`."""
    output, wanted = tenant.run()
    check_answer(output, wanted.nonce, "maple")
    return unpack(output.stdout, place)


def problem(tenant: FakeTenant, **options: Any) -> str:
    """Why there is no archive."""
    output, wanted = tenant.run(**options)
    with pytest.raises(ArchiveRejected) as raised:
        check_answer(output, wanted.nonce, "maple")
    assert tenant.left() == []
    return raised.value.message


def tree(root: Path) -> dict[str, tuple[object, ...]]:
    """Every name below `root` with kind, mode, owner, time and digest; reading times aside."""
    found = {}
    for directory, _, names in os.walk(os.fsencode(root)):
        for path in (directory, *(os.path.join(directory, name) for name in names)):
            status = os.lstat(path)
            digest = None
            if os.path.isfile(path) and not os.path.islink(path):
                digest = hashlib.sha256(Path(os.fsdecode(path)).read_bytes()).hexdigest()
            found[os.fsdecode(path)] = (status.st_mode, status.st_uid, status.st_gid, status.st_mtime_ns, digest)
    return found
