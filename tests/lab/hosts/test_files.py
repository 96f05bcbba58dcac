"""Files below a directory of an account that means harm: root neither reads nor writes anything else there."""

from __future__ import annotations

import subprocess

import pytest

from engine.errors import CommandFailed
from engine.hosts.probe import Extra
from engine.hosts.session import Session
from engine.hosts.status import Answer
from engine.steps import FileText
from tests.lab.hosts.bare_fleet import BareFleet
from tests.lab.waiting import until

HOME = """
rm -rf /srv/home /srv/own
install -d -o games -g games -m 0700 /srv/home
install -d /srv/own
printf 'secret\\n' > /root/victim
"""

# Whatever appears in the directory becomes a link to what only root may touch, as fast as it can.
ATTACK = """
import os
os.chdir("/srv/home")
open("ready", "w").close()
while True:
    for name in os.listdir("."):
        if name.startswith((".", "f")):
            try:
                os.unlink(name)
                os.symlink("/root/victim", name)
            except OSError:
                pass
"""


@pytest.fixture
def session(bare: BareFleet):
    bare.run(HOME)
    with bare.session() as session:
        session.claim("run-1")
        yield session


def as_games(bare: BareFleet, command: str) -> None:
    bare.run(f"su games -s /bin/sh -c '{command}'")


def write(session: Session, path: str, content: bytes = b"new") -> None:
    session.write_file(path, content, owner="games", group="games", mode="0640")


def is_untouched(bare: BareFleet) -> bool:
    return bare.run("cat /root/victim; stat -c '%U %a' /root/victim") == "secret\nroot 644\n"


def test_an_account_that_exchanges_the_temporary_file_gains_nothing(session: Session, bare: BareFleet):
    argv = bare.lab.shell("maple", ("su", "games", "-s", "/usr/bin/python3", "--", "-c", ATTACK))
    attack = subprocess.Popen(argv)
    try:
        until(lambda: bare.has("/srv/home/ready"), "the attack goes on")
        for _ in range(20):
            try:
                write(session, "/srv/home/f", bytes(200_000))
            except CommandFailed:
                continue
        assert is_untouched(bare)
    finally:
        # The attacker is a child of `su`, which does not take it along.
        bare.run("pkill -KILL -u games")
        until(lambda: not bare.run("pgrep -u games || true"), "the attack is over")
        attack.wait()


def test_a_link_in_the_files_place_is_replaced_and_leads_nowhere(session: Session, bare: BareFleet):
    as_games(bare, "ln -s /root/victim /srv/home/f")
    write(session, "/srv/home/f")
    assert bare.run("stat -c '%F %U %G %a' /srv/home/f").strip() == "regular file games games 640"
    assert is_untouched(bare)


def test_a_link_of_an_account_on_the_way_is_refused_by_its_name(session: Session, bare: BareFleet):
    as_games(bare, "ln -s /root /srv/home/sub")
    with pytest.raises(CommandFailed, match="/srv/home/sub is a link"):
        write(session, "/srv/home/sub/victim")
    with pytest.raises(CommandFailed, match="/srv/home/sub is a link"):
        session.read_file("/srv/home/sub/victim")
    assert is_untouched(bare)


def test_roots_own_link_on_the_way_is_followed(session: Session, bare: BareFleet):
    bare.run("ln -s ../home /srv/own/relative; ln -s /srv/own/relative /srv/own/absolute")
    write(session, "/srv/own/absolute/f")
    assert bare.run("cat /srv/home/f") == "new"
    bare.run("chmod o+w /srv/own")
    with pytest.raises(CommandFailed, match="/srv/own/absolute is a link"):
        write(session, "/srv/own/absolute/f")


def test_no_link_is_followed_to_be_read(session: Session, bare: BareFleet):
    as_games(bare, "ln -s /root/victim /srv/home/f")
    bare.run("ln -s /root/victim /srv/own/f")
    for path in ("/srv/home/f", "/srv/own/f"):
        assert session.read_file(path) is None
        assert session.probe(Extra(files=(path,))).rendered[path].digest == "link"


def test_a_text_is_read_through_roots_links_only(session: Session, bare: BareFleet):
    as_games(bare, "ln -s /root/victim /srv/home/f; ln -s /root /srv/home/sub")
    bare.run("ln -s /root/victim /srv/own/f; ln -s /srv/home/f /srv/own/g; ln -s /root/absent /srv/own/h")
    texts = {path: session.host.get_fact(FileText, path=f"/srv/{path}") for path in TEXTS}
    assert texts == TEXTS


TEXTS = {
    "own/f": "secret\n",
    "own/g": Answer.UNKNOWN,
    "own/h": None,
    "home/f": Answer.UNKNOWN,
    "home/sub/victim": Answer.UNKNOWN,
    "home/absent": None,
    "absent/f": None,
}


def test_a_pipe_does_not_hang_a_reader(session: Session, bare: BareFleet):
    as_games(bare, "mkfifo /srv/home/f")
    with pytest.raises(CommandFailed, match="not a regular file"):
        session.read_file("/srv/home/f")
    assert session.host.get_fact(FileText, path="/srv/home/f") is Answer.UNKNOWN
