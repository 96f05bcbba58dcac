"""Filters that put a value into a file of some syntax without changing what a reader gets back."""

from __future__ import annotations

import json
import re
import shlex
from typing import Any

from engine.registry.freeze import thaw
from engine.registry.text import is_unsafe

_UNPRINTABLE = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")
_UNIT_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r", "%": "%%"}


def to_json(value: Any) -> str:
    """Return `value` as JSON; a text so written is also a double-quoted scalar of YAML."""
    text = json.dumps(thaw(value), ensure_ascii=False, allow_nan=False, default=_refuse)
    return _UNPRINTABLE.sub(lambda found: f"\\u{ord(found.group()):04x}", text)


def shell(value: Any) -> str:
    """Return `value` as one word of a POSIX shell."""
    return shlex.quote(_without_nul(value))


def unit(value: Any) -> str:
    """Return `value` double-quoted for a systemd setting that splits words, such as ``Environment=``."""
    return '"' + "".join(_unit_character(character) for character in _without_nul(value)) + '"'


def unit_argument(value: Any) -> str:
    """Return `value` as one argument of ``ExecStart=``, where systemd also expands ``$``."""
    return unit(value).replace("$", "$$")


def unit_text(value: Any) -> str:
    """Return `value` bare for a systemd setting that takes the rest of its line, such as ``Description=``."""
    text = _without_nul(value)
    if any(is_unsafe(character) for character in text) or text.endswith("\\"):
        raise ValueError("a bare unit setting takes one clean line of text that does not end in a backslash")
    return text.replace("%", "%%")


FILTERS = {
    "json": to_json,
    "shell": shell,
    "unit": unit,
    "unit_argument": unit_argument,
    "unit_text": unit_text,
}


def _unit_character(character: str) -> str:
    if character in _UNIT_ESCAPES:
        return _UNIT_ESCAPES[character]
    return f"\\x{ord(character):02x}" if ord(character) < 0x20 or ord(character) == 0x7F else character


def _without_nul(value: Any) -> str:
    text = str(value)
    if not isinstance(value, (str, int, float)):
        raise ValueError(f"this filter takes text or a number, found {type(value).__name__}")
    if "\0" in text:
        raise ValueError("a NUL character cannot be written here")
    return text.lower() if isinstance(value, bool) else text


def _refuse(value: Any) -> Any:
    """Called for what JSON cannot hold; an undefined value explains itself when it is made text."""
    raise ValueError(f"this filter cannot write {str(value)!r}")
