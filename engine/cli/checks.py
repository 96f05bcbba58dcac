"""The parts that this machine needs, each with what to do where it is missing."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires
from importlib.metadata import version as version_of
from pathlib import Path

from engine.cli.invocation import Invocation
from engine.errors import CommandFailed, InvalidInput, MissingPart
from engine.provision.providers.lab.commands import Commands
from engine.provision.providers.lab.control_group import hierarchies
from engine.provision.providers.lab.machine import PACKAGE_OF, require_overlay
from engine.provision.providers.lab.package_sources import of_machine
from engine.registry.model import Fleet
from engine.registry.settings import LabSettings, Settings

PYTHON = (3, 11)
DISK_BYTES = 4 * 1024**3
"""A base image, two provisioned hosts, and the wheels of two versions of the runtime."""
MEMORY_BYTES = 1024**3
OPERATOR_COMMANDS = {"git": "git", "make": "make"}


@dataclass(frozen=True)
class Check:
    """One part: whether it is there, what was found, and what to do if it is not."""

    name: str
    ok: bool
    found: str
    remedy: str = ""


def check_machine(invocation: Invocation) -> tuple[Check, ...]:
    """Look at every part; changes nothing and raises nothing for a missing one."""
    fleet, problem = _fleet(invocation)
    settings = fleet.settings.lab if fleet else LabSettings()
    return (
        _python(),
        _virtual_environment(),
        _requirements(),
        Check(
            "fleet",
            not problem,
            problem or str(invocation.root),
            "name a fleet directory with -C" if problem else "",
        ),
        _root(),
        _debian_packages(),
        *_restic(fleet),
        _package_sources(settings.suite),
        *_kernel(),
        _disk(invocation.state_directory),
        _memory(),
        _identity(invocation, fleet),
    )


def _python() -> Check:
    found = sys.version.split()[0]
    return _check("python", sys.version_info >= PYTHON, found, "install Python 3.11 or newer, then: make setup")


def _virtual_environment() -> Check:
    inside = sys.prefix != sys.base_prefix
    return _check("virtual environment", inside, sys.prefix if inside else "not in one", "make setup")


def _requirements() -> Check:
    names = [line.split("==")[0].split(";")[0].strip() for line in requires("tenantry") or () if "extra ==" not in line]
    missing = [name for name in names if not _is_installed(name)]
    return _check("python packages", not missing, _listing(missing, len(names)), "make setup")


def _root() -> Check:
    user = os.geteuid()
    return _check(
        "root",
        user == 0,
        f"user id {user}",
        "the lab boots real hosts: run make converge, make test and lab up as root",
    )


def _debian_packages() -> Check:
    packages = {**PACKAGE_OF, **OPERATOR_COMMANDS}
    missing = sorted({package for command, package in packages.items() if not _which(command)})
    return _check(
        "debian packages",
        not missing,
        _listing(missing, len(set(packages.values()))),
        f"apt-get update && apt-get install --yes --no-install-recommends {' '.join(missing)}",
    )


def _restic(fleet: Fleet | None) -> Iterator[Check]:
    """Wanted only where the fleet sends its archives offsite."""
    if fleet is not None and fleet.settings.backup.restic is not None:
        found = _which("restic")
        remedy = "apt-get update && apt-get install --yes --no-install-recommends restic"
        yield _check("restic", found is not None, found or "not there; no archive can go offsite", remedy)


def _package_sources(suite: str) -> Check:
    name = f"package source of debian {suite}"
    try:
        found = len(of_machine(suite, Commands()))
    except MissingPart as error:
        return Check(name, False, error.message, error.hint)
    except (CommandFailed, OSError) as error:
        return Check(name, False, f"apt-get cannot be asked: {error}", "the lab needs a Debian machine")
    return Check(name, True, f"{found} sources")


def _kernel() -> Iterator[Check]:
    yield _attempt("kernel: overlay", lambda: require_overlay(Path("/proc/filesystems").read_text()))
    yield _attempt("kernel: cgroup2", _require_control_groups)
    for name, path in (("network namespaces", "/proc/self/ns/net"), ("pid namespaces", "/proc/self/ns/pid")):
        yield _check(f"kernel: {name}", Path(path).exists(), path, "boot a kernel that has them")


def _require_control_groups() -> None:
    (unified, *_) = hierarchies(Path("/proc/self/mountinfo").read_text())
    # cgroup.kill is how a host's processes are ended as one; it came with Linux 5.14.
    if not any(unified.glob("*/cgroup.kill")) and _kernel_version() < (5, 14):
        raise MissingPart("the kernel is older than 5.14", hint="boot a newer kernel")


def _kernel_version() -> tuple[int, ...]:
    return tuple(int(part) for part in os.uname().release.split("-")[0].split(".")[:2])


def _disk(directory: Path) -> Check:
    existing = next(path for path in (directory, *directory.parents) if path.exists())
    free = shutil.disk_usage(existing).free
    return _check(
        "disk space",
        free >= DISK_BYTES,
        f"{free / 1024**3:.1f} GB free at {existing}",
        f"free {DISK_BYTES // 1024**3} GB, or give --state-dir on another disk",
    )


def _memory() -> Check:
    lines = Path("/proc/meminfo").read_text().splitlines()
    available = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    return _check("memory", available >= MEMORY_BYTES, f"{available / 1024**3:.1f} GB available", "free 1 GB of memory")


def _identity(invocation: Invocation, fleet: Fleet | None) -> Check:
    """The operator's key; the lab makes it, a fleet with other servers must have it."""
    settings = fleet.settings if fleet else Settings(brand="")
    path = invocation.state_directory / Path(settings.identity_file).expanduser()
    try:
        if path.exists():
            is_private = not path.stat().st_mode & 0o077
            return _check("identity key", is_private, str(path), f"chmod 600 {path}")
    except OSError as error:
        remedy = "run the command as the user whom the key belongs to"
        return Check("identity key", False, f"{path}: {error.strerror}", remedy)
    needs_it = fleet is not None and any(tenant.address for tenant in fleet.tenants.values())
    remedy = f"mkdir -p -m 700 {path.parent} && ssh-keygen -t ed25519 -N '' -f {path}"
    found = f"{path} is not there" + ("" if needs_it else "; the lab makes it at its first use")
    return _check("identity key", not needs_it, found, remedy)


def _fleet(invocation: Invocation) -> tuple[Fleet | None, str]:
    try:
        return invocation.fleet(), ""
    except InvalidInput as error:
        return None, f"{error.where}: {error.message}"


def _attempt(name: str, action: Callable[[], None]) -> Check:
    try:
        action()
    except MissingPart as error:
        return Check(name, False, error.message, error.hint)
    return Check(name, True, "there")


def _check(name: str, ok: bool, found: str, remedy: str) -> Check:
    return Check(name, ok, found, "" if ok else remedy)


def _listing(missing: Sequence[str], total: int) -> str:
    return f"missing: {', '.join(missing)}" if missing else f"all {total} there"


def _which(command: str) -> str | None:
    # A user's PATH leaves out the directories where Debian keeps half of these.
    places: Iterable[str] = (os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin")
    return shutil.which(command, path=os.pathsep.join(places))


def _is_installed(name: str) -> bool:
    try:
        version_of(name)
    except PackageNotFoundError:
        return False
    return True
