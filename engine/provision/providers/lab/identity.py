"""SSH keys made on the operator's side."""

from __future__ import annotations

import os
from pathlib import Path

from engine.provision.providers.lab.commands import Commands
from engine.provision.providers.lab.filelock import held


def ensure_identity(state_dir: Path) -> str:
    """Return the public half of the operator's key ``ssh/id_ed25519``, made if it is absent.

    The private half is 0600 in a 0700 directory and has no passphrase, because timers use it too.
    """
    private = state_dir / "ssh" / "id_ed25519"
    with held(state_dir / "ssh" / ".identity.lock", lambda: None) as lock:
        private.parent.chmod(0o700)
        if not private.exists():
            make_key(private, "tenantry operator", Commands((lock,)))
    return public_half(private)


def make_key(private: Path, comment: str, commands: Commands) -> None:
    """Make an ed25519 key pair at `private`, which appears whole or not at all."""
    partial = private.with_name(f".{private.name}.partial")
    partial.unlink(missing_ok=True)
    commands.run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(partial))
    os.replace(partial.with_name(f"{partial.name}.pub"), private.with_name(f"{private.name}.pub"))
    os.replace(partial, private)


def public_half(private: Path) -> str:
    """Return the public key beside `private`, as ``ssh-ed25519 AAAA… comment``."""
    return private.with_name(f"{private.name}.pub").read_text(encoding="utf-8").strip()
