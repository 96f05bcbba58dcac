"""What the operator reads: short, on clean lines, without markup where a service stumbles over it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine.registry.text import is_unsafe, utf16_length
from engine.timers.messages import compose, plainer


def test_a_short_failure_is_told_whole():
    assert compose("backup failed", ["maple: no answer"], "log: x", 200) == "backup failed\nmaple: no answer\nlog: x"


def test_what_does_not_fit_is_counted():
    text = compose("failed", [f"tenant-{number}: no answer" for number in range(50)], "the log", 120)
    assert utf16_length(text) <= 120
    assert text.startswith("failed\ntenant-0: no answer\n")
    kept = text.count("no answer")
    assert text.endswith(f"\nand {50 - kept} more\nthe log")


@given(st.text(max_size=400), st.lists(st.text(max_size=400), max_size=8), st.text(max_size=200))
def test_no_message_is_longer_than_its_limit_or_has_control_characters(title, lines, end):
    text = compose(title, lines, end, 240)
    assert utf16_length(text) <= 240
    assert not any(is_unsafe(character) for character in text if character != "\n")


def test_emoji_are_counted_as_the_services_do():
    assert utf16_length(compose("x", ["😀" * 2100], "end", 1000)) <= 1000


def test_markup_is_taken_out_of_the_second_attempt():
    assert plainer("foo_bar*[x](: 50 %") == "foo bar  x  : 50 %"
