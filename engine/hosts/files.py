"""Whole files on the host: read as bytes, replaced atomically."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from engine.errors import CommandFailed
from engine.hosts.shell import HostShell, Streams, failure

_ABSENT_STATUS = 66

# Arguments are quoted into the script by name. The new content is complete before anything is renamed.
_WRITE = """
set -eu
path={path}
temporary=$(mktemp "${{path%/*}}/.tenantry.XXXXXXXX")
trap 'rm -f "$temporary"' EXIT
cat > "$temporary"
[ "$(stat -c %s "$temporary")" = {size} ] || {{ echo "the content did not arrive whole" >&2; exit 1; }}
chown {owner} "$temporary"
chmod {mode} "$temporary"
sync "$temporary"
mv -fT "$temporary" "$path"
trap - EXIT
sync "${{path%/*}}/"
"""


@dataclass(frozen=True)
class Ownership:
    """Owner, group and octal mode of a file, such as ``("root", "root", "0644")``."""

    owner: str
    group: str
    mode: str


def read_file(shell: HostShell, path: str) -> bytes | None:
    """The file's content, or None where it is absent; :class:`CommandFailed` if it cannot be read whole."""
    quoted = shlex.quote(path)
    output = shell.execute(
        f"[ -e {quoted} ] || [ -L {quoted} ] || exit {_ABSENT_STATUS}; exec cat -- {quoted}",
        label=f"read {path}",
    )
    if output.status == _ABSENT_STATUS:
        return None
    if output.status != 0:
        raise failure(output, f"read {path}", shell.where)
    if output.truncated:
        raise CommandFailed(f"{path} is larger than transport.output_limit_bytes", where=shell.where)
    return output.stdout


def write_file(shell: HostShell, path: str, content: bytes, ownership: Ownership) -> None:
    """Replace `path`: temporary name beside it, whole, owned, fsynced, renamed, directory fsynced."""
    script = _WRITE.format(
        path=shlex.quote(path),
        size=len(content),
        owner=shlex.quote(f"{ownership.owner}:{ownership.group}"),
        mode=shlex.quote(ownership.mode),
    )
    shell.check(script, Streams(stdin=content), label=f"write {path}")
