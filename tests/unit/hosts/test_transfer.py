"""Input on its way through pyinfra: exactly the bytes that were given."""

from __future__ import annotations

import io
from typing import Any

import pytest

from engine.hosts.transfer import stdin_of


@pytest.mark.parametrize(
    ("value", "sent"),
    [
        (None, None),
        (b"raw\xff", b"raw\xff"),
        ("text", b"text"),
        ("text\n", b"text\n"),
        (["a", b"b", "c\n"], b"a\nb\nc\n"),
        (io.StringIO("ü\n"), "ü\n".encode()),
        (io.BytesIO(b"\x00"), b"\x00"),
        (io.BytesIO(b""), b""),
    ],
)
def test_input_is_sent_as_given(value: Any, sent: bytes | None):
    assert stdin_of(value) == sent


def test_a_large_file_is_read_in_blocks():
    content = bytes(range(256)) * 10_000
    source = stdin_of(io.BytesIO(content))
    assert source is not None and not isinstance(source, bytes)
    blocks = list(iter(lambda: source.read(65536), b""))
    assert b"".join(blocks) == content and max(map(len, blocks)) == 65536
