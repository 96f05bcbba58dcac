"""Whether compressed bytes are one whole Zstandard frame, told from the lengths that are in it.

A decompressor gives what it could unpack of a cut frame and says nothing; its end must be known some other way.
"""

from __future__ import annotations

from collections.abc import Generator

_MAGIC = b"\x28\xb5\x2f\xfd"
_DICTIONARY_BYTES = (0, 1, 2, 4)
_CONTENT_SIZE_BYTES = (0, 2, 4, 8)
_RLE = 1
_RESERVED = 3


class FrameError(ValueError):
    """The bytes are no Zstandard frame, or more than one."""


class Frame:
    """Follows one frame through its blocks; `is_complete` once its last byte has come."""

    def __init__(self) -> None:
        self.is_complete = False
        self._wanted = b""
        self._parts = _parts()
        # How many bytes come next, and whether they tell something.
        self._left, self._matters = next(self._parts)

    def feed(self, data: bytes) -> None:
        """Take the next bytes; raises :class:`FrameError` where they cannot belong to one frame."""
        position = 0
        while position < len(data):
            if self.is_complete:
                raise FrameError("there is more after its end")
            taken = min(self._left, len(data) - position)
            if self._matters:
                self._wanted += data[position : position + taken]
            self._left -= taken
            position += taken
            while self._left == 0 and not self.is_complete:
                self._advance()

    def _advance(self) -> None:
        part, self._wanted = self._wanted, b""
        try:
            self._left, self._matters = self._parts.send(part)
        except StopIteration:
            self.is_complete = True


def _parts() -> Generator[tuple[int, bool], bytes, None]:
    """The parts of a frame: how long each is and whether it is needed; what is sent is the part."""
    if (yield 4, True) != _MAGIC:
        raise FrameError("it does not begin as a Zstandard frame")
    descriptor = (yield 1, True)[0]
    is_single = bool(descriptor & 0x20)
    size_bytes = _CONTENT_SIZE_BYTES[descriptor >> 6] or int(is_single)
    yield int(not is_single) + _DICTIONARY_BYTES[descriptor & 3] + size_bytes, False
    is_last = False
    while not is_last:
        header = int.from_bytes((yield 3, True), "little")
        is_last, kind, size = bool(header & 1), header >> 1 & 3, header >> 3
        if kind == _RESERVED:
            raise FrameError("a block has a kind that there is none")
        yield 1 if kind == _RLE else size, False
    yield 4 if descriptor & 4 else 0, False
