"""Relays: how hosts reach a program that listens on this machine's loopback alone.

One relay listens at the bridge's address, which only the lab's hosts can reach, and passes each connection on. It is
systemd's own proxy, started without systemd, as an account without rights.
"""

from __future__ import annotations

import json
import shutil
import socket
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from engine.errors import CommandFailed, MissingPart, Refused
from engine.provision.providers.lab.commands import Commands
from engine.provision.providers.lab.control_group import ControlGroup
from engine.provision.providers.lab.network import LabNames
from engine.provision.providers.lab.processes import Process, identify
from engine.provision.providers.lab.state import LabState, write_json

ACTIVATE = "systemd-socket-activate"
PROXY = Path("/lib/systemd/systemd-socket-proxyd")
CONNECTIONS_MAX = 1024
START_SECONDS = 15.0
POLL_SECONDS = 0.05

_WITHOUT_RIGHTS = (
    *("setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", "--no-new-privs"),
    *("--bounding-set=-all", "--inh-caps=-all", "--"),
)


@dataclass(frozen=True)
class RelayRecord:
    """One relay, in ``lab/relays/<name>.json``. Its port stays: hosts know it. `target` is ``ADDRESS:PORT``."""

    target: str
    port: int
    address: str | None = None
    pid: int | None = None
    started: int | None = None

    @property
    def alive(self) -> bool:
        return self.pid is not None and self.started is not None and Process(self.pid, self.started).alive


class Relays:
    """The relays of one lab; whoever changes them holds the lab's lock."""

    def __init__(self, state: LabState, names: LabNames, progress: Callable[[str], None]) -> None:
        self._state = state
        self._names = names
        self._progress = progress

    def record(self, name: str) -> RelayRecord | None:
        try:
            return RelayRecord(**json.loads(self._file(name).read_text()))
        except FileNotFoundError:
            return None

    def ensure(self, name: str, target: str, preferred_port: int, address: str, commands: Commands) -> int:
        """Have a relay from `address` to `target`; returns its port, `preferred_port` if that was free at first."""
        record = self.record(name)
        if record is None:
            record = RelayRecord(target, _free_port(address, preferred_port))
        self._start(name, replace(record, target=target), address, commands)
        return record.port

    def ensure_recorded(self, address: str, commands: Commands) -> None:
        """Have all relays that there ever were, now at `address`."""
        for file in sorted(self._state.relays.glob("[!.]*.json")):
            record = self.record(file.stem)
            if record is not None:
                self._start(file.stem, record, address, commands)

    def stop(self) -> None:
        """End all of them; what they are is remembered."""
        for file in self._state.relays.glob("[!.]*.json"):
            self._stop(file.stem)

    def _start(self, name: str, record: RelayRecord, address: str, commands: Commands) -> None:
        present = self.record(name)
        if present is not None and present.alive and (present.target, present.address) == (record.target, address):
            return
        if shutil.which(ACTIVATE) is None or not PROXY.exists():
            raise MissingPart(
                f"relays need {ACTIVATE} and {PROXY.name}", where="this machine", hint="apt-get install --yes systemd"
            )
        write_json(self._file(name), asdict(replace(record, address=None, pid=None, started=None)))
        self._stop(name)
        group = self._group(name)
        group.create()
        log = self._state.directory / "logs" / f"relay-{name}.log"
        listen = (ACTIVATE, f"--listen={address}:{record.port}")
        proxy = (str(PROXY), f"--connections-max={CONNECTIONS_MAX}", record.target)
        pid = commands.launch((*_WITHOUT_RIGHTS, *listen, *proxy), log=log, join=group.entrances)
        process = identify(pid)
        if process is None or not _listens(process, address, record.port):
            self._stop(name)
            raise CommandFailed(f"the relay {name} does not listen at {address}:{record.port}", where=str(log))
        write_json(self._file(name), asdict(replace(record, address=address, pid=pid, started=process.started)))
        self._progress(f"relay {name}: {address}:{record.port} to {record.target}")

    def _stop(self, name: str) -> None:
        group = self._group(name)
        group.clear()
        group.remove()
        record = self.record(name)
        if record is not None:
            write_json(self._file(name), asdict(replace(record, address=None, pid=None, started=None)))

    def _group(self, name: str) -> ControlGroup:
        # No host can have this name.
        return ControlGroup.of_machine(self._names.group, f".relay-{name}")

    def _file(self, name: str) -> Path:
        return self._state.relays / f"{name}.json"


def _free_port(address: str, preferred: int) -> int:
    """The first free port from `preferred` on, below those that outgoing connections take by themselves."""
    for port in range(preferred, preferred + 100):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((address, port))
            except OSError:
                continue
            return port
    raise Refused(f"no free port from {preferred} on", where=address)


def _listens(process: Process, address: str, port: int) -> bool:
    """Whether it comes to listen. Looked up, not tried: a connection would already reach the target."""
    wanted = f"{_kernel_form(address)}:{port:04X} 00000000:0000 0A"
    deadline = time.monotonic() + START_SECONDS
    while process.alive and time.monotonic() < deadline:
        if wanted in Path("/proc/net/tcp").read_text():
            return True
        time.sleep(POLL_SECONDS)
    return False


def _kernel_form(address: str) -> str:
    return socket.inet_aton(address)[::-1].hex().upper()
