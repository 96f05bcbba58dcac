"""The message that tells an owner about an update."""

from __future__ import annotations

from collections.abc import Sequence

from engine.errors import InvalidInput
from engine.registry.text import is_unsafe, utf16_length
from engine.releases.version import Version
from engine.render.graphemes import cut

_ELLIPSIS = "…"


def prefix(brand: str, version: Version) -> str:
    """Return what every owner message about `version` starts with."""
    return f"{_cleaned(brand)} updated to {version}: "


def compose(brand: str, version: Version, notes: Sequence[str], limit: int) -> str:
    """Return the message for `notes`, oldest first, in at most `limit` UTF-16 units.

    If all notes together are too long only the newest is kept; if that one alone is too long it is
    cut between graphemes. Without any note the message says the version alone.
    """
    start = prefix(brand, version)
    texts = [cleaned for note in notes if (cleaned := _cleaned(note))]
    if not texts:
        return start.removesuffix(": ") + "."
    whole = start + " ".join(texts)
    if utf16_length(whole) <= limit:
        return whole
    newest = start + texts[-1]
    if utf16_length(newest) <= limit:
        return newest
    return cut(newest, limit - len(_ELLIPSIS)).rstrip() + _ELLIPSIS


def check_hand_written(text: str, start: str) -> None:
    """Raise :class:`InvalidInput` unless `text` is one clean line: the prefix `start`, then something."""
    if not text.startswith(start) or not text.removeprefix(start).strip():
        raise InvalidInput(
            "a hand-written note must start with the prefix and say something after it",
            hint=f"start it with {start!r}",
        )
    if _cleaned(text) != text.strip(" "):
        raise InvalidInput("a hand-written note must be one line without control characters")


def _cleaned(text: str) -> str:
    """One line: line breaks and tabs become blanks, other control characters vanish."""
    spaced = " ".join(text.splitlines()).replace("\t", " ")
    return "".join(character for character in spaced if not is_unsafe(character)).strip()
