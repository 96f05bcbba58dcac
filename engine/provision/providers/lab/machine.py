"""What this machine must offer to host a lab."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from engine.errors import MissingPart

PACKAGE_OF = {
    "mmdebstrap": "mmdebstrap",
    "systemd-nspawn": "systemd-container",
    "ip": "iproute2",
    "ssh-keygen": "openssh-client",
    "mount": "mount",
    "setsid": "util-linux",
    "nsenter": "util-linux",
    "bash": "bash",
}
"""Command -> the Debian package that has it."""

LIMITS = {
    "fs/inotify/max_user_instances": 16384,
    "fs/inotify/max_user_watches": 524288,
}
"""Kernel limit -> the least that sixty hosts need: each runs several watchers of its own."""

REQUIRED_FILE_SYSTEM = "overlay"


def require(which: Callable[[str], str | None] = shutil.which, user_id: int | None = None) -> None:
    """Raise `MissingPart`, with the command to give, if this machine cannot host a lab now."""
    packages = sorted({package for command, package in PACKAGE_OF.items() if which(command) is None})
    if packages:
        raise MissingPart(
            f"the lab needs {', '.join(packages)}",
            where="this machine",
            hint=f"apt-get install --yes --no-install-recommends {' '.join(packages)}",
        )
    if (os.geteuid() if user_id is None else user_id) != 0:
        raise MissingPart(
            "the lab boots real hosts, and only root may do that",
            where="this machine",
            hint="run the same command with sudo",
        )


def require_overlay(file_systems: str) -> None:
    """Raise `MissingPart` if the kernel, by its ``/proc/filesystems``, has no overlay."""
    if REQUIRED_FILE_SYSTEM not in file_systems.split():
        raise MissingPart(
            "this kernel has no overlay file system loaded", where="this machine", hint="modprobe overlay"
        )


def raise_limits(root: Path = Path("/proc/sys")) -> None:
    """Raise the kernel's limits to what many hosts need; never lowers one.

    Raises `MissingPart`, with the command to give, where this machine does not let us.
    """
    for name, least in LIMITS.items():
        path = root / name
        if int(path.read_text()) >= least:
            continue
        try:
            path.write_text(str(least))
        except OSError as error:
            raise MissingPart(
                f"the kernel limit cannot be raised: {error.strerror}",
                where=str(path),
                hint=f"where the kernel's settings may be written: sysctl -w {name.replace('/', '.')}={least}",
            ) from error
