"""Owner notes: prefix, length in UTF-16 units, cuts between graphemes, clean text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import InvalidInput
from engine.registry.text import utf16_length
from engine.releases.version import Version
from engine.render.graphemes import cut, graphemes
from engine.render.notes import check_hand_written, compose, prefix

VERSION = Version.parse("2026.10.22.3")
START = "Queva updated to 2026.10.22.3: "


def note(*notes: str, limit: int = 480) -> str:
    return compose("Queva", VERSION, notes, limit)


def test_notes_are_joined_after_the_prefix() -> None:
    assert prefix("Queva", VERSION) == START
    assert note("Forms are here.", "", "  Guides too. ") == START + "Forms are here. Guides too."


def test_without_notes_the_version_is_told() -> None:
    assert note() == note("", " ") == "Queva updated to 2026.10.22.3."


def test_over_the_limit_only_the_newest_note_is_kept() -> None:
    exact = "x" * (480 - len(START) - 2)
    assert note("a", exact) == f"{START}a {exact}"
    assert note("ab", exact) == START + exact


def test_the_limit_counts_utf_16_units() -> None:
    assert note("a", "😀" * 230) == START + "😀" * ((480 - len(START) - 1) // 2) + "…"


def test_a_single_long_note_is_cut_between_graphemes() -> None:
    family = "👩‍👩‍👧"
    text = note(family * 100)
    assert utf16_length(text) <= 480
    assert text.removeprefix(START).removesuffix("…").replace(family, "") == ""


def test_control_characters_do_not_reach_the_owner() -> None:
    assert note("a\x1b[2J\x07b\r\nc\td\u202e\u2028e\0") == START + "a[2Jb c d e"


@given(st.text(max_size=20), st.lists(st.text(max_size=300), max_size=4), st.integers(100, 480))
def test_a_message_is_one_clean_line_within_the_limit(brand: str, notes: list[str], limit: int) -> None:
    text = compose(brand, VERSION, notes, limit)
    assert utf16_length(text) <= limit
    assert text.startswith(prefix(brand, VERSION).removesuffix(": "))
    assert len(text.splitlines()) == 1
    text.encode()


@pytest.mark.parametrize("text", [START + "Your forms are here.", START + "Zoë 😀 {{ x }}\xa0!"])
def test_hand_written_notes(text: str) -> None:
    check_hand_written(text, START)


@pytest.mark.parametrize("text", ["", "Hello", START, START + "  ", START.lower() + "x", " " + START + "x"])
def test_a_hand_written_note_needs_the_prefix_and_a_text(text: str) -> None:
    with pytest.raises(InvalidInput, match="prefix") as caught:
        check_hand_written(text, START)
    assert START in caught.value.hint


@pytest.mark.parametrize("text", ["a\nb", "a\n", "a\r\n", "a\u2028", "a\x1b[2J", "a\u202eb"])
def test_a_hand_written_note_is_one_clean_line(text: str) -> None:
    with pytest.raises(InvalidInput, match="one line"):
        check_hand_written(START + text, START)


@pytest.mark.parametrize(
    "whole",
    [
        "a",
        "e\u0301",
        "e\u0301\u0323",
        "👍🏽",
        "👩‍👩‍👧",
        "🇩🇪",
        "\u2764\ufe0f",
        "1\ufe0f\u20e3",
        "\uac01",
        "\u1100\u1161\u11a8",
        "\u0928\u093f",
        "\r\n",
        "🏴\U000e0067\U000e0062\U000e007f",
        "\uff76\uff9e",
        "\u0e01\u200c",
        "\u0915\u094d\u0937\u093f",
        "\u0600\u0661",
    ],
)
def test_what_a_person_sees_as_one_character_stays_whole(whole: str) -> None:
    assert list(graphemes(f"x{whole}y")) == ["x", whole, "y"]
    assert cut(f"x{whole}y", utf16_length(whole)) == "x"


def test_flags_are_pairs() -> None:
    assert list(graphemes("🇩🇪🇫🇷🇩")) == ["🇩🇪", "🇫🇷", "🇩"]


@given(st.text())
def test_graphemes_are_the_whole_text(text: str) -> None:
    assert "".join(graphemes(text)) == text


@given(st.text(), st.integers(0, 40))
def test_a_cut_is_the_longest_start_that_fits(text: str, limit: int) -> None:
    kept = cut(text, limit)
    assert text.startswith(kept)
    assert utf16_length(kept) <= limit
    following = next(graphemes(text[len(kept) :]), None)
    assert following is None or utf16_length(kept + following) > limit
