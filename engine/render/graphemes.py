"""Cuts text between the characters that a person sees, not inside them."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator

from engine.registry.text import utf16_length

_JOINER = "\u200d"


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
    """Yield the graphemes of `text`: marks, emoji sequences, flags and Hangul syllables stay whole."""
    current = ""
    for character in text:
        if current and not _continues(current, character):
            yield current
            current = ""
        current += character
    if current:
        yield current


def _continues(current: str, character: str) -> bool:
    last = current[-1]
    if _extends(character):
        return not unicodedata.category(last).startswith(("Cc", "Z")) or character == _JOINER
    if last == _JOINER:
        return len(current) > 1
    if _is_flag_half(character):
        return all(_is_flag_half(part) for part in current) and len(current) % 2 == 1
    return _is_hangul_continuation(last, character) or (last, character) == ("\r", "\n")


def _extends(character: str) -> bool:
    code = ord(character)
    return (
        character == _JOINER
        or unicodedata.category(character) in {"Mn", "Me", "Mc"}
        or 0x1F3FB <= code <= 0x1F3FF
        or 0xE0020 <= code <= 0xE007F
    )


def _is_flag_half(character: str) -> bool:
    return 0x1F1E6 <= ord(character) <= 0x1F1FF


def _is_hangul_continuation(last: str, character: str) -> bool:
    before, after = _hangul(last), _hangul(character)
    return (before, after) in {
        ("L", "L"), ("L", "V"), ("L", "LV"), ("L", "LVT"),
        ("LV", "V"), ("V", "V"), ("LV", "T"), ("V", "T"), ("LVT", "T"), ("T", "T"),
    }  # fmt: skip


def _hangul(character: str) -> str:
    code = ord(character)
    if 0x1100 <= code <= 0x115F:
        return "L"
    if 0x1160 <= code <= 0x11A7:
        return "V"
    if 0x11A8 <= code <= 0x11FF:
        return "T"
    if 0xAC00 <= code <= 0xD7A3:
        return "LV" if (code - 0xAC00) % 28 == 0 else "LVT"
    return ""
