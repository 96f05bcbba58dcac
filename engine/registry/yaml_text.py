"""YAML text for values that are added to a file which keeps everything else as it is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

_WORDS = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})


def yaml_key(text: str) -> str:
    """`text` as a key, bare where it can only be read as that text."""
    is_plain = text.replace("_", "").replace("-", "").isalpha() and text.isascii() and text.lower() not in _WORDS
    return text if is_plain else json.dumps(text, ensure_ascii=False)


def yaml_lines(key: str, value: Any, indent: int) -> list[str]:
    """The lines of one entry of a block mapping, `indent` blanks deep."""
    # JSON is YAML, and it quotes every text: nothing in it can be taken for something else.
    if isinstance(value, Mapping) and value:
        inner = [line for name, item in value.items() for line in yaml_lines(str(name), item, indent + 2)]
        return [f"{' ' * indent}{yaml_key(key)}:", *inner]
    return [f"{' ' * indent}{yaml_key(key)}: {json.dumps(value, ensure_ascii=False)}"]
