"""Environment files of units: what systemd reads is what was meant."""

from __future__ import annotations

import pytest

from engine.errors import InvalidInput
from engine.steps.environment_file import environment_file


@pytest.mark.parametrize(
    ("value", "line"),
    [
        (b"plain", b'K="plain"\n'),
        (b'a"b', b'K="a\\"b"\n'),
        (b"a\\b$c`d", b'K="a\\\\b\\$c\\`d"\n'),
        ("é'\n".encode(), 'K="é\'\n"\n'.encode()),
        (b"", b'K=""\n'),
    ],
)
def test_a_secret_is_quoted_for_the_unit(value: bytes, line: bytes) -> None:
    assert environment_file({"K": value}) == line


@pytest.mark.parametrize("value", [b"\xff-hidden", b"hidden\0b", b"hidden\x1b", b"hidden\r", b"hidden\x7f"])
def test_a_secret_that_no_environment_can_hold_is_refused_without_being_shown(value: bytes) -> None:
    with pytest.raises(InvalidInput) as refused:
        environment_file({"K": value})
    assert "hidden" not in str(refused.value)
    assert refused.value.__cause__ is None
