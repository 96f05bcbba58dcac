"""Cuts text between the characters that a person sees, not inside them."""

from __future__ import annotations

from collections.abc import Iterator

import regex

from engine.registry.text import utf16_length

_GRAPHEME = regex.compile(r"\X")


def cut(text: str, limit: int) -> str:
    """Return the longest start of `text` that has at most `limit` UTF-16 units and splits no grapheme."""
    used = 0
    kept = []
    for grapheme in graphemes(text):
        used += utf16_length(grapheme)
        if used > limit:
            break
        kept.append(grapheme)
    return "".join(kept)


def graphemes(text: str) -> Iterator[str]:
    """Yield the graphemes of `text`, which are Unicode's extended grapheme clusters."""
    for match in _GRAPHEME.finditer(text):
        yield match[0]
