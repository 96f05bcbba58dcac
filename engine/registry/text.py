"""What text may hold that people, terminals and messaging services read."""

from __future__ import annotations

import unicodedata

_UNSAFE_CATEGORIES = frozenset({"Cc", "Cs", "Zl", "Zp"})
_BIDI_CONTROLS = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def is_unsafe(character: str) -> bool:
    """Whether `character` breaks or moves a line: a control, a separator, half a pair, a bidi override."""
    return unicodedata.category(character) in _UNSAFE_CATEGORIES or character in _BIDI_CONTROLS


def utf16_length(text: str) -> int:
    """Return the length of `text` in UTF-16 units, the strictest count of the messaging services."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2
