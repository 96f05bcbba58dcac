"""Secret references: where a value comes from; the value itself is never logged, shown or kept."""

from __future__ import annotations

import os
import select
import shlex
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pyrage import DecryptError, IdentityError, decrypt, ssh, x25519

from engine.errors import InvalidInput, MissingPart

FORMS = "age:PATH, command:PROGRAM ARGUMENTS, env:NAME or file:PATH"

SECRET_BYTES = 64 * 1024
"""The most that a command may print as a secret."""

_AGE_KEY = "AGE-SECRET-KEY-"


@dataclass(frozen=True)
class SecretSources:
    """Follows secret references of one fleet; every value arrives byte for byte.

    - ``age:PATH``: an age-encrypted file below `root`, opened with `age_identity` (an age key or an SSH key).
    - ``command:PROGRAM ARGUMENTS``: what the program prints within `command_seconds`; there is no shell.
    - ``env:NAME``: an environment variable of the operator's process.
    - ``file:PATH``: a file below `root` that only its owner may read.
    """

    root: Path
    age_identity: Path
    command_seconds: float = 30

    def resolve(self, reference: str) -> bytes:
        """The bytes behind `reference`; raises an error that names the reference and never the value."""
        readers: Mapping[str, Callable[[str, str], bytes]] = {
            "age": self._decrypted,
            "command": self._printed,
            "env": _variable,
            "file": self._private_file,
        }
        scheme, _, rest = reference.partition(":")
        if scheme not in readers or not rest.strip():
            raise InvalidInput(f"secret reference {reference!r} has an unknown form", hint=f"use {FORMS}")
        return readers[scheme](rest, reference)

    def _private_file(self, name: str, reference: str) -> bytes:
        return _read_private(self.root / name, reference, "create the file with mode 0600")

    def _decrypted(self, name: str, reference: str) -> bytes:
        path = self.root / name
        try:
            content = path.read_bytes()
        except OSError as error:
            raise MissingPart(f"secret {reference}: {error.strerror}", where=str(path)) from error
        identities = self._identities(reference)
        try:
            return bytes(decrypt(content, identities))
        except DecryptError as error:
            raise MissingPart(
                f"secret {reference}: {error}",
                where=str(path),
                hint=f"encrypt it for the key {self.age_identity}, or set secrets.age_identity_file in fleet.yaml",
            ) from error

    def _identities(self, reference: str) -> list[x25519.Identity | ssh.Identity]:
        hint = "name an age key or an SSH key without a passphrase as secrets.age_identity_file in fleet.yaml"
        text = _read_private(self.age_identity, reference, hint)
        try:
            if text.startswith(b"-----BEGIN"):
                return [ssh.Identity.from_buffer(text)]
            lines = (line.strip() for line in text.decode(errors="replace").splitlines())
            found = [x25519.Identity.from_str(line) for line in lines if line.startswith(_AGE_KEY)]
        except IdentityError as error:
            raise MissingPart(f"secret {reference}: {error}", where=str(self.age_identity), hint=hint) from None
        if not found:
            raise MissingPart(f"secret {reference}: there is no key", where=str(self.age_identity), hint=hint)
        return [*found]

    def _printed(self, line: str, reference: str) -> bytes:
        try:
            argv = shlex.split(line)
        except ValueError as error:
            raise InvalidInput(f"secret {reference}: {error}", hint="quote its arguments as in a shell") from error
        try:
            # Its error output is not kept: it may hold what it was asked for.
            process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=self.root
            )
        except OSError as error:
            raise MissingPart(f"secret {reference}: {error.strerror}", hint="is the program installed?") from error
        try:
            output, status = _outcome_of(process, time.monotonic() + self.command_seconds)
        except TimeoutError:
            raise MissingPart(
                f"secret {reference}: the command printed nothing whole in {self.command_seconds:g} s",
                hint="give it by hand once, it may be waiting for a passphrase",
            ) from None
        finally:
            process.kill()
            process.wait()
        if len(output) > SECRET_BYTES:
            raise MissingPart(
                f"secret {reference}: the command printed more than {SECRET_BYTES} bytes", hint="that is no secret"
            )
        if status or not output:
            problem = f"ended with status {status}" if status else "printed nothing"
            raise MissingPart(f"secret {reference}: the command {problem}", hint="give it by hand to see why")
        return output


def _outcome_of(process: subprocess.Popen[bytes], deadline: float) -> tuple[bytes, int]:
    """What the command printed, at most a byte more than a secret may have, and its status.

    Raises :class:`TimeoutError` at `deadline` (monotonic seconds). Read piece by piece: a command that prints
    without an end must fill neither the memory nor the time of other tenants.
    """
    assert process.stdout is not None
    output = b""
    with process.stdout as stream:
        while len(output) <= SECRET_BYTES:
            ready, _, _ = select.select([stream], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError
            piece = os.read(stream.fileno(), SECRET_BYTES + 1 - len(output))
            if not piece:
                try:
                    return output, process.wait(max(0.0, deadline - time.monotonic()))
                except subprocess.TimeoutExpired:
                    raise TimeoutError from None
            output += piece
    return output, 0


def _variable(name: str, reference: str) -> bytes:
    value = os.environb.get(os.fsencode(name))
    if value is None:
        raise MissingPart(f"secret {reference}: the variable is not set", hint=f"export {name} before the command")
    return value


def _read_private(path: Path, reference: str, hint: str) -> bytes:
    try:
        if path.stat().st_mode & 0o077:
            raise InvalidInput(
                f"secret {reference}: others may read the file", where=str(path), hint=f"chmod 600 {path}"
            )
        return path.read_bytes()
    except OSError as error:
        raise MissingPart(f"secret {reference}: {error.strerror}", where=str(path), hint=hint) from error
