"""Environment files of systemd units: secrets for one service, byte for byte."""

from __future__ import annotations

from collections.abc import Mapping

from engine.errors import InvalidInput

_ESCAPED = '\\"`$'


def environment_file(values: Mapping[str, bytes]) -> bytes:
    """The content of an ``EnvironmentFile=`` that gives a service exactly `values`.

    Raises :class:`InvalidInput`, without the value, for one that systemd would drop: it takes UTF-8 text
    without control characters other than tabs and line feeds.
    """
    return b"".join(_line(name, value) for name, value in values.items())


def _line(name: str, value: bytes) -> bytes:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        # Not chained: the exception holds the value.
        raise InvalidInput(f"secret {name} is not UTF-8 text", hint="encode it, for example as base64") from None
    if any((character < " " and character not in "\t\n") or character == "\x7f" for character in text):
        raise InvalidInput(
            f"secret {name} holds a control character, which no environment variable of systemd can",
            hint="encode it, for example as base64",
        )
    quoted = "".join(f"\\{character}" if character in _ESCAPED else character for character in text)
    return f'{name}="{quoted}"\n'.encode()
