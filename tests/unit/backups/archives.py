"""Archives made in memory, whole or with one thing wrong."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from typing import Any

import zstandard

from engine.backups.reading import DESCRIPTION, SENTINEL

NONCE = "00112233445566778899aabbccddeeff"
FILES: Mapping[str, bytes] = {"srv/tenant/a": b"a" * 700, "srv/tenant/b": b"b" * 70_000, "srv/tenant/c": b""}


def description(**changes: Any) -> dict[str, Any]:
    return {
        "nonce": NONCE,
        "engine": "0.1.0",
        "slug": "maple",
        "run": "r",
        "marker": "2026.10.22\n",
        "applied": '{"2026.10.22": "sha256:aa"}',
        "contents": [],
        "databases": {},
        **changes,
    }


def tar(files: Mapping[str, bytes] = FILES, *, end: str | None = NONCE, after: str = "", **changes: Any) -> bytes:
    """The uncompressed archive of `files`."""
    members = [(DESCRIPTION, json.dumps(description(**changes)).encode()), *files.items()]
    if end is not None:
        members.append((SENTINEL, json.dumps({"nonce": end}).encode()))
    if after:
        members.append((after, b"late"))
    return members_as_tar(members)


def members_as_tar(members: Sequence[tuple[str, bytes]]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return stream.getvalue()


def compress(content: bytes) -> bytes:
    """One frame with a checksum, as zstd makes one from a pipe."""
    compressor = zstandard.ZstdCompressor(level=3, write_checksum=True).compressobj()
    return compressor.compress(content) + compressor.flush()


def archive(files: Mapping[str, bytes] = FILES, **changes: Any) -> bytes:
    return compress(tar(files, **changes))
