"""Names, addresses and links of one lab."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

from engine.errors import Refused
from engine.provision.providers.lab.commands import Commands
from engine.provision.providers.lab.filelock import held

LABS = IPv4Network("10.77.0.0/16")
"""Every lab of a machine has one /24 of this network."""

PREFIX_LENGTH = 24
NAMESPACES = Path("/run/netns")
INTERFACES = Path("/sys/class/net")
MACHINE_LOCK = Path("/run/lock/tenantry-lab.lock")


def lab_id(state_dir: Path) -> str:
    """Return the six hexadecimal digits that mark all that belongs to the lab of a state directory."""
    return hashlib.sha256(str(state_dir.resolve()).encode()).hexdigest()[:6]


@dataclass(frozen=True)
class LabNames:
    """What a lab's parts are called in the kernel; interface names have at most 15 characters."""

    id: str

    @property
    def bridge(self) -> str:
        return f"tn-{self.id}"

    @property
    def group(self) -> str:
        return f"tenantry-{self.id}"

    def link(self, index: int) -> str:
        return f"tn-{self.id}-{index}"

    def namespace(self, slug: str) -> str:
        return f"tn-{self.id}-{slug}"

    def hardware_address(self, index: int) -> str:
        """A fixed address for each place, so that no neighbour remembers a rebuilt host's old one."""
        return ":".join(["02", *(self.id[at : at + 2] for at in (0, 2, 4)), "00", f"{index:02x}"])


def choose_subnet(preferred: int, taken: Iterable[IPv4Network]) -> IPv4Network:
    """Return the first free /24 of `LABS`, counted upward from number `preferred`.

    Raises `Refused` if all 256 are taken.
    """
    used = tuple(network for network in taken if network.prefixlen and network.overlaps(LABS))
    subnets = list(LABS.subnets(new_prefix=PREFIX_LENGTH))
    for step in range(len(subnets)):
        subnet = subnets[(preferred + step) % len(subnets)]
        if not any(subnet.overlaps(network) for network in used):
            return subnet
    raise Refused(f"no free network in {LABS}", where="this machine", hint="end labs with: tenantry lab down")


def address_at(subnet: IPv4Network, index: int) -> str:
    """Return the address with number `index` in the lab's network; the bridge has number 1."""
    return str(subnet.network_address + index)


def free_index(taken: Iterable[int]) -> int:
    """Return the lowest free host number; raises `Refused` if the network is full."""
    used = set(taken)
    for index in range(2, 2 ** (32 - PREFIX_LENGTH) - 1):
        if index not in used:
            return index
    raise Refused("a lab has at most 253 hosts", hint="use a second lab with --state-dir")


class LabNetwork:
    """The bridge of a lab, and the namespace and link of each host."""

    def __init__(self, names: LabNames, commands: Commands, progress: Callable[[str], None]) -> None:
        self._names = names
        self._commands = commands
        self._progress = progress

    def ensure_bridge(self, last: str | None, *, keep: bool = False) -> IPv4Network:
        """Return the lab's network, its bridge up; if it is not, `last`, or another if that is not free any more.

        With `keep` another one will not do, and `Refused` is raised.
        """
        present = self.subnet()
        if present is not None:
            return present
        with held(MACHINE_LOCK, lambda: self._progress("waiting for another lab to start")) as descriptor:
            # A bridge without its address is what an interrupted start leaves.
            self.remove_bridge()
            preferred = int(self._names.id[:2], 16) if last is None else IPv4Network(last).network_address.packed[2]
            subnet = choose_subnet(preferred, self._taken())
            if keep and last is not None and str(subnet) != last:
                raise Refused(
                    f"this lab's network {last} is taken, and others know its machines by their addresses there",
                    where="this machine",
                    hint="`ip route` shows who has it; another lab gives it back with: tenantry lab down",
                )
            commands = Commands((*self._commands.locks, descriptor))
            bridge, hardware = self._names.bridge, self._names.hardware_address(1)
            commands.run("ip", "link", "add", bridge, "address", hardware, "type", "bridge")
            commands.run("ip", "link", "set", bridge, "up")
            commands.run("ip", "address", "add", f"{address_at(subnet, 1)}/{PREFIX_LENGTH}", "dev", bridge)
        return subnet

    def subnet(self) -> IPv4Network | None:
        """Return the network of the lab's bridge as the kernel has it, None without one."""
        if not _exists(self._names.bridge):
            return None
        show = ("ip", "-json", "-4", "address", "show", "dev", self._names.bridge)
        for interface in json.loads(self._commands.run(*show)):
            for entry in interface.get("addr_info", ()):
                return IPv4Network((entry["local"], entry["prefixlen"]), strict=False)
        return None

    def connect(self, slug: str, index: int, address: str) -> None:
        """Make a host's namespace and link anew; the host needs to do nothing to have its address."""
        self.disconnect(slug, index)
        namespace, link = self._names.namespace(slug), self._names.link(index)
        hardware = self._names.hardware_address(index)
        self._commands.run("ip", "netns", "add", namespace)
        outside = (
            f"link add {link} type veth peer name eth0 address {hardware} netns {namespace}\n"
            f"link set {link} master {self._names.bridge} up\n"
            # Hosts reach the operator's machine and nothing else, not even one another.
            f"link set {link} type bridge_slave isolated on\n"
        )
        inside = f"link set lo up\naddress add {address}/{PREFIX_LENGTH} broadcast + dev eth0\nlink set eth0 up\n"
        self._commands.run("ip", "-batch", "-", stdin=outside)
        self._commands.run("ip", "-netns", namespace, "-batch", "-", stdin=inside)

    def disconnect(self, slug: str, index: int) -> None:
        """Remove a host's link and namespace, as far as they exist."""
        if _exists(self._names.link(index)):
            self._commands.run("ip", "link", "delete", self._names.link(index))
        if (NAMESPACES / self._names.namespace(slug)).exists():
            self._commands.run("ip", "netns", "delete", self._names.namespace(slug))

    def set_link(self, index: int, *, up: bool) -> None:
        """Cut or restore the wire of a host; neither side is told why."""
        self._commands.run("ip", "link", "set", self._names.link(index), "up" if up else "down")

    def remove_bridge(self) -> None:
        if _exists(self._names.bridge):
            self._commands.run("ip", "link", "delete", self._names.bridge)

    def _taken(self) -> Iterable[IPv4Network]:
        for route in json.loads(self._commands.run("ip", "-json", "-4", "route", "show", "table", "all")):
            if route["dst"] != "default":
                yield IPv4Network(route["dst"], strict=False)


def _exists(interface: str) -> bool:
    return (INTERFACES / interface).exists()


def is_lab_address(address: str) -> bool:
    """Whether an address can belong to a lab host: the guard of destructive tests asks this."""
    return IPv4Address(address) in LABS
