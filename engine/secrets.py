"""Secret references: where a value comes from; the value itself is never logged, shown or kept."""

from __future__ import annotations

import os
from pathlib import Path

from engine.errors import InvalidInput, MissingPart


def resolve(reference: str, root: Path) -> bytes:
    """The bytes behind `reference`; raises an error that names the reference and never the value.

    ``file:PATH`` (relative to the fleet, mode 0600) gives the file's bytes as they are, ``env:NAME`` an
    environment variable of the operator's process.
    """
    scheme, _, rest = reference.partition(":")
    if scheme == "file" and rest:
        return _read_private(root / rest, reference)
    if scheme == "env" and rest:
        value = os.environb.get(os.fsencode(rest))
        if value is None:
            raise MissingPart(f"secret {reference}: the variable is not set", hint=f"export {rest} before the command")
        return value
    raise InvalidInput(f"secret reference {reference!r} has an unknown form", hint="use file:PATH or env:NAME")


def _read_private(path: Path, reference: str) -> bytes:
    try:
        if path.stat().st_mode & 0o077:
            raise InvalidInput(
                f"secret {reference}: others may read the file", where=str(path), hint=f"chmod 600 {path}"
            )
        return path.read_bytes()
    except OSError as error:
        raise MissingPart(
            f"secret {reference}: {error.strerror}", where=str(path), hint="create the file with mode 0600"
        ) from error
