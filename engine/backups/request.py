"""What the tenant is asked for an archive, and what its answer is worth."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.backups.contents import implied_files
from engine.errors import ArchiveRejected, Refused
from engine.hosts import scripts
from engine.hosts.channel import Output
from engine.hosts.host_lock import HOME
from engine.recovery.assembly import assembled
from engine.registry.settings import Settings

DATABASES = Path(__file__).with_name("databases_script.py").read_text()
ARCHIVE = Path(__file__).with_name("archive_script.py").read_text()

# A module of the script's own, so that its names stay apart.
SCRIPT = assembled(
    f"databases = types.ModuleType('databases')\n"
    f"databases.trees = trees\n"
    f"exec(compile({DATABASES!r}, 'databases', 'exec'), databases.__dict__)\n"
    f"{ARCHIVE}"
)
_ERROR_LINES = 8


@dataclass(frozen=True)
class Request:
    """One program for the host: it reads `stdin` and prints an archive."""

    nonce: str
    command: str
    stdin: bytes


def request(settings: Settings, description: Mapping[str, Any], home: str = HOME) -> Request:
    """The request for an archive of everything that the fleet declares, with a fresh nonce."""
    nonce = secrets.token_hex(16)
    parameters = {
        "nonce": nonce,
        "home": home,
        "level": settings.backup.level,
        "reserve_bytes": settings.recovery.reserve_mebibytes * 1024 * 1024,
        # The next run waits for a survivor; this one must have given up by then.
        "stall_seconds": max(settings.transport.dead_link_seconds, settings.transport.survivor_seconds / 2),
        "description": dict(description),
        "contents": [
            {"name": item.name, "path": item.path, "kind": item.kind.value, "exclude": list(item.exclude)}
            for item in settings.contents
        ],
        "files": list(implied_files(settings)),
    }
    stdin = scripts.payload(SCRIPT, parameters)
    return Request(nonce, scripts.command(nonce, len(stdin)), stdin)


def check_answer(output: Output, nonce: str, where: str) -> bool:
    """Whether every file stood still while it was read.

    Raises :class:`Refused` for a tenant without room, :class:`ArchiveRejected` for any end but a good one.
    """
    answer = _trailer(output, nonce)
    errors = _last_errors(output)
    if answer is None:
        raise ArchiveRejected(
            f"the tenant did not say how its archive ended (status {output.status}): {errors}", where=where
        )
    if "free" in answer:
        needed = f"{answer['needed']} bytes needed, " if "needed" in answer else ""
        raise Refused(
            f"{answer['problem']}: {needed}{answer['free']} bytes free on the tenant",
            where=where,
            hint="free space there; nothing was backed up",
        )
    if answer.get("problem"):
        raise ArchiveRejected(f"the tenant could not make an archive: {answer['problem']}", where=where)
    # A compressor that ends early ends tar too, so it is the one to be named.
    if answer.get("zstd") != 0:
        raise ArchiveRejected(f"zstd ended with status {answer.get('zstd')} on the tenant: {errors}", where=where)
    # 1 is tar's word for a file that changed while it was read.
    if answer.get("tar") not in (0, 1):
        raise ArchiveRejected(f"tar ended with status {answer.get('tar')} on the tenant: {errors}", where=where)
    if output.status != 0:
        raise ArchiveRejected(f"the archive's command ended with status {output.status}: {errors}", where=where)
    return bool(answer["tar"] == 0)


def _trailer(output: Output, nonce: str) -> Mapping[str, Any] | None:
    """The one line that says how the archive ended, or None."""
    mark = f"tenantry-archive {nonce} "
    lines = [line[len(mark) :] for line in output.error_text.split("\n") if line.startswith(mark)]
    if len(lines) != 1:
        return None
    try:
        value = json.loads(lines[0])
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _last_errors(output: Output) -> str:
    lines = [line.strip() for line in output.error_text.splitlines()]
    told = [line for line in lines if line and not line.startswith("tenantry-archive ")]
    return " | ".join(told[-_ERROR_LINES:]) or "it printed no error"
