"""Files and input on their way through pyinfra's connector interface."""

from __future__ import annotations

import io
import os
import secrets
import shlex
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from engine.hosts.channel import Source

_WHOLE_BYTES = 1 << 20
"""Input up to this size is sent as bytes, so that the host can tell that all of it has come."""

_RECEIVE = """
set -eu
path=$(readlink -f -- {path} || printf %s {path})
temporary=$(mktemp "${{path%/*}}/.pyinfra.XXXXXXXX")
trap 'rm -f "$temporary"' EXIT
cat > "$temporary"
[ "$(stat -c %s "$temporary")" = {size} ] || {{ echo "the file did not arrive whole" >&2; exit 1; }}
if [ -e "$path" ]; then
  chown --reference="$path" "$temporary"
  chmod --reference="$path" "$temporary"
else
  chmod =rw "$temporary"
fi
mv -fT "$temporary" "$path"
trap - EXIT
"""


def receive(path: str, size: int) -> str:
    """The shell command that replaces `path` by `size` bytes of standard input."""
    absolute = path if "/" in path else f"./{path}"
    return _RECEIVE.format(path=shlex.quote(absolute), size=size)


def send(path: str) -> str:
    """The shell command that prints the bytes of `path`."""
    return f"exec cat -- {shlex.quote(path)}"


def size_of(source: IO[Any]) -> int:
    """How many bytes are left in a seekable file; its position is as before."""
    start = source.tell()
    end = source.seek(0, os.SEEK_END)
    source.seek(start)
    return end - start


def stdin_of(value: Any) -> bytes | Source | None:
    """pyinfra's ``_stdin`` as bytes, exactly as given; only the items of a list become lines."""
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, list | tuple):
        return b"".join(_bytes(item).removesuffix(b"\n") + b"\n" for item in value)
    block = _bytes(value.read(_WHOLE_BYTES))
    return _Joined(block, value) if len(block) == _WHOLE_BYTES else block


class _Joined:
    """A file whose first block has been read already."""

    def __init__(self, first: bytes, rest: IO[Any]) -> None:
        self._first = io.BytesIO(first)
        self._rest = rest

    def read(self, size: int, /) -> bytes:
        return self._first.read(size) or _bytes(self._rest.read(size))


class LocalSink:
    """Where a fetched file goes; `complete` is set once all of it has come."""

    def __init__(self, file: IO[bytes]) -> None:
        self.complete = False
        self.write = file.write


@contextmanager
def local_sink(target: str | IO[Any]) -> Iterator[LocalSink]:
    """A sink for `target`; a named file is written beside itself and renamed only when complete."""
    if not isinstance(target, str | os.PathLike):
        content = io.BytesIO()
        sink = LocalSink(content)
        yield sink
        if sink.complete:
            _hand_over(content.getvalue(), target)
        return
    path = Path(target)
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
    try:
        with partial.open("xb") as file:
            sink = LocalSink(file)
            yield sink
        if sink.complete:
            partial.rename(path)
    finally:
        with suppress(FileNotFoundError):
            partial.unlink()


def _hand_over(content: bytes, target: IO[Any]) -> None:
    target.seek(0)
    target.write(content.decode() if isinstance(target, io.TextIOBase) else content)


def _bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value
