"""Differences between the rendered set and what a tenant reports of it."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from engine.errors import UnknownState
from engine.render.rendered_set import Rendered


class FoundFile(Protocol):
    """What a probe says of one file.

    `digest` is None where there is none, ``link`` for a link in its place, and a reason if it cannot be read.
    """

    @property
    def digest(self) -> str | None: ...
    @property
    def mode(self) -> str | None: ...
    @property
    def owner(self) -> str | None: ...
    @property
    def group(self) -> str | None: ...


class Aspect(StrEnum):
    """In what a file on the tenant is not what it should be."""

    ABSENT = "absent"
    LINK = "link"
    CONTENT = "content"
    MODE = "mode"
    OWNER = "owner"
    GROUP = "group"


@dataclass(frozen=True)
class Change:
    """One aspect of a file: what the tenant has and what is wanted."""

    aspect: Aspect
    found: str | None
    wanted: str


@dataclass(frozen=True)
class Difference:
    """A rendered file that must be written again, and why."""

    rendered: Rendered
    changes: tuple[Change, ...]


def compare(rendered: Sequence[Rendered], found: Mapping[str, FoundFile]) -> tuple[Difference, ...]:
    """Return the files of `rendered` that differ from `found`, which is keyed by the file's name.

    Raises :class:`UnknownState` for a file that the probe says nothing of or could not read: unknown is
    neither absent nor different.
    """
    differences = []
    for item in rendered:
        if item.file.name not in found:
            raise UnknownState(f"the probe does not report the rendered file {item.file.name}")
        changes = tuple(_changes(item, found[item.file.name]))
        if changes:
            differences.append(Difference(item, changes))
    return tuple(differences)


def text_diff(name: str, found: bytes | None, wanted: bytes) -> tuple[str, ...]:
    """Return a unified diff from `found` (None: absent) to `wanted`, one line an item, without line ends."""
    if found == wanted:
        return ()
    if found is None and not wanted:
        return (f"{name} is absent, wanted empty",)
    before, after = _text(found or b""), _text(wanted)
    if before is None or after is None:
        return (f"binary content of {name} differs: {len(found or b'')} bytes found, {len(wanted)} bytes wanted",)
    old_name = "/dev/null" if found is None else f"{name} (tenant)"
    lines = difflib.unified_diff(_lines(before), _lines(after), old_name, f"{name} (wanted)", lineterm="\n")
    return tuple(_shown(lines))


def _changes(item: Rendered, found: FoundFile) -> Iterator[Change]:
    file = item.file
    if found.digest is None:
        yield Change(Aspect.ABSENT, None, item.digest)
        return
    if found.digest == Aspect.LINK:
        # Whatever it leads to: the file itself is to be here, and the link may be anybody's.
        yield Change(Aspect.LINK, found.digest, item.digest)
        return
    if not found.digest.startswith("sha256:"):
        raise UnknownState(
            f"the rendered file {file.name} ({file.path}) is {found.digest}",
            hint="look at it on the host; nothing was changed",
        )
    if found.digest != item.digest:
        yield Change(Aspect.CONTENT, found.digest, item.digest)
    if found.mode is None or int(found.mode, 8) != int(file.mode, 8):
        yield Change(Aspect.MODE, found.mode, file.mode)
    if found.owner != file.owner:
        yield Change(Aspect.OWNER, found.owner, file.owner)
    if found.group != file.group:
        yield Change(Aspect.GROUP, found.group, file.group)


def _text(content: bytes) -> str | None:
    if b"\0" in content:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return None


def _lines(text: str) -> list[str]:
    """Split at line feeds alone: every other line break is content."""
    lines = text.split("\n")
    ended = [line + "\n" for line in lines[:-1]]
    return ended + lines[-1:] if lines[-1] else ended


def _shown(lines: Iterator[str]) -> Iterator[str]:
    for line in lines:
        yield line.removesuffix("\n")
        if not line.endswith("\n"):
            yield "\\ No newline at end of file"
