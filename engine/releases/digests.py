"""Digests of what an applied release must never change: its version, step entries and bundles."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from engine.errors import InvalidInput
from engine.releases.model import Manifest, Release, StepEntry, StepInfo, canonical_json

_CACHES = frozenset({"__pycache__"})
_BLOCK = 1 << 20


def digest_of(content: bytes) -> str:
    """Return ``sha256:…`` of `content`."""
    return "sha256:" + hashlib.sha256(content).hexdigest()


def release_digest(release: Release, catalog: Mapping[str, StepInfo]) -> str:
    """Return the digest of `release`: prose and step code may change without changing it.

    Raises :class:`InvalidInput` for a step that is not in `catalog`.
    """
    record = {
        "version": release.version.key,
        "steps": [[entry.canonical, _shipped_digest(release, entry, catalog)] for entry in release.steps],
    }
    return digest_of(canonical_json(record).encode())


def release_digests(manifest: Manifest, catalog: Mapping[str, StepInfo]) -> dict[str, str]:
    """Return the digest of every release by its version's text."""
    return {release.version.text: release_digest(release, catalog) for release in manifest}


def _shipped_digest(release: Release, entry: StepEntry, catalog: Mapping[str, StepInfo]) -> str:
    if entry.name not in catalog:
        raise InvalidInput(f"release {release.version} names the unknown step {entry.name!r}", where=release.where)
    return catalog[entry.name].shipped_digest(entry.arguments)


@dataclass(frozen=True)
class BundleFile:
    """One file of a bundle: its path below the bundle, and its target if it is a symbolic link."""

    path: bytes
    executable: bool
    link: bytes | None


def bundle_files(directory: Path) -> tuple[BundleFile, ...]:
    """Return what belongs to the bundle in `directory`, sorted by path.

    Empty directories and Python's caches do not belong to it: a version control system does not
    carry them. Raises :class:`InvalidInput` for anything that cannot be shipped whole: a device, a
    socket, a link that leaves the bundle.
    """
    if not directory.is_dir():
        raise InvalidInput("there is no such bundle directory", where=str(directory))
    root = os.fsencode(directory)
    return tuple(sorted(_walk(root, b""), key=lambda file: file.path))


def directory_digest(directory: Path) -> str:
    """Return the digest of the bundle in `directory`: paths, executable bits, link targets, contents."""
    total = hashlib.sha256()
    for file in bundle_files(directory):
        kind = b"link" if file.link is not None else b"executable" if file.executable else b"file"
        content = file.link if file.link is not None else _content_digest(directory, file.path)
        for part in (kind, file.path, content):
            total.update(b"%d:" % len(part) + part)
    return "sha256:" + total.hexdigest()


def _walk(root: bytes, below: bytes) -> Iterator[BundleFile]:
    with os.scandir(os.path.join(root, below)) as entries:
        for entry in entries:
            path = os.path.join(below, entry.name)
            if entry.is_symlink():
                yield BundleFile(path, False, _link_target(root, path))
            elif entry.is_dir():
                if os.fsdecode(entry.name) not in _CACHES:
                    yield from _walk(root, path)
            elif entry.is_file():
                yield BundleFile(path, bool(entry.stat().st_mode & 0o100), None)
            else:
                raise InvalidInput("a bundle holds files, directories and links only", where=_name(root, path))


def _link_target(root: bytes, path: bytes) -> bytes:
    target = os.readlink(os.path.join(root, path))
    reached = os.path.normpath(os.path.join(os.path.dirname(path), target))
    if os.path.isabs(target) or reached == b".." or reached.startswith(b"../"):
        raise InvalidInput("a link in a bundle must not leave the bundle", where=_name(root, path))
    return target


def _content_digest(directory: Path, path: bytes) -> bytes:
    content = hashlib.sha256()
    with open(os.path.join(os.fsencode(directory), path), "rb") as file:
        while block := file.read(_BLOCK):
            content.update(block)
    return content.digest()


def _name(root: bytes, path: bytes) -> str:
    return os.fsdecode(os.path.join(root, path))
