"""Pinned host keys in files that also hold other people's lines."""

from __future__ import annotations

import base64
import hmac
from pathlib import Path

import pytest

from engine.errors import InvalidInput
from engine.hosts.known_hosts import HostKey, pin, read, replace


def _key(number: int) -> HostKey:
    return HostKey("ssh-ed25519", b"\0\0\0\x0bssh-ed25519\0\0\0 " + bytes([number]) * 32)


OLD, NEW, OTHER = _key(1), _key(2), _key(3)
AUTHORITY = f"@cert-authority *.example.org {OTHER}\n"
GARBAGE = "h ssh-ed25519 not-base64!\n# h is commented out\n\nonly-two fields\n"


def _hashed(name: str) -> str:
    salt = bytes(range(20))
    digest = hmac.digest(salt, name.encode(), "sha1")
    return f"|1|{base64.b64encode(salt).decode()}|{base64.b64encode(digest).decode()}"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ssh" / "known_hosts" / "maple"


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True)
    path.write_text(text)


def test_a_rebuild_removes_every_stale_form_and_nothing_else(path: Path):
    kept = [AUTHORITY, GARBAGE, f"elsewhere {OLD} comment  kept\n", f"[h]:2223 {OLD}\n"]
    stale = [f"[h]:2222 {OLD}\n", f"{_hashed('[h]:2222')} {OLD}\n", f"10.0.0.1 {OLD}\n", f"{_hashed('h')} {OLD}\n"]
    _write(path, AUTHORITY + stale[0] + GARBAGE + stale[1] + kept[2] + stale[2] + kept[3] + stale[3])
    for _ in range(3):
        replace(path, ["h", "10.0.0.1"], 2222, [NEW])
    assert path.read_text() == "".join(kept) + f"[10.0.0.1]:2222,[h]:2222 {NEW}\n"
    assert read(path, "h", 2222).keys == read(path, "10.0.0.1", 2222).keys == (NEW,)
    assert read(path, "elsewhere", 22).keys == (OLD,)


def test_a_line_of_several_names_keeps_the_others(path: Path):
    _write(path, f"h,neighbour {OLD} note")
    replace(path, ["h"], 22, [NEW])
    assert path.read_text() == f"neighbour {OLD} note\nh {NEW}\n"


def test_a_key_counts_only_for_its_own_name_and_port(path: Path):
    _write(path, f"h {OLD}\n[h]:2222 {NEW}\n")
    assert read(path, "h", 22).keys == (OLD,)
    assert read(path, "h", 2222).keys == (NEW,)
    assert read(path, "h", 2223).keys == ()


def test_ipv6_forms(path: Path):
    replace(path, ["2001:db8::1"], 22, [OLD])
    replace(path, ["fe80::1%eth0"], 2222, [NEW])
    assert path.read_text() == f"2001:db8::1 {OLD}\n[fe80::1%eth0]:2222 {NEW}\n"
    assert read(path, "2001:db8::1", 22).keys == (OLD,)
    assert read(path, "fe80::1%eth0", 2222).keys == (NEW,)


def test_certificate_authorities_and_revoked_keys_grant_nothing(path: Path):
    _write(path, f"@cert-authority h {OTHER}\nh {OLD}\nh {NEW}\n@revoked h {OLD}\n")
    assert read(path, "h", 22).keys == (NEW,)


def test_pinning_twice_adds_one_line(path: Path):
    for _ in range(3):
        pin(path, "h", 22, OLD)
    pin(path, "h", 22, NEW)
    assert path.read_text() == f"h {OLD}\nh {NEW}\n"
    assert path.stat().st_mode & 0o777 == 0o600


def test_no_file_is_no_key_and_stays_no_file(path: Path):
    assert read(path, "h", 22).keys == ()
    assert not path.exists()


@pytest.mark.parametrize("text", ["", "ssh-ed25519", "ssh-ed25519 @@@"])
def test_what_is_no_key_is_refused(text: str):
    with pytest.raises(InvalidInput):
        HostKey.parse(text)
