"""Hosts as the lab's callers see them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from engine.errors import InvalidInput

SLUG = re.compile(r"[a-z][a-z0-9-]{0,30}[a-z0-9]")


@dataclass(frozen=True)
class HostFile:
    """A file of root's; what it holds is never shown."""

    content: bytes = field(repr=False)
    mode: int = 0o644


@dataclass(frozen=True)
class HostContent:
    """What is on a host's disk before its first boot, by absolute path there.

    `trees` are copies of directories of this machine, `units` are those systemd units among the files that start at
    boot, and `masked` are units of the base image that never start.
    """

    files: Mapping[str, HostFile]
    trees: Mapping[str, Path] = field(default_factory=dict)
    units: tuple[str, ...] = ()
    masked: tuple[str, ...] = ()


@dataclass(frozen=True)
class HostSpec:
    """A host to be.

    With `user_data`, a cloud-config document, it boots as a cloud provider's server does: cloud-init
    runs and makes the account `ssh_user`. Without, it is a light host, up in half the time: cloud-init
    is switched off and the account is there already, with `public_key` as its only key.

    `disk_limit_bytes` bounds what the host can write beyond the base image, for tests of full disks;
    such a disk lives in memory and is lost when the host is switched off.

    `label` is one line that says whose the host is, None for a tenant's. It is recorded before anything of the host
    exists, and a host of one label is never started or rebuilt for another.
    """

    slug: str
    user_data: str | None = None
    public_key: str = ""
    ssh_user: str = "ops"
    disk_limit_bytes: int | None = None
    label: str | None = None
    content: HostContent | None = None

    def __post_init__(self) -> None:
        if SLUG.fullmatch(self.slug) is None:
            raise InvalidInput(f"{self.slug!r} is no slug", hint="2 to 32 of a-z, 0-9, hyphen")

    @classmethod
    def light(cls, slug: str, public_key: str, *, disk_limit_bytes: int | None = None) -> HostSpec:
        """Return a light host with the account ``ops``."""
        return cls(slug, public_key=public_key, disk_limit_bytes=disk_limit_bytes)


@dataclass(frozen=True)
class LabHost:
    """A host as it is now.

    `host_key` is what it proves itself with, ``ssh-ed25519 AAAA…``; None while its disk is being made.
    `label` is its specification's. `whole` is whether it can be started with its disk as it is.
    """

    slug: str
    address: str
    port: int
    ssh_user: str
    host_key: str | None
    running: bool
    pid: int | None
    console_log: Path
    label: str | None = None
    whole: bool = True
