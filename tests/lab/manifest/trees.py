"""What lies on the disks of two hosts, or of one at two times, file by file, and in what they differ."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from engine.provision.providers.lab import Lab

# Logs, caches, bytecode, what a boot, a package manager or a daily timer of Debian notes for itself.
NOT_COMPARED = (
    "tmp",
    "var/tmp",
    "var/log",
    "var/cache",
    "var/lib/cloud",
    "var/lib/dbus",
    "var/lib/systemd",
    "var/lib/apt",
    "var/lib/dpkg/lock",
    "var/lib/logrotate",
    # Copies of files, earlier personalities, snapshots, receipts and the work in hand; marker and digests are compared.
    "var/lib/tenantry/copies",
    "var/lib/tenantry/conversations",
    "var/lib/tenantry/recovery",
    "var/lib/tenantry/aside",
    "var/lib/tenantry/receipts",
    "var/lib/tenantry/staging",
    "var/lib/tenantry/run",
    "var/lib/tenantry/lock",
)
"""Paths below ``/`` that are left out with all that is in them."""

RUNTIME_HOME = "srv/tenant/home/"
OURS_THERE = ("SOUL.md", "config.yaml", "memories", "ended-sessions", ".session-reset")
"""What provisioning and releases put into the runtime's home; all else there the runtime writes when it likes:
conversations, logs, reports of its process, its timetable, directories for what nobody has used yet."""

OWN_CONTENT = (
    "etc/machine-id",
    "etc/hosts",
    "etc/cloud/templates/hosts.debian.tmpl",
    "etc/ssh/ssh_host_ed25519_key",
    "etc/ssh/ssh_host_ed25519_key.pub",
    "etc/tenant/gateway.env",
    "etc/tenant/private-pages.password",
    "etc/caddy/private-owner",
    # Caddy's own copy of its configuration, with the line of the file above in it.
    "var/lib/caddy/.config/caddy/autosave.json",
    # cloud-init writes the time of the first boot into a comment.
    "etc/sudoers.d/90-cloud-init-users",
    "etc/shadow",
    "etc/shadow-",
)
"""Identities, addresses, times and secrets: only type, mode and owner of these are compared."""


@dataclass
class Tree:
    """The files of one running host; `digests` remembers contents by what changes with them."""

    root: Path
    own: Path
    digests: dict[tuple[int, int, int], str] = field(default_factory=dict)

    @classmethod
    def of(cls, lab: Lab, slug: str) -> Tree:
        return cls(lab.state.root(slug), lab.state.disk(slug) / "volume/upper")

    def paths(self) -> set[str]:
        """Every path that the host has otherwise than the base image."""
        found: set[str] = set()
        for directory, names, files in os.walk(self.own):
            below = os.path.relpath(directory, self.own)
            places = {name: os.path.normpath(os.path.join(below, name)) for name in (*names, *files)}
            names[:] = [name for name in names if _is_compared(places[name])]
            found.update(place for place in places.values() if _is_compared(place))
        return found

    def read(self, paths: set[str] | None = None) -> dict[str, str]:
        """Type, mode, owner, group and content of each path, in words; one that is not there is ``absent``."""
        return {path: self._entry(path) for path in sorted(paths if paths is not None else self.paths())}

    def _entry(self, path: str) -> str:
        place = self.root / path
        try:
            status = place.lstat()
        except (FileNotFoundError, NotADirectoryError):
            return "absent"
        owner = f"{status.st_uid}:{status.st_gid}"
        if stat.S_ISLNK(status.st_mode):
            return f"link {owner} {os.readlink(place)}"
        if stat.S_ISREG(status.st_mode):
            content = "(its own)" if path in OWN_CONTENT else self._digest(place, status)
            return f"file {status.st_mode & 0o7777:04o} {owner} {content}"
        return f"{stat.filemode(status.st_mode)[0]} {status.st_mode & 0o7777:04o} {owner}"

    def _digest(self, place: Path, status: os.stat_result) -> str:
        key = (status.st_ino, status.st_ctime_ns, status.st_size)
        if key not in self.digests:
            self.digests[key] = hashlib.sha256(place.read_bytes()).hexdigest()
        return self.digests[key]


def differences(one: Mapping[str, str], other: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """The paths in which two readings differ, with both entries."""
    paths = sorted({*one, *other})
    pairs = {path: (one.get(path, "not read"), other.get(path, "not read")) for path in paths}
    return {path: pair for path, pair in pairs.items() if pair[0] != pair[1]}


def compare(one: Tree, other: Tree) -> dict[str, tuple[str, str]]:
    """In what two hosts over the same base image differ."""
    paths = one.paths() | other.paths()
    return differences(one.read(paths), other.read(paths))


def _is_compared(path: str) -> bool:
    if "__pycache__" in path:
        return False
    if path.startswith(RUNTIME_HOME):
        return path.removeprefix(RUNTIME_HOME).split("/")[0] in OURS_THERE
    return not any(path == left or path.startswith(f"{left}/") for left in NOT_COMPARED)


def lines(found: Mapping[str, tuple[str, str]]) -> Iterator[str]:
    """Differences for a person."""
    for path, (one, other) in found.items():
        yield f"/{path}: {one} | {other}"
