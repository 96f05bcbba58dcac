"""The lab: real Debian hosts on this machine, for one state directory."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from ipaddress import IPv4Network
from pathlib import Path

from engine.errors import InvalidInput, Refused, Unreachable
from engine.provision.providers.lab import machine
from engine.provision.providers.lab.base_image import ImageCache, ImageRecipe
from engine.provision.providers.lab.commands import Commands
from engine.provision.providers.lab.disk import Disk
from engine.provision.providers.lab.filelock import held
from engine.provision.providers.lab.host import HostMachine, HostParts, present_slugs
from engine.provision.providers.lab.model import HostSpec, LabHost
from engine.provision.providers.lab.model_stub import ModelStub
from engine.provision.providers.lab.network import (
    LabNames,
    LabNetwork,
    address_at,
    free_index,
    lab_id,
)
from engine.provision.providers.lab.relays import Relays
from engine.provision.providers.lab.state import SSH_PORT, HostRecord, LabRecord, LabState, Phase
from engine.registry.settings import LabSettings

CACHE_VARIABLE = "TENANTRY_LAB_CACHE"
"""Environment variable: a directory for base images that several labs share."""

READY_POLL_SECONDS = 0.1


class Lab:
    """Hosts under ``STATE_DIR/lab``.

    Calls that change something wait for each other, survive being killed at any point, and repair
    what a killed one left behind. Labs of different state directories do not know of each other.
    They raise `MissingPart` on a machine that cannot host a lab.
    """

    def __init__(
        self,
        state_dir: Path,
        settings: LabSettings,
        progress: Callable[[str], None],
        *,
        fleet_root: Path | None = None,
        token: Callable[[], str] = lambda: secrets.token_hex(8),
    ) -> None:
        """`fleet_root` is where `settings.model_stub` is relative to; `token` names boots."""
        self.state = LabState(state_dir)
        self.names = LabNames(lab_id(state_dir))
        self._settings = settings
        self._progress = progress
        self._fleet_root = fleet_root or Path()
        self._token = token

    @property
    def gateway_address(self) -> str:
        """This machine's address as the hosts reach it; raises `Refused` before the first `up`."""
        record = self.state.read_lab()
        if record is None:
            raise Refused("the lab was never up", where=str(self.state.directory), hint="tenantry lab up")
        return record.gateway

    def ensure_base(self) -> Path:
        """Return the base image, built if it is not in the cache."""
        machine.require()
        cache = Path(os.environ.get(CACHE_VARIABLE) or self.state.directory / "base")
        recipe = ImageRecipe(self._settings.suite, self._settings.packages)
        return ImageCache(cache.resolve(), self._progress).ensure(recipe)

    def up(self, specs: Sequence[HostSpec]) -> tuple[LabHost, ...]:
        """Have these hosts running, and the model stub if the fleet has one.

        A running host is left alone, one that is off is started with its disk as it was, a new one
        is made. Returns without waiting for their boot: see `wait_ready`.
        """
        image = self.ensure_base()
        with self._exclusive() as parts:
            subnet = self._open(parts)
            for spec in specs:
                self._start(spec, image, subnet, parts)
            self._ensure_services(subnet, parts.commands)
        return tuple(self.find_required(spec.slug) for spec in specs)

    def start(self, slugs: Iterable[str]) -> None:
        """Switch hosts on with their disks as they are; raises `Refused` for one whose disk is not whole."""
        wanted = tuple(slugs)
        with self._exclusive() as parts:
            subnet = self._open(parts)
            for record in (self._record(slug) for slug in wanted):
                host = HostMachine(record, parts)
                if host.running:
                    continue
                if not self._whole(record):
                    raise Refused("the host has no whole disk", where=record.slug)
                self._boot(replace(record.stopped(), address=address_at(subnet, record.index)), parts)
            self._ensure_services(subnet, parts.commands)

    def relay(self, name: str, target: str, preferred_port: int) -> int:
        """Have hosts with a label reach `target`, an ``ADDRESS:PORT`` of this machine, at ``relay.lab``.

        Returns the port, which never changes. The relay ends with the lab and comes back with it.
        """
        with self._exclusive() as parts:
            address = address_at(self._open(parts), 1)
            return self._relays().ensure(name, target, preferred_port, address, parts.commands)

    def rebuild(self, spec: HostSpec) -> LabHost:
        """Replace the host by a new one with an empty disk, a new identity and the same place."""
        image = self.ensure_base()
        with self._exclusive() as parts:
            subnet = self._open(parts)
            record = self.state.read_host(spec.slug)
            if record is not None:
                _require_label(record, spec.label)
                self.state.write_host(replace(record.stopped(), phase=Phase.PREPARING, host_key=None))
            self._start(spec, image, subnet, parts)
            self._ensure_services(subnet, parts.commands)
        return self.find_required(spec.slug)

    def clone(self, source: str, spec: HostSpec) -> LabHost:
        """Start a new host with a copy of the disk of a host that is off, and an identity of its own.

        Raises `Refused` if the source runs or lost its disk, or if the new host exists.
        """
        with self._exclusive() as parts:
            origin = HostMachine(self._record(source), parts)
            if origin.running or not origin.disk.usable:
                raise Refused("only a host that is off can be cloned", where=source, hint="lab down, then again")
            if spec.disk_limit_bytes is not None or self.find(spec.slug) is not None:
                raise Refused("a clone is a new host with a full disk", where=spec.slug)
            self._start(spec, origin.disk, self._open(parts), parts)
        return self.find_required(spec.slug)

    def down(self, slugs: Iterable[str] | None = None) -> None:
        """Switch hosts off; their disks stay. All of them (None): the lab leaves the machine.

        Afterwards no process, mount, namespace, interface or control group of them is left.
        """
        self._end(slugs, wipe=False)

    def destroy(self, slugs: Iterable[str] | None = None) -> None:
        """Remove hosts with their disks, without a farewell; None means all."""
        self._end(slugs, wipe=True)

    def destroy_labelled(self, slug: str, label: str) -> None:
        """Remove the host if it still has `label`; raises `Refused` for another's, as long as nothing is touched."""
        self._end((slug,), wipe=True, label=label)

    def has_remains(self, slug: str) -> bool:
        """Whether this machine has anything of a host of that name, on record or not. Takes no lock."""
        there = (self.state.host_file(slug), self.state.disk(slug), self.state.root(slug))
        return any(os.path.lexists(path) for path in there) or slug in present_slugs(self.names)

    def list(self) -> tuple[LabHost, ...]:
        """Return every host that has a disk, by name. Takes no lock."""
        return tuple(self._shown(record) for record in self.state.read_hosts())

    def find(self, slug: str) -> LabHost | None:
        record = self.state.read_host(slug)
        return None if record is None else self._shown(record)

    def find_required(self, slug: str) -> LabHost:
        """Return the host; raises `Refused` if the lab has none of that name."""
        return self._shown(self._record(slug))

    def wait_ready(self, slugs: Iterable[str], timeout_seconds: float = 120) -> None:
        """Return once each host has finished its first boot and answers SSH.

        Raises `CommandFailed` for a host that is off or whose cloud-init failed, `Unreachable` in
        the end.
        """
        deadline = time.monotonic() + timeout_seconds
        waiting = [HostMachine(self._record(slug), self._parts()) for slug in slugs]
        while waiting := [host for host in waiting if not host.ready()]:
            if time.monotonic() > deadline:
                names = ", ".join(host.record.slug for host in waiting)
                raise Unreachable(f"not ready after {timeout_seconds:.0f} s", where=names)
            time.sleep(READY_POLL_SECONDS)

    def shell(self, slug: str, command: Sequence[str] = ("/bin/bash", "-l")) -> tuple[str, ...]:
        """Return the argument list that opens a root shell in a running host, network or not."""
        pid = HostMachine(self._record(slug), self._parts()).init_pid()
        environment = (
            "HOME=/root",
            "LANG=C.UTF-8",
            f"TERM={os.environ.get('TERM', 'dumb')}",
            "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        )
        clean = ("/usr/bin/env", "-i", *environment)
        return ("nsenter", f"--target={pid}", "--all", "--root", "--wdns=/", "--", *clean, *command)

    def cut(self, slug: str) -> None:
        """Take the host off the network as a pulled cable would; its processes go on."""
        self._set_link(slug, up=False)

    def restore_link(self, slug: str) -> None:
        """Put the cable back."""
        self._set_link(slug, up=True)

    def _set_link(self, slug: str, *, up: bool) -> None:
        self._parts().network.set_link(self._record(slug).index, up=up)

    @contextmanager
    def _exclusive(self) -> Iterator[HostParts]:
        machine.require()
        with held(self.state.lock_file, lambda: self._progress("waiting for another lab command")) as lock:
            yield self._parts(lock)

    def _parts(self, *locks: int) -> HostParts:
        commands = Commands(locks)
        network = LabNetwork(self.names, commands, self._progress)
        return HostParts(self.names, self.state, network, commands)

    def _open(self, parts: HostParts) -> IPv4Network:
        """Make the lab itself present, and remove what belongs to hosts that nobody remembers."""
        machine.require_overlay(Path("/proc/filesystems").read_text())
        machine.raise_limits()
        self._release_forgotten(parts)
        last = self.state.read_lab()
        # The routes of environments lead to the addresses of their machines, and no route is ever changed.
        keep = any(record.label is not None for record in self.state.read_hosts())
        subnet = parts.network.ensure_bridge(last.subnet if last else None, keep=keep)
        gateway = address_at(subnet, 1)
        self.state.write_lab(LabRecord(self.names.id, self.names.bridge, str(subnet), gateway))
        return subnet

    def _start(self, spec: HostSpec, content: Path | Disk, subnet: IPv4Network, parts: HostParts) -> None:
        record = self.state.read_host(spec.slug)
        if record is not None:
            _require_label(record, spec.label)
        if record is not None and HostMachine(record, parts).running:
            return
        record = self._placed(spec, record, subnet)
        host = HostMachine(record, parts)
        if record.phase is Phase.PREPARING or not host.disk.usable:
            self._progress(f"{spec.slug}: new host at {record.address}")
            record = self._prepared(spec, record, content, parts)
        self._boot(record, parts)

    def _boot(self, record: HostRecord, parts: HostParts) -> None:
        self._progress(f"{record.slug}: starting at {record.address}")
        self.state.write_host(record)
        self.state.write_host(HostMachine(record, parts).boot())

    def _placed(self, spec: HostSpec, record: HostRecord | None, subnet: IPv4Network) -> HostRecord:
        """Return the record of a host that is off, with an address of the lab's present network."""
        if record is not None:
            return replace(record.stopped(), address=address_at(subnet, record.index))
        index = free_index(known.index for known in self.state.read_hosts())
        address = address_at(subnet, index)
        return HostRecord(spec.slug, index, address, SSH_PORT, spec.ssh_user, None, Phase.PREPARING, label=spec.label)

    def _prepared(self, spec: HostSpec, record: HostRecord, content: Path | Disk, parts: HostParts) -> HostRecord:
        """Give the host a new disk; until that is whole, its record says that it is not."""
        record = replace(
            record,
            phase=Phase.PREPARING,
            host_key=None,
            ssh_user=spec.ssh_user,
            disk_limit_bytes=spec.disk_limit_bytes,
        )
        self.state.write_host(record)
        host_key = HostMachine(record, parts).prepare(content, spec, f"{spec.slug}-{self._token()}")
        record = replace(record, phase=Phase.PREPARED, host_key=host_key)
        self.state.write_host(record)
        return record

    def _end(self, slugs: Iterable[str] | None, *, wipe: bool, label: str | None = None) -> None:
        with self._exclusive() as parts:
            records = self._chosen(slugs)
            for record in records if label is not None else ():
                _require_label(record, label)
            hosts = [HostMachine(record, parts) for record in records]
            for host in hosts:
                self._progress(f"{host.record.slug}: {'removing' if wipe else 'switching off'}")
                host.group.kill() if wipe else host.power_off()
            for host in hosts:
                self._remove(host) if wipe else self._switch_off(host)
            self._release_forgotten(parts)
            if not any(HostMachine(record, parts).running for record in self.state.read_hosts()):
                self._stub().stop()
                self._relays().stop()
                parts.network.remove_bridge()

    def _switch_off(self, host: HostMachine) -> None:
        host.wait_off()
        host.release()
        self.state.write_host(host.record.stopped())

    def _remove(self, host: HostMachine) -> None:
        self.state.write_host(replace(host.record.stopped(), phase=Phase.PREPARING))
        host.release()
        host.disk.wipe()
        self.state.console_log(host.record.slug).unlink(missing_ok=True)
        self.state.forget_host(host.record.slug)

    def _release_forgotten(self, parts: HostParts) -> None:
        """Remove what the kernel still has of hosts without a record, say of a deleted state directory."""
        remembered = {record.slug for record in self.state.read_hosts()}
        for slug in sorted(present_slugs(self.names) - remembered):
            HostMachine(HostRecord(slug, 0, "", SSH_PORT, "", None, Phase.PREPARING), parts).release()

    def _ensure_services(self, subnet: IPv4Network, commands: Commands) -> None:
        """Have the model stub, if the fleet has one, and the relays listen."""
        self._relays().ensure_recorded(address_at(subnet, 1), commands)
        if self._settings.model_stub is None:
            return
        program = (self._fleet_root / self._settings.model_stub).resolve()
        if not program.is_file():
            raise InvalidInput("there is no model stub", where=str(program), hint="see lab.model_stub")
        self._stub().ensure(program, address_at(subnet, 1), self._settings.model_stub_port, commands)

    def _stub(self) -> ModelStub:
        return ModelStub(self.state, self.names, self._progress)

    def _relays(self) -> Relays:
        return Relays(self.state, self.names, self._progress)

    def _chosen(self, slugs: Iterable[str] | None) -> tuple[HostRecord, ...]:
        return self.state.read_hosts() if slugs is None else tuple(self._record(slug) for slug in slugs)

    def _record(self, slug: str) -> HostRecord:
        record = self.state.read_host(slug)
        if record is None:
            raise Refused("the lab has no such host", where=slug, hint="tenantry lab list")
        return record

    def _shown(self, record: HostRecord) -> LabHost:
        process = record.process
        return LabHost(
            slug=record.slug,
            address=record.address,
            port=record.port,
            ssh_user=record.ssh_user,
            host_key=record.host_key,
            running=process is not None and process.alive,
            pid=record.pid,
            console_log=self.state.console_log(record.slug),
            label=record.label,
            whole=self._whole(record),
        )

    def _whole(self, record: HostRecord) -> bool:
        disk = Disk(self.state.root(record.slug), self.state.disk(record.slug), record.disk_limit_bytes)
        return record.phase is not Phase.PREPARING and disk.usable


def _require_label(record: HostRecord, label: str | None) -> None:
    if record.label != label:
        raise Refused(
            "the lab's host of this name belongs to somebody else",
            where=record.slug,
            hint="`tenantry env list` shows the environments; a tenant needs another name",
        )
