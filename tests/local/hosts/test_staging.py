"""Bundles as streams: equal bytes for equal contents, whatever the files' times and owners."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
from pathlib import Path

import pytest

from engine.errors import InvalidInput
from engine.hosts.staging import Archive


def _read(directory: Path) -> bytes:
    archive = Archive(directory)
    return b"".join(iter(lambda: archive.read(1000), b""))


def _fill(directory: Path) -> Path:
    (directory / "sub").mkdir(parents=True)
    (directory / "sub" / ("long" * 60)).write_bytes(b"\xff" * 1500)
    (directory / "install.sh").write_text("#!/bin/sh\n")
    (directory / "install.sh").chmod(0o755)
    (directory / "link").symlink_to("install.sh")
    return directory


def test_times_and_owners_do_not_show(tmp_path: Path):
    first, second = _fill(tmp_path / "a"), _fill(tmp_path / "b")
    os.utime(second / "install.sh", (1, 1))
    os.chown(second / "install.sh", 1234, 1234)
    (second / "sub" / ("long" * 60)).chmod(0o600)
    assert _read(first) == _read(second)


def test_the_archive_is_an_ordinary_one(tmp_path: Path):
    with tarfile.open(fileobj=io.BytesIO(_read(_fill(tmp_path / "a")))) as archive:
        entries = {entry.name: entry for entry in archive}
    assert set(entries) == {"sub", f"sub/{'long' * 60}", "install.sh", "link"}
    assert entries["install.sh"].mode == 0o755 and entries["link"].linkname == "install.sh"
    assert all((entry.mtime, entry.uid, entry.uname) == (0, 0, "") for entry in entries.values())


def test_what_is_compressed_already_is_stored_as_it_is(tmp_path: Path):
    content = b"repeated" * 1000
    for name in ("a.txt", "b.whl", "c.txt"):
        (tmp_path / name).write_bytes(content)
    sent = _read(tmp_path)
    assert sent.count(content) == 1 and len(sent) < 2 * len(content)
    with tarfile.open(fileobj=io.BytesIO(sent)) as archive:
        assert [archive.extractfile(entry).read() for entry in archive] == [content] * 3
    unpacked = subprocess.run(["tar", "-xzOf", "-"], input=sent, capture_output=True, check=True)
    assert unpacked.stdout == content * 3


def test_a_pipe_is_no_part_of_a_bundle(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InvalidInput, match="files, directories and links"):
        _read(tmp_path)
