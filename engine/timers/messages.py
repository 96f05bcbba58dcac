"""What the operator reads about a job."""

from __future__ import annotations

from collections.abc import Sequence

from engine.registry.text import is_unsafe, utf16_length
from engine.render.graphemes import cut

LINE_UNITS = 300
_ELLIPSIS = "…"
_MARKUP = str.maketrans(dict.fromkeys("_*[]()~`<>#+=|{}!\\&", " "))


def compose(title: str, lines: Sequence[str], end: str, limit: int) -> str:
    """`title`, as many of `lines` as fit, and `end`, each on its own line, in at most `limit` UTF-16 units."""
    title, end = (_line(text, limit // 3) for text in (title, end))
    room = limit - utf16_length(title) - utf16_length(end) - 1
    kept: list[str] = []
    for number, line in enumerate(lines):
        text = _line(line, LINE_UNITS)
        more = f"and {len(lines) - number} more"
        if utf16_length(text) + 1 + (len(more) + 1 if number < len(lines) - 1 else 0) > room:
            # Something of the first line, rather than nothing.
            kept.append(more if kept else _line(line, max(room - 1, 0)))
            break
        kept.append(text)
        room -= utf16_length(text) + 1
    return "\n".join(text for text in (title, *kept, end) if text)


def plainer(text: str) -> str:
    """`text` without any character that a messaging service could take for markup."""
    return text.translate(_MARKUP)


def _line(text: str, limit: int) -> str:
    """One line without control characters, cut between graphemes."""
    clean = "".join(" " if is_unsafe(character) else character for character in text).strip()
    if utf16_length(clean) <= limit:
        return clean
    return cut(clean, limit - len(_ELLIPSIS)).rstrip() + _ELLIPSIS if limit else ""
