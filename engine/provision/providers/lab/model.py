"""Hosts as the lab's callers see them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from engine.errors import InvalidInput

SLUG = re.compile(r"[a-z][a-z0-9-]{0,30}[a-z0-9]")


@dataclass(frozen=True)
class HostSpec:
    """A host to be.

    With `user_data`, a cloud-config document, it boots as a cloud provider's server does: cloud-init
    runs and makes the account `ssh_user`. Without, it is a light host, up in half the time: cloud-init
    is switched off and the account is there already, with `public_key` as its only key.

    `disk_limit_bytes` bounds what the host can write beyond the base image, for tests of full disks;
    such a disk lives in memory and is lost when the host is switched off.
    """

    slug: str
    user_data: str | None = None
    public_key: str = ""
    ssh_user: str = "ops"
    disk_limit_bytes: int | None = None

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
    """

    slug: str
    address: str
    port: int
    ssh_user: str
    host_key: str | None
    running: bool
    pid: int | None
    console_log: Path
