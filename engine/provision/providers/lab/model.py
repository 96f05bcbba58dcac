"""Hosts as the lab's callers see them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from engine.errors import InvalidInput
from engine.provision.providers.lab.seed import default_user_data

SLUG = re.compile(r"[a-z][a-z0-9-]{0,30}[a-z0-9]")


@dataclass(frozen=True)
class HostSpec:
    """A host to be: its name, its cloud-config document and the account that the document makes.

    `disk_limit_bytes` bounds what the host can write beyond the base image, for tests of full disks;
    such a disk lives in memory and is lost when the host is switched off. A host needs some 40 MB.
    """

    slug: str
    user_data: str
    ssh_user: str = "ops"
    disk_limit_bytes: int | None = None

    def __post_init__(self) -> None:
        if SLUG.fullmatch(self.slug) is None:
            raise InvalidInput(f"{self.slug!r} is no slug", hint="2 to 32 of a-z, 0-9, hyphen")

    @classmethod
    def plain(cls, slug: str, public_key: str, *, disk_limit_bytes: int | None = None) -> HostSpec:
        """Return a host with nothing but the account ``ops``, which `public_key` may log in to."""
        return cls(slug, default_user_data("ops", public_key), disk_limit_bytes=disk_limit_bytes)


@dataclass(frozen=True)
class LabHost:
    """A host as it is now. `host_key` is what it proves itself with, ``ssh-ed25519 AAAA…``."""

    slug: str
    address: str
    port: int
    ssh_user: str
    host_key: str
    running: bool
    pid: int | None
    console_log: Path
