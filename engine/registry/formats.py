"""Text formats that the schemas name: each check raises ValueError saying what is wanted."""

from __future__ import annotations

import datetime
import ipaddress
import re
import zoneinfo
from typing import Any

from jsonschema import FormatChecker

from engine.registry.text import is_unsafe

_SLUG = re.compile(r"[a-z][a-z0-9-]{0,30}[a-z0-9]", re.ASCII)
_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?", re.ASCII | re.IGNORECASE)
_MAILBOX = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}", re.ASCII)
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)
_ZONE = re.compile(r"[A-Za-z0-9_.-]{1,15}", re.ASCII)


def slug(text: str) -> str:
    """Return `text` if it may name a tenant: it becomes a file name, a host name and a unit name."""
    if _SLUG.fullmatch(text) is None:
        raise ValueError("wanted a slug: 2 to 32 of a-z, 0-9 and -, starting with a letter, no - at the end")
    return text


def uuid(text: str) -> str:
    """Return `text` if it is a uuid in its one usual spelling: two of one would be two entries with one's resources."""
    if _UUID.fullmatch(text) is None:
        raise ValueError("wanted a uuid in lower case such as 0c7d3c5e-94a1-4a3f-8f52-3b6f5b1f0a9e")
    return text


def line(text: str) -> str:
    """Return `text` if it is one line that a person can read."""
    if not text.strip():
        raise ValueError("wanted text that is not empty")
    for character in text:
        if is_unsafe(character):
            raise ValueError(f"wanted one line of text without control characters, found U+{ord(character):04X}")
    return text


def hostname(text: str) -> str:
    """Return `text` if it is a host name of DNS."""
    labels = text.removesuffix(".").split(".")
    whole = len(text) <= 253 and all(_LABEL.fullmatch(label) for label in labels)
    if not whole or labels[-1].isdigit():
        raise ValueError("wanted a host name such as maple.example.com")
    return text


def plain_hostname(text: str) -> str:
    """Return the host name `text` as all spellings of it become one: in lower case, without the dot of the root."""
    return text.casefold().removesuffix(".")


def address(text: str) -> str:
    """Return the address to connect to, an IPv6 one without brackets; the port has its own key."""
    bare = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    if _is_ip(bare, bracketed=bare != text):
        return bare
    _refuse_port_or_user(text)
    try:
        return hostname(text)
    except ValueError as error:
        raise ValueError("wanted an IPv4 address, an IPv6 address or a host name") from error


def _is_ip(text: str, *, bracketed: bool) -> bool:
    bare, percent, zone = text.partition("%")
    if percent and _ZONE.fullmatch(zone) is None:
        return False
    try:
        parsed = ipaddress.ip_address(bare)
    except ValueError:
        return False
    return parsed.version == 6 or not (percent or bracketed)


def _refuse_port_or_user(text: str) -> None:
    if "@" in text:
        raise ValueError("wanted an address alone: the user belongs into ssh_user")
    if re.fullmatch(r"\[.*\]:\d*|[^:]+:\d*", text):
        raise ValueError("wanted an address without a port: the port belongs into ssh_port")


def mail_address(text: str) -> str:
    """Return `text` if it is a plain mail address."""
    mailbox, _, domain = text.rpartition("@")
    if _MAILBOX.fullmatch(mailbox) is None:
        raise ValueError("wanted a mail address such as office@maple.example.com")
    hostname(domain)
    return text


def absolute_path(text: str) -> str:
    """Return `text` if it is an absolute path in its normal form."""
    line(text)
    parts = text.split("/")[1:]
    if not text.startswith("/") or any(part in {"", ".", ".."} for part in parts):
        raise ValueError("wanted an absolute path without .. or //, such as /etc/motd")
    return text


def relative_path(text: str) -> str:
    """Return `text` if it is a path below a directory that it cannot leave."""
    line(text)
    if any(part in {"", ".", ".."} for part in text.split("/")):
        raise ValueError("wanted a path below the directory, without .. or a leading /")
    return text


def date(text: str) -> str:
    """Return `text` if it is a day such as 2026-12-01."""
    try:
        is_day = _DAY.fullmatch(text) is not None and datetime.date.fromisoformat(text) is not None
    except ValueError:
        is_day = False
    if not is_day:
        raise ValueError("wanted a day such as 2026-12-01")
    return text


def time_zone(text: str) -> str:
    """Return `text` if this machine knows a time zone of that name."""
    try:
        zoneinfo.ZoneInfo(line(text))
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError("wanted a time zone such as Europe/Berlin (Debian has them in its package tzdata)") from error
    return text


def pattern(text: str) -> str:
    """Return `text` if it is a regular expression of Python's."""
    try:
        re.compile(line(text))
    except re.error as error:
        raise ValueError(f"wanted a regular expression such as ERROR|CRITICAL: {error}") from error
    return text


def checker() -> FormatChecker:
    """Return the checks under the names that the schemas use."""
    found = FormatChecker(formats=())
    for check in (
        *(slug, uuid, line, hostname, address, mail_address),
        *(absolute_path, relative_path, date, time_zone, pattern),
    ):
        found.checks(check.__name__, raises=ValueError)(_text_only(check))
    return found


def _text_only(check: Any) -> Any:
    """Leave other types to the schema's `type`."""
    return lambda value: check(value) is not None if isinstance(value, str) else True
