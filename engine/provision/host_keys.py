"""The identity of a new server: a one-time key for the first contact, then keys that only it knows."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from engine.errors import CommandFailed
from engine.hosts.known_hosts import HostKey
from engine.hosts.session import Session

SCRIPT = Path(__file__).with_name("host_keys_script.py").read_text()


@dataclass(frozen=True)
class OneTimeKey:
    """A host key made for one provision; it is trusted for the first contact of that run and never again.

    `private` is in OpenSSH's form. It travels in the user-data, which the provider keeps and every process
    of the server may read: after the first contact it is replaced, and nothing trusts it any more.
    """

    public: HostKey
    private: str = field(repr=False)

    @classmethod
    def make(cls) -> OneTimeKey:
        key = Ed25519PrivateKey.generate()
        private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
        public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
        return cls(HostKey.parse(public.decode()), private.decode())


def make_new_keys(session: Session) -> tuple[HostKey, ...]:
    """Have the host make new keys beside its present ones; returns their public halves.

    Nothing uses them before :func:`use_new_keys`, so that they can be pinned first.
    """
    public = session.run_script(SCRIPT, {"action": "make"}, label="make host keys")
    keys = tuple(HostKey.parse(line) for line in public)
    if not keys:
        raise CommandFailed("the host made no key", where=session.tenant.slug)
    return keys


def use_new_keys(session: Session) -> None:
    """Put the new keys in the place of all present ones; connections that are open go on."""
    session.run_script(SCRIPT, {"action": "use"}, label="use the new host keys")
