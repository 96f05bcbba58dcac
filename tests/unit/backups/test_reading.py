"""Reading an archive: a whole one gives its members, anything else is refused."""

from __future__ import annotations

import hashlib
import io
import os
import random
import tarfile

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.backups.frame import Frame, FrameError
from engine.backups.reading import SQLITE_MAGIC, ArchiveReader, Kind
from engine.errors import ArchiveRejected
from tests.unit.backups.archives import FILES, NONCE, archive, compress, description, members_as_tar, tar

DATABASE = SQLITE_MAGIC + bytes(4080)


def read(content: bytes) -> ArchiveReader:
    reader = ArchiveReader(io.BytesIO(content), "maple")
    for _ in reader:
        pass
    return reader


def refused(content: bytes) -> str:
    with pytest.raises(ArchiveRejected) as raised:
        read(content)
    return raised.value.message


def test_a_whole_archive_gives_its_members_contents_and_digest():
    content = archive()
    reader = ArchiveReader(io.BytesIO(content), "maple")
    found = {}
    for entry in reader:
        assert entry.member.kind is Kind.FILE and reader.description["nonce"] == NONCE
        found[entry.member.path] = entry.digest()
    assert found == {f"/{name}": f"sha256:{hashlib.sha256(body).hexdigest()}" for name, body in FILES.items()}
    assert reader.digest == f"sha256:{hashlib.sha256(content).hexdigest()}"
    assert (reader.size_bytes, reader.members) == (len(content), len(FILES) + 2)


def test_a_member_may_be_left_unread_or_read_in_part():
    reader = ArchiveReader(io.BytesIO(archive()), "maple")
    parts = [entry.read(150) for entry in reader]
    assert parts == [body[:100] for body in FILES.values()]


def test_hostile_names_arrive_byte_for_byte():
    names = [os.fsdecode(name) for name in (b"srv/\xff", b"srv/a\nb", b"srv/\x1b[2J", b"srv/" + b"x" * 300 + b"\xfe")]
    reader = ArchiveReader(io.BytesIO(archive(dict.fromkeys(names, b"x"))), "maple")
    assert [entry.member.path for entry in reader] == [f"/{name}" for name in names]


def test_an_archive_that_is_cut_anywhere_is_refused():
    content = archive({name: random.Random(name).randbytes(3000) for name in "abcdef"})
    for length in range(0, len(content), 97):
        refused(content[:length])


def test_an_archive_of_which_only_the_checksum_is_missing_is_refused():
    content = archive({"a": random.Random(1).randbytes(400_000), "zeros": bytes(1_000_000)})
    for missing in range(1, 5):
        refused(content[:-missing])


def test_an_archive_that_ends_at_a_member_boundary_in_a_whole_frame_is_refused():
    content = tar()
    for boundary in range(512, len(content), 512):
        if boundary <= content.rindex(NONCE.encode()):
            assert refused(compress(content[:boundary]))


def test_two_frames_are_refused_as_is_the_first_of_two():
    content = tar()
    middle = content.index(b"b" * 512)
    frames = [compress(content[:middle]), compress(content[middle:])]
    assert "after its end" in refused(b"".join(frames))
    assert refused(frames[0])
    assert "after its end" in refused(compress(content) + b"\0")


def test_a_changed_byte_is_refused():
    content = archive({"a": random.Random(1).randbytes(5000)})
    for position in range(4, len(content), 331):
        broken = bytearray(content)
        broken[position] ^= 0x55
        refused(bytes(broken))


@pytest.mark.parametrize("end", [None, "ffffffffffffffffffffffffffffffff", ""])
def test_a_missing_or_foreign_end_is_refused(end: str | None):
    assert "its end" in refused(archive(end=end))


def test_what_follows_the_end_is_refused():
    assert "comes after its end" in refused(archive(after="srv/late"))


def test_an_archive_that_does_not_begin_with_its_description_is_refused():
    assert "instead of its description" in refused(compress(members_as_tar([("srv/a", b"x")])))


@pytest.mark.parametrize("content", [b"", b"garbage" * 10, b"\x28\xb5\x2f\xfd"])
def test_what_is_no_archive_is_refused(content: bytes):
    refused(content)


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"\xff"])
def test_a_description_that_is_no_object_is_refused(body: bytes):
    refused(compress(members_as_tar([("tenantry/backup.json", body)])))


def test_a_database_is_refused_unless_the_description_calls_it_a_copy():
    files = {"srv/new.db": DATABASE}
    assert "appeared while the archive was made" in refused(archive(files))
    known = {"/srv/new.db": {"tables": {}, "user_version": 0, "size_bytes": 4096}}
    assert read(archive(files, databases=known)).members == 3
    assert description()["databases"] == {}


def test_a_header_that_would_fill_the_memory_is_refused():
    info = tarfile.TarInfo("x")
    info.type, info.size = tarfile.XHDTYPE, 50_000_000
    header = info.tobuf(tarfile.USTAR_FORMAT)
    first = tar()[: 2 * tarfile.BLOCKSIZE]
    assert "a header of 50000000 bytes" in refused(compress(first + header + bytes(50_000_000)))


def test_zeros_that_compress_a_thousandfold_stay_whole():
    assert read(archive({"zeros": bytes(200_000_000)})).uncompressed_bytes > 200_000_000


@settings(deadline=None, max_examples=60)
@given(st.binary(max_size=300_000), st.integers(1, 70_000), st.sampled_from([1, 3, 19]))
def test_a_frame_is_complete_exactly_at_its_last_byte(content: bytes, step: int, level: int):
    data = zstandard.ZstdCompressor(level=level, write_checksum=bool(step % 2)).compress(content)
    frame = Frame()
    for start in range(0, len(data) - 1, step):
        frame.feed(data[start : min(start + step, len(data) - 1)])
    assert not frame.is_complete
    frame.feed(data[-1:])
    assert frame.is_complete
    with pytest.raises(FrameError, match="after its end"):
        frame.feed(b"\0")
