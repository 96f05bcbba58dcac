"""What a lab writes down about itself; other parts read the same files."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from engine.errors import MissingPart
from engine.provision.providers.lab.processes import Process
from engine.records.atomic import replace_file

SSH_PORT = 22


class Phase(StrEnum):
    """How far the host has come; written before the work that the phase is about."""

    PREPARING = "preparing"
    PREPARED = "prepared"
    STARTED = "started"


@dataclass(frozen=True)
class HostRecord:
    """One host, in ``lab/hosts/<slug>.json``.

    The address and `host_key` (``ssh-ed25519 AAAA…``) are valid before the host is up. In phase
    PREPARING its disk is incomplete and worth nothing, and it has no key. `pid` and `started` name
    its supervisor process. `disk_limit_bytes` is None for a disk that is as large as the machine's. `label` is
    None for a tenant's host.
    """

    slug: str
    index: int
    address: str
    port: int
    ssh_user: str
    host_key: str | None
    phase: Phase
    disk_limit_bytes: int | None = None
    pid: int | None = None
    started: int | None = None
    label: str | None = None

    @property
    def process(self) -> Process | None:
        if self.pid is None or self.started is None:
            return None
        return Process(self.pid, self.started)

    def with_process(self, process: Process) -> HostRecord:
        return replace(self, phase=Phase.STARTED, pid=process.pid, started=process.started)

    def stopped(self) -> HostRecord:
        phase = Phase.PREPARING if self.phase is Phase.PREPARING else Phase.PREPARED
        return replace(self, phase=phase, pid=None, started=None)


@dataclass(frozen=True)
class LabRecord:
    """The lab itself, in ``lab/lab.json``: where its hosts reach this machine."""

    id: str
    bridge: str
    subnet: str
    gateway: str


@dataclass(frozen=True)
class ServiceRecord:
    """A process of the lab on the operator's machine, in ``lab/<name>.json``."""

    pid: int
    started: int
    address: str
    port: int
    command: tuple[str, ...]


class LabState:
    """The files of one lab, under ``STATE_DIR/lab``."""

    def __init__(self, state_dir: Path) -> None:
        self.directory = state_dir.resolve() / "lab"
        self.lock_file = self.directory / "lock"
        self.hosts = self.directory / "hosts"
        self.lab_file = self.directory / "lab.json"
        self.stub_file = self.directory / "model-stub.json"
        self.relays = self.directory / "relays"
        self.stub_log = self.directory / "logs" / "model-stub.log"

    def root(self, slug: str) -> Path:
        """Where the host's tree is mounted while it runs."""
        return self.directory / "roots" / slug

    def disk(self, slug: str) -> Path:
        return self.directory / "disks" / slug

    def console_log(self, slug: str) -> Path:
        return self.directory / "logs" / f"{slug}.log"

    def host_file(self, slug: str) -> Path:
        return self.hosts / f"{slug}.json"

    def read_host(self, slug: str) -> HostRecord | None:
        content = _read(self.host_file(slug))
        return None if content is None else HostRecord(**{**content, "phase": Phase(content["phase"])})

    def read_hosts(self) -> tuple[HostRecord, ...]:
        """Return all hosts, by name."""
        names = sorted(name for name in _names(self.hosts) if name.endswith(".json") and not name.startswith("."))
        records = (self.read_host(name.removesuffix(".json")) for name in names)
        return tuple(record for record in records if record is not None)

    def write_host(self, record: HostRecord) -> None:
        write_json(self.host_file(record.slug), asdict(record))

    def forget_host(self, slug: str) -> None:
        self.host_file(slug).unlink(missing_ok=True)

    def read_lab(self) -> LabRecord | None:
        content = _read(self.lab_file)
        return None if content is None else LabRecord(**content)

    def write_lab(self, record: LabRecord) -> None:
        write_json(self.lab_file, asdict(record))

    def read_stub(self) -> ServiceRecord | None:
        content = _read(self.stub_file)
        return None if content is None else ServiceRecord(**{**content, "command": tuple(content["command"])})

    def write_stub(self, record: ServiceRecord) -> None:
        write_json(self.stub_file, asdict(record))


def write_json(path: Path, content: object) -> None:
    """Replace a JSON file atomically and durably; raises `RecordFailed`, the old one then intact."""
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, (json.dumps(content, indent=2) + "\n").encode())


def _names(directory: Path) -> list[str]:
    # Not Path.glob: that finds nothing where it may not look.
    try:
        return os.listdir(directory)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise _not_readable(directory, error) from error


def _read(path: Path) -> dict[str, Any] | None:
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _not_readable(path, error) from error


def _not_readable(path: Path, error: OSError) -> MissingPart:
    return MissingPart(
        f"the lab's record cannot be read: {error.strerror}",
        where=str(path),
        hint="run the command as the user who runs the lab",
    )
