"""Files, bundles and scripts on real hosts."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from engine.errors import CommandFailed
from tests.lab.hosts.bare_fleet import BareFleet


@pytest.fixture
def session(bare: BareFleet):
    with bare.session() as session:
        session.claim("run-1")
        session.check("rm -rf /srv/d; mkdir /srv/d")
        yield session


def test_a_file_is_replaced_whole_with_owner_and_mode(session, bare: BareFleet):
    content = "ü 'q' \"d\" $(x) `y` {{ z }}\r\n".encode() + bytes(range(256))
    for _ in range(2):
        session.write_file("/srv/d/f", content, owner="ops", group="adm", mode="0640")
    assert bare.run("stat -c '%U %G %a %s' /srv/d/f").strip() == f"ops adm 640 {len(content)}"
    assert session.read_file("/srv/d/f") == content
    assert bare.run("ls -A /srv/d").split() == ["f"]


def test_an_empty_file_and_an_absent_one_are_told_apart(session):
    session.write_file("/root/empty", b"", owner="root", group="root", mode="0600")
    assert session.read_file("/root/empty") == b""
    assert session.read_file("/root/absent") is None
    with pytest.raises(CommandFailed):
        session.read_file("/root")


def test_a_failed_write_leaves_the_old_file_and_nothing_else(session, bare: BareFleet):
    session.write_file("/srv/d/f", b"old", owner="root", group="root", mode="0600")
    with pytest.raises(CommandFailed, match="nobody-of-that-name"):
        session.write_file("/srv/d/f", b"new", owner="nobody-of-that-name", group="root", mode="0600")
    assert session.read_file("/srv/d/f") == b"old"
    assert bare.run("ls -A /srv/d").split() == ["f"]


def test_a_bundle_arrives_as_it_is_and_nobody_else_can_read_it(session, bare: BareFleet, tmp_path: Path):
    (tmp_path / "sub dir").mkdir()
    (tmp_path / "sub dir" / "ünïcode\n name").write_bytes(b"\xff\x00")
    (tmp_path / "install.sh").write_text("#!/bin/sh\necho installed\n")
    (tmp_path / "install.sh").chmod(0o4755)
    (tmp_path / "link").symlink_to("install.sh")
    (tmp_path / "large").write_bytes(bytes(3_000_001))
    path = session.stage(tmp_path)
    try:
        assert session.check(f"{path}/link").text == "installed\n"
        assert session.read_file(f"{path}/sub dir/ünïcode\n name") == b"\xff\x00"
        assert session.check(f"stat -c %s {path}/large").text.strip() == "3000001"
        assert session.check(f"stat -c '%U %a' {path}/install.sh").text == "root 755\n"
        assert bare.run("su ops -s /bin/sh -c 'find /var/lib/tenantry -readable 2>/dev/null' || true") == ""
        assert bare.run(f"stat -c %a {path}").strip() == "700"
    finally:
        session.unstage(path)
    assert bare.run("ls -A /var/lib/tenantry/staging") == ""


def test_a_bundle_that_cannot_be_unpacked_leaves_nothing(session, bare: BareFleet, tmp_path: Path):
    (tmp_path / "file").write_text("x")
    bare.run("printf '#!/bin/sh\\nexit 2\\n' > /usr/local/bin/tar; chmod +x /usr/local/bin/tar")
    try:
        with pytest.raises(CommandFailed):
            session.stage(tmp_path)
    finally:
        bare.run("rm /usr/local/bin/tar")
    assert bare.run("ls -A /var/lib/tenantry/staging") == ""


@pytest.mark.parametrize("path", ["/", "/root", "/var/lib/tenantry/staging", "/var/lib/tenantry/staging/../run"])
def test_only_staged_directories_are_removed(session, bare: BareFleet, path: str):
    with pytest.raises(CommandFailed, match="not a staged directory"):
        session.unstage(path)
    assert bare.has("/var/lib/tenantry/run")


def test_a_script_answers_among_noise(session):
    script = "import os\nprint('{} BEGIN END')\nRESULT = {'got': PARAMETERS['text'], 'user': os.getuid()}"
    assert session.run_script(script, {"text": "ü\n"}) == {"got": "ü\n", "user": 0}


@pytest.mark.parametrize(
    ("script", "message"), [("raise OSError('full')", "full"), ("import os\nos._exit(0)", "no answer")]
)
def test_a_script_without_an_answer_has_failed(session, script: str, message: str):
    with pytest.raises(CommandFailed, match=message):
        session.run_script(script, {})


def test_the_state_directory_is_root_only(session, bare: BareFleet):
    session.check("true")
    mode = int(bare.run("stat -c %a /var/lib/tenantry").strip(), 8)
    assert stat.S_IMODE(mode) == 0o700
