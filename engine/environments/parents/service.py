"""One long-running program of a parent on this machine: started without root's rights, found again, stopped."""

from __future__ import annotations

import json
import os
import pwd
import signal
import socket
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path

from engine.environments.drivers.trouble import Trouble
from engine.environments.observation import Unknown
from engine.errors import CommandFailed, MissingPart, Refused
from engine.provision.providers.lab.commands import Commands
from engine.provision.providers.lab.control_group import ControlGroup
from engine.provision.providers.lab.processes import Process, identify
from engine.provision.providers.lab.state import write_json

ADDRESS = "127.0.0.1"
DATA = "/mnt/data"
"""Where the program sees its own directory."""

NOT_RUNNING = Unknown(Trouble.NOT_RUNNING.value)

FIRST_PORT, SPREAD, FIRST_EPHEMERAL_PORT = 20000, 12000, 32768
"""Where parents get their ports: each begins somewhere in the spread."""

STOP_SECONDS = 30.0
POLL_SECONDS = 0.1

# The state directory may lie where only root can go. The program sees its own files elsewhere instead, in a mount
# namespace that ends with it, and has neither root's identity nor any capability.
_CONFINE = """
data=$1 program=$2 user=$3 group=$4; shift 4
mount -t tmpfs -o mode=0755 tmpfs /mnt
mkdir /mnt/data
mount --bind "$data" /mnt/data
if [ -n "$program" ]; then : > /mnt/program; mount --bind "$program" /mnt/program; fi
cd /mnt/data
exec setpriv --reuid="$user" --regid="$group" --clear-groups --no-new-privs --bounding-set=-all --inh-caps=-all -- \
    env -i PATH=/usr/bin:/bin LC_ALL=C.UTF-8 HOME=/mnt/data "$@"
"""


@dataclass(frozen=True)
class Account:
    """The account that a program runs as."""

    uid: int
    gid: int

    @classmethod
    def named(cls, name: str) -> Account:
        """The account `name`; raises `MissingPart`."""
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            raise MissingPart(f"there is no account {name}", where="this machine", hint="make packages") from None
        return cls(entry.pw_uid, entry.pw_gid)


@dataclass(frozen=True)
class ParentRecord:
    """What is written down about a parent. Its ports stay: environments know them."""

    ports: Mapping[str, int]
    pid: int | None = None
    started: int | None = None

    @property
    def process(self) -> Process | None:
        """The process, if it still runs."""
        if self.pid is None or self.started is None:
            return None
        process = Process(self.pid, self.started)
        return process if process.alive else None


class Service:
    """The program of one parent. `directory` is its own, `file` its record."""

    def __init__(self, name: str, directory: Path, group: str, account: Callable[[], Account]) -> None:
        self.name = name
        self.directory = directory / name
        self.file = directory / f"{name}.json"
        self.log = directory.parent / "logs" / f"parent-{name}.log"
        self._control = ControlGroup.of_machine(group, f".parent-{name}")
        self._account = account

    def read(self) -> ParentRecord | None:
        try:
            return ParentRecord(**json.loads(self.file.read_text()))
        except FileNotFoundError:
            return None
        except PermissionError as error:
            raise MissingPart(
                "the record of a parent cannot be read", where=str(self.file), hint="run the command as root"
            ) from error

    def ports(self, names: Sequence[str]) -> Mapping[str, int]:
        """The recorded ports, or free ones, recorded before anything uses them."""
        record = self.read()
        if record is None:
            record = ParentRecord(dict(zip(names, _free_ports(self.directory, len(names)), strict=True)))
            write_json(self.file, asdict(record))
        return record.ports

    def make_directory(self, *below: str) -> Path:
        """The program's directory, or one below it, which only its account can enter."""
        path = self.directory.joinpath(*below)
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.give(path)
        return path

    def give(self, path: Path) -> None:
        """Make a file the account's own."""
        account = self._account()
        os.chown(path, account.uid, account.gid)

    def confined(self, argv: Sequence[str], program: Path | None = None) -> tuple[str, ...]:
        """`argv` as the account, with the directory at `DATA` and `program`, if given, at ``/mnt/program``."""
        account = self._account()
        values = (str(self.directory), str(program or ""), str(account.uid), str(account.gid))
        namespace = ("unshare", "--mount", "--propagation=private", "--")
        return (*namespace, "sh", "-euc", _CONFINE, "confine", *values, *argv)

    def start(self, argv: Sequence[str], commands: Commands, answers: Callable[[], bool], seconds: float) -> None:
        """Start a program and wait until it answers; raises `CommandFailed`, and then nothing of it runs."""
        record = self.read()
        if record is None:
            raise Refused("the parent has no ports yet", where=str(self.file))
        self.end_remains()
        for name, port in record.ports.items():
            _require_free(self.name, name, port)
        self._control.create()
        pid = commands.launch(argv, log=self.log, join=self._control.entrances)
        process = identify(pid)
        if process is not None:
            write_json(self.file, asdict(ParentRecord(record.ports, process.pid, process.started)))
        if process is None or not _comes_up(process, answers, seconds):
            self.stop(signal.SIGTERM)
            raise CommandFailed(f"the parent {self.name} does not answer", where=str(self.log))

    def end_remains(self) -> None:
        """End whatever of it a killed start left behind: it is in the control group, recorded or not."""
        self._control.clear()

    def stop(self, number: signal.Signals) -> None:
        """End the program, with time to put its files in order; they stay."""
        record = self.read()
        process = record.process if record else None
        if process is not None:
            process.signal(number)
            self._control.wait_empty(STOP_SECONDS)
        self._control.clear()
        self._control.remove()
        if record is not None:
            write_json(self.file, asdict(ParentRecord(record.ports)))


def _free_ports(directory: Path, count: int) -> list[int]:
    """Ports of loopback that nobody has, below those that outgoing connections take by themselves.

    Each parent looks from another port on, so that of two that are made at the same time neither takes the other's.
    """
    first = FIRST_PORT + zlib.crc32(os.fsencode(directory)) % SPREAD
    free = (port for port in range(first, FIRST_EPHEMERAL_PORT) if _is_free(port))
    found = list(islice(free, count))
    if len(found) < count:
        raise Refused(f"no {count} free ports from {first} on", where=ADDRESS)
    return found


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((ADDRESS, port))
        except OSError:
            return False
        return True


def _require_free(parent: str, name: str, port: int) -> None:
    if not _is_free(port):
        raise Refused(
            f"another program listens on port {port} ({name})",
            where=f"parent {parent}",
            hint=f"end what `ss -ltnp sport = :{port}` shows; environments know the parent by this port",
        )


def _comes_up(process: Process, answers: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while process.alive and time.monotonic() < deadline:
        if answers():
            return True
        time.sleep(POLL_SECONDS)
    return False
