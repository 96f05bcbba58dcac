"""Versions compare as integer tuples, whatever their digits look like."""

from __future__ import annotations

import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import InvalidInput
from engine.releases.version import Version

dates = st.dates(datetime.date(2000, 1, 1), datetime.date(2999, 12, 31))
sequences = st.none() | st.integers(0, 9999)


@st.composite
def versions(draw: st.DrawFn) -> tuple[Version, tuple[int, ...]]:
    """A version in one of its spellings, and the integers it stands for."""
    date, sequence = draw(dates), draw(sequences)
    month = draw(st.sampled_from([f"{date.month}", f"{date.month:02}"]))
    day = draw(st.sampled_from([f"{date.day}", f"{date.day:02}"]))
    text = f"{date.year}.{month}.{day}" + ("" if sequence is None else f".{sequence}")
    key = (date.year, date.month, date.day) + (() if sequence is None else (sequence,))
    return Version.parse(text), key


@given(versions(), versions())
def test_order_and_equality_are_those_of_the_integers(
    one: tuple[Version, tuple[int, ...]], other: tuple[Version, tuple[int, ...]]
) -> None:
    assert (one[0] < other[0]) == (one[1] < other[1])
    assert (one[0] == other[0]) == (one[1] == other[1])
    assert (one[0] >= other[0]) == (one[1] >= other[1])
    if one[0] == other[0]:
        assert hash(one[0]) == hash(other[0])


@given(versions())
def test_a_version_keeps_its_text(version: tuple[Version, tuple[int, ...]]) -> None:
    assert Version.parse(str(version[0])) == version[0]


def test_examples_of_the_order() -> None:
    ordered = [
        "2026.9.30",
        "2026.10.1",
        "2026.10.22",
        "2026.10.22.0",
        "2026.10.22.9",
        "2026.10.22.10",
        "2026.10.23",
    ]
    assert [str(version) for version in sorted(map(Version.parse, reversed(ordered)))] == ordered
    assert Version.parse("2026.01.05") == Version.parse("2026.1.5")


NOT_VERSIONS = """\
2026.10
2026
2026.10.22-rc1
v2 2026.10.22
2026.10.22.
2026.10.22.1.2
2026-10-22
26.10.22
2026.13.1
2026.2.30
2026.0.1
2026.10.22.12345
2026.10.22.-1
+2026.10.22
٢٠٢٦.10.22
"""


@pytest.mark.parametrize("text", ["", " 2026.10.22", "2026.10.22\n", *NOT_VERSIONS.splitlines()])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        Version.parse(text)
    assert caught.value.hint
