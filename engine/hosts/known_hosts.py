"""Pinned host keys: one file in OpenSSH's ``known_hosts`` form for each tenant, changed only on purpose.

A key is trusted only if a line of the file names exactly this address and port. Nothing is ever
learned from a host, and ``@cert-authority`` lines are kept but grant nothing.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from engine.errors import InvalidInput, MissingPart
from engine.records import replace_file

_SSH_PORT = 22


@dataclass(frozen=True)
class HostKey:
    """A public host key: its type, such as ``ssh-ed25519``, and its binary form."""

    type: str
    blob: bytes

    @classmethod
    def parse(cls, text: str) -> HostKey:
        """Read ``TYPE BASE64 [COMMENT]``; raises :class:`InvalidInput`."""
        fields = text.split()
        try:
            return cls(fields[0], base64.b64decode(fields[1], validate=True))
        except (IndexError, binascii.Error) as error:
            raise InvalidInput(
                f"{text[:40]!r} is not a host key", hint="give the host's /etc/ssh/*.pub line"
            ) from error

    @property
    def fingerprint(self) -> str:
        """The form that ``ssh-keygen -l`` prints."""
        digest = hashlib.sha256(self.blob).digest()
        return f"{self.type} SHA256:{base64.b64encode(digest).decode().rstrip('=')}"

    def __str__(self) -> str:
        return f"{self.type} {base64.b64encode(self.blob).decode()}"


@dataclass(frozen=True)
class Pins:
    """The keys that a host may prove, and the file that says so."""

    keys: tuple[HostKey, ...]
    source: Path


def known_hosts_file(state_dir: Path, slug: str) -> Path:
    """Where a tenant's pinned keys are kept."""
    return state_dir / "ssh" / "known_hosts" / slug


def host_pattern(address: str, port: int) -> str:
    """The name of a host in a ``known_hosts`` line; IPv6 addresses are bracketed only with a port."""
    return address if port == _SSH_PORT else f"[{address}]:{port}"


def read(path: Path, address: str, port: int) -> Pins:
    """The keys pinned for `address` and `port`; none if the file is absent.

    A line that cannot be read does not hide the others. A ``@revoked`` key is never among them.
    """
    name = host_pattern(address, port)
    pinned: list[HostKey] = []
    revoked: set[HostKey] = set()
    for entry in _entries(_lines(path)):
        if entry.key and entry.names(name):
            if entry.marker == "":
                pinned.append(entry.key)
            elif entry.marker == "@revoked":
                revoked.add(entry.key)
    return Pins(tuple(key for key in pinned if key not in revoked), path)


def replace(path: Path, addresses: Iterable[str], port: int, keys: Iterable[HostKey]) -> None:
    """Make `keys` the only ones pinned for `addresses`: what a rebuild of the server calls for.

    Every form of the old entries goes (plain, ``[host]:port``, hashed, one of several names); all other
    lines stay byte for byte.
    """
    targets = sorted(set(addresses))
    stale = [form for address in targets for form in {address, host_pattern(address, port), f"[{address}]:{port}"}]
    kept = [line for line in (_without(entry, stale) for entry in _entries(_lines(path))) if line]
    if kept and not kept[-1].endswith(b"\n"):
        kept[-1] += b"\n"
    names = ",".join(host_pattern(address, port) for address in targets)
    added = [f"{names} {key}\n".encode() for key in dict.fromkeys(keys)]
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    replace_file(path, b"".join(kept + added))


def pin(path: Path, address: str, port: int, key: HostKey) -> None:
    """Trust `key` for this host, besides those already pinned; nothing changes if it is pinned."""
    pinned = read(path, address, port).keys
    if key not in pinned:
        replace(path, [address], port, [*pinned, key])


@dataclass(frozen=True)
class _Entry:
    raw: bytes
    marker: str = ""
    hosts: tuple[str, ...] = ()
    key: HostKey | None = None

    def names(self, name: str) -> bool:
        return any(_matches(host, name) for host in self.hosts)


def _lines(path: Path) -> list[bytes]:
    try:
        return path.read_bytes().splitlines(keepends=True)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise MissingPart(
            f"the pinned host keys cannot be read: {error.strerror}",
            where=str(path),
            hint="run the command as the user whom the file belongs to",
        ) from error


def _entries(lines: Iterable[bytes]) -> Iterator[_Entry]:
    for raw in lines:
        fields = raw.decode(errors="replace").split()
        marker = fields.pop(0) if fields and fields[0].startswith("@") else ""
        if len(fields) < 3 or fields[0].startswith("#"):
            yield _Entry(raw)
            continue
        try:
            key = HostKey.parse(f"{fields[1]} {fields[2]}")
        except InvalidInput:
            yield _Entry(raw)
            continue
        yield _Entry(raw, marker, tuple(fields[0].split(",")), key)


def _matches(host: str, name: str) -> bool:
    if not host.startswith("|1|"):
        return host.lower() == name.lower()
    try:
        salt, digest = (base64.b64decode(part, validate=True) for part in host.split("|")[2:4])
    except (ValueError, binascii.Error):
        return False
    return hmac.compare_digest(hmac.digest(salt, name.lower().encode(), "sha1"), digest)


def _without(entry: _Entry, stale: Iterable[str]) -> bytes:
    """The entry's line without the stale names; empty if none is left."""
    if entry.marker or entry.key is None:
        return entry.raw
    left = [host for host in entry.hosts if not any(_matches(host, name) for name in stale)]
    if len(left) == len(entry.hosts):
        return entry.raw
    return entry.raw.replace(",".join(entry.hosts).encode(), ",".join(left).encode(), 1) if left else b""
