"""Whole files on the host: read as bytes, replaced atomically, in directories that may be an account's own.

Root never follows a link that somebody else could have made: the names are looked up by
``file_script.py`` in directories that are open already.
"""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.errors import CommandFailed
from engine.hosts.scripts import INTERPRETER
from engine.hosts.shell import HostShell, Streams, failure

SCRIPT = Path(__file__).with_name("file_script.py").read_text()

_ABSENT_STATUS = 66


@dataclass(frozen=True)
class Ownership:
    """Owner, group and octal mode of a file, such as ``("root", "root", "0644")``."""

    owner: str
    group: str
    mode: str


def program(action: str, path: str, **parameters: Any) -> str:
    """The shell command that does `action` of ``file_script.py`` on the file; nothing secret is a parameter."""
    arguments = json.dumps({"action": action, "path": path, **parameters})
    return shlex.join([*INTERPRETER, "-c", SCRIPT, arguments])


def read_file(shell: HostShell, path: str) -> bytes | None:
    """The file's content, or None where there is none; :class:`CommandFailed` if it cannot be read whole.

    A link in the file's place is not the file, whatever it leads to.
    """
    limit = shell.output_limit_bytes
    output = shell.execute(program("read", path, limit=limit), label=f"read {path}")
    if output.status == _ABSENT_STATUS:
        return None
    if output.status != 0:
        raise failure(output, f"read {path}", shell.where)
    if output.truncated:
        raise CommandFailed(f"{path} is larger than transport.output_limit_bytes", where=shell.where)
    return output.stdout


def write_file(shell: HostShell, path: str, content: bytes, ownership: Ownership) -> None:
    """Replace `path`, also where it is a link: a temporary file beside it, whole, owned, fsynced, renamed.

    Raises :class:`CommandFailed`, among others for a link in the way to its directory that is not root's alone.
    """
    facts = {"owner": ownership.owner, "group": ownership.group, "mode": ownership.mode}
    command = program("write", path, size=len(content), **facts)
    shell.check(command, Streams(stdin=content), label=f"write {path}")
