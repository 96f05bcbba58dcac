"""A backup's copy in a restic repository on this machine's disk, and what a repository that fails does to the run."""

from __future__ import annotations

import subprocess

from engine.backups.run import backup_many, store_of
from engine.errors import ExitCode
from tests.conftest import needs
from tests.lab.light_fleet import LightFleet

pytestmark = needs("restic")


def test_each_published_archive_goes_offsite_and_stays_where_that_fails(maple: LightFleet):
    password = maple.root / "restic-password"
    password.write_text("correct horse\n")
    password.chmod(0o600)
    maple.run("maple", "head -c 100000 /dev/urandom > /srv/light/noise")
    maple.change_settings(backup={"restic": {"repository": "copies", "password": "file:restic-password"}})
    store = store_of(maple.workspace(), maple.workspace().fleet.tenants["maple"])
    # The hosts are shared: other tests' archives lie here too.
    before = {item.archive for item in store.archives()}
    refused = backup(maple)
    assert refused.exit_code is ExitCode.FAILED
    assert refused.error.startswith("maple: ")
    assert "is published, but not offsite" in refused.error
    (kept,) = {item.archive for item in store.archives()} - before
    assert store.get(kept).is_verified

    command(maple, "offsite", "init")
    assert backup(maple).error is None
    command(maple, "offsite", "send", "maple")
    repository = ("restic", "--repo", str(maple.state / "copies"), "--password-file", str(password))
    subprocess.run((*repository, "check", "--read-data"), check=True, capture_output=True)
    subprocess.run((*repository, "restore", "latest", "--target", str(maple.root / "back")), check=True)
    (restored,) = (maple.root / "back").rglob("*.tar.zst")
    assert len({item.archive for item in store.archives()} - before) == 2
    assert restored.read_bytes() == (store.directory / restored.name).read_bytes()
    assert "archive" in command(maple, "offsite", "list", "maple")


def backup(fleet: LightFleet):
    workspace = fleet.workspace()
    return backup_many(workspace, [workspace.fleet.tenants["maple"]])[0]


def command(fleet: LightFleet, *arguments: str) -> str:
    process = fleet.cli(*arguments)
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    return output
