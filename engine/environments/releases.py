"""Releases that environments can run: ``deploys/environments/<name>`` with a manifest and two programs."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from engine.environments.binding import HostedRelease
from engine.errors import InvalidInput
from engine.registry.schema import check, read_schema
from engine.registry.yaml_loader import load

RELEASES = Path("deploys/environments")
MANIFEST = "manifest.yaml"
CLOSURE = "gateway/closure.yaml"
PROGRAMS = ("gateway/main.py", "web/main.py")
BYTECODE = "__pycache__"

_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{0,62}\Z", re.ASCII)


def load_releases(root: Path) -> Mapping[str, HostedRelease]:
    """Every release of the fleet directory `root`, by name; a fleet without the directory has none.

    Raises :class:`InvalidInput` naming the file and the key of what is wrong. Whether a release's key sets agree is
    asked where an environment is planned (:func:`engine.environments.binding.check_keys`).
    """
    directory = root / RELEASES
    if not directory.is_dir():
        return MappingProxyType({})
    found = (entry for entry in sorted(directory.iterdir()) if entry.name != BYTECODE)
    return MappingProxyType({entry.name: _release(entry) for entry in found})


def _release(directory: Path) -> HostedRelease:
    if _NAME.match(directory.name) is None or not directory.is_dir():
        raise InvalidInput("no release", where=str(directory), hint="a directory named with a-z, 0-9, hyphen, dot")
    for name in (MANIFEST, CLOSURE, *PROGRAMS):
        if not (directory / name).is_file():
            raise InvalidInput(f"the release has no {name}", where=str(directory))
    manifest = _read(directory / MANIFEST, "hosted-manifest.json")
    closure = _read(directory / CLOSURE, "hosted-closure.json")
    return HostedRelease(
        name=directory.name,
        digest=digest_of(directory),
        gateway_keys=frozenset(closure["keys"]),
        manifest_keys=frozenset(manifest["application"]["keys"]),
        extensions=frozenset(manifest["childSpecExtensions"]),
        directory=directory,
        packages=frozenset(closure["packages"]),
    )


def digest_of(directory: Path) -> str:
    """The digest of a release: of every file's path, content and whether it can be run.

    A link counts as what it leads to, which may lie in another release but not outside them all.
    """
    digest = hashlib.sha256()
    for path in _files(directory, directory.parent.resolve()):
        content = path.read_bytes()
        mode = "x" if path.stat().st_mode & 0o100 else "-"
        digest.update(f"{path.relative_to(directory)}\0{mode}\0{len(content)}\0".encode())
        digest.update(content)
    return f"sha256:{digest.hexdigest()}"


def _files(directory: Path, bound: Path) -> Iterator[Path]:
    for path in sorted(directory.iterdir()):
        if path.name == BYTECODE:
            continue
        if path.is_symlink() and path.is_dir():
            raise InvalidInput("a release has a link to a directory", where=str(path))
        if not path.exists() or not path.resolve().is_relative_to(bound):
            raise InvalidInput("a link of a release leads outside the releases", where=str(path))
        if path.is_dir():
            yield from _files(path, bound)
        else:
            yield path


def _read(path: Path, schema: str) -> Mapping[str, Any]:
    document = load(path)
    check(document, read_schema("engine.environments", schema))
    content: Mapping[str, Any] = document.value
    return content
