"""The closed words: all of them are documented, and no other one is said or documented."""

from __future__ import annotations

import re
from enum import StrEnum

from engine.environments.conditions import Verb
from engine.environments.drivers.trouble import Trouble
from engine.environments.parents.recognition import Deviation
from engine.environments.words import WAYS_ON, Attention, CopyFault, Fault, Noted, Refusal
from tests.unit.hosted import REPOSITORY

ENUMS: tuple[type[StrEnum], ...] = (Attention, Refusal, Noted, Fault, CopyFault, Trouble, Deviation)
WORDS = {word.value for words in ENUMS for word in words}
CAMEL = "[a-z]+(?:[A-Z][a-z]+)+"
KEYS = {"childSpecExtensions"}
DOCUMENT = (REPOSITORY / "docs/environments.md").read_text()


def test_the_document_and_the_code_have_the_same_words() -> None:
    assert {word for word in WORDS if f"`{word}`" not in DOCUMENT} == set()
    assert set(re.findall(f"`({CAMEL})`", DOCUMENT)) - WORDS - {verb.value for verb in Verb} == KEYS


def test_no_word_stands_in_the_code_beside_its_enum() -> None:
    """Wherever one is said, it is the first in a text, or all of it."""
    said = set()
    for path in (REPOSITORY / "engine/environments").rglob("*.py"):
        text = path.read_text()
        said |= {(word, path.name) for word in re.findall(rf'"({CAMEL}): ', text)}
        said |= {(word, path.name) for word in re.findall(rf'(?:Unknown|Refused|Attention)\(\s*"({CAMEL})"', text)}
        said |= {(word, path.name) for word in re.findall(rf'word="({CAMEL})"', text)}
    assert said == set()


def test_every_need_for_attention_has_a_way_on() -> None:
    assert set(WAYS_ON) == set(Attention)
    for word in Attention:
        (line,) = re.findall(rf"^\| (?:`{CAMEL}`, )*`{word}`(?:, `{CAMEL}`)* \| (.*) \|$", DOCUMENT, re.MULTILINE)
        assert WAYS_ON[word].lower() in line.lower(), word
