"""How lab tests look at hosts and at what a lab leaves on the machine."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from engine.provision.providers.lab import HostSpec, Lab
from engine.provision.providers.lab.control_group import ControlGroup
from engine.provision.providers.lab.identity import public_half
from engine.provision.providers.lab.processes import identify


def state_dir(lab: Lab) -> Path:
    return lab.state.directory.parent


def private_key(lab: Lab) -> Path:
    return state_dir(lab) / "ssh/id_ed25519"


def light(lab: Lab, slug: str, disk_limit_bytes: int | None = None) -> HostSpec:
    return HostSpec.light(slug, public_half(private_key(lab)), disk_limit_bytes=disk_limit_bytes)


def start(lab: Lab, *slugs: str) -> None:
    lab.up([light(lab, slug) for slug in slugs])
    lab.wait_ready(slugs)


def inside(lab: Lab, slug: str, command: str) -> str:
    """Run a command as root on the host, without the network."""
    return _output(lab.shell(slug, ("/bin/sh", "-c", command)))


def ssh(lab: Lab, slug: str, command: str) -> str:
    """Run a command over SSH with the pinned host key and the lab's own identity only."""
    host = lab.find_required(slug)
    known_hosts = state_dir(lab) / f"known_hosts.{slug}"
    known_hosts.write_text(f"{host.address} {host.host_key}\n")
    options = {
        "IdentitiesOnly": "yes",
        "BatchMode": "yes",
        "StrictHostKeyChecking": "yes",
        "UserKnownHostsFile": str(known_hosts),
        "GlobalKnownHostsFile": "none",
        "ConnectTimeout": "10",
        "ServerAliveInterval": "5",
    }
    flags = [flag for name, value in options.items() for flag in ("-o", f"{name}={value}")]
    identity = ("-F", "none", "-i", str(private_key(lab)))
    target = f"{host.ssh_user}@{host.address}"
    return _output(("ssh", *identity, *flags, target, command))


def _output(argv: Sequence[str]) -> str:
    """What a command printed; the error of one that failed also shows its last words."""
    try:
        return subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    except subprocess.CalledProcessError as error:
        error.add_note(error.stderr)
        raise


@contextmanager
def taken_network(lab: Lab) -> Iterator[None]:
    """Somebody else has the network that the lab had last."""
    record = lab.state.read_lab()
    assert record is not None
    route = ("blackhole", record.subnet)
    subprocess.run(("ip", "route", "add", *route), check=True)
    try:
        yield
    finally:
        subprocess.run(("ip", "route", "delete", *route), check=True)


def traces(lab: Lab) -> set[str]:
    """Everything of the lab that this machine's kernel, or the host supervisor, knows of."""
    mark = lab.names.id
    kernel = (Path("/sys/class/net"), Path("/run/netns"), Path("/run/systemd/nspawn/propagate"))
    names = {str(path) for directory in kernel for path in directory.glob(f"*{mark}*")}
    groups = {str(path) for path in ControlGroup.of_machine(lab.names.group).directories if path.exists()}
    mounts = {
        line.split()[4]
        for line in Path("/proc/self/mountinfo").read_text().splitlines()
        if line.split()[4].startswith(str(lab.state.directory))
    }
    return names | groups | mounts | _processes(lab)


def _processes(lab: Lab) -> set[str]:
    marks = (f"/{lab.names.group}", str(lab.state.directory))
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            said = (process / "cgroup").read_text() + (process / "cmdline").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        # What only waits for this machine's process 1 to reap it is gone.
        if any(mark in said for mark in marks) and identify(int(process.name)) is not None:
            found.add(f"{process.name} {said}")
    return found
