"""One lab host: its disk, its wire and its processes, brought up and down in order."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from engine.errors import CommandFailed, Refused
from engine.provision.providers.lab import account, content, seed
from engine.provision.providers.lab.commands import Commands
from engine.provision.providers.lab.control_group import ControlGroup
from engine.provision.providers.lab.disk import Disk
from engine.provision.providers.lab.identity import make_key, public_half
from engine.provision.providers.lab.model import HostSpec
from engine.provision.providers.lab.network import NAMESPACES, LabNames, LabNetwork, address_at
from engine.provision.providers.lab.processes import identify, is_first
from engine.provision.providers.lab.state import HostRecord, LabState

POWER_OFF = signal.SIGRTMIN + 4
"""What systemd, as a process 1, takes as the order to power off."""

POWER_OFF_SECONDS = 30.0
POWER_OFF_AGAIN_SECONDS = 0.5

HOST_KEY = Path("etc/ssh/ssh_host_ed25519_key")
MACHINE_ID = Path("etc/machine-id")
FIRST_BOOT_RESULT = Path("run/cloud-init/result.json")
LOGINS_REFUSED = Path("run/nologin")

HOSTS_FILES = (Path("etc/cloud/templates/hosts.debian.tmpl"), Path("etc/hosts"))
"""cloud-init makes the second from the first at every boot; a host without it has only the second."""

MODEL_NAME = "model.lab"
"""What hosts call the model stub."""

RELAY_NAME = "relay.lab"
"""What hosts with a label call the lab's relays."""

SUPERVISOR_FILES = Path("/run/systemd/nspawn/propagate")

# A host that reboots makes nspawn end with 133, for whoever supervises it to start it again. Its lock
# files would survive a kill; a host's control group already says whether it runs.
_SUPERVISE = """
export SYSTEMD_NSPAWN_LOCK=0
trap 'kill -TERM $host' TERM
while :; do
  "$@" & host=$!
  while kill -0 $host 2> /dev/null; do wait $host; status=$?; done
  [ $status = 133 ] || exit $status
done
"""


@dataclass(frozen=True)
class HostParts:
    """What a host is made with: the lab's names, files and network, and the commands' locks."""

    names: LabNames
    state: LabState
    network: LabNetwork
    commands: Commands


class HostMachine:
    """Drives the kernel's objects of one host; every method may be repeated."""

    def __init__(self, record: HostRecord, parts: HostParts) -> None:
        self.record = record
        self._parts = parts
        slug = record.slug
        self.group = ControlGroup.of_machine(parts.names.group, slug)
        self.disk = Disk(parts.state.root(slug), parts.state.disk(slug), record.disk_limit_bytes)

    @property
    def running(self) -> bool:
        process = self.record.process
        return process is not None and process.alive

    def prepare(self, origin: Path | Disk, spec: HostSpec, instance_id: str) -> str:
        """Make a disk with a new identity, ready for its first boot; returns the host key.

        `origin` is the base image of an empty disk, or the disk of a host that is off, to copy.
        """
        self.release()
        if isinstance(origin, Disk):
            self.disk.copy(origin, self._parts.commands)
        else:
            self.disk.create(origin)
        self.disk.mount(self._parts.commands)
        private = self.disk.root / HOST_KEY
        make_key(private, self.record.slug, self._parts.commands)
        (self.disk.root / MACHINE_ID).write_text("")
        if spec.user_data is None:
            account.settle(self.disk.root, spec.slug, spec.ssh_user, spec.public_key)
        else:
            meta_data = seed.meta_data(spec.slug, instance_id)
            seed.write(self.disk.root, meta_data=meta_data, user_data=spec.user_data)
        if spec.content is not None:
            content.place(self.disk.root, spec.content)
        return " ".join(public_half(private).split()[:2])

    def boot(self) -> HostRecord:
        """Start the host on its disk; returns the record with the process that supervises it."""
        self.group.clear()
        if not os.path.ismount(self.disk.root):
            self.disk.mount(self._parts.commands)
        self._name_this_machine()
        self._parts.network.connect(self.record.slug, self.record.index, self.record.address)
        self.group.create()
        log = self._parts.state.console_log(self.record.slug)
        pid = self._parts.commands.launch(self._supervisor(), log=log, join=self.group.entrances)
        process = identify(pid)
        if process is None:
            raise CommandFailed("the host ended at once", where=str(log), hint="its end says why")
        self.record = self.record.with_process(process)
        return self.record

    def _name_this_machine(self) -> None:
        """Let the host find the model stub or the relays by name, at the address that the lab has this time."""
        subnet = self._parts.network.subnet()
        name = MODEL_NAME if self.record.label is None else RELAY_NAME
        for path in (self.disk.root / name for name in HOSTS_FILES):
            if subnet is None or not path.exists():
                continue
            lines = [line for line in path.read_text().splitlines() if not line.endswith(f" {name}")]
            path.write_text("\n".join([*lines, f"{address_at(subnet, 1)} {name}"]) + "\n")

    def power_off(self) -> None:
        """Ask the host to shut down in order; one that only begins to boot does not hear it."""
        with suppress(Refused):
            init = identify(self.init_pid())
            if init is not None:
                init.signal(POWER_OFF)

    def wait_off(self) -> None:
        """Give the host time to shut down, and ask again meanwhile."""
        deadline = time.monotonic() + POWER_OFF_SECONDS
        while not self.group.wait_empty(POWER_OFF_AGAIN_SECONDS) and time.monotonic() < deadline:
            self.power_off()

    def release(self) -> None:
        """End what still runs, and remove mounts, wire and group; the disk's content stays."""
        self.group.clear()
        self.disk.unmount()
        self._parts.network.disconnect(self.record.slug, self.record.index)
        self.group.remove()
        with suppress(FileNotFoundError):
            (SUPERVISOR_FILES / self._parts.names.namespace(self.record.slug)).rmdir()

    def init_pid(self) -> int:
        """Return the host's own process 1 as this machine numbers it; raises `Refused` if it is off."""
        for group in ("payload/init.scope", "payload"):
            try:
                members = (self.group.directories[0] / group / "cgroup.procs").read_text().split()
            except FileNotFoundError:
                continue
            for member in members:
                if is_first(int(member)):
                    return int(member)
        raise Refused("the host is not running", where=self.record.slug, hint="tenantry lab up")

    def ready(self) -> bool:
        """Whether first boot is over, logins are allowed and SSH answers.

        Raises `CommandFailed` if cloud-init reported errors or the host is gone.
        """
        if not self.running:
            log = self._parts.state.console_log(self.record.slug)
            raise CommandFailed(f"{self.record.slug} is off", where=str(log), hint="its end says why")
        try:
            inside = Path(f"/proc/{self.init_pid()}/root")
            settled = self._first_boot_over(inside) and not (inside / LOGINS_REFUSED).exists()
        except (OSError, ValueError, Refused):
            return False
        return settled and answers_ssh(self.record.address, self.record.port)

    def _first_boot_over(self, inside: Path) -> bool:
        if (inside / seed.DISABLED).exists():
            return True
        errors = json.loads((inside / FIRST_BOOT_RESULT).read_text())["v1"]["errors"]
        if errors:
            raise CommandFailed(f"cloud-init failed: {errors}", where=self.record.slug)
        return True

    def _supervisor(self) -> tuple[str, ...]:
        names, slug = self._parts.names, self.record.slug
        return (
            *("bash", "-c", _SUPERVISE, f"supervise-{names.namespace(slug)}"),
            "systemd-nspawn",
            f"--directory={self.disk.root}",
            f"--machine={names.namespace(slug)}",
            f"--hostname={slug}",
            f"--network-namespace-path=/run/netns/{names.namespace(slug)}",
            "--boot",
            "--settings=no",
            # Neither machined nor a systemd on this machine is needed.
            "--register=no",
            "--keep-unit",
            "--resolv-conf=off",
            "--link-journal=no",
            "--console=read-only",
        )


def present_slugs(names: LabNames) -> set[str]:
    """Return the names of all hosts of which this machine's kernel has anything."""
    prefix = names.namespace("")
    namespaces = {path.name.removeprefix(prefix) for path in NAMESPACES.glob(f"{prefix}*")}
    groups = {
        path.name for directory in ControlGroup.of_machine(names.group).directories for path in directory.glob("*/")
    }
    # A group that begins with a dot is a program's on this machine: no host has such a name.
    return {name for name in namespaces | groups if not name.startswith(".")}


def answers_ssh(address: str, port: int, timeout_seconds: float = 1.0) -> bool:
    """Whether an SSH server introduces itself at the address."""
    try:
        with socket.create_connection((address, port), timeout_seconds) as connection:
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False
