"""Release versions: a date with an optional sequence suffix, compared as integers."""

from __future__ import annotations

import datetime
import re
from dataclasses import dataclass
from functools import total_ordering

from engine.errors import InvalidInput

_PATTERN = re.compile(r"(\d{4})\.(\d{1,2})\.(\d{1,2})(?:\.(\d{1,4}))?", re.ASCII)


@total_ordering
@dataclass(frozen=True, eq=False)
class Version:
    """``YYYY.M.D`` or ``YYYY.M.D.N``, such as ``2026.10.22.3``.

    Every digit group counts as an integer, so ``.10`` follows ``.9`` and ``2026.01.05`` equals
    ``2026.1.5``. Anything else is refused: a longer or decorated text would compare by accident.
    """

    text: str
    key: tuple[int, ...]

    @classmethod
    def parse(cls, text: str) -> Version:
        """Read `text`; raises :class:`InvalidInput` unless it is exactly a version."""
        match = _PATTERN.fullmatch(text)
        if match is None:
            raise InvalidInput(f"{text!r} is not a version", hint="versions look like 2026.10.22 or 2026.10.22.3")
        key = tuple(int(group) for group in match.groups() if group is not None)
        try:
            datetime.date(*key[:3])
        except ValueError as error:
            raise InvalidInput(
                f"{text!r} does not start with a date: {error}", hint="versions start with a real date"
            ) from error
        return cls(text, key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Version) and self.key == other.key

    def __lt__(self, other: Version) -> bool:
        return self.key < other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __str__(self) -> str:
        return self.text


ZERO = Version("version zero", (0,))
"""What a provisioned tenant without a marker is at; below every release."""
