"""Filters: what the reader of the file gets back is the value, byte for byte."""

from __future__ import annotations

import json
import shlex
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.render.filters import shell, to_json, unit, unit_argument, unit_text

texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))


@given(st.text())
def test_json_is_read_back_as_it_was(text: str) -> None:
    assert json.loads(to_json(text)) == text


def test_json_leaves_readable_text_alone() -> None:
    assert to_json("Zoë & <株式会社> 😀 {{ x }} %} '") == '"Zoë & <株式会社> 😀 {{ x }} %} \'"'


def test_json_takes_frozen_values() -> None:
    value = MappingProxyType({"b": (1, True, None), "a": MappingProxyType({})})
    assert to_json(value) == '{"b": [1, true, null], "a": {}}'


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1, 2}, object])
def test_json_refuses_what_it_cannot_hold(value: Any) -> None:
    with pytest.raises(ValueError, match=r".+"):
        to_json(value)


@given(texts)
def test_shell_is_one_word(text: str) -> None:
    assert shlex.split(shell(text)) == [text]


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("plain", '"plain"'),
        ('say "hi"', r'"say \"hi\""'),
        ("50% $HOME", '"50%% $HOME"'),
        ("back\\slash", r'"back\\slash"'),
        ("two\nlines\tx\r", r'"two\nlines\tx\r"'),
        ("\x1b\x7f", r'"\x1b\x7f"'),
        ("Zoë 😀 '", '"Zoë 😀 \'"'),
    ],
)
def test_unit_values(text: str, written: str) -> None:
    assert unit(text) == written


@given(texts)
def test_a_unit_value_is_one_line_and_one_word(text: str) -> None:
    assert "\n" not in unit(text)
    assert read_unit_word(unit(text)) == text


def read_unit_word(word: str) -> str:
    """What systemd reads from a double-quoted word: C escapes, then %% for a percent sign."""
    inner = word[1:-1].replace("%%", "%")
    result = bytearray()
    position = 0
    named = {"n": b"\n", "t": b"\t", "r": b"\r", "\\": b"\\", '"': b'"'}
    while position < len(inner):
        if inner[position] != "\\":
            assert inner[position] != '"'
            result += inner[position].encode()
            position += 1
        elif inner[position + 1] == "x":
            result += bytes([int(inner[position + 2 : position + 4], 16)])
            position += 4
        else:
            result += named[inner[position + 1]]
            position += 2
    return result.decode()


def test_a_unit_argument_is_not_expanded() -> None:
    assert unit_argument("cost $5 or ${X}") == '"cost $$5 or $${X}"'


def test_bare_unit_text() -> None:
    assert unit_text('Gateway of "A & B", 100%') == 'Gateway of "A & B", 100%%'
    assert unit_text("A\xa0B 👩‍👧") == "A\xa0B 👩‍👧"


@pytest.mark.parametrize("text", ["a\nb", "a\\", "a\x1b"])
def test_bare_unit_text_cannot_hold_everything(text: str) -> None:
    with pytest.raises(ValueError, match="bare unit setting"):
        unit_text(text)


@pytest.mark.parametrize("filter_", [shell, unit, unit_argument, unit_text])
def test_what_is_no_text_is_refused(filter_: Any) -> None:
    refused: list[Any] = [None, [], {}, "a\0b"]
    for value in refused:
        with pytest.raises(ValueError, match=r".+"):
            filter_(value)
    assert filter_(7).strip('"') == "7"
    assert filter_(True).strip('"') == "true"
