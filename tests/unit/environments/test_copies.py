"""Copies: their manifest, which of them are due, and streams that are held back until they are known to be whole."""

from __future__ import annotations

import datetime
import hashlib
import json

import pytest

from engine.environments.copies.manifest import CopiedObject, Copy, Dump, moment_of, read, write
from engine.environments.copies.retention import due
from engine.environments.copies.streams import Mismatch, verified
from engine.environments.drivers.postgres_parent import connection_word
from engine.environments.drivers.trouble import Trouble
from tests.unit.hosted import OWN

DIGEST = "0" * 64
COPY = Copy(
    "20261101T120000Z-0a1b2c3d",
    OWN,
    "2026-11-01T12:00:00Z",
    "2026-11-01T12:00:09Z",
    {"digest": f"sha256:{DIGEST}", "stage": "trial"},
    Dump(5, DIGEST, {"public.No te": 2}),
    (CopiedObject("a \u00fc/%2F", 0, DIGEST, {"ContentType": "text/plain"}, {"writer": "ana"}),),
)
NOW = datetime.datetime(2026, 11, 15, 12, tzinfo=datetime.UTC)
KEPT = datetime.timedelta(hours=48)


def copy_id(days: float, suffix: str = "00000000") -> str:
    """The id of a copy that was begun so many days before NOW."""
    return f"{NOW - datetime.timedelta(days=days):%Y%m%dT%H%M%SZ}-{suffix}"


def test_a_manifest_is_read_back_whole() -> None:
    assert read(write(COPY)) == COPY
    assert COPY.size_bytes == 5
    assert moment_of(COPY.id) == datetime.datetime(2026, 11, 1, 12, tzinfo=datetime.UTC)


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2},
        {"id": "../20261101T120000Z-0a1b2c3d"},
        {"uuid": OWN.upper()},
        {"dump": {"size": 5, "sha256": DIGEST}},
        {"objects": [{"key": "a"}]},
        {"more": 1},
    ],
)
def test_what_is_no_manifest_is_none(change: dict[str, object]) -> None:
    content = write(COPY)
    with pytest.raises(ValueError):
        read(json.dumps({**json.loads(content), **change}).encode())
    for part in (content[:-1], b"", b"[]", b"\xff"):
        with pytest.raises(ValueError):
            read(part)


@pytest.mark.parametrize("text", ["", "no-such", "20261301T120000Z-0a1b2c3d", "20261101T120000Z-0a1b2c3d\n"])
def test_what_is_no_copys_id(text: str) -> None:
    assert moment_of(text) is None


def test_which_copies_are_due() -> None:
    whole = {copy_id(days): True for days in (9, 5, 2, 1.9)}
    assert due(whole, NOW, KEPT) == (copy_id(9), copy_id(5), copy_id(2))
    assert due(whole, NOW, KEPT, {copy_id(5)}) == (copy_id(9), copy_id(2))
    # The newest stays however old it is.
    assert due({copy_id(400): True, copy_id(500): True}, NOW, KEPT) == (copy_id(500),)


def test_unfinished_copies_are_due_after_a_day_and_are_never_the_newest() -> None:
    found = {copy_id(9): True, copy_id(3, "11111111"): False, copy_id(1): False, copy_id(0.9): False, "odd": False}
    assert due(found, NOW, KEPT) == (copy_id(3, "11111111"), copy_id(1))


def test_the_last_part_of_a_stream_waits_until_all_of_it_is_right() -> None:
    parts = [b"one", b"two", b"three"]
    digest = hashlib.sha256(b"".join(parts)).hexdigest()
    assert list(verified(parts, 11, digest)) == parts
    for wrong in (verified(parts, 12, digest), verified(parts, 11, DIGEST), verified(parts[:2], 11, digest)):
        passed: list[bytes] = []
        with pytest.raises(Mismatch):
            passed.extend(wrong)
        assert len(passed) < 3
    assert list(verified([], 0, hashlib.sha256(b"").hexdigest())) == []


def test_what_a_programs_last_words_say_of_its_connection() -> None:
    refused = 'pg_dump: error: connection to server at "127.0.0.1", port 1 failed: Connection refused'
    assert connection_word(refused) is Trouble.UNREACHABLE
    assert connection_word("pg_restore: error: server closed the connection unexpectedly") is Trouble.CONNECTION_LOST
    assert connection_word('pg_restore: error: ERROR: relation "Connection refused" does not exist') is None
