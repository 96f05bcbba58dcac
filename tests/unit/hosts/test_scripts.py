"""The frame around an answer: noise does no harm, anything but one whole answer is an error."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.hosts.scripts import FrameError, read_frame

NONCE = "0123abcd"


def _frame(body: str) -> bytes:
    return f"\nBEGIN {NONCE}\n{body}\nEND {NONCE}\n".encode()


@given(before=st.binary(max_size=200), after=st.binary(max_size=200), value=st.dictionaries(st.text(), st.text()))
def test_noise_of_any_kind_around_the_answer_does_no_harm(before: bytes, after: bytes, value: dict[str, str]):
    assert read_frame(before + _frame(json.dumps(value)) + after, NONCE) == value


@pytest.mark.parametrize("noise", [b'{"a": 1}\n', b"{[(", b"\xff\xfe\x00", b"BEGIN other\n{}\nEND other\n"])
def test_objects_and_foreign_frames_are_noise_too(noise: bytes):
    assert read_frame(noise + _frame('{"b": 2}') + noise, NONCE) == {"b": 2}


@pytest.mark.parametrize(
    "output",
    [
        b"",
        b"{}",
        _frame('{"a": 1}')[:-15],
        _frame('{"a": 1}')[12:],
        _frame('{"a": 1'),
        _frame('{"a": 1}{"a": 1}'),
        _frame('{"a": 1}') * 2,
        f"END {NONCE}\n{{}}\nBEGIN {NONCE}\n".encode(),
    ],
    ids=["nothing", "no frame", "no end", "no beginning", "half", "two objects", "two frames", "reversed"],
)
def test_anything_but_one_whole_answer_is_an_error(output: bytes):
    with pytest.raises(FrameError):
        read_frame(output, NONCE)
